from __future__ import annotations

import pytest

from rightlung.models import kinds
from rightlung.models.registry import register
from tests.models.savable import Anything


@pytest.fixture
def own_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget after the test which kinds it registered; `Anything` is one to begin with."""
    monkeypatch.setattr(kinds, "_registered", {})
    register(Anything.kind, Anything)
