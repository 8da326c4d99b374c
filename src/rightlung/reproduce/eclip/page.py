"""Lay out the page of eCLIP: the finding, one figure and one table; then all others, folded."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rightlung.core.files import read_json
from rightlung.measuring import find_measure
from rightlung.pages.content import Cell, Column, Figure, Page, Section, Table
from rightlung.pages.figures import IntervalPanel, panel_figure
from rightlung.pages.numbers import estimate_cell
from rightlung.reproduce.claims import HOLDS, NOT_SHOWN
from rightlung.reproduce.eclip.claims import ACCURACY, AUROC, POINTING, Judged, Place, claims_table, judge
from rightlung.reproduce.eclip.measuring import BY_CHANCE, EMBEDDED, PLANTED, PROBED, SHARES
from rightlung.reproduce.eclip.variants import (
    ABLATION,
    ANNOTATED,
    COUNTED,
    EFFICIENCY,
    HOSTS,
    MAPS,
    METHODS,
    NUMBERS,
    RELEASED,
    STEPS,
    expert_slug,
)
from rightlung.reproduce.measurements import OVER_PATIENTS, Measurements
from rightlung.reproduce.published import Subject
from rightlung.reproduce.task_files import TaskFiles
from rightlung.results.estimate import BootstrapSettings, Estimate

OTHER_DATA = (
    "Everything here is measured on synthetic studies with small models, and gaze is simulated. The paper trained on "
    "MIMIC-CXR with the gaze of one radiologist on 1,080 studies. Compare the direction of effects, not values."
)
PNEUMONIA: Place = ("pneumonia", "class_accuracy")
COLUMNS: Mapping[Place, str] = {
    ACCURACY: "accuracy, 5 classes", PNEUMONIA: "accuracy, pneumonia", AUROC: "zero-shot AUROC", POINTING: "pointing",
}  # fmt: skip
PAPERS: Mapping[Place, str] = {ACCURACY: "chexpert-5x200", PNEUMONIA: "rsna"}
"""The paper's data sets whose figures stand next to ours."""
PRIOR = "prior"
SETTINGS = BootstrapSettings(resamples=500)


class EclipPage:
    """Makes the tables and figures from the files of every model."""

    def __init__(self, found: Measurements) -> None:
        self.found = found
        self.files = TaskFiles(found, SETTINGS, "percentile")

    def there(self, variants: Sequence[str]) -> list[str]:
        """Return the variants that were measured."""
        return [name for name in variants if self.files.model(name) is not None]

    def label(self, variant: str) -> str:
        """Return the name of a variant."""
        model = self.files.model(variant)
        return variant if model is None else model.label

    def table(
        self, name: str, title: str, caption: str, rows: Mapping[str, str], columns: Mapping[Place, str] = COLUMNS,
        *, minus: str | None = None, papers: Mapping[Place, str] | None = None, folded: bool = True,
    ) -> Iterator[Table]:  # fmt: skip
        """Yield a table of variants (with their labels) by measures, in percent; nothing if none was measured.

        ``minus``: the variant from which differences are shown in a second column of each measure.
        """
        known = self.there([*rows])
        if not {*known} - {PRIOR}:
            return
        minus = minus if minus in known else None
        header, lines = [Column("model", "text")], [[Cell(rows[one])] for one in known]
        for place, heading in columns.items():
            values = [self.files.estimate(one, *place) for one in known]
            if not any(values):
                continue
            ranked = [one.value for one, slug in zip(values, known, strict=True) if one is not None and slug != PRIOR]
            highest = max(ranked, default=None)
            header.append(Column(heading))
            for line, value in zip(lines, values, strict=True):
                line.append(estimate_cell(value, 100.0, 1, strong=value is not None and value.value == highest))
            if minus is not None:
                header.append(Column(f"− {rows[minus]}"))
                for line, one in zip(lines, known, strict=True):
                    difference = self.files.difference(one, minus, *place) if one not in (minus, PRIOR) else None
                    line.append(estimate_cell(difference, 100.0, 1, signed=True))
            if papers and place in papers:
                figures = [self._paper(one, papers[place]) for one in known]
                if any(cell.text != "–" for cell in figures):
                    header.append(Column(self.found.published.column, "paper"))
                    for line, cell in zip(lines, figures, strict=True):
                        line.append(cell)
        yield Table(name, title, caption, header, lines, ["Bold: the highest value of the trained models."], folded)

    def _paper(self, variant: str, subset: str) -> Cell:
        found = self.found.published.find(Subject(variant, "class_accuracy", subset, "benchmark"))
        return Cell("–") if found is None else Cell(found.printed, f"Table {found.table}")

    def host_tables(self, hosts: Sequence[str], folded: bool) -> Iterator[Table]:
        """Yield the counterparts of Table 1."""
        for host in hosts:
            rows = {f"{host}-{method}".strip("-"): label or HOSTS[host] for method, (label, _) in METHODS.items()}
            rows |= {f"{host}-{method}": label for method, (label, _) in RELEASED.items()}
            rows |= {f"{host}-tied": "+ tied (ours)", PRIOR: "location prior (never sees an image)"}
            caption = (
                "Zero-shot classification and pointing on exact masks, in percent; differences are paired. Accuracy by "
                "chance: 20 % and 50 %."
            )
            yield from self.table(
                f"t1-{host}", f"Table 1: {HOSTS[host]}", caption, rows, minus=host, papers=PAPERS, folded=folded
            )

    def ladder(self) -> Iterator[Figure | Table]:
        """Yield the value of an annotation, by the kind of map."""
        rows = {expert_slug(kind): title for kind, title in MAPS.items()} | {"clip": "CLIP, no added images"}
        known = self.there([*rows])
        if known:
            panels = [
                IntervalPanel(
                    title=COLUMNS[place], series={"difference": [self._minus(one, "clip", place) for one in known]},
                    line=0.0, scale=100.0, signed=True,
                )
                for place in (AUROC, POINTING)
            ]  # fmt: skip
            caption = (
                f"eCLIP with {ANNOTATED:,} maps of different kinds, minus CLIP without any, in percentage points. Gaze "
                "is simulated. Same main batches, means over seeds, 95 % intervals over patients."
            )
            yield panel_figure(
                "ladder", "What is an expert's map worth?", caption, [rows[one] for one in known], panels,
                unit="percentage points", references=["CLIP, no added images"],
            )  # fmt: skip

    def _minus(self, variant: str, other: str, place: Place) -> Estimate | None:
        if variant == other:
            return Estimate(0.0)
        return self.files.difference(variant, other, *place)

    def maps_tables(self) -> Iterator[Table]:
        """Yield the ladder and the numbers of maps as tables."""
        rows = {"clip": "CLIP"} | {expert_slug(kind): title for kind, title in MAPS.items()}
        caption = f"eCLIP with {ANNOTATED:,} maps of each kind, in percent."
        yield from self.table("maps-by-kind", "Kinds of maps", caption, rows | {"tied-mask": "tied, exact masks"},
                              minus="clip")  # fmt: skip
        counted = {expert_slug(kind, number): f"{MAPS[kind]}, {number:,}" for kind in COUNTED for number in NUMBERS}
        caption = "eCLIP with maps for more or fewer studies, in percent."
        yield from self.table("maps-by-number", "Numbers of maps", caption, {"clip": "CLIP, 0"} | counted, minus="clip")

    def ablation(self) -> Iterator[Table]:
        """Yield the counterpart of the ablation."""
        rows = {"clip": "CLIP"} | {f"ablation-{slug}": name for slug, (name, _) in ABLATION.items()}
        rows |= {"map-random": "random, M, C, P", "clip-expert": "attention, E, M, C, P"}
        caption = "E: expert images, M: mixup, C: curriculum, P: priming. In percent."
        yield from self.table("ablation", "Ablation", caption, rows, minus="clip")

    def efficiency(self) -> Iterator[Table]:
        """Yield the counterparts of Figure 1."""
        rows = {name: self.label(name) for name in EFFICIENCY}
        steps = {f"{slug}-{count}": f"{rows[slug]}, {count}" for slug in rows for count in STEPS}
        every = {
            name: steps.get(name, f"{rows.get(name, '')}, 700") for name in sorted({*rows, *steps}, key=_by_length)
        }
        yield from self.table("steps", "Figure 1, top: zero-shot by training steps", "In percent.", every,
                              {AUROC: COLUMNS[AUROC], ACCURACY: COLUMNS[ACCURACY]})  # fmt: skip
        shares: dict[Place, str] = {
            (f"probe-{100 * share:g}", "finding_auroc"): f"{100 * share:g} % of labels" for share in SHARES
        }
        shares["probe-five-epochs", "finding_auroc"] = "five epochs (the paper's protocol)"
        caption = "AUROC of linear probes on frozen embeddings, in percent: logistic regression to convergence."
        yield from self.table("probes", "Figure 1, bottom: linear probes by labels", caption,
                              {name: self.label(name) for name in PROBED}, shares)  # fmt: skip

    def retrieval(self) -> Iterator[Table]:
        """Yield the tables of retrieval and geometry."""
        rows = {name: self.label(name) for name in self._of_table_1()}
        names = ("recall@1", "recall@5", "recall@10", "recall@10_once")
        columns: dict[Place, str] = {("retrieval", name): find_measure(name).title for name in names}
        caption = "Reports by images and images by reports, among all test studies; in percent."
        yield from self.table("retrieval", "Retrieval", caption, rows, columns)
        yield from self._geometry([*rows])

    def _of_table_1(self) -> list[str]:
        wanted = [f"{host}-{method}".strip("-") for host in ("clip", "gloria") for method in (*METHODS, "tied")]
        return self.there(wanted)

    def _geometry(self, variants: Sequence[str]) -> Iterator[Table]:
        names = {"gap": "gap", "alignment": "alignment", "uniformity_images": "uniformity, images",
                 "uniformity_texts": "uniformity, texts", "temperature": "temperature"}  # fmt: skip
        lines, chance = [], None
        for variant in variants:
            paths = [path.with_name("geometry.json") for path in self.files.files(variant, "retrieval")]
            found = [read_json(path) for path in paths if path.is_file()]
            if found:
                chance = found[0]["chance"]["random"]
                lines.append(
                    [Cell(self.label(variant)), *(_mean_cell([one.get(name) for one in found]) for name in names)]
                )
        if chance is not None:
            lines.append([Cell("random vectors"), *(_mean_cell([chance.get(name)]) for name in names)])
            lines.append([Cell("one constant vector"), *(Cell("0.00") for _ in range(4)), Cell("–")])
            caption = (
                "Distances between unit vectors of images and reports, means over seeds. They move with the "
                "temperature; a smaller gap is no merit by itself."
            )
            header = [Column("model", "text"), *(Column(title) for title in names.values())]
            yield Table("geometry", "Geometry of embeddings", caption, header, lines, [], True)

    def umap(self) -> Iterator[Figure]:
        """Yield the counterpart of Figure 2, if UMAP is installed: studies with one of four labels alone."""
        from rightlung.core import InputError
        from rightlung.pages.points import umap_figure

        labels = self.found.prepared.targets.labels
        for name in EMBEDDED:
            path = self.found.folder / "measures" / name / "embeddings.safetensors"
            if path.is_file():
                studies, images, texts = _read_embeddings(path)
                groups = [_group(labels[study].findings) for study in studies]
                kept = [place for place, group in enumerate(groups) if group]
                if len(kept) > 20:
                    vectors = {"images": images[kept], "reports": texts[kept]}
                    try:
                        yield umap_figure(f"umap-{name}", f"Figure 2: {self.label(name)}", vectors,
                                          [str(groups[place]) for place in kept])  # fmt: skip
                    except InputError:
                        return

    def shortcut(self) -> Iterator[Table]:
        """Yield how much a planted word raises the score of pneumonia."""
        rows = {f"shortcut-{slug}": self.label(f"shortcut-{slug}") for slug in ("clip", "clip-expert", "clip-tied")}
        columns: dict[Place, str] = {
            (BY_CHANCE, "finding_auroc"): "word by chance", (PLANTED, "finding_auroc"): "word as in training",
        }  # fmt: skip
        caption = (
            "AUROC of pneumonia, in percent. The training studies had the word ICU in 95 % of pneumonias and 5 % of "
            "the others. A model that reads the word is worse where it stands in half of all studies, by chance."
        )
        yield from self.table("shortcut", "A planted shortcut", caption, rows, columns, minus="shortcut-clip")


def _by_length(slug: str) -> tuple[str, int]:
    name, _, steps = slug.rpartition("-")
    return (name, int(steps)) if steps.isdigit() else (slug, 700)


def _mean_cell(values: Sequence[float | None]) -> Cell:
    there = [value for value in values if value is not None and not math.isnan(value)]
    return Cell(f"{sum(there) / len(there):.2f}", value=there) if there else Cell("–")


def _group(findings: Mapping[str, str]) -> str | None:
    wanted = ("cardiomegaly", "atelectasis", "lung opacity")
    present = [name for name in wanted if findings.get(name) == "positive"]
    if not present:
        return "normal" if findings.get("no finding") == "positive" else None
    return present[0] if len(present) == 1 else None


def _read_embeddings(path: Path) -> tuple[list[str], Any, Any]:
    import json

    from safetensors import safe_open

    with safe_open(path, "numpy") as file:
        return json.loads(file.metadata()["studies"]), file.get_tensor("images"), file.get_tensor("texts")


def _findings(judged: Sequence[Judged]) -> list[str]:
    """Return what was found, in a sentence or two."""
    of_paper, ours = ([one for one in judged if one.claim.ours == flag] for flag in (False, True))
    sentences = []
    for some, whose in ((of_paper, "the paper's"), (ours, "our")):
        if some:
            holding, unclear = (sum(one.verdict == verdict for one in some) for verdict in (HOLDS, NOT_SHOWN))
            sentences.append(
                f"Of {whose} {len(some)} claims, {holding} hold here; for {unclear} no difference is shown."
            )
    return [" ".join(sentences)] if sentences else []


def make_page(found: Measurements) -> Page:
    """Estimate everything and return the page."""
    make = EclipPage(found)
    judged = judge(make.files)
    sections = [
        Section("finding", "Finding", _findings(judged), parts=[*make.ladder(), *make.host_tables(["clip"], False)]),
        Section("claims", "Claims", parts=[claims_table(judged)] if judged else [], folded=True),
        Section("table-1", "Table 1, other hosts", [OVER_PATIENTS], folded=True,
                parts=[*make.host_tables([host for host in HOSTS if host != "clip"], True)]),
        Section("ablation", "Ablation", parts=[*make.ablation()], folded=True),
        Section("maps", "The value of an annotation", parts=[*make.maps_tables()], folded=True),
        Section("efficiency", "Sample efficiency (Figure 1)", parts=[*make.efficiency()], folded=True),
        Section("retrieval", "Retrieval and geometry", parts=[*make.retrieval(), *make.umap()], folded=True),
        Section("shortcut", "A planted shortcut", parts=[*make.shortcut()], folded=True),
        Section("training", "Models and training", parts=found.model_tables(), folded=True),
        Section("missing", "Missing", items=[*found.absent()]),
        Section("commands", "Commands", code="\n".join(found.commands), folded=True),
    ]  # fmt: skip
    lead = f"Tables and figures of {found.published.paper}, measured on {found.prepared.targets.source}. {OTHER_DATA}"
    return Page(found.paper.title, lead, sections, found.facts, found.warning)
