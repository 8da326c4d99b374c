"""The papers that can be reproduced, by name. Each has a folder with variants, recipes, claims, tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from rightlung.core.errors import unknown_name
from rightlung.measuring.protocols import Protocol
from rightlung.reproduce.variants import Job, Variant

if TYPE_CHECKING:
    from pathlib import Path

    from rightlung.core.progress import Progress
    from rightlung.explain import BoxRule
    from rightlung.pages.content import Page
    from rightlung.reproduce.measurements import Measurements
    from rightlung.reproduce.prepared import PreparedStudies
    from rightlung.reproduce.sanity import SanityCheck
    from rightlung.results.measured import Measured

_HOMES = {"wrong-lung": "rightlung.reproduce.wrong_lung", "chex": "rightlung.reproduce.chex",
          "eclip": "rightlung.reproduce.eclip", "xbench": "rightlung.reproduce.xbench",
          "fita": "rightlung.reproduce.fita"}  # fmt: skip
"""The package of each paper, which defines ``PAPER``."""


@dataclass(frozen=True)
class Paper:
    """Declaration of a paper: its variants, data, protocol, checks and page."""

    name: str
    title: str
    summary: str
    variants: Sequence[Variant]
    protocol: Protocol
    """Conditions, targets, measures and subsets."""
    source: str
    quick_source: str
    """The source for ``--quick``."""
    quick_changes: Callable[[Job], list[str]]
    """Recipe changes for ``--quick``, so that training a variant takes a second (and learns nothing)."""
    sanity_checks: Callable[[Measured], Iterator[SanityCheck]]
    """Values that ``--quick`` must find for models with known answers."""
    page: Callable[[Measurements], Page]
    released: Mapping[str, Variant] = field(default_factory=dict)
    """Published checkpoints that fill a row of the paper when given with ``--model``, by kind of model."""
    queries: Sequence[str] = ("phrases",)
    """What models are asked about every study, as far as they can answer it."""
    findings: Sequence[str] | None = None
    """The findings that all models are asked for; None: each for its own."""
    boxes: BoxRule | None = None
    """How maps become boxes, for models without boxes; None: not at all."""
    prepare_model: Callable[[object], None] | None = None
    """Sets what a model does by default as in the paper, before it is asked."""
    ask_more: Callable[[object, Path, PreparedStudies, Path, Progress], None] | None = None
    """Asks more than ``queries``: gets the model, its predictions, the studies, and the folder for its answers."""
    measure_more: Callable[[PreparedStudies, Path, Progress], None] | None = None
    """Measures more than phrases, without the model: gets the studies and the folder of its answers and tables."""


def list_papers() -> list[Paper]:
    """Return all papers."""
    return [find_paper(name) for name in _HOMES]


def find_paper(name: str) -> Paper:
    """Return a paper by name; the error for an unknown name suggests the nearest."""
    if name not in _HOMES:
        raise unknown_name("paper", name, _HOMES)
    paper: Paper = import_module(_HOMES[name]).PAPER
    return paper
