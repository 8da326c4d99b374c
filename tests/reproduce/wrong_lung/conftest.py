from __future__ import annotations

import pytest

from rightlung.reproduce.wrong_lung.instances import Instances, prepare

PHANTOMS = "phantom?count=24&seed=5&size=128"


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Instances:
    """24 made-up studies, targets of 96 x 96 pixels."""
    return prepare(PHANTOMS, tmp_path_factory.mktemp("prepared"), seed=3, size=96)
