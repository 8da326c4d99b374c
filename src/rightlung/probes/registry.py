"""The probes there are. A condition in the predictions file is a probe's name."""

from __future__ import annotations

from rightlung.core import InputError, Phrase, Study
from rightlung.core.errors import unknown_name
from rightlung.lexicon import swap_sides
from rightlung.probes.probe import Probe, Question, Setting
from rightlung.probes.sentences import random_sentence, swapped_sentence, synthetic_of


def _as_it_is(study: Study, phrase: Phrase, setting: Setting) -> Question:
    return Question(phrase.text, study.id)


def _sides_swapped(study: Study, phrase: Phrase, setting: Setting) -> Question | None:
    swapped = swap_sides(phrase.text)
    return Question(swapped, study.id) if swapped != phrase.text else None


def _image_exchanged(study: Study, phrase: Phrase, setting: Setting) -> Question | None:
    partner = setting.partners.get(study.id)
    return None if partner is None else Question(phrase.text, partner)


def _sentence_exchanged(study: Study, phrase: Phrase, setting: Setting) -> Question | None:
    other = random_sentence(study, phrase, setting)
    return None if other is None else Question(other.text, study.id)


def _synthetic(study: Study, phrase: Phrase, setting: Setting) -> Question | None:
    said = synthetic_of(phrase)
    return None if said is None else Question(said.text, study.id)


def _synthetic_swapped(study: Study, phrase: Phrase, setting: Setting) -> Question | None:
    said = swapped_sentence(study, phrase, setting)
    return None if said is None else Question(said.text, study.id)


PROBES: dict[str, Probe] = {}


def register_probe(probe: Probe) -> Probe:
    """Make a probe known by its name, once."""
    if probe.name in PROBES:
        raise InputError(f"probe {probe.name!r} is already registered")
    PROBES[probe.name] = probe
    return probe


def find_probe(name: str) -> Probe:
    """Return the probe of a name, suggesting the nearest if there is none."""
    if name not in PROBES:
        raise unknown_name("condition", name, PROBES)
    return PROBES[name]


def list_probes() -> list[Probe]:
    """Return all probes, in the order they were registered."""
    return list(PROBES.values())


register_probe(Probe("none", "the phrase about its own image", _as_it_is))
register_probe(Probe("swap-sides", "left and right exchanged in the words, where there are any", _sides_swapped))
register_probe(
    Probe("exchange-image", "the image of another patient instead of its own", _image_exchanged, needs_partner=True)
)
register_probe(
    Probe("random-sentence", "a sentence about another patient instead of its own", _sentence_exchanged,
          needs_partner=True, needs_company=True)
)  # fmt: skip
register_probe(Probe("synthetic", "the findings and places of the phrase in a sentence made by rules", _synthetic))
register_probe(
    Probe("synthetic-swapped", "such a sentence with other findings that are told of the same places",
          _synthetic_swapped, needs_company=True)
)  # fmt: skip
