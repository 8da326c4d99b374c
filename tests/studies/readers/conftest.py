"""A folder to write data sets into, and a cache of its own for each test."""

from pathlib import Path

import pytest

from tests.studies.readers.published import Files


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which indexes are kept during a test."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("RIGHTLUNG_CACHE", str(folder))
    return folder


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """The test's folder."""
    return Files(tmp_path)
