from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from npgm._files import ABANDONED, replacing


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
from npgm._files import replacing
with replacing(pathlib.Path(sys.argv[1])) as file:
    file.write(b"half"); file.flush(); print("writing", flush=True); time.sleep(60)
"""


def test_what_a_killed_process_left_is_removed_by_a_later_write(tmp_path):
    path = tmp_path / "a"
    with subprocess.Popen([sys.executable, "-c", WRITE, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "writing\n"
        process.kill()
    (left,) = tmp_path.iterdir()
    assert left.suffix == ".part"
    with replacing(tmp_path / "b") as file:
        file.write(b"whole")
    assert left.exists()  # another process may be writing it, as far as one can tell
    old = time.time() - ABANDONED - 1.0
    os.utime(left, (old, old))
    (tmp_path / "mine.part").touch()  # not one of ours
    os.utime(tmp_path / "mine.part", (old, old))
    with replacing(tmp_path / "b") as file:
        file.write(b"whole")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b", "mine.part"]
