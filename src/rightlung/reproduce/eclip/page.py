"""Lay out the page of eCLIP: the finding, one figure and one table; then all others, folded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec

from rightlung.pages.content import Cell, Column, Figure, Page, Section, Table
from rightlung.pages.figures import IntervalPanel, panel_figure
from rightlung.reproduce.claims import HOLDS, NOT_SHOWN, TOO_FEW
from rightlung.reproduce.eclip.claims import ACCURACY, AUROC, CLAIMS, POINTING, SHORTCUT, TITLES
from rightlung.reproduce.eclip.embedding_tables import EmbeddingTables
from rightlung.reproduce.eclip.measuring import BY_CHANCE, PLANTED, PROBED, SHARES
from rightlung.reproduce.eclip.tables import COLUMNS, table_name
from rightlung.reproduce.eclip.variants import (
    ABLATION,
    ALL_STEPS,
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
from rightlung.reproduce.pair_claims import Judged, Place, claims_table, judge
from rightlung.reproduce.task_tables import PRIOR, PRIOR_LABEL
from rightlung.results.estimate import Estimate

OTHER_DATA = (
    "Everything here is measured on synthetic studies with small models, and gaze is simulated. The paper trained on "
    "MIMIC-CXR with the gaze of one radiologist on 1,080 studies. Compare the direction of effects, not values."
)
F1: Mapping[Place, str] = {
    ("5x", "class_macro_f1"): "macro-F1, 5 classes", ("12x", "class_macro_f1"): "12 classes",
    ("pneumonia", "class_macro_f1"): "pneumonia",
}  # fmt: skip


class EclipPage(EmbeddingTables):
    """Makes the tables and figures of the page."""

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
             Cell(table_name(value.table))]
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
        steps |= {slug: f"{label}, {ALL_STEPS}" for slug, label in rows.items()}
        every = {name: steps[name] for name in sorted(steps, key=_by_length)}
        yield from self.table("steps", "Figure 1, top: zero-shot by training steps", "In percent.", every,
                              {AUROC: COLUMNS[AUROC], ACCURACY: COLUMNS[ACCURACY]})  # fmt: skip
        shares: dict[Place, str] = {
            (f"probe-{100 * share:g}", "finding_auroc"): f"{100 * share:g} % of labels" for share in SHARES
        }
        shares["probe-five-epochs", "finding_auroc"] = "five epochs (the paper's protocol)"
        caption = "AUROC of linear probes on frozen embeddings, in percent: logistic regression to convergence."
        yield from self.table("probes", "Figure 1, bottom: linear probes by labels", caption,
                              {name: self.label(name) for name in PROBED}, shares)  # fmt: skip

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
    return (name, int(steps)) if steps.isdigit() else (slug, ALL_STEPS)


def _findings(judged: Sequence[Judged]) -> list[str]:
    """Return what was found, in a sentence or two."""
    of_paper, ours = ([one for one in judged if one.claim.ours == flag] for flag in (False, True))
    sentences = []
    for some, whose in ((of_paper, "the paper's"), (ours, "our")):
        if some:
            holding, unclear = (sum(one.verdict == verdict for one in some) for verdict in (HOLDS, NOT_SHOWN))
            few = sum(not one.enough or one.verdict == TOO_FEW for one in some)
            sentences.append(
                f"Of {whose} {len(some)} claims, {holding} hold here; for {unclear} no difference is shown; {few} have "
                "too few seeds or patients to be judged."
            )
    return [" ".join(sentences)] if sentences else []


def make_page(found: Measurements) -> Page:
    """Estimate everything and return the page."""
    make = EclipPage(found)
    judged = judge(make.files, CLAIMS)
    sections = [
        Section("finding", "Finding", _findings(judged), parts=[*make.ladder(), *make.host_tables(["clip"], False)]),
        Section("claims", "Claims", parts=[claims_table(judged, TITLES)] if judged else [], folded=True),
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
