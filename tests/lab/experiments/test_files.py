import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from npgm.lab.files import replacing


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with replacing(path) as first, replacing(path) as second:
        first.write(b"first")
        second.write(b"second")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"first"  # whose block ends last
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines([b"half", None])
    assert path.read_bytes() == b"first"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


WRITE = """
import pathlib, sys, time
from npgm.lab.files import replacing
with replacing(pathlib.Path(sys.argv[1])) as file:
    file.write(b"half"); file.flush(); print("writing", flush=True); time.sleep(600)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no locks that end with their process")
def test_the_next_write_removes_what_a_killed_process_left(tmp_path):
    path = tmp_path / "a"
    others = [".mine.part", "mine.part", ".a.part", ".a.npgm-part", f".a.{'0' * 32}.npgm-part.bak", f".{'0' * 32}.part"]
    for name in others:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    with subprocess.Popen([sys.executable, "-c", WRITE, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "writing\n"
        with replacing(tmp_path / "b") as file:
            file.write(b"whole")
        (left,) = tmp_path.glob(".a.*.npgm-part")  # its writer lives
        os.utime(left, (0, 0))
        with replacing(tmp_path / "b") as file:
            file.write(b"whole")
        assert left.exists()
        process.kill()
    assert left.exists()
    with replacing(path) as file:
        file.write(b"whole")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["a", "b", *others])


def test_many_writers_of_one_folder_keep_their_files(tmp_path):
    def write(number):
        for _ in range(50):
            with replacing(tmp_path / f"{number % 2}") as file:
                file.write(b"%d" % number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0", "1"]


def test_an_error_has_the_name_of_the_file_that_was_asked_for(tmp_path):
    path = tmp_path / "none" / "a.txt"
    with pytest.raises(FileNotFoundError) as found, replacing(path):
        pass
    assert str(found.value) == f"[Errno 2] No such file or directory: '{path}'"
    path = tmp_path / "a.txt"
    with pytest.raises(OSError, match="No space left") as found, replacing(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert found.value.filename == str(path)
    assert not list(tmp_path.iterdir())
