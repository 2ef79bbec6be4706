import pytest


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and no local folder."""
    monkeypatch.setenv("NPGM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NPGM_DATA", raising=False)
    return tmp_path / "cache"
