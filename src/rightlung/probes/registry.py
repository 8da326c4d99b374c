"""The probes there are. A condition in the predictions file is a probe's name."""

from __future__ import annotations

from collections.abc import Callable

from rightlung.core import InputError, Phrase, Study
from rightlung.core.errors import unknown_name
from rightlung.probes.probe import Ask, Probe, Probed, Setting
from rightlung.probes.sentences import random_sentence, sides_swapped, swapped_sentence, synthetic_of


def _as_it_is(study: Study, phrase: Phrase | None, setting: Setting) -> Probed:
    return Probed(phrase, study.id)


def _image_exchanged(study: Study, phrase: Phrase | None, setting: Setting) -> Probed | None:
    partner = setting.partners.get(study.id)
    return None if partner is None else Probed(phrase, partner)


def _with_words(change: Callable[[Study, Phrase, Setting], Phrase | None]) -> Ask:
    """Return a probe that changes the words and keeps the image; it does not apply to a question without words."""

    def ask(study: Study, phrase: Phrase | None, setting: Setting) -> Probed | None:
        changed = None if phrase is None else change(study, phrase, setting)
        return None if changed is None else Probed(changed, study.id)

    return ask


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


for _probe in (
    Probe("none", "the question as it is", _as_it_is),
    Probe("swap-sides", "left and right exchanged in the words, where there are any",
          _with_words(lambda study, phrase, setting: sides_swapped(phrase))),
    Probe("exchange-image", "the image of another patient instead of its own", _image_exchanged, needs_partner=True),
    Probe("random-sentence", "a sentence about another patient instead of its own", _with_words(random_sentence),
          needs_partner=True, needs_sentences=True),
    Probe("synthetic", "the findings and places of the phrase in a sentence made by rules",
          _with_words(lambda study, phrase, setting: synthetic_of(phrase))),
    Probe("synthetic-swapped", "such a sentence with other findings that are reported of the same places",
          _with_words(swapped_sentence), needs_sentences=True),
):  # fmt: skip
    register_probe(_probe)
