"""The probes there are, and the sentences that they ask. A condition in the predictions file is a probe's name.

A sentence is a `Phrase`, so that what it says (findings, regions) is known along with its words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rightlung.core import Phrase, Polarity, Study
from rightlung.core.registry import Registry
from rightlung.lexicon import REGIONS, swap_sides
from rightlung.probes.exchange import Owner
from rightlung.probes.probe import Ask, Probe, Probed, Setting
from rightlung.probes.synthetic import Condition, conditions_of, synthetic_sentence


def sides_swapped(phrase: Phrase) -> Phrase | None:
    """Return a phrase with left and right exchanged in its words and regions, None where no word changes."""
    text = swap_sides(phrase.text)
    if text == phrase.text:
        return None
    locations = {finding: tuple(map(_mirrored, regions)) for finding, regions in phrase.locations.items()}
    return Phrase(text, regions=tuple(map(_mirrored, phrase.regions)), findings=phrase.findings, locations=locations)


def _mirrored(region: str) -> str:
    return REGIONS[region].mirror if region in REGIONS else region


def random_sentence(study: Study, phrase: Phrase, setting: Setting) -> Phrase | None:
    """Return a sentence about another patient (Random Sentences, appendix A.5), None where the pool has none."""
    dice = setting.dice("random-sentence", study, phrase)
    return setting.sentences.draw(Owner(study.id, study.patient), phrase, dice)


def synthetic_of(phrase: Phrase) -> Phrase | None:
    """Return what a phrase says as a sentence made by rules (Synth, appendix A.3), None where nothing can be said."""
    return _said(conditions_of(phrase))


def swapped_sentence(study: Study, phrase: Phrase, setting: Setting) -> Phrase | None:
    """Return the synthetic sentence with other conditions (Synth w/ Swapped Conditions, appendix A.5).

    None where nothing can be said, and where no other condition is told of these places. (The paper keeps those as
    they are, footnote 15: not asking again comes to the same.)
    """
    conditions = conditions_of(phrase)
    swapped = setting.sentences.conditions.swapped(conditions, setting.dice("synthetic-swapped", study, phrase))
    said, plain = _said(swapped), _said(conditions)
    return None if said is None or plain is None or said.text == plain.text else said


def _said(conditions: Iterable[Condition]) -> Phrase | None:
    told = [condition for condition in conditions if condition.can_be_said]
    text = synthetic_sentence(told)
    if text is None:
        return None
    regions = dict.fromkeys(place for condition in told if condition.present for place in condition.regions)
    findings = {one.name: Polarity.POSITIVE if one.present else Polarity.NEGATIVE for one in told}
    locations = {condition.name: condition.regions for condition in told if condition.regions}
    return Phrase(text, regions=tuple(regions), findings=findings, locations=locations)


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


PROBES = Registry("condition", (
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
))  # fmt: skip
register_probe, find_probe = PROBES.register, PROBES.find
