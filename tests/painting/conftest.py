"""A cache of its own, so that nothing outside the tests is read or written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.painting.films import films


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setenv("RIGHTLUNG_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of six normal films without labels."""
    return films(Path(tmp_path_factory.mktemp("films")))
