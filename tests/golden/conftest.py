"""The program is called as in the tests of the command line, with as many threads as a user has.

Golden figures depend on the threads by rounding.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.cli.conftest import call
from tests.conftest import THREADS

__all__ = ["call"]


@pytest.fixture(autouse=True)
def _threads_of_a_user() -> Iterator[None]:
    torch.set_num_threads(THREADS)
    yield
    torch.set_num_threads(1)
