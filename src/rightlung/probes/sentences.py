"""Other sentences for a phrase: its sides swapped, another patient's, made by rules, or with other findings.

Each is returned as a `Phrase`, so that what it says (findings, regions) is known along with its words.
"""

from __future__ import annotations

from collections.abc import Iterable

from rightlung.core import Phrase, Polarity, Study
from rightlung.lexicon import REGIONS, swap_sides
from rightlung.probes.exchange import Owner
from rightlung.probes.probe import Setting
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
