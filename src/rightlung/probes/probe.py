"""A probe: from a study and one of its phrases (or none) to what is asked of the model instead.

A probe never loads an image: it names the study whose image is shown, and what is done to its pixels. So questions can
be made for a whole window of studies, sorted by image, and asked with one image in memory at a time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from rightlung.core import FrozenMapping, Image, InputError, Phrase, Study
from rightlung.core.checks import check_text
from rightlung.core.keyed import text_generator
from rightlung.probes.sentence_pool import SentencePool


@dataclass(frozen=True, slots=True)
class Probed:
    """What is asked under a probe: words about the image of a study, its pixels changed by ``alter`` if given."""

    phrase: Phrase | None
    """The words now asked, with the findings and regions that they name; None for a question without words.

    It may be one of the study's phrases: whoever asks leaves out the target.
    """
    image_of: str
    alter: Callable[[Image], Image] | None = None

    def __post_init__(self) -> None:
        if self.phrase is not None and not isinstance(self.phrase, Phrase):
            raise InputError(f"a probe must return a Phrase or None for the words; got {self.phrase!r}")
        check_text(self.image_of, "the id of the study whose image is shown")


@dataclass(frozen=True, slots=True)
class Setting:
    """What a probe may use besides study and phrase: the seed, exchange partners, and other studies' sentences."""

    seed: int = 0
    partners: Mapping[str, str] = field(default_factory=FrozenMapping)
    """From a study's id to that of the study whose image is shown instead; for probes with ``needs_partner``."""
    sentences: SentencePool = field(default_factory=SentencePool)
    """Sentences of the neighbouring studies; for probes with ``needs_sentences``."""

    def chance(self, probe: str, study: Study, phrase: Phrase | None = None) -> np.random.Generator:
        """Return random numbers that follow from the seed, the probe, the study and the phrase, and nothing else."""
        return text_generator(self.seed, probe, study.id, "" if phrase is None else phrase.text)

    def dice(self, probe: str, study: Study, phrase: Phrase | None = None) -> random.Random:
        """Return the same chance as Python's own generator."""
        return random.Random(int(self.chance(probe, study, phrase).integers(2**63)))


Ask = Callable[[Study, Phrase | None, Setting], Probed | None]


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe by name. ``ask`` returns None where the probe does not apply and there is nothing to ask.

    The phrase is None for a question without words, about the whole image or a box in it.
    """

    name: str
    summary: str
    ask: Ask
    needs_partner: bool = False
    """Whether it takes something of another patient's study (its image, its words): partners must be found first."""
    needs_sentences: bool = False
    """Whether it uses sentences of other studies, so that those must be read first."""

    def __post_init__(self) -> None:
        check_text(self.name, "a probe's name")
        if not callable(self.ask):
            raise InputError(f"probe {self.name!r}: ask must be a function; got {self.ask!r}")
