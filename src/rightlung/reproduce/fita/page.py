"""Lay out the page of FITA: what was found, the claims, counterparts of Tables 1 and 2 and Figures 1 and 3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np

from rightlung.measuring import find_measure
from rightlung.pages.content import Cell, Column, Page, Section, Table
from rightlung.pages.numbers import estimate_cell
from rightlung.reproduce.fita.blind_rows import BlindRows
from rightlung.reproduce.fita.claims import (
    BLEU,
    CE,
    CIDER,
    CLAIMS,
    FREQUENT_MCC,
    MCC,
    METEOR,
    MICRO,
    POINTING,
    R2GEN_BLEU,
    RECALL,
    ROUGE,
    SENTENCES,
    SIDED,
    TITLES,
    TRUE_F1,
    TRUE_MCC,
    TRUE_MICRO,
    TRUE_SIDED,
)
from rightlung.reproduce.fita.measuring import DIVERSITY, EXCHANGED, MAPS_PRIOR, REPORT, TRUTH, TRUTH_EXCHANGED
from rightlung.reproduce.fita.overview import findings, overview
from rightlung.reproduce.fita.truth import RATES
from rightlung.reproduce.fita.variants import SALIENCY, STEPS, TABLE_2, VARIANTS
from rightlung.reproduce.measurements import OVER_PATIENTS, Measurements
from rightlung.reproduce.pair_claims import Place, claims_table, judge
from rightlung.reproduce.published import Subject
from rightlung.reproduce.task_files import TaskFiles
from rightlung.reproduce.task_tables import PRIOR, PRIOR_LABEL, TaskTables
from rightlung.results.estimate import BootstrapSettings, Estimate
from rightlung.results.estimator import Estimator

SETTINGS = BootstrapSettings(resamples=500)
NO_AIM = (
    "Overlap of words is no aim: a constant text has a higher BLEU-4 on Open-i than most published systems. Compare "
    "with the rows that never see the image, and read findings and sides. On synthetic studies, whose reports follow a "
    "grammar, only the tables against the scene mean something."
)
PARTS = (
    "KiUT writes reports with a transformer that relates patches (RRA), reads every encoder layer (U-connection) and a "
    "graph of symptoms. FITA adds an image refiner (IFR: symptoms attend to patches where a classifier's saliency is "
    "high), a text refiner (TFR: a BERT) and an aligner of images and texts (CA)."
)
_OF_WORDS = (BLEU, R2GEN_BLEU, METEOR, ROUGE, CIDER, CE)
_WORDS: Mapping[Place, str] = {place: TITLES[place] for place in _OF_WORDS}
_FINDINGS: Mapping[Place, str] = {
    **{place: TITLES[place] for place in (MICRO, MCC, FREQUENT_MCC, SIDED)},
    (DIVERSITY, "distinct_share"): "distinct reports",
}
_TRUTH: Mapping[Place, str] = {place: TITLES[place] for place in (TRUE_F1, TRUE_MICRO, TRUE_MCC, TRUE_SIDED)}
_RATES = {
    "omitted_mild": "omitted, mild", "omitted_moderate": "omitted, moderate", "omitted_severe": "omitted, severe",
    "omitted": "omitted, all", "hallucinated": "hallucinated", "wrong_side": "wrong side",
}  # fmt: skip


class FitaPage(TaskTables):
    """Makes the tables of the page."""

    def __init__(self, found: Measurements) -> None:
        super().__init__(found, TaskFiles(found, SETTINGS, "percentile"), _WORDS)

    @cached_property
    def blind(self) -> BlindRows:
        """The image-blind rows, the neighbour by pixels, and the oracles."""
        train = self.found.run.get("train")
        return BlindRows(self.found.prepared, self.found.folder, None if train is None else str(train), SETTINGS)

    def labels(self) -> dict[str, str]:
        """Return the labels of the measured models that write reports."""
        return {one.slug: self.label(one.slug) for one in VARIANTS
                if one.slug != SALIENCY and self.files.files(one.slug, REPORT)}  # fmt: skip

    def label_of_other(self, variant: str, rows: Mapping[str, str]) -> str:
        """Return KiUT's short name."""
        return "KiUT" if variant == "kiut" else super().label_of_other(variant, rows)

    def _difference(self, variant: str, other: str | None, place: Place) -> Cell:
        """Return no difference of the prior on sentences, which every model has of its own."""
        return Cell("–") if place[0] == MAPS_PRIOR else super()._difference(variant, other, place)

    def _best(self, place: Place, values: Mapping[str, Estimate]) -> list[str]:
        return [] if place[0] == MAPS_PRIOR else super()._best(place, values)

    def _references(self, columns: Mapping[Place, str]) -> dict[str, dict[Place, Estimate]]:
        rows = {}
        for name, title in self.blind.titles.items():
            values = {place: self.blind.estimate(name, *place) for place in columns}
            rows[title] = {place: one for place, one in values.items() if one is not None}
        return rows

    def _paper(self, variant: str, place: Place, target: str | None) -> Cell:
        if place == R2GEN_BLEU:  # the paper's stands beside BLEU-4
            return Cell("–")
        published = self.found.published.find(Subject(variant, place[1], "mimic", "reports"), target)
        return Cell("–") if target is None or published is None else Cell(published.printed, f"Table {published.table}")

    def tables_1_and_2(self) -> Iterator[Table]:
        """Yield the counterparts of Tables 1 and 2."""
        rows = {slug: self.label(slug) for slug in STEPS}
        caption = (
            "In percent, against the reference report; differences are from KiUT. The paper's figures are fractions, "
            f"of MIMIC-CXR, with other encoders and CheXbert's labels: compare no values. {NO_AIM}"
        )
        blind = (
            "The last rows see no image, except for the one that compares pixels; oracles know what the reference "
            f"says, and have no answer where no report is similar. They learn from {self.blind.learned_from}."
        )
        yield from self.table("table-1", "Table 1: from a transformer to FITA", f"{caption} {blind}", rows, _WORDS,
                              minus="kiut", papers="1", folded=False, references=self._references(_WORDS))  # fmt: skip
        stated = "In percent, by the labels of the reference report; differences are from KiUT. A constant has MCC 0."
        yield from self.table("findings", "Table 1: findings and sides", stated, rows, _FINDINGS, minus="kiut",
                              folded=False, references=self._references(_FINDINGS))  # fmt: skip
        rows = {slug: self.label(slug) for slug in (*TABLE_2, "absolute", "no-saliency", "leaking", "last", "parallel")}
        yield from self.table("table-2", "Table 2: ablation, against the reference report", caption, rows, _WORDS,
                              minus="kiut", papers="2")  # fmt: skip
        caption = "In percent, against what the scene shows, which a report may omit; differences are from KiUT."
        yield from self.table("table-2-truth", "Table 2: ablation, against the scene", caption, rows, _TRUTH,
                              minus="kiut", folded=False, references=self._references(_TRUTH))  # fmt: skip

    def exchanged(self) -> Iterator[Table]:
        """Yield how much is lost with another patient's image, and how diverse reports are."""
        rows = {slug: self.label(slug) for slug in (*STEPS, "tfr")}
        columns: dict[Place, str] = {
            MCC: "macro MCC, own image", (EXCHANGED, MCC[1]): "another patient's", TRUE_SIDED: "sides, own image",
            (TRUTH_EXCHANGED, TRUE_SIDED[1]): "another patient's", (DIVERSITY, "distinct_share"): "distinct reports",
            (DIVERSITY, "most_frequent_share"): "most frequent report",
        }  # fmt: skip
        caption = "In percent. With another patient's image, a model that looks falls to the blind rows."
        yield from self.table("exchanged", "Do reports depend on the image?", caption, rows, columns)

    def severities(self) -> Iterator[Table]:
        """Yield omissions by severity, hallucinations and wrong sides."""
        lines = []
        for slug in (*STEPS, "tfr"):
            tables = [table.to_pandas() for table in self.files.tables(slug, TRUTH)]
            if not tables or any(name not in tables[0] for name in RATES):
                continue
            indexed = [one.set_index("study") for one in tables]
            first = indexed[0]
            estimator = Estimator(first.patient.to_numpy(dtype=object), SETTINGS)
            columns = [
                np.mean([one[name].reindex(first.index).to_numpy(np.float64) for one in indexed], axis=0)
                for name in _RATES
            ]
            cells = [estimate_cell(one, 100.0, 1) for one in estimator.means(columns)]
            lines.append([Cell(self.label(slug)), *cells])
        if lines:
            caption = (
                "In percent, means over seeds and studies. Omitted: lesions of which no finding is stated, by "
                "severity. Hallucinated: stated findings that the scene does not have. Wrong side: stated sides of "
                "findings that the scene has, that are not among its sides."
            )
            header = [Column("model", "text"), *map(Column, _RATES.values())]
            yield Table("severity", "Omissions and hallucinations", caption, header, lines)

    def figures(self) -> Iterator[Table]:
        """Yield the counterparts of Figures 1 and 3 as tables."""
        rows = {slug: self.label(slug) for slug in ("tfr", "ifr-tfr", "fita")} | {PRIOR: PRIOR_LABEL}
        columns = {place: TITLES[place] for place in (RECALL, POINTING, SENTENCES)}
        columns[MAPS_PRIOR, "pointing"] = "the prior on these sentences"
        caption = "In percent. FITA without CA is the row KiUT + IFR + TFR. Maps are scored on exact masks."
        yield from self.table("figure-1", "Figure 1: alignment with and without CA", caption, rows, columns,
                              minus="ifr-tfr", folded=False)  # fmt: skip
        names = ("pointing", "auroc", "average_precision")
        places: dict[Place, str] = {("instances", name): find_measure(name).title for name in names}
        rows = {slug: self.label(slug) for slug in (SALIENCY, "fita", "no-saliency")} | {PRIOR: PRIOR_LABEL}
        caption = "In percent: phrases on exact masks. The saliency is made by the classifier."
        yield from self.table("figure-3", "Figure 3: where the saliency points", caption, rows, places, minus=PRIOR)

    def published(self) -> Iterator[Table]:
        """Yield the paper's figures of models that are not measured here."""
        known = self.found.published
        measured = {variant.slug for variant in VARIANTS}
        lines = [
            [Cell(known.label(of.model)), Cell(of.measure), Cell(value.printed), Cell(f"Table {value.table}")]
            for of, value in known.values.items()
            if of.model not in measured
        ]
        header = [Column(title, "text") for title in ("model", "measure", "paper, fraction", "where")]
        yield Table("published", "Published figures without a counterpart", "MIMIC-CXR.", header, lines, [], True)


def make_page(found: Measurements) -> Page:
    """Estimate everything and return the page."""
    make = FitaPage(found)
    judged = judge(make.files, CLAIMS)
    sections = [
        Section(
            "finding",
            "Finding",
            items=[*findings(judged, make.files, make.blind), NO_AIM],
            parts=[*overview(make.files, make.labels(), make.blind)],
        ),
        Section("claims", "Claims", parts=[claims_table(judged, TITLES)] if judged else [], folded=True),
        Section("tables", "Tables 1 and 2", [OVER_PATIENTS], parts=[*make.tables_1_and_2()]),
        Section("trust", "Can the reports be trusted?", parts=[*make.exchanged(), *make.severities()]),
        Section("figures", "Figures 1 and 3", parts=[*make.figures()]),
        Section("training", "Models and training", parts=found.model_tables(), folded=True),
        Section("published", "Published figures", found.published.remarks, parts=[*make.published()], folded=True),
        Section("missing", "Missing", items=[*found.absent()]),
        Section("commands", "Commands", code="\n".join(found.commands), folded=True),
    ]
    lead = (
        f"Tables, figures and claims of {found.published.paper}, measured on {found.prepared.targets.source}. {PARTS}"
    )
    return Page(found.paper.title, lead, sections, found.facts, found.warning)
