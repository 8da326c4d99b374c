"""The papers that can be reproduced, by name. Each is a folder with variants, recipes, claims, tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from rightlung.core.errors import unknown_name
from rightlung.measuring.protocols import Protocol
from rightlung.reproduce.variants import Job, Variant

if TYPE_CHECKING:
    from rightlung.pages.content import Page
    from rightlung.reproduce.known import KnownFigure
    from rightlung.reproduce.measurements import Measurements
    from rightlung.results.measured import Measured

_HOMES = {"wrong-lung": "rightlung.reproduce.wrong_lung"}
"""Where each paper is declared; its package has a value ``PAPER``."""


@dataclass(frozen=True)
class Paper:
    """What is trained, asked, measured and shown to reproduce a paper."""

    name: str
    title: str
    summary: str
    variants: Sequence[Variant]
    protocol: Protocol
    """Which conditions are asked, and which targets, measures and subsets the answers are measured by."""
    source: str
    quick_source: str
    """What ``--quick`` measures on."""
    quick_changes: Callable[[Job], list[str]]
    """What makes the training of a variant take a second; it then learns nothing."""
    known_figures: Callable[[Measured], Iterator[KnownFigure]]
    """What ``--quick`` must find of models whose answers are known."""
    page: Callable[[Measurements], Page]
    released: Mapping[str, Variant] = field(default_factory=dict)
    """Published checkpoints, by the kind of model that loads them, whose rows (``--model``) are the paper's own."""

    def variant(self, slug: str) -> Variant | None:
        """Return a variant by its slug."""
        return next((variant for variant in self.variants if variant.slug == slug), None)


def list_papers() -> list[Paper]:
    """Return all papers."""
    return [find_paper(name) for name in _HOMES]


def find_paper(name: str) -> Paper:
    """Return the paper of a name, suggesting the nearest if there is none."""
    if name not in _HOMES:
        raise unknown_name("paper", name, _HOMES)
    paper: Paper = import_module(_HOMES[name]).PAPER
    return paper
