"""The three claims of XBench's abstract, and what an image-blind prior says about the first.

The abstract gives no criterion. Ours: large targets count as localised if the model beats the location prior on them;
"degrades" means a lower score, with an interval below zero; "strongly correlated" means a rank correlation above 0.5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from rightlung.lexicon.findings import canonical_finding
from rightlung.measuring import find_measure
from rightlung.reproduce.claims import UNKNOWN, Claim, ClaimView, Evidence, Ruling, all_of, missing, most_of
from rightlung.reproduce.xbench.measuring import TARGET
from rightlung.reproduce.xbench.variants import CHEST, DIFFUSE, GENERAL, OWN, UNTRAINED
from rightlung.results.estimator import Flags
from rightlung.results.measured import Measured
from rightlung.results.recognition import RecognitionAndGrounding

GROUNDING = ("pointing", "mdice", "miou")
STRONG = 0.5
PRIOR = "prior"
SIZES = {"small": "smallest third", "large": "largest third", "focal": "focal", "diffuse": "diffuse"}


def strata(measured: Measured) -> dict[str, Flags]:
    """Return the phrases in each of `SIZES`: thirds by the area of the target, and focal or diffuse findings."""
    area = measured.fact("target_area", TARGET)
    there = measured.has(TARGET)
    low, high = np.quantile(area[there], [1 / 3, 2 / 3]) if there.any() else (0.0, 0.0)
    names = [{canonical_finding(name) for name in found or ()} for found in measured.fact("findings")]
    diffuse, any_finding = (np.array([test(found) for found in names]) for test in (set(DIFFUSE).intersection, bool))
    diffuse = diffuse.astype(bool)
    return {
        "small": there & (area <= low), "large": there & (area > high), "focal": there & any_finding & ~diffuse,
        "diffuse": there & diffuse,
    }  # fmt: skip


def claims(recognition: RecognitionAndGrounding | None) -> tuple[Claim, ...]:
    """Return the claims, judged against exact masks."""
    listed: list[tuple[str, str, str, Callable[[ClaimView, str], Ruling], bool]] = [
        ("large", "claim 1", "Models localise large, well-defined findings: better than the location prior on the "
         "largest third of targets.", _large, False),
        ("small", "claim 1", "Localisation degrades for small findings: the smallest third of targets against the "
         "largest.", partial(_worse, "small", "large"), False),
        ("diffuse", "claim 1", f"Localisation degrades for diffuse findings ({', '.join(DIFFUSE[:2])} here).",
         partial(_worse, "diffuse", "focal"), False),
        ("small-lead", "ours", "Also the lead over the location prior is smaller for small findings.",
         partial(_worse, "small", "large", minus=PRIOR), True),
        ("domain", "claim 2", "CLIP trained on chest X-rays is better aligned than the same CLIP trained on general "
         "images.", partial(_pair, CHEST, GENERAL), False),
        ("general", "ours", "CLIP trained on general images is better aligned than an untrained one.",
         partial(_pair, GENERAL, UNTRAINED), True),
        ("correlated", "claim 3", "Recognition and grounding are strongly correlated, over models and over all pairs "
         "of model and finding.", partial(_correlated, recognition), False),
    ]  # fmt: skip
    return tuple(
        Claim(name, where, text, judge, targets=(TARGET,), ours=ours) for name, where, text, judge, ours in listed
    )


def _models(view: ClaimView) -> list[str]:
    return [variant for variant in OWN if view.has(variant) and variant not in (GENERAL, UNTRAINED)]


def _large(view: ClaimView, target: str) -> Ruling:
    if absent := missing(view, PRIOR):
        return absent
    large = strata(view.measured)["large"]
    evidence = []
    for variant in _models(view):
        own, prior = (view.measured.within(view.values(one, target, "pointing"), large) for one in (variant, PRIOR))
        evidence.append(
            Evidence.judged(f"{view.name(variant)} minus prior, pointing", view.difference(own, prior), above=0.0)
        )
    return most_of(evidence)


def _worse(less: str, more: str, view: ClaimView, target: str, minus: str | None = None) -> Ruling:
    """Judge whether most models have a lower score in one stratum than in another."""
    flags, evidence = strata(view.measured), []
    if minus is not None and (absent := missing(view, minus)):
        return absent
    if not (flags[less].any() and flags[more].any()):
        return Ruling(UNKNOWN, remark=f"No phrase has a target that is {less}, or none is {more}.")
    for variant in _models(view):
        for measure in GROUNDING[:2]:
            values = view.values(variant, target, measure)
            values = values - view.values(minus, target, measure) if minus else values
            first, second = (view.measured.within(values, flags[one]) for one in (less, more))
            found = view.estimator.contrast(first, second, method="percentile")
            label = f"{view.name(variant)}{', lead,' if minus else ','} {find_measure(measure).title}"
            evidence.append(Evidence.judged(label, found, below=0.0))
    return most_of(evidence)


def _pair(first: str, second: str, view: ClaimView, target: str) -> Ruling:
    if absent := missing(view, first, second):
        return absent
    evidence = [
        Evidence.judged(
            find_measure(measure).title,
            view.difference(*(view.values(one, target, measure) for one in (first, second))), above=0.0,
        )
        for measure in GROUNDING
    ]  # fmt: skip
    return all_of(evidence)


def _correlated(recognition: RecognitionAndGrounding | None, view: ClaimView, target: str) -> Ruling:
    if recognition is None or len(recognition.models) < 3 or len(recognition.findings) < 3:
        return Ruling(UNKNOWN, remark="Fewer than three models or three findings have enough answers.")
    evidence: Sequence[Evidence] = [
        Evidence.judged(f"AUC and {find_measure(measure).title}, {title}", correlate("auc", measure), "correlation",
                        above=STRONG)
        for title, correlate in (("over models", recognition.across_models), ("over pairs", recognition.of_pairs))
        for measure in GROUNDING[:2]
    ]  # fmt: skip
    return all_of(evidence)
