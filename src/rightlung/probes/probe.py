"""A probe: from a study and one of its phrases to what is asked of the model instead.

A probe never loads an image: it names the study whose image is shown, and what is done to its pixels. So questions can
be made for a whole window of studies, sorted by image, and asked with one image in memory at a time.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from rightlung.core import FrozenMapping, Image, InputError, Phrase, Study
from rightlung.core.checks import check_text
from rightlung.probes.company import Company


@dataclass(frozen=True, slots=True)
class Question:
    """What a model is asked: a text about the image of a study, the pixels changed by ``alter`` where there is one."""

    text: str
    image_of: str
    alter: Callable[[Image], Image] | None = None

    def __post_init__(self) -> None:
        check_text(self.text, "a question's text")
        check_text(self.image_of, "the id of the study whose image is shown")


@dataclass(frozen=True, slots=True)
class Setting:
    """What a probe may use besides study and phrase: the seed, whose image takes whose place, what others say."""

    seed: int = 0
    partners: Mapping[str, str] = field(default_factory=FrozenMapping)
    """From a study's id to that of the study whose image is shown instead; for probes with ``needs_partner``."""
    company: Company = field(default_factory=Company)
    """What is said of the studies round about; for probes with ``needs_company``."""

    def chance(self, probe: str, study: Study, phrase: Phrase | None = None) -> np.random.Generator:
        """Return random numbers that follow from the seed, the probe, the study and the phrase, and nothing else."""
        parts = [str(self.seed), probe, study.id, "" if phrase is None else phrase.text]
        text = "".join(f"{len(part)}:{part}" for part in parts)
        seed = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        return np.random.default_rng(int.from_bytes(seed, "big"))

    def dice(self, probe: str, study: Study, phrase: Phrase | None = None) -> random.Random:
        """Return the same chance as Python's own generator."""
        return random.Random(int(self.chance(probe, study, phrase).integers(2**63)))


Ask = Callable[[Study, Phrase, Setting], Question | None]


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe by name. ``ask`` returns None where the probe does not apply and there is nothing to ask."""

    name: str
    summary: str
    ask: Ask
    needs_partner: bool = False
    """Whether it takes something of another patient's study (its image, its words): partners must be found first."""
    needs_company: bool = False
    """Whether it uses what is said of other studies, so that those must be read first."""

    def __post_init__(self) -> None:
        check_text(self.name, "a probe's name")
        if not callable(self.ask):
            raise InputError(f"probe {self.name!r}: ask must be a function; got {self.ask!r}")
