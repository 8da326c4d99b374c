"""Lay out the page of eCLIP: the finding, one figure and one table; then all others, folded."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec

import numpy as np

from rightlung.core import InputError
from rightlung.core.files import read_json
from rightlung.measuring import find_measure
from rightlung.pages.content import Cell, Column, Figure, Page, Section, Table
from rightlung.pages.figures import IntervalPanel, panel_figure
from rightlung.pages.numbers import estimate_cell
from rightlung.reproduce.claims import HOLDS, NOT_SHOWN
from rightlung.reproduce.eclip.blind import blind_retrieval
from rightlung.reproduce.eclip.claims import ACCURACY, AUROC, POINTING, SHORTCUT, Judged, Place, claims_table, judge
from rightlung.reproduce.eclip.files import EclipFiles
from rightlung.reproduce.eclip.measuring import (
    BY_CHANCE,
    DIRECTIONS,
    EMBEDDED,
    EMBEDDINGS,
    PLANTED,
    PROBED,
    SHARES,
    Embedded,
    group_of,
)
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
    TIED,
    expert_slug,
)
from rightlung.reproduce.measurements import OVER_PATIENTS, Measurements
from rightlung.reproduce.published import Subject
from rightlung.results.estimate import BootstrapSettings, Estimate

OTHER_DATA = (
    "Everything here is measured on synthetic studies with small models, and gaze is simulated. The paper trained on "
    "MIMIC-CXR with the gaze of one radiologist on 1,080 studies. Compare the direction of effects, not values."
)
TWELVE: Place = ("12x", "class_accuracy")
PNEUMONIA: Place = ("pneumonia", "class_accuracy")
COLUMNS: Mapping[Place, str] = {
    ACCURACY: "accuracy, 5 classes", TWELVE: "12 classes", PNEUMONIA: "pneumonia", AUROC: "zero-shot AUROC",
    POINTING: "pointing",
}  # fmt: skip
F1: Mapping[Place, str] = {
    ("5x", "class_macro_f1"): "macro-F1, 5 classes", ("12x", "class_macro_f1"): "12 classes",
    ("pneumonia", "class_macro_f1"): "pneumonia",
}  # fmt: skip
PAPERS = {"5x": "chexpert-5x200", "12x": "cxr-14x100", "pneumonia": "rsna"}
"""The paper's data sets whose figures stand next to ours."""
PRIOR, PRIOR_LABEL = "prior", "location prior (never sees an image)"
WAYS = dict(zip(DIRECTIONS, ("reports by images", "images by reports"), strict=True))
SETTINGS = BootstrapSettings(resamples=500)
UMAP_NOTE = "Expert images have the simulated gaze on the same study, which no score uses."


class EclipPage:
    """Makes the tables and figures from the files of every model."""

    def __init__(self, found: Measurements) -> None:
        self.found = found
        self.files = EclipFiles(found, SETTINGS, "percentile")

    def there(self, variants: Sequence[str]) -> list[str]:
        """Return the variants that were measured."""
        return [name for name in variants if self.files.model(name) is not None]

    def label(self, variant: str) -> str:
        """Return the name of a variant."""
        model = self.files.model(variant)
        return variant if model is None else model.label

    def table(
        self, name: str, title: str, caption: str, rows: Mapping[str, str], columns: Mapping[Place, str] = COLUMNS,
        *, minus: str | Mapping[str, str] | None = None, papers: str | None = None, folded: bool = True,
        references: Mapping[str, Mapping[Place, Estimate]] | None = None,
    ) -> Iterator[Table]:  # fmt: skip
        """Yield a table of variants (with their labels) by measures; nothing if none was measured.

        ``minus``: the variant, or that of each row, from which differences are shown in a second column. ``papers``:
        the kind of published figures to show. ``references``: further rows.
        """
        known = self.there([*rows])
        if not {*known} - {PRIOR}:
            return
        others = minus if isinstance(minus, Mapping) else {} if minus is None else dict.fromkeys(known, minus)
        header = [Column("model", "text")]
        lines = [[Cell(rows[one])] for one in known] + [[Cell(label)] for label in references or ()]
        for place, heading in columns.items():
            values = [self.files.estimate(one, *place) for one in known]
            if not any(values):
                continue
            header.append(Column(heading))
            best = self._best(place, {slug: one for slug, one in zip(known, values, strict=True) if one is not None})
            cells = [self._cell(place, one, strong=slug in best) for slug, one in zip(known, values, strict=True)]
            cells += [self._cell(place, row.get(place)) for row in (references or {}).values()]
            self._append(lines, cells)
            differences = [self._difference(one, others.get(one), place) for one in known]
            if any(cell.text != "–" for cell in differences):
                header.append(Column(f"− {rows.get(minus, minus) if isinstance(minus, str) else 'usual number'}"))
                self._append(lines, differences)
            figures = [self._paper(one, place, papers) for one in known]
            if any(cell.text != "–" for cell in figures):
                header.append(Column(self.found.published.column, "paper"))
                self._append(lines, figures)
        yield Table(name, title, caption, header, lines, ["Bold: the best value of the trained models."], folded)

    @staticmethod
    def _append(lines: Sequence[list[Cell]], cells: Sequence[Cell]) -> None:
        for number, line in enumerate(lines):
            line.append(cells[number] if number < len(cells) else Cell("–"))

    @staticmethod
    def _cell(place: Place, found: Estimate | None, signed: bool = False, strong: bool = False) -> Cell:
        """Return a share in percent, or a rank."""
        return estimate_cell(found, 1.0 if "rank" in place[1] else 100.0, 1, signed=signed, strong=strong)

    @staticmethod
    def _best(place: Place, values: Mapping[str, Estimate]) -> list[str]:
        trained = {slug: one.value for slug, one in values.items() if slug != PRIOR and one.defined}
        if not trained or place == SHORTCUT:
            return []
        best = (min if "rank" in place[1] else max)(trained.values())
        return [slug for slug, value in trained.items() if value == best]

    def _difference(self, variant: str, other: str | None, place: Place) -> Cell:
        if other is None or variant == other or PRIOR in (variant, other):
            return Cell("–")
        return self._cell(place, self.files.difference(variant, other, *place), signed=True)

    def _paper(self, variant: str, place: Place, target: str | None) -> Cell:
        if target is None:
            return Cell("–")
        subset = "open-i" if target == "retrieval" else PAPERS.get(place[0], "")
        if target == "retrieval" and place[0] != DIRECTIONS[0]:
            return Cell("–")
        found = self.found.published.find(Subject(variant, place[1], subset, target))
        return Cell("–") if found is None else Cell(found.printed, _table_name(found.table))

    def host_tables(self, hosts: Sequence[str], folded: bool) -> Iterator[Table]:
        """Yield the counterparts of Table 1."""
        for host in hosts:
            caption = (
                "Zero-shot classification and pointing on exact masks, in percent; differences are paired. Accuracy by "
                "chance: 20, 8.3 and 50 %. AUROC: positive against negative prompts of each finding."
            )
            yield from self.table(
                f"t1-{host}", f"Table 1: {HOSTS[host]}", caption, self._rows_of(host), minus=host, papers="benchmark",
                folded=folded,
            )  # fmt: skip

    def f1_tables(self) -> Iterator[Table]:
        """Yield macro-F1 of the rows of Table 1."""
        for host, title in HOSTS.items():
            rows = {name: label for name, label in self._rows_of(host).items() if name != PRIOR}
            yield from self.table(
                f"f1-{host}", f"Table 1, macro-F1: {title}", "Of the same answers, in percent.", rows, F1, minus=host,
                papers="benchmark",
            )  # fmt: skip

    def _rows_of(self, host: str) -> dict[str, str]:
        rows = {f"{host}-{method}".strip("-"): label or HOSTS[host] for method, (label, _) in METHODS.items()}
        rows |= {f"{host}-{method}": label for method, (label, _) in RELEASED.items()}
        rows[f"{host}-tied"] = "+ tied (ours)"
        if host == "clip":
            rows |= {f"tied-{slug}": f"+ tied, {label}" for slug, (_, label, _) in TIED.items()}
        return rows | {PRIOR: PRIOR_LABEL}

    def published(self) -> Iterator[Table]:
        """Yield the published figures of models or measures that are not measured here."""
        known = self.found.published
        lines = [
            [Cell(known.models[of.model]), Cell(of.subset), Cell(of.measure), Cell(value.printed),
             Cell(_table_name(value.table))]
            for of, value in known.values.items()
            if of.target == "reports" or of.subset == "mimic-5x200" or self.files.model(of.model) is None
        ]  # fmt: skip
        header = [Column(title, "text") for title in ("model", "data", "measure", "paper, percent", "where")]
        yield Table(
            "published", "Published figures without a counterpart", "Other data and models.", header, lines, [], True
        )

    def ladder(self) -> Iterator[Figure | Table]:
        """Yield the value of an annotation, by the kind of map."""
        rows = {expert_slug(kind): title for kind, title in MAPS.items()} | {"clip": "CLIP, no added images"}
        known = self.there([*rows, PRIOR])
        rows[PRIOR] = PRIOR_LABEL
        if {*known} - {PRIOR, "clip"} and "clip" in known:
            panels = [
                IntervalPanel(
                    title=COLUMNS[place], series={"difference": [self._minus(one, "clip", place) for one in known]},
                    line=0.0, scale=100.0, signed=True,
                )
                for place in (AUROC, POINTING)
            ]  # fmt: skip
            caption = (
                f"eCLIP with {ANNOTATED:,} maps of different kinds, minus CLIP without any, in percentage points. Gaze "
                "is simulated. Same main batches, means over seeds, 95 % intervals over patients. Exact masks, gaze, "
                "random fixations and no map have all seeds, the other kinds one."
            )
            yield panel_figure(
                "ladder", "What is an expert's map worth?", caption, [rows[one] for one in known], panels,
                unit="percentage points", references=["CLIP, no added images", PRIOR_LABEL],
            )  # fmt: skip

    def _minus(self, variant: str, other: str, place: Place) -> Estimate | None:
        if variant == other:
            return Estimate(0.0)
        if variant == PRIOR and place != POINTING:
            return None
        return self.files.difference(variant, other, *place)

    def maps_tables(self) -> Iterator[Table]:
        """Yield the ladder as a table, and the other numbers of maps."""
        rows = {"clip": "CLIP"} | {expert_slug(kind): title for kind, title in MAPS.items()} | {PRIOR: PRIOR_LABEL}
        caption = f"eCLIP with {ANNOTATED:,} maps of each kind, in percent."
        yield from self.table("maps-by-kind", "Kinds of maps", caption, rows, minus="clip")
        numbers = [number for number in NUMBERS if number != ANNOTATED]
        counted = {expert_slug(kind, number): f"{MAPS[kind]}, {number:,}" for kind in COUNTED for number in numbers}
        usual = {expert_slug(kind, number): expert_slug(kind) for kind in COUNTED for number in numbers}
        caption = f"eCLIP with maps for fewer or more studies than the usual {ANNOTATED:,}, in percent."
        yield from self.table("maps-by-number", "Numbers of maps", caption, counted | {PRIOR: PRIOR_LABEL}, minus=usual)

    def ablation(self) -> Iterator[Table]:
        """Yield the counterpart of the ablation."""
        rows = {"clip": "CLIP"} | {f"ablation-{slug}": name for slug, (name, _) in ABLATION.items()}
        rows |= {"map-random": "random, M, C, P", "clip-expert": "attention, E, M, C, P", PRIOR: PRIOR_LABEL}
        columns = {
            ("5x", "class_macro_f1"): "macro-F1, 5 classes", ("12x", "class_macro_f1"): "12 classes",
            AUROC: "zero-shot AUROC", POINTING: "pointing",
        }  # fmt: skip
        caption = "E: expert images, M: mixup, C: curriculum, P: priming. In percent. The paper's encoder is a Swin-T."
        yield from self.table("ablation", "Ablation", caption, rows, columns, minus="clip", papers="ablation")

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
        """Yield the tables of retrieval, one for each direction, and of geometry."""
        rows = {name: self.label(name) for name in self._retrieving()}
        blind = blind_retrieval(self.found.prepared, SETTINGS)
        names = ("recall@1", "recall@5", "recall@10", "median_rank", "recall@10_once")
        for direction, way in WAYS.items():
            columns: dict[Place, str] = {(direction, name): find_measure(name).title for name in names}
            references = {
                label: {(direction, name): one for name, one in found.items()}
                for label, found in blind[direction].items()
            }
            caption = (
                f"Finding {way} among all test studies, in percent; the median rank is a number. Candidates are "
                "distinct reports; images with the same report are all right. The answers that see no image know how "
                "often each report occurs in the test studies."
            )
            yield from self.table(direction, f"Retrieval: {way}", caption, rows, columns, papers="retrieval",
                                  references=references)  # fmt: skip
        yield from self._geometry([*rows])

    def _retrieving(self) -> list[str]:
        wanted = [f"{host}-{method}".strip("-") for host in ("clip", "gloria") for method in (*METHODS, "tied")]
        return self.there([*wanted, "vit-b", "vit-b-expert"])

    def _geometry(self, variants: Sequence[str]) -> Iterator[Table]:
        names = {"gap": "gap", "alignment": "alignment", "uniformity_images": "uniformity, images",
                 "uniformity_texts": "uniformity, texts", "temperature": "temperature"}  # fmt: skip
        lines, chance = [], None
        for variant in variants:
            paths = [path.with_name("geometry.json") for path in self.files.files(variant, DIRECTIONS[0])]
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
        from rightlung.pages.points import umap_figure

        labels = self.found.prepared.targets.labels
        for name in self._embedded():
            found, expert = Embedded.read(self.found.folder / "measures" / name / EMBEDDINGS)
            groups = {study: group for study in found.studies if (group := group_of(labels[study].findings))}
            kept = [
                place for place, study in enumerate(found.studies) if study in (expert or groups) and study in groups
            ]
            studies = [found.studies[place] for place in kept]
            vectors = {"images": found.images[kept], "reports": found.texts[kept]}
            if expert:
                vectors["expert images"] = np.array([expert[study] for study in studies])
            with suppress(InputError):  # UMAP is not installed, or there are too few studies: see `missing`
                yield umap_figure(f"umap-{name}", f"Figure 2: {self.label(name)}", vectors,
                                  [groups[study] for study in studies], note=UMAP_NOTE)  # fmt: skip

    def _embedded(self) -> list[str]:
        return [name for name in EMBEDDED if (self.found.folder / "measures" / name / EMBEDDINGS).is_file()]

    def missing(self) -> Iterator[str]:
        """Yield why figures and tables are missing."""
        probed = self.there(PROBED)
        if probed and not any(self.files.files(name, f"probe-{100 * SHARES[-1]:g}") for name in probed):
            yield "Linear probes: scikit-learn (the extra `retrieval`) was not installed, or too few labels are known."
        if self._embedded() and find_spec("umap") is None:
            yield "Figure 2 (UMAP): the extra `retrieval` is not installed: pip install 'rightlung[retrieval]'."

    def shortcut(self) -> Iterator[Table]:
        """Yield how much a planted word raises the score of pneumonia."""
        rows = {f"shortcut-{slug}": self.label(f"shortcut-{slug}") for slug in ("clip", "clip-expert", "clip-tied")}
        columns: dict[Place, str] = {
            (BY_CHANCE, "finding_auroc"): "word by chance", (PLANTED, "finding_auroc"): "word as in training",
            SHORTCUT: "gain by the word",
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


def _table_name(table: str) -> str:
    return f"Table {table}" if table.isdigit() else table.partition(", ")[2]


def _findings(judged: Sequence[Judged]) -> list[str]:
    """Return what was found, in a sentence or two."""
    of_paper, ours = ([one for one in judged if one.claim.ours == flag] for flag in (False, True))
    sentences = []
    for some, whose in ((of_paper, "the paper's"), (ours, "our")):
        if some:
            holding, unclear = (sum(one.verdict == verdict for one in some) for verdict in (HOLDS, NOT_SHOWN))
            few = sum(not one.enough for one in some)
            sentences.append(
                f"Of {whose} {len(some)} claims, {holding} hold here; for {unclear} no difference is shown; {few} have "
                "too few seeds to be judged."
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
                parts=[*make.host_tables([host for host in HOSTS if host != "clip"], True), *make.f1_tables()]),
        Section("ablation", "Ablation", parts=[*make.ablation()], folded=True),
        Section("maps", "The value of an annotation", parts=[*make.maps_tables()], folded=True),
        Section("efficiency", "Sample efficiency (Figure 1)", parts=[*make.efficiency()], folded=True),
        Section("retrieval", "Retrieval and geometry", parts=[*make.retrieval(), *make.umap()], folded=True),
        Section("shortcut", "A planted shortcut", parts=[*make.shortcut()], folded=True),
        Section("training", "Models and training", parts=found.model_tables(), folded=True),
        Section("published", "Published figures", found.published.remarks, parts=[*make.published()], folded=True),
        Section("missing", "Missing", items=[*found.absent(), *make.missing()]),
        Section("commands", "Commands", code="\n".join(found.commands), folded=True),
    ]  # fmt: skip
    lead = f"Tables and figures of {found.published.paper}, measured on {found.prepared.targets.source}. {OTHER_DATA}"
    return Page(found.paper.title, lead, sections, found.facts, found.warning)
