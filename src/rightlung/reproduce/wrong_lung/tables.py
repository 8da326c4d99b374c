"""The tables of the paper with our numbers in them, and our own: as data, which `page` and `markdown` write down.

Every number carries the interval of its own comparison. Shares are in percent and their changes in percentage points,
as the paper prints them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from rightlung.audit.summary import metric_name, number
from rightlung.reproduce.wrong_lung.estimates import Estimate, Estimator
from rightlung.reproduce.wrong_lung.published import PAPER_COLUMN, SUBSETS, Figure, published
from rightlung.reproduce.wrong_lung.results import PERTURBATIONS, Change, Floats, Model, Perturbation, Results

SUBSET_TITLES = {"all": "All", "abnormal": "Abnormal", "one-lung": "One Lung", "mdrb": "MDRB"}
NOT_COMPARABLE = (
    "* not comparable: it is given the boxes of the regions, of which the target is a subset, so its scores are "
    "artificially high (section 2.2); it is never counted as the best."
)
BOLD = "Bold: the highest of the comparable models, which need not be shown to differ from the next."
RELEASED_CODE = (
    "The paper's models come from code with two softmaxes, where its Eq. 1 prints one; its figures stand beside the "
    "variants by their names."
)
FEW_PATIENTS = 5
FINDINGS_SHOWN = 14
_KINDS: tuple[Literal["local", "global"], ...] = ("local", "global")
CHOSEN = ("retrained", "word-masking", "no-attn", "abnormal", "thirty-shot", "sided", "prior")
"""The models whose results by finding are shown."""


@dataclass(frozen=True)
class Measured:
    """What was measured, and how intervals of it are made."""

    results: Results
    estimator: Estimator


@dataclass(frozen=True)
class Cell:
    """One entry: what is read, the interval beside it, and the number itself for the JSON file."""

    text: str
    detail: str = ""
    value: Any = None
    best: bool = False
    kind: str = "number"


@dataclass(frozen=True)
class Heading:
    """What stands above a column."""

    text: str
    kind: str = "number"


@dataclass(frozen=True)
class Table:
    """A table with its title, ready to be written down."""

    name: str
    title: str
    caption: str
    header: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    folded: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return all the numbers."""
        return {
            "name": self.name,
            "title": self.title,
            "caption": self.caption,
            "header": [heading.text for heading in self.header],
            "rows": [[cell.value if cell.value is not None else cell.text for cell in row] for row in self.rows],
        }


@dataclass(frozen=True)
class Row:
    """One line of a grid: a model, asked under a condition, over a subset."""

    label: str
    model: str
    comparable: bool = True
    ranked: bool = True
    variant: str = ""
    condition: str = "none"
    subset: str = "all"


@dataclass(frozen=True)
class Column:
    """One quantity of a grid, and the paper's figure beside it."""

    heading: str
    values: Callable[[Row], Floats]
    paper: Callable[[Row], Figure | None] | None = None
    scale: float = 100.0
    digits: int = 1
    signed: bool = False
    ranked: bool = False


def signed_number(value: float, digits: int = 1, signed: bool = False) -> str:
    """Return a number as people read it, without a minus before zero.

    >>> signed_number(-0.04), signed_number(-0.06)
    ('0.0', '−0.1')
    """
    return number(value if math.isnan(value) else round(value, digits) + 0.0, digits, signed)


def cell(found: Estimate, scale: float = 100.0, digits: int = 1, signed: bool = False, best: bool = False) -> Cell:
    """Return an estimate as a cell, a dash where there is none."""
    if math.isnan(found["estimate"]):
        return Cell("–", value=found)
    low, high = (signed_number(scale * found[name], digits, signed) for name in ("low", "high"))
    detail = "no interval" if "–" in (low, high) else f"{low} to {high}"
    return Cell(signed_number(scale * found["estimate"], digits, signed), detail, found, best)


def paper_cell(figure: Figure | None) -> Cell:
    """Return the paper's figure as a cell."""
    if figure is None:
        return Cell("–", kind="paper")
    return Cell(figure.printed, f"Table {figure.table}", {"paper": figure.value, "table": figure.table}, kind="paper")


def text_cell(text: str) -> Cell:
    """Return words as a cell."""
    return Cell(text, kind="text")


def grid(
    measured: Measured,
    name: str,
    title: str,
    caption: str,
    rows: Sequence[Row],
    columns: Sequence[Column],
    *,
    first: str = "model",
    folded: bool = False,
    notes: Sequence[str] = (),
) -> Table:
    """Estimate every column for every row, all together."""
    estimates = iter(measured.estimator.means([column.values(row) for column in columns for row in rows]))
    header = [Heading(first, "text")]
    lines: list[list[Cell]] = [[text_cell(row.label)] for row in rows]
    for column in columns:
        found = [next(estimates) for _ in rows]
        best = _best(rows, found) if column.ranked else set()
        header.append(Heading(column.heading))
        for place, value in enumerate(found):
            lines[place].append(cell(value, column.scale, column.digits, column.signed, place in best))
        if column.paper is None:
            continue
        figures = [column.paper(row) for row in rows]
        if any(figure is not None for figure in figures):
            header.append(Heading(PAPER_COLUMN, "paper"))
            for place, figure in enumerate(figures):
                lines[place].append(paper_cell(figure))
    said = [*notes]
    if any(column.ranked for column in columns):
        said.append(BOLD)
    if any(not row.comparable for row in rows):
        said.append(NOT_COMPARABLE)
    return Table(name, title, caption, tuple(header), tuple(map(tuple, lines)), tuple(said), folded)


def _best(rows: Sequence[Row], found: Sequence[Estimate]) -> set[int]:
    """Return the rows with the highest number for each condition: no reference, and none that is not comparable."""
    rivals: dict[str, list[int]] = {}
    for place, (row, value) in enumerate(zip(rows, found, strict=True)):
        if row.ranked and row.comparable and not math.isnan(value["estimate"]):
            rivals.setdefault(row.condition, []).append(place)
    best = set()
    for places in rivals.values():
        highest = max(found[place]["estimate"] for place in places)
        best |= {place for place in places if found[place]["estimate"] == highest}
    return best


def model_row(model: Model, **changes: Any) -> Row:
    """Return the row of a model."""
    given = {"label": model.label, "condition": "none", "subset": "all", **changes}
    return Row(
        model=model.slug,
        variant=model.variant,
        comparable=model.comparable,
        ranked=model.group != "reference",
        **given,
    )


def _paper(measure: str, subset: str | None = None, target: str = "regions", model: str | None = None) -> Any:
    """Return the function that finds the paper's figure for a row."""

    def find(row: Row) -> Figure | None:
        return published().find(
            model or row.variant, measure, subset or row.subset, target, row.condition == "synthetic"
        )

    return find


def _score(results: Results, measure: str, target: str, subset: str | None = None) -> Callable[[Row], Floats]:
    def values(row: Row) -> Floats:
        return results.within(results.score(row.model, measure, target, row.condition), subset or row.subset)

    return values


def _selection(results: Results, kind: Literal["local", "global"], subset: str, row: Row) -> Floats:
    return results.within(results.selection(row.model, kind), subset)


def _answer(results: Results, measure: str, subset: str, row: Row) -> Floats:
    return results.within(results.answer(row.model, measure), subset)


def paper_tables(measured: Measured) -> Iterator[Table]:
    """Make the paper's Tables 1 to 4 and 6 to 12, in the order of the paper."""
    results = measured.results
    rows = [model_row(model) for model in results.rows]
    both = [
        model_row(model, label=f"{model.label}, {word}", condition=condition)
        for model in results.rows
        for condition, word in (("none", "real"), ("synthetic", "synthetic"))
    ]
    make = partial(grid, measured)
    localisation = ("auroc", "average_precision", "iou@5", "iou@10", "iou@30")
    counterpart = [
        Column(metric_name(name), _score(results, name, "regions"), _paper(name, model="gloria"))
        for name in localisation
    ]
    retrained = results.model("retrained")
    if retrained is not None:
        note = (
            "The paper's column is GLoRIA with its released weights; Retrained's own figures are in Tables 3, 7 and 12."
        )
        yield make(
            "t1", "Table 1: localisation of Retrained, the counterpart of GLoRIA",
            "All instances, against region boxes, in percent.",
            [model_row(retrained)], counterpart, notes=[note],
        )  # fmt: skip
        yield make(
            "t2", "Table 2: the same on subsets", "Against region boxes, in percent.",
            [model_row(retrained, label=SUBSET_TITLES[name], subset=name) for name in SUBSETS[1:]],
            counterpart, first="subset", notes=[note],
        )  # fmt: skip
    yield make(
        "t3", "Table 3: localisation of all variants, against region boxes and against exact masks",
        "All instances, in percent. An exact mask is the finding's own; where there is none, the phrase is left out.",
        rows,
        [
            *(
                Column(f"{metric_name(name)}, regions", _score(results, name, "regions"), _paper(name), ranked=True)
                for name in ("auroc", "average_precision")
            ),
            *(
                Column(f"{metric_name(name)}, exact", _score(results, name, "exact"), ranked=True)
                for name in ("auroc", "average_precision", "pointing")
            ),
        ],
        notes=[RELEASED_CODE] if results.model("retrained-two-softmaxes") is not None else [],
    )  # fmt: skip
    for name, subsets in (("t4", SUBSETS[:2]), ("t9", SUBSETS[2:])):
        yield make(
            name, f"Table {name[1:]}: candidate selection accuracy",
            "How often the image is more similar to its own sentence than to one of another report, in percent; "
            "a tie counts half and chance is 50. Local and global are the two similarities.",
            rows, [
                Column(
                    f"{SUBSET_TITLES[subset]}, {kind}",
                    partial(_selection, results, kind, subset),
                    _paper(f"selection_{kind}", subset), ranked=True,
                )
                for subset in subsets for kind in _KINDS
            ],
        )  # fmt: skip
    yield make(
        "t6", "Table 6: localisation with large boxes trimmed",
        "All instances, against the trimmed labels (B.1), in percent.", rows,
        [
            Column(metric_name(name), _score(results, name, "trimmed"), _paper(name, "all", "trimmed"), ranked=True)
            for name in ("auroc", "average_precision")
        ],
    )  # fmt: skip
    for name in ("auroc", "average_precision"):
        yield _by_subset(measured, f"t7-{name}", f"Table 7: {metric_name(name)} on the subsets", name, both)
    for name in ("auroc", "average_precision", "pointing"):
        title = f"Table 7 with exact masks: {metric_name(name)} on the subsets"
        yield _by_subset(measured, f"t7-exact-{name}", title, name, both, target="exact", folded=True)
    for name, measure, title, digits in (
        ("t8", "kl_random", "Table 8: random attention KL divergence", 3),
        ("t10", "entropy", "Table 10: attention entropy", 3),
    ):
        yield make(
            name, title,
            "Mean in nats, over the map's own cells. A grid with another number of cells has another ceiling, its ln."
            if measure == "entropy"
            else "Mean in nats: the symmetric divergence between the map of the sentence and that of a random one.",
            rows, [
                Column(
                    SUBSET_TITLES[subset],
                    partial(_answer, results, measure, subset),
                    _paper(measure, subset), scale=1.0, digits=digits,
                )
                for subset in SUBSETS
            ],
        )  # fmt: skip
    slip = "The text of B.11 gives the precision above 70 % to +Masking; in its Table 11 it is +30-shot's."
    for table, kind in (("t11", "precision"), ("t12", "iou")):
        for share in (5, 10, 30):
            measure = f"{kind}@{share}"
            yield _by_subset(
                measured, f"{table}-{share}", f"Table {table[1:]}: {metric_name(measure)} on the subsets", measure,
                both, folded=share != 10, notes=[slip] if kind == "precision" and share != 30 else [],
            )  # fmt: skip


def _by_subset(
    measured: Measured,
    name: str,
    title: str,
    measure: str,
    rows: Sequence[Row],
    target: str = "regions",
    folded: bool = False,
    notes: Sequence[str] = (),
) -> Table:
    results = measured.results
    columns = [
        Column(
            SUBSET_TITLES[subset],
            _score(results, measure, target, subset),
            _paper(measure, subset) if target == "regions" else None,
            ranked=True,
        )
        for subset in SUBSETS
    ]
    against = "region boxes" if target == "regions" else "exact masks"
    caption = f"Against {against}, in percent, for the reports' sentences (real) and for synthetic ones (A.3)."
    return grid(measured, name, title, caption, rows, columns, first="model, sentences", folded=folded, notes=notes)


def change_tables(measured: Measured, target: str) -> Iterator[Table]:
    """Make the numbers behind Figures 3, 5 and 14: how AUROC changes under each perturbation."""
    results = measured.results
    rows = [model_row(model) for model in results.rows]
    against = "region boxes" if target == "regions" else "exact masks"
    for subset in (None, *SUBSETS):
        columns = []
        for perturbation in PERTURBATIONS:
            where = subset or perturbation.subset
            for how in ("changed", "as in the paper"):
                if how == "as in the paper" and perturbation.condition is None:
                    continue
                said = f"{perturbation.title}, {SUBSET_TITLES[where]}"
                columns.append(
                    Column(
                        f"{said}: as in the paper" if how == "as in the paper" else said,
                        partial(_change, results, perturbation, where, target, how, "auroc"),
                        signed=True,
                    )
                )
        title = (
            "Figures 3 and 5: change of AUROC, each perturbation on its subset"
            if subset is None
            else f"Figure 14: change of AUROC on {SUBSET_TITLES[subset]}"
        )
        name = f"changes-{target}" + (f"-{subset}" if subset else "")
        yield grid(
            measured, name, f"{title} ({against})",
            "Perturbed minus plain in percentage points: over the phrases that the perturbation changes and, as in the "
            "paper, over all phrases of the subset, of which those left as they are count 0. "
            + _changed_counts(results, subset),
            rows, columns, folded=subset is not None,
        )  # fmt: skip
    if target == "regions":
        yield grid(
            measured, "changes-average-precision", "Figure 15: change of average precision (region boxes)",
            "Perturbed minus plain in percentage points, over the phrases that are changed; each on its subset, and "
            "random boxes on MDRB, too (B.5).",
            rows, [
                Column(
                    f"{perturbation.title}, {SUBSET_TITLES[subset]}",
                    partial(_change, results, perturbation, subset, target, "changed", "average_precision"),
                    signed=True,
                )
                for perturbation in PERTURBATIONS
                for subset in dict.fromkeys(
                    [perturbation.subset, *(["mdrb"] if perturbation.name == "random-boxes" else [])]
                )
            ], folded=True,
        )  # fmt: skip


def _change(
    results: Results, perturbation: Perturbation, subset: str, target: str, how: Change, measure: str, row: Row
) -> Floats:
    return results.within(results.change(row.model, perturbation, measure, target, how), subset)


def _changed_counts(results: Results, subset: str | None) -> str:
    said = []
    for perturbation in PERTURBATIONS:
        if perturbation.condition is None:
            continue
        inside = results.instances.subset(subset or perturbation.subset)
        changed = int((inside & results.instances.changed(perturbation.condition)).sum())
        said.append(f"{perturbation.title} {changed:,} of {int(inside.sum()):,}")
    return f"Phrases changed: {'; '.join(said)}."


def own_tables(measured: Measured) -> Iterator[Table]:
    """Make the tables that the paper does not have."""
    results = measured.results
    rows = [model_row(model) for model in results.rows]
    one_lung = partial(_pointing, results)
    yield _beside(
        measured, "one-lung-exact", "Pointing on One Lung, against exact masks",
        "Share of phrases about one lung whose peak lies inside the exact mask, in percent, beside the image-blind "
        "prior and Retrained on the same phrases.",
        rows, one_lung,
    )  # fmt: skip
    without = ~results.instances.flags["names_side"]
    yield _beside(
        measured, "side-untold", "The side that no word gives away",
        "Share of peaks on the finding's side, in percent, over phrases about a finding on one side whose words do not "
        "name it: only the image can tell.",
        rows, lambda slug: results.within(results.peak_on_side(slug), without),
    )  # fmt: skip
    yield _beside(
        measured, "side-told", "The side that the words name",
        "Share of peaks on the finding's side, in percent, over phrases whose words name the side.",
        rows, lambda slug: results.within(results.peak_on_side(slug), ~without), folded=True,
    )  # fmt: skip
    exchange = next(found for found in PERTURBATIONS if found.name == "exchange-image")
    yield grid(
        measured, "exchange", "Another patient's image shown",
        "Change against the target of the phrase's own image, in percentage points. A model that looks loses; one that "
        "only reads keeps what it has.",
        rows, [
            Column(
                f"{metric_name(measure)}, {target}, {SUBSET_TITLES[subset]}",
                partial(_change, results, exchange, subset, target, "changed", measure), signed=True,
            )
            for measure, target, subset in (
                ("auroc", "regions", "abnormal"), ("auroc", "exact", "abnormal"),
                ("average_precision", "exact", "abnormal"), ("pointing", "exact", "abnormal"),
                ("pointing", "exact", "one-lung"),
            )
        ],
    )  # fmt: skip
    for measure, target in (("auroc", "regions"), ("pointing", "exact")):
        found = _by_finding(measured, measure, target)
        if found is not None:
            yield found
    if (seeds := _seeds(measured)) is not None:
        yield seeds


def _pointing(results: Results, slug: str) -> Floats:
    return results.within(results.score(slug, "pointing", "exact"), "one-lung")


def _beside(
    measured: Measured,
    name: str,
    title: str,
    caption: str,
    rows: Sequence[Row],
    values: Callable[[str], Floats],
    folded: bool = False,
) -> Table:
    """Make a table of one quantity with its paired differences to the prior and to Retrained."""
    results = measured.results
    made = grid(measured, name, title, caption, rows, [Column("share", lambda row: values(row.model), ranked=True)])
    header, lines = list(made.header), [list(line) for line in made.rows]
    for slug, said in (("prior", "minus the prior's"), ("retrained", "minus Retrained's")):
        if results.model(slug) is None:
            continue
        header.append(Heading(said))
        differences = measured.estimator.means([values(row.model) - values(slug) for row in rows])
        for row, line, found in zip(rows, lines, differences, strict=True):
            line.append(Cell("–") if row.model == slug else cell(found, signed=True))
    return Table(name, title, caption, tuple(header), tuple(map(tuple, lines)), made.notes, folded)


def _by_finding(measured: Measured, measure: str, target: str) -> Table | None:
    results = measured.results
    models = [model for model in results.rows if model.variant in CHOSEN] or list(results.rows[: len(CHOSEN)])
    flags: dict[str, Any] = {}
    for place, findings in enumerate(results.instances.findings):
        for finding in findings:
            flags.setdefault(finding, np.zeros(len(results.instances), dtype=bool))[place] = True
    patients = {name: len(set(results.instances.clusters[inside].tolist())) for name, inside in flags.items()}
    enough = [name for name in flags if patients[name] >= FEW_PATIENTS]
    listed = sorted(enough, key=lambda name: (-patients[name], name))
    if not listed or not models:
        return None
    shown = listed[:FINDINGS_SHOWN]
    rows = [Row(f"{name} ({patients[name]:,} patients)", name) for name in shown]

    def column(model: Model) -> Column:
        values = results.score(model.slug, measure, target)
        return Column(model.label, lambda row: results.within(values, flags[row.model]))

    rest = len(flags) - len(shown)
    note = [f"{rest} rarer findings are not shown."] if rest else []
    if any(not model.comparable for model in models):
        note.append(NOT_COMPARABLE)
    against = "region boxes" if target == "regions" else "exact masks"
    return grid(
        measured, f"findings-{measure}", f"By finding: {metric_name(measure)} against {against}",
        "In percent; a phrase counts for each finding it says is there.",
        rows, [column(model) for model in models], first="finding", notes=note, folded=measure != "pointing",
    )  # fmt: skip


def _seeds(measured: Measured) -> Table | None:
    results = measured.results
    swap = PERTURBATIONS[0]
    quantities: tuple[tuple[str, Callable[[str], Floats], bool], ...] = (
        ("AUROC, regions, All", lambda slug: results.score(slug, "auroc"), False),
        ("pointing, exact, One Lung", partial(_pointing, results), False),
        (
            "change of AUROC, exact, One Lung, sides swapped",
            lambda slug: results.within(results.change(slug, swap, "auroc", "exact"), "one-lung"),
            True,
        ),
        ("selection, global, All", lambda slug: results.selection(slug, "global"), False),
    )
    lines = []
    for row in results.rows:
        models = results.seeds(row.variant)
        if len(models) < 2:
            continue
        line = [text_cell(row.label), text_cell(f"{len(models)}")]
        for _, values, signed in quantities:
            means = np.array([_plain_mean(values(model.slug)) for model in models])
            if np.isnan(means).any():
                line.append(Cell("–"))
                continue
            spread = float(means.std(ddof=1))
            each = {model.slug: float(mean) for model, mean in zip(models, means, strict=True)}
            mean = float(means.mean())
            low, high = (signed_number(100 * float(end), 1, signed) for end in (means.min(), means.max()))
            value = {"mean": mean, "spread": spread, "seeds": each}
            line.append(Cell(signed_number(100 * mean, 1, signed), f"±{100 * spread:.1f}; {low} to {high}", value))
        lines.append(tuple(line))
    if not lines:
        return None
    header = (Heading("variant", "text"), Heading("seeds", "text"), *(Heading(name) for name, _, _ in quantities))
    caption = "Mean over the seeds, its standard deviation, and the lowest and highest seed; percent or points."
    return Table("seeds", "Seeds", caption, header, tuple(lines))


def _plain_mean(values: Floats) -> float:
    there = values[~np.isnan(values)]
    return float(there.mean()) if len(there) else math.nan


def training_table(results: Results) -> Table | None:
    """Make the table of how each model was trained; ``None`` where no model says."""
    lines = []
    for model in results.models:
        training = model.training
        if not training:
            continue
        plateau = training.get("plateau")
        ended = {True: "plateau", False: "stopped before a plateau", None: "not known"}[plateau]
        if training.get("stopped_early"):
            ended += ", stopped early"
        seed = "–" if model.seed is None else str(model.seed)
        lines.append(
            (
                text_cell(model.label),
                Cell(seed, value=model.seed, kind="text"),
                *(_count(training.get(name)) for name in ("steps", "images", "seconds")),
                text_cell(str(training.get("device") or "–")),
                text_cell(ended),
                Cell("", value=curve(training), kind="curve"),
            )
        )
    if not lines:
        return None
    header = (
        Heading("model", "text"), Heading("seed", "text"), Heading("steps"), Heading("images"), Heading("seconds"),
        Heading("device", "text"), Heading("how it ended", "text"), Heading("validation loss over steps", "curve"),
    )  # fmt: skip
    caption = "A run that stopped before a plateau says less about its recipe than about its budget."
    return Table("training", "Training", caption, header, tuple(lines))


def _count(value: Any) -> Cell:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return Cell("–")
    return Cell(f"{value:,.0f}", value=value)


def curve(training: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Return the steps and losses of a validation curve, without what is no number."""
    points = []
    for entry in training.get("curve") or ():
        step, loss = entry[0], entry[1]
        if isinstance(step, int | float) and isinstance(loss, int | float) and math.isfinite(loss):
            points.append((float(step), float(loss)))
    return points
