"""Gates of reports that need the unchanged reports alone: diversity, earlier studies, contradictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rightlung.audit.report_rows import ReportGate, Reports
from rightlung.core.keyed import text_generator
from rightlung.lexicon.report_faults import compared_with_prior, contradictions
from rightlung.measuring.texts import bleu_columns
from rightlung.pages.numbers import percent, span
from rightlung.results.estimate import Estimate
from rightlung.results.estimator import Floats
from rightlung.results.gates import TOO_FEW, Dependence
from rightlung.scoring.language import BLEU_COLUMNS, corpus_bleu

FREQUENT, RARE = 0.1, 0.05
"""How much more often than the references' the most frequent content may be said; how often a fault may occur."""


def text_gates(known: Reports) -> list[ReportGate]:
    """Return the gates of the unchanged reports."""
    return [_diversity(known), _earlier(known), _contradicting(known)]


def _diversity(known: Reports) -> ReportGate:
    """Compare how often the most frequent content, and the most frequent text, is written."""

    def frequent(contents: Sequence[Any]) -> list[float]:
        most = max(dict.fromkeys(contents), key=contents.count, default=None)
        return [float(one == most) for one in contents]

    contents = {
        who: [frozenset({*labels, *pairs} - {"No Finding"}) for labels, pairs in zip(*columns, strict=True)]
        for who, columns in {
            "generated": (known.plain.labels_called, known.plain.pairs_called),
            "reference": (known.plain.labels_true, known.plain.pairs_true),
        }.items()
    }
    flags = {who: frequent(some) for who, some in contents.items()}
    more = known.mean(np.subtract(flags["generated"], flags["reference"]).tolist())
    values = {f"most_frequent_{who}": known.mean(some) for who, some in flags.items()} | {"more": more}
    values |= {f"findings_{who}": known.mean([len(one) for one in some]) for who, some in contents.items()}
    for who, texts in (("generated", known.plain.answer_text), ("reference", known.plain.reference_text)):
        values[f"bleu_4_of_others_{who}"] = _between(known, [*texts])
    distinct = len({*known.plain.answer_text}), len({*known.plain.reference_text})
    answer: Dependence = {"yes": "no", "no": "yes"}.get(known.above(more, FREQUENT), TOO_FEW)  # type: ignore[assignment]
    sentence = (
        f"{distinct[0]:,} of {len(known.plain):,} reports are distinct (references: {distinct[1]:,}); "
        f"{percent(values['most_frequent_generated'])} state the most frequent set of findings and sides (references: "
        f"{percent(values['most_frequent_reference'])}); {span(values['findings_generated'], 1)} findings and sides a "
        f"report (references: {span(values['findings_reference'], 1)}); BLEU-4 between reports of different patients "
        f"{span(values['bleu_4_of_others_generated'])} (references: {span(values['bleu_4_of_others_reference'])})."
    )
    return ReportGate("diversity", "Do reports differ as the references do?", answer, "yes", sentence, values)


def _between(known: Reports, texts: list[str]) -> Estimate:
    """Return corpus BLEU-4 of each report against that of the next study in an order drawn by a seed."""
    order = text_generator(known.settings.seed, "diversity", "", "").permutation(len(texts))
    partner = np.empty_like(order)
    partner[order] = np.roll(order, 1)
    columns = bleu_columns(texts, [texts[place] for place in partner], "whole")
    arrays = {name: np.array(columns[name]) for name in BLEU_COLUMNS}

    def statistic(counts: Floats) -> Floats:
        return corpus_bleu(arrays, counts, 4)

    return known.estimator.aggregate(statistic, np.ones(len(texts), bool))


def _fault(known: Reports, name: str, question: str, what: str, find: Callable[[str], Sequence[str]]) -> ReportGate:
    """Ask how often reports have a fault, and how much more often than the references."""
    said = [[find(text) for text in known.plain[column]] for column in ("answer_text", "reference_text")]
    own, theirs = ([float(bool(found)) for found in some] for some in said)
    share, reference = known.mean(own), known.mean(theirs)
    more = known.mean(np.subtract(own, theirs).tolist())
    judged = more if name == "contradiction" else share
    # No fault in n reports excludes, at 95 %, that 3 / n of all reports have one.
    answer = known.above(judged, RARE) if any(own) else "no" if share.patients * RARE >= 3 else TOO_FEW
    example = next((found[0] for found in said[0] if found), "")
    sentence = f"{percent(share, 1)} of the reports {what} (references: {percent(reference, 1)})."
    sentence += f" For example: “{example}”" if example else ""
    return ReportGate(name, question, answer, "no", sentence, {"share": share, "reference": reference, "more": more})


def _earlier(known: Reports) -> ReportGate:
    question = "Do reports compare with an earlier study, which the model has not seen?"
    return _fault(known, "earlier-study", question, "compare with an earlier study", compared_with_prior)


def _contradicting(known: Reports) -> ReportGate:
    question = "Do reports contradict themselves more often than the references?"
    return _fault(known, "contradiction", question, "assert and deny the same finding", contradictions)
