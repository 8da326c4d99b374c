"""The available probes. A condition in the predictions file is the name of a probe.

Sentences are `Phrase` values, so that their findings and regions are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from string import ascii_lowercase

from rightlung.core import Phrase, Polarity, Study
from rightlung.core.keyed import text_digest
from rightlung.core.registry import Registry
from rightlung.lexicon import REGIONS, swap_sides
from rightlung.lexicon.wordkeys import findings_about
from rightlung.probes.exchange import Owner
from rightlung.probes.images import NoiseImage, mirrored, occlusion
from rightlung.probes.interventions import INTERVENTIONS
from rightlung.probes.probe import Ask, Probe, Probed, Setting
from rightlung.probes.synthetic import Condition, conditions_of, synthetic_sentence
from rightlung.probes.turns import TURNS, UNMARKED, contradicting_note, mirrored_pair, turned
from rightlung.probes.twins import SIGNS, TWIN, TwinImage, changed_finding, occluded_finding
from rightlung.probes.wording import opposite, other_severity, side_dropped, synonymous, with_region


def sides_swapped(phrase: Phrase) -> Phrase | None:
    """Return a phrase with left and right swapped in its words and regions, None if no word changes."""
    text = swap_sides(phrase.text)
    if text == phrase.text:
        return None
    locations = {finding: tuple(map(_mirrored, regions)) for finding, regions in phrase.locations.items()}
    return Phrase(text, regions=tuple(map(_mirrored, phrase.regions)), findings=phrase.findings, locations=locations)


def _mirrored(region: str) -> str:
    return REGIONS[region].mirror if region in REGIONS else region


def random_sentence(study: Study, phrase: Phrase, setting: Setting) -> Phrase | None:
    """Return a sentence about another patient (Random Sentences, appendix A.5), None if there is none."""
    dice = setting.dice("random-sentence", study, phrase)
    return setting.sentences.draw(Owner(study.id, study.patient), phrase, dice)


def synthetic_of(phrase: Phrase) -> Phrase | None:
    """Return a template sentence for a phrase (Synth, appendix A.3), None if it has no finding to express."""
    return _sentence(conditions_of(phrase))


def swapped_sentence(study: Study, phrase: Phrase, setting: Setting) -> Phrase | None:
    """Return the template sentence with other conditions (Synth w/ Swapped Conditions, appendix A.5).

    None if no other condition is reported at these places. The paper keeps such sentences (footnote 15), which is
    equivalent to not asking again.
    """
    conditions = conditions_of(phrase)
    swapped = setting.sentences.conditions.swapped(conditions, setting.dice("synthetic-swapped", study, phrase))
    changed, plain = _sentence(swapped), _sentence(conditions)
    return None if changed is None or plain is None or changed.text == plain.text else changed


def _sentence(conditions: Iterable[Condition]) -> Phrase | None:
    used = [condition for condition in conditions if condition.can_be_said]
    text = synthetic_sentence(used)
    if text is None:
        return None
    regions = dict.fromkeys(place for condition in used if condition.present for place in condition.regions)
    findings = {one.name: Polarity.POSITIVE if one.present else Polarity.NEGATIVE for one in used}
    locations = {condition.name: condition.regions for condition in used if condition.regions}
    return Phrase(text, regions=tuple(regions), findings=findings, locations=locations)


def _image_exchanged(study: Study, phrase: Phrase | None, setting: Setting) -> Probed | None:
    partner = setting.partners.get(study.id)
    return None if partner is None else Probed(phrase, partner)


def _with_words(change: Callable[[Study, Phrase, Setting], Phrase | None]) -> Ask:
    """Return a probe that changes the words and keeps the image."""

    def ask(study: Study, phrase: Phrase | None, setting: Setting) -> Probed | None:
        changed = None if phrase is None else change(study, phrase, setting)
        return None if changed is None else Probed(changed, study.id)

    return ask


def nonsense_of(phrase: Phrase, setting: Setting, study: Study) -> Phrase:
    """Return a phrase of random letters with the lengths of the words."""
    dice = setting.dice("nonsense-prompt", study, phrase)
    words = ("".join(dice.choices(ascii_lowercase, k=len(word))) for word in phrase.text.split())
    return Phrase(" ".join(words), findings=phrase.findings)


def _same_finding(study: Study, phrase: Phrase | None, setting: Setting) -> Probed | None:
    """Show another patient who has all findings that the phrase asserts."""
    wanted = () if phrase is None else findings_about(phrase.findings)
    own = Owner(study.id, study.patient).group
    lenders = [
        other.id
        for other in setting.neighbours
        if Owner(other.id, other.patient).group != own and wanted and set(wanted) <= set(findings_about(_all(other)))
    ]
    chosen = min(lenders, key=lambda lender: (text_digest(setting.seed, study.id, lender), lender), default=None)
    return None if chosen is None else Probed(phrase, chosen)


def _all(study: Study) -> dict[str, Polarity]:
    return {name: one for phrase in study.phrases for name, one in phrase.findings.items()} | dict(study.findings)


def _occluded(elsewhere: bool) -> Ask:
    def ask(study: Study, phrase: Phrase | None, setting: Setting) -> Probed | None:
        covered = occluded_finding(study) if phrase is None else phrase
        found = None if covered is None else occlusion(study, covered, setting.seed, elsewhere)
        return None if found is None else Probed(phrase, study.id, found)

    return ask


def _twin(change: str) -> Probe:
    def ask(study: Study, phrase: Phrase | None, setting: Setting) -> Probed | None:
        finding = changed_finding(study, phrase, change)
        return None if finding is None else Probed(phrase, study.id, TwinImage(study, change, finding))

    how = {"removed": "removed", "moved": "moved to the other lung", "worse": "made worse"}[change]
    return Probe(f"{TWIN}{change}", f"the same patient with the finding {how} (phantom only)", ask)


def _intervention(name: str) -> Probe:
    return Probe(name, INTERVENTIONS[name], lambda study, phrase, setting: Probed(phrase, study.id), intervention=name)


def _sign(condition: str) -> Probe:
    change, sign = SIGNS[condition]

    def ask(study: Study, phrase: Phrase | None, setting: Setting) -> Probed | None:
        there = study.twins is not None and sign in study.twins.findings(change)
        return Probed(phrase, study.id, TwinImage(study, change, sign)) if there else None

    how = "without" if change == "unsigned" else "with"
    return Probe(condition, f"the same image {how} the planted {sign} (phantom only)", ask)


PROBES = Registry("condition", (
    Probe("none", "the unchanged question", lambda study, phrase, setting: Probed(phrase, study.id)),
    Probe("swap-sides", "left and right swapped in the words",
          _with_words(lambda study, phrase, setting: sides_swapped(phrase))),
    Probe("exchange-image", "another patient's image", _image_exchanged, needs_partner=True),
    Probe("random-sentence", "a sentence about another patient", _with_words(random_sentence),
          needs_partner=True, needs_sentences=True),
    Probe("synthetic", "the findings and places of the phrase in a template sentence",
          _with_words(lambda study, phrase, setting: synthetic_of(phrase))),
    Probe("synthetic-swapped", "a template sentence with other findings that are reported at the same places",
          _with_words(swapped_sentence), needs_sentences=True),
    Probe("exchange-same-finding", "the image of another patient with the same finding", _same_finding,
          needs_neighbours=True),
    Probe("noise-image", "noise instead of the image",
          lambda study, phrase, setting: Probed(phrase, study.id, NoiseImage(setting.seed, study.id))),
    Probe("mean-image", "the average of neighbouring images instead of the image",
          lambda study, phrase, setting: Probed(phrase, study.id, setting.mean_image), needs_neighbours=True),
    Probe("mirror-image", "the mirrored image, and the same words",
          lambda study, phrase, setting: Probed(phrase, study.id, mirrored)),
    Probe("nonsense-prompt", "random letters instead of the words",
          _with_words(lambda study, phrase, setting: nonsense_of(phrase, setting, study))),
    Probe("empty-prompt", "a full stop instead of the words",
          _with_words(lambda study, phrase, setting: Phrase(".", findings=phrase.findings))),
    Probe("untrained", "the same question to the model with random weights",
          lambda study, phrase, setting: Probed(phrase, study.id), untrained=True),
    Probe("occlude-target", "the target covered", _occluded(elsewhere=False)),
    Probe("occlude-elsewhere", "an equal area covered that touches no part of the target", _occluded(elsewhere=True)),
    *map(_twin, ("removed", "moved", "worse")),
    *map(_sign, SIGNS),
    *map(_intervention, INTERVENTIONS),
    Probe("opposite", "the phrase negated or, if it negates, asserted",
          _with_words(lambda study, phrase, setting: opposite(phrase))),
    Probe("drop-side", "the words for the side left out",
          _with_words(lambda study, phrase, setting: side_dropped(study, phrase))),
    Probe("other-severity", "words for the severity replaced by opposite ones",
          _with_words(lambda study, phrase, setting: other_severity(phrase))),
    Probe("synonym", "another name of the finding",
          _with_words(lambda study, phrase, setting: synonymous(phrase, setting.seed))),
    Probe("region-hint", "the finding's true region added to the words",
          _with_words(lambda study, phrase, setting: with_region(phrase))),
    Probe("mirror-both", "the mirrored image with mirrored words", mirrored_pair),
    *(Probe(turn, f"the image turned ({turn}), its marks with it", turned(turn, marked=True))
      for turn in TURNS if turn != "mirror-image"),
    *(Probe(f"{turn}-{UNMARKED}", f"the image turned ({turn}), without its marks", turned(turn, marked=False))
      for turn in TURNS),
    Probe(UNMARKED, "the image without its side marker and burned-in text", turned(None, marked=False)),
    Probe("contradicting-note", "words burned into the image that contradict it", contradicting_note),
))  # fmt: skip
register_probe, find_probe = PROBES.register, PROBES.find
