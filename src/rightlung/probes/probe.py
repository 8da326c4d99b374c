"""A probe: from a study and one of its phrases (or None) to the question that is asked instead.

A probe never loads an image. It names the study whose image is shown and the change to its pixels, so that questions
can be sorted by image and asked with one image in memory at a time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rightlung.core import FrozenMapping, Image, InputError, Phrase, Study
from rightlung.core.checks import check_text
from rightlung.core.keyed import text_generator
from rightlung.probes.sentence_pool import SentencePool


@dataclass(frozen=True, slots=True)
class Probed:
    """The question under a probe: a phrase about the image of a study, whose pixels ``alter`` may change."""

    phrase: Phrase | None
    """The phrase to ask, with its findings and regions (its target is removed before asking); None without words."""
    image_of: str
    alter: Callable[[Image], Image] | None = None

    def __post_init__(self) -> None:
        if self.phrase is not None and not isinstance(self.phrase, Phrase):
            raise InputError(f"a probe must return a Phrase or None for the words; got {self.phrase!r}")
        check_text(self.image_of, "the id of the study whose image is shown")


@dataclass(frozen=True, slots=True)
class Setting:
    """What a probe may use besides study and phrase."""

    seed: int = 0
    partners: Mapping[str, str] = field(default_factory=FrozenMapping)
    """From a study's id to that of its exchange partner; for probes with ``needs_partner``."""
    sentences: SentencePool = field(default_factory=SentencePool)
    """Sentences of the neighbouring studies; for probes with ``needs_sentences``."""
    neighbours: Sequence[Study] = ()
    """The studies of the window; for probes with ``needs_neighbours``."""
    mean_image: Callable[[Image], Image] | None = None
    """Replaces an image by the average of some neighbours; for probes with ``needs_neighbours``."""

    def chance(self, probe: str, study: Study, phrase: Phrase | None = None) -> np.random.Generator:
        """Return a NumPy generator keyed by the seed, the probe, the study and the phrase."""
        return text_generator(self.seed, probe, study.id, "" if phrase is None else phrase.text)

    def dice(self, probe: str, study: Study, phrase: Phrase | None = None) -> random.Random:
        """Return the same as a Python generator."""
        return random.Random(int(self.chance(probe, study, phrase).integers(2**63)))


Ask = Callable[[Study, Phrase | None, Setting], Probed | None]


@dataclass(frozen=True, slots=True)
class Probe:
    """A named probe. ``ask`` returns None if the probe does not apply.

    The phrase is None for a question without words, about the whole image or a box.
    """

    name: str
    summary: str
    ask: Ask
    needs_partner: bool = False
    """Whether it uses the image or words of another patient, so that partners must be found first."""
    needs_sentences: bool = False
    """Whether it uses sentences of other studies, which must be read first."""
    needs_neighbours: bool = False
    """Whether it uses findings or images of the neighbouring studies."""
    untrained: bool = False
    """Whether the model is asked with random weights (`rightlung.models.untrained`)."""
    intervention: str = ""
    """What is changed inside the model: a name of `rightlung.probes.interventions`."""

    def __post_init__(self) -> None:
        check_text(self.name, "a probe's name")
        if not callable(self.ask):
            raise InputError(f"probe {self.name!r}: ask must be a function; got {self.ask!r}")
