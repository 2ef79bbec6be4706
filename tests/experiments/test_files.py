from __future__ import annotations

import pytest

from npgm._files import replacing


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
