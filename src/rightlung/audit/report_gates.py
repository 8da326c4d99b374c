"""Gates of reports: does a report depend on the image, and does it say what no single image can tell?

Each gate is a question with an answer, *yes* or *no* where the interval allows one. The answers of a `Reporter` under
the conditions of `CONDITIONS` are compared with its unchanged reports; three gates need the unchanged reports alone, so
that they can be asked of anybody's reports from a file. What a report says is what the rule labeller reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa

from rightlung.audit.report_rows import ReportGate, Reports, above, with_reason
from rightlung.audit.report_text_gates import text_gates
from rightlung.audit.sentence_maps import map_estimates
from rightlung.core import Study
from rightlung.measuring import find_protocol
from rightlung.measuring.protocols import Protocol
from rightlung.models.base import Intervenable, TracesWords, WordSources
from rightlung.pages.content import Cell, Column, Section, Table
from rightlung.pages.numbers import percent, span
from rightlung.probes.interventions import INTERVENTIONS
from rightlung.results.estimate import BootstrapSettings, Estimate
from rightlung.results.gates import NOT_ASKED, PLAIN, RELEVANT, TOO_FEW, Dependence
from rightlung.studies import Source

EXCHANGED, MIRRORED = "exchange-image", "mirror-image"
CONDITIONS = (EXCHANGED, "noise-image", "mean-image", MIRRORED)
"""What every model is asked, besides the changes inside it that it allows."""
ACCURACY = ("macro_mcc_13", "micro_f1_13", "sided_f1")
MEASURES = (*ACCURACY, "bleu_4")
TITLES = {"macro_mcc_13": "macro MCC", "sided_f1": "sided F1", "bleu_4": "BLEU-4"}
PROTOCOL = replace(find_protocol("whole"), name="report-gates", measures=MEASURES)
TRACED = 200
HALF = 0.5
"""What the share of sides that follow, and of attention on image and symptoms, is compared with."""
_IMAGES = {
    "noise-image": "noise", "mean-image": "the average image", EXCHANGED: "another patient's image",
}  # fmt: skip


def report_gate_conditions(model: object) -> list[str]:
    """Return the conditions to ask a model under."""
    return [*CONDITIONS, *(model.interventions if isinstance(model, Intervenable) else ())]


def have_report_gates(conditions: Iterable[str]) -> bool:
    """Return whether some answers were asked for to be judged by these gates."""
    return bool({*CONDITIONS[1:], *INTERVENTIONS} & {*conditions})


def traced(source: Source, studies: Sequence[str]) -> list[Study]:
    """Return the first `TRACED` of some studies."""
    return [source.study(study) for study in [*dict.fromkeys(studies)][:TRACED]]


def words_of(
    model: TracesWords, studies: Sequence[Study], at_once: int, progress: Callable[[float, int], None]
) -> dict[str, Sequence[WordSources]]:
    """Return what the words of the reports of studies were written from."""
    found: dict[str, Sequence[WordSources]] = {}
    for begin in range(0, len(studies), at_once):
        some = studies[begin : begin + at_once]
        kinds = model.word_sources([study.load() for study in some])
        found |= dict(zip([study.id for study in some], kinds, strict=True))
        progress(len(found), len(studies))
    return found


def gate_of_maps(table: pa.Table, settings: BootstrapSettings) -> ReportGate:
    """Say whether the maps of written sentences point at their findings better than the location prior."""
    found = map_estimates(table, settings)
    own, prior, difference = found["pointing"]
    frame = table.to_pandas()
    outlined = int(frame.pointing.notna().sum())
    sentence = (
        f"The maps of {outlined:,} sentences whose finding is outlined in the image hit it in {percent(own)}; the "
        f"location prior, which reads the sentence and sees no image, in {percent(prior)} (difference "
        f"{span(difference, signed=True)}). {int(frame.finding.notna().sum()) - outlined:,} assertions have no "
        "outline, because the image does not show the finding or the source does not outline it."
    )
    values = {f"{who}{name}": one for name, pair in found.items()
              for who, one in zip(("", "prior_", "lead_"), pair, strict=True)}  # fmt: skip
    question = "Do the maps of sentences point better than the location prior?"
    answer = above(difference, 0.0, settings.level)
    return with_reason(ReportGate("sentence-maps", question, answer, "yes", sentence, values), settings.level)


def gate_protocol(protocol: Protocol) -> Protocol:
    """Return the protocol of the gates for the studies of another one."""
    return replace(protocol, name=PROTOCOL.name, measures=MEASURES, labels=PROTOCOL.labels)


def report_gates(
    table: pa.Table, settings: BootstrapSettings, sources: Mapping[str, Sequence[WordSources]] | None = None
) -> list[ReportGate]:
    """Return the gates of reports, from their instances (`CONDITIONS`) and, if known, the sources of their words."""
    known = Reports(table, settings)
    gates = [*_of_images(known), _mirror(known), *_of_interventions(known), *_of_words(known, sources or {})]
    return [with_reason(one, settings.level) for one in (*gates, *text_gates(known))]


def _said(row: pd.Series) -> set[str]:
    return {*row.labels_called, *row.pairs_called} - {"No Finding"}


def _changed(before: pd.Series, after: pd.Series) -> float:
    """Return the share of the findings and sides of two reports that only one of them states."""
    one, other = _said(before), _said(after)
    return len(one ^ other) / len(one | other) if one | other else 0.0


def _of_images(known: Reports) -> Iterator[ReportGate]:
    for condition, what in _IMAGES.items():
        question = f"Does the report depend on the image? ({what})"
        if not known.asked(condition):
            yield _not_asked(condition, question, "yes")
            continue
        change = known.compared(condition, _changed)
        differences = {name: known.measure(name, condition, PLAIN) for name in MEASURES}
        answer = known.above(change, RELEVANT)
        sentence = f"With {what}, {percent(change)} of the stated findings and sides differ; {_falls(differences)}."
        yield ReportGate(condition, question, answer, "yes", sentence, {"change": change} | differences)
        if condition == EXCHANGED:
            yield _right(known, differences)


def _falls(differences: Mapping[str, Estimate]) -> str:
    """Say by how much the measures change."""
    named = ((title, differences[name]) for name, title in TITLES.items() if name in differences)
    return "; ".join(f"{title} changes by {span(one, signed=True)}" for title, one in named)


def _right(known: Reports, differences: Mapping[str, Estimate]) -> ReportGate:
    """Say whether reports are right about their own image, not only different for different images."""
    question = "Are findings told from the patient's own image?"
    own, fall = known.measure("macro_mcc_13"), differences["macro_mcc_13"]
    if not own.defined or not fall.has_interval or fall.patients < known.fewest:
        answer: Dependence = TOO_FEW
    else:
        answer = "yes" if fall.high < 0 < own.low else "no" if own.high < RELEVANT else TOO_FEW
    sentence = f"Macro MCC (0 for every report that is blind to the image) is {span(own)} for the patient's own image."
    return ReportGate("own-image", question, answer, "yes", sentence, {"macro_mcc_13": own, "difference": fall})


def _sides(pairs: Sequence[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for side, _, finding in (pair.partition(" ") for pair in pairs):
        found.setdefault(finding, set()).add(side)
    return found


def _mirror(known: Reports) -> ReportGate:
    question = "Do sides follow when the image is mirrored?"
    if not known.asked(MIRRORED):
        return _not_asked(MIRRORED, question, "yes")

    def followed(before: pd.Series, after: pd.Series) -> float:
        there, then = _sides(before.pairs_called), _sides(after.pairs_called)
        one_sided = [name for name, sides in there.items() if len(sides) == 1 and len(then.get(name, ())) == 1]
        return float(np.mean([there[name] != then[name] for name in one_sided])) if one_sided else np.nan

    def kept(before: pd.Series, after: pd.Series) -> float:
        there, then = {*before.labels_called} - {"No Finding"}, {*after.labels_called} - {"No Finding"}
        return len(there & then) / len(there | then) if there | then else np.nan

    share, same = known.compared(MIRRORED, followed), known.compared(MIRRORED, kept)
    sentence = (
        f"Of the findings on one side in both reports, {percent(share)} are on the other side after mirroring (in "
        f"{share.n:,} studies); {percent(same)} of the findings stay."
    )
    return ReportGate(MIRRORED, question, known.above(share, HALF), "yes", sentence, {"followed": share, "kept": same})


def _of_interventions(known: Reports) -> Iterator[ReportGate]:
    for name in (name for name in INTERVENTIONS if known.asked(name)):
        change = known.compared(name, _changed)
        differences = {one: known.measure(one, name, PLAIN) for one in ACCURACY}
        sentence = (
            f"With {INTERVENTIONS[name]}, {percent(change)} of the stated findings and sides differ; "
            f"{_falls(differences)}."
        )
        question = f"Does the report depend on the {name.partition('-')[0]}? ({name})"
        wanted: Dependence | None = None if name.startswith("text") else "yes"
        answer = known.above(change, RELEVANT)
        yield ReportGate(name, question, answer, wanted, sentence, {"change": change} | differences)


def _of_words(known: Reports, sources: Mapping[str, Sequence[WordSources]]) -> Iterator[ReportGate]:
    for kind in ("finding", "side") if sources else ():
        of = {study: one for study, kinds in sources.items() for one in kinds if one.words == kind}
        shares = {
            what: known.mean([getattr(of[study], what) if study in of else np.nan for study in known.plain.index])
            for what in ("image", "symptoms", "text")
        }
        seen = known.mean([1 - of[study].text if study in of else np.nan for study in known.plain.index])
        sentence = (
            f"{kind.capitalize()} words rest on the patches with {percent(shares['image'])} of the attention, on the "
            f"symptoms with {percent(shares['symptoms'])}, and on the words before with {percent(shares['text'])}."
        )
        question = f"Do {kind} words rest on the image more than on the words before?"
        answer = known.above(seen, HALF)
        yield ReportGate(f"attention-{kind}", question, answer, "yes", sentence, shares | {"seen": seen})


def _not_asked(name: str, question: str, wanted: Dependence) -> ReportGate:
    return ReportGate(name, question, NOT_ASKED, wanted, f"There are no answers under the condition {name}.")


def dependence_sentence(gates: Sequence[ReportGate]) -> str:
    """Say first whether the reports depend on the image."""
    of = {one.name: one for one in gates}
    first = of.get(EXCHANGED)
    if first is None or first.answer == NOT_ASKED:
        return "Whether the reports depend on the image was not asked."
    own = of["own-image"]
    told = {"yes": "depend on the image", "no": "do not depend on the image"}.get(first.answer)
    if told is None:
        return f"Too few patients to tell whether the reports depend on the image. {first.sentence}"
    right = {"yes": "and are right about it", "no": "and no finding is told from it"}.get(own.answer)
    return (
        f"The reports {told}{f' {right}' if right and first.answer == 'yes' else ''}. {first.sentence} {own.sentence}"
    )


def gates_section(gates: Sequence[ReportGate], name: str = "gates") -> Section:
    """Return the gates as a section of a page."""
    rows = [
        [Cell(one.question), Cell(one.answer, strong=one.wanted is not None and one.answer == one.wanted),
         Cell(one.wanted or "either"), Cell(one.sentence)]
        for one in gates
    ]  # fmt: skip
    columns = [Column(title, "text") for title in ("question", "answer", "wanted", "what was found")]
    caption = (
        f"An answer needs its whole interval on one side of a limit: {100 * RELEVANT:g} % of the stated findings and "
        "sides for a change, half for sides and attention. Findings and sides are those that the rule labeller reads."
    )
    table = Table(name, "Gates", caption, columns, rows)
    return Section(name, "Gates: can the reports be trusted?", [dependence_sentence(gates)], parts=[table])
