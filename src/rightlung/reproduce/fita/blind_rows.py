"""Reports that stand beside a model's: image-blind rows, a neighbour by pixels, and oracles that know the findings.

They learn from the training reports. If these are not at hand, they learn from other patients of the test studies.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from rightlung.audit.blind import BASELINES, INDEX_CONSTANT
from rightlung.core import InputError, Study
from rightlung.core.files import read_json, write_json
from rightlung.core.keyed import text_digest
from rightlung.lexicon.labeller import observations
from rightlung.lexicon.prompts import prompt
from rightlung.models.blind.reports import BlindReports, best_report
from rightlung.predictions import IMAGE_QUERY, Batch, Prediction
from rightlung.reproduce.fita.measuring import CLINICAL, PROTOCOLS, TRUTH, first_images, measured, scenes
from rightlung.reproduce.fita.truth import truth_table
from rightlung.reproduce.prepared import FOLDER, PreparedStudies
from rightlung.results.aggregates import estimate
from rightlung.results.estimate import BootstrapSettings, Estimate
from rightlung.scoring.clinical import GROUPS
from rightlung.scoring.nearest import nearest
from rightlung.studies import open_source

STATED, NEIGHBOUR, SAME_FINDINGS, SAME_CODES = "blind-findings", "pixel-neighbour", "oracle-findings", "oracle-mesh"
TITLES: Mapping[str, str] = {
    **{name: title for name, title in BASELINES["report"].items() if name != INDEX_CONSTANT},
    STATED: "most frequent findings, for micro F1",
    NEIGHBOUR: "report of the nearest image by pixels",
    SAME_FINDINGS: "oracle: a report with the same findings",
    SAME_CODES: "oracle: consensus report by MeSH codes",
}
PIXELS = 48
"""Images are compared at this size."""
LEARNED, DRAWN = 2500, 1000
"""From how many training reports rows learn; of synthetic studies, which have to be drawn first, fewer are enough."""
CONSENSUS = 20
"""From how many reports with similar codes the one is chosen that has the highest BLEU-4 against the others."""
KEPT = "blind-rows.json"


@dataclass(frozen=True)
class Known:
    """A study with what rows may know of it."""

    id: str
    patient: str
    report: str
    codes: frozenset[str] | None
    pixels: NDArray[np.float64]

    @classmethod
    def of(cls, study: Study, report: str, extra: Mapping[str, object]) -> Known:
        """Return what is known of a study."""
        small = torch.nn.functional.interpolate(torch.tensor(study.image)[None, None], (PIXELS, PIXELS), mode="area")
        values = small.numpy().ravel().astype(np.float64)
        mesh = extra.get("mesh")
        codes = [str(code) for code in mesh] if isinstance(mesh, Sequence) else None
        known = None if codes is None else frozenset(codes) | {code.partition("/")[0] for code in codes}
        return cls(study.id, study.patient or study.id, report, known, values - values.mean() + 1e-9)

    @cached_property
    def findings(self) -> frozenset[str]:
        """The positive observations of the report."""
        return frozenset(name for name, said in observations(self.report).items() if said == "positive")


class BlindRows:
    """The rows and their estimates. ``train`` is the source of the training reports."""

    def __init__(self, prepared: PreparedStudies, out: Path, train: str | None, settings: BootstrapSettings) -> None:
        self.settings = settings
        reports, self.learned_from = _kept(prepared, out / FOLDER / KEPT, train)
        self.titles = {name: title for name, title in TITLES.items() if name in reports}
        given = [
            Prediction(study, IMAGE_QUERY, name, report=text)
            for name, texts in reports.items()
            for study, text in texts.items()
        ]
        self.tables: dict[str, pa.Table] = {}
        if not given:
            return
        for name, protocol in PROTOCOLS.items():
            self.tables[name] = measured([Batch.of(given)], prepared.targets, protocol)[0]
        if known := scenes(prepared, out):
            made = {name: truth_table(self._of(CLINICAL, name), known) for name in self.titles}
            self.tables[TRUTH] = pa.concat_tables(_named(one, name) for name, one in made.items() if one.num_rows)

    def _of(self, task: str, name: str) -> pa.Table:
        return self.tables[task].filter(pc.equal(self.tables[task]["condition"], name))

    def estimate(self, name: str, task: str, measure_name: str) -> Estimate | None:
        """Return a measure of a row; None if it was not measured."""
        if task not in self.tables:
            return None
        return estimate(self.tables[task], measure_name, name, settings=self.settings)


def _named(table: pa.Table, condition: str) -> pa.Table:
    names = pa.array([condition] * table.num_rows, pa.string())
    return table.set_column(table.column_names.index("condition"), "condition", names)


def _kept(prepared: PreparedStudies, file: Path, train: str | None) -> tuple[dict[str, dict[str, str]], str]:
    """Return the reports of each row by study and what they learned from, kept in the experiment's folder."""
    key = [train, str(prepared.targets.digests), [*TITLES], LEARNED, DRAWN]
    if file.is_file() and (found := read_json(file))["key"] == key:
        return found["reports"], found["learned_from"]
    tested, why = [*_tested(prepared)], "the training source is not known"
    learned: list[Known] = []
    if train is not None:
        try:
            learned = [*_trained_on(train)]
            why = f"{train} has no report"
        except InputError as error:
            why = f"the training source cannot be read: {error}"
    source = f"{len(learned):,} training reports ({train})"
    if not learned:
        source = f"reports of other patients among the test studies, because {why}"
    reports = {name: texts for name, texts in _rows(tested, learned) if texts}
    if learned or train is None:  # the training source may be readable the next time
        write_json(file, {"key": key, "learned_from": source, "reports": reports})
    return reports, source


def _trained_on(address: str) -> Iterator[Known]:
    most = DRAWN if address.startswith("phantom") else LEARNED
    exams: set[str] = set()
    for study in open_source(address):
        exam, text = study.exam or study.id, "" if study.report is None else study.report.text
        if exam not in exams and text.strip():
            exams.add(exam)
            yield Known.of(study, text, study.extra)
        if len(exams) == most:
            return


def _tested(prepared: PreparedStudies) -> Iterator[Known]:
    source = None
    if not prepared.targets.source.startswith("phantom"):  # which knows no codes
        source = open_source(prepared.targets.source)
    for name in first_images(prepared):
        labels, study = prepared.targets.labels.get(name), prepared.source.study(name)
        if labels is not None and labels.report:
            extra = {} if source is None else source.study(name).extra
            yield Known.of(study, labels.report, extra)


def _rows(tested: Sequence[Known], learned: Sequence[Known]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each row with its reports; without ``learned``, about each patient from the other ones tested."""
    written, known = BlindReports(), learned or tested
    for one in known:
        written.add(one.patient, one.report)
    for name in TITLES:
        if name in BASELINES["report"]:
            of = {one.id: written.text(name, None if learned else one.patient, one.id) for one in tested}
        else:
            of = _MADE[name](tested, known)
        yield name, {study: text for study, text in of.items() if text}


def _by_frequency(tested: Sequence[Known], known: Sequence[Known]) -> dict[str, str | None]:
    """Return a statement of the most frequent findings of other patients, as many as give the best micro F1 there."""
    found: dict[str, str | None] = {}
    every = Counter(chain.from_iterable(one.findings for one in known))
    own: defaultdict[str, list[Known]] = defaultdict(list)
    for one in known:
        own[one.patient].append(one)
    for one in tested:
        others = every - Counter(chain.from_iterable(same.findings for same in own[one.patient]))
        counts = Counter({name: others[name] for name in GROUPS["13"]})
        studies = len(known) - len(own[one.patient])
        ranked = [name for name, count in counts.most_common() if count]
        f1 = [2 * sum(counts[name] for name in ranked[:some]) / (some * studies + counts.total())
              for some in range(1, len(ranked) + 1)]  # fmt: skip
        stated = tuple(ranked[: 1 + f1.index(max(f1))]) if f1 else ()
        found[one.id] = " ".join(f"{prompt(name).capitalize()}." for name in stated)
    return found


def _by_pixels(tested: Sequence[Known], known: Sequence[Known]) -> dict[str, str | None]:
    """Return the report of the image of another patient with the highest correlation of pixels."""
    if not tested or not known:
        return {}
    asked, candidates = (np.stack([one.pixels for one in some]) for some in (tested, known))
    ids, _ = nearest(asked, candidates, min(CONSENSUS, len(known)))
    ranked = ((one, (known[place] for place in row)) for one, row in zip(tested, ids, strict=True))
    return {one.id: next((other.report for other in some if other.patient != one.patient), None)
            for one, some in ranked}  # fmt: skip


def _by_findings(tested: Sequence[Known], known: Sequence[Known]) -> dict[str, str | None]:
    """Return a report of another patient with the same positive observations."""
    of: dict[frozenset[str], list[Known]] = {}
    for one in known:
        of.setdefault(one.findings, []).append(one)
    found = {}
    for one in tested:
        others = [other for other in of.get(one.findings, ()) if other.patient != one.patient]
        chosen = min(others, key=lambda other: text_digest(0, one.id, other.id), default=None)
        found[one.id] = None if chosen is None else chosen.report
    return found


def _by_codes(tested: Sequence[Known], known: Sequence[Known]) -> dict[str, str | None]:
    """Return, of the reports of other patients with the most similar codes (Jaccard), the one most like the others."""
    coded = [one for one in known if one.codes is not None]
    found: dict[str, str | None] = {}
    made: dict[tuple[str, ...], str | None] = {}
    for one in tested if coded else ():
        if one.codes is None:
            continue
        others = [other for other in coded if other.patient != one.patient]
        alike = np.array([_jaccard(one.codes, other.codes or frozenset()) for other in others])
        if not alike.any():
            continue
        least = np.sort(alike)[-min(CONSENSUS, len(alike))]
        reports = tuple(others[place].report for place in np.flatnonzero((alike >= least) & (alike > 0)))
        if reports not in made:
            made[reports] = best_report(reports)
        found[one.id] = made[reports]
    return found


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one or other else 1.0


_MADE: Mapping[str, Callable[[Sequence[Known], Sequence[Known]], dict[str, str | None]]] = {
    STATED: _by_frequency,
    NEIGHBOUR: _by_pixels,
    SAME_FINDINGS: _by_findings,
    SAME_CODES: _by_codes,
}
