from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from rightlung.reproduce.experiment import Reproduced, reproduce
from rightlung.reproduce.plan import Plan
from rightlung.reproduce.prepared import PreparedStudies
from rightlung.training.loop import Hardware

TRAINED = ("retrained", "thirty-shot", "uniter")
"""One that starts from another, and one that is shown the boxes of the regions."""


@dataclass(frozen=True)
class Done:
    """An experiment, what it said, and what it returned."""

    plan: Plan
    said: list[str]
    outcome: Reproduced


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """Here and in processes of their own: sums come out the same bit for bit only if divided the same."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="package")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """A quick experiment on six studies, without a page; not to be changed."""
    plan = Plan(
        "wrong-lung", tmp_path_factory.mktemp("done"), source="phantom?count=6&seed=13&size=64", only=TRAINED,
        pixels=48, quick=True, hardware=Hardware(accelerator="cpu"),
    )  # fmt: skip
    said: list[str] = []
    outcome = reproduce(plan, page=False, commands=("typed",), say=said.append)
    return Done(plan, said, outcome)


@pytest.fixture(scope="package")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedStudies:
    """Twelve studies, targets of 64 x 64 pixels."""
    out = tmp_path_factory.mktemp("prepared")
    return PreparedStudies.make("phantom?count=12&seed=5&size=64", out, Plan("wrong-lung", Path(), quick=True).protocol)
