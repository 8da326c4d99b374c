"""The paper's Tables 1 to 4 and 6 to 12 with our numbers in them, and those behind its Figures 3, 5, 14 and 15."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

from rightlung.audit.summary import metric_name
from rightlung.reproduce.wrong_lung.published import SUBSETS
from rightlung.reproduce.wrong_lung.results import PERTURBATIONS, Floats, Results
from rightlung.reproduce.wrong_lung.tables import (
    SUBSET_TITLES,
    Column,
    Measured,
    Row,
    Table,
    changes,
    grid,
    model_row,
    printed,
    scores,
)

RELEASED_CODE = (
    "The paper's models come from code with two softmaxes, where its Eq. 1 prints one; its figures stand beside the "
    "variants by their names."
)
_KINDS: tuple[Literal["local", "global"], ...] = ("local", "global")


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
        Column(metric_name(name), scores(results, name, "regions"), printed(name, model="gloria"))
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
        "All instances, in percent. Exact: the phrase's own mask, or its own boxes where it has none; phrases with "
        "neither are left out.",
        rows,
        [
            *(
                Column(f"{metric_name(name)}, regions", scores(results, name, "regions"), printed(name), ranked=True)
                for name in ("auroc", "average_precision")
            ),
            *(
                Column(f"{metric_name(name)}, exact", scores(results, name, "exact"), ranked=True)
                for name in ("auroc", "average_precision", "pointing")
            ),
        ],
        notes=[RELEASED_CODE] if results.model("retrained-one-softmax") is not None else [],
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
                    printed(f"selection_{kind}", subset), ranked=True,
                )
                for subset in subsets for kind in _KINDS
            ],
        )  # fmt: skip
    yield make(
        "t6", "Table 6: localisation with large boxes trimmed",
        "All instances, against the trimmed labels (B.1), in percent.", rows,
        [
            Column(metric_name(name), scores(results, name, "trimmed"), printed(name, "all", "trimmed"), ranked=True)
            for name in ("auroc", "average_precision")
        ],
    )  # fmt: skip
    for name in ("auroc", "average_precision"):
        title = f"Table 7: {metric_name(name)} on the subsets"
        yield _by_subset(measured, f"t7-{name}", title, name, both, "7")
    for name in ("auroc", "average_precision", "pointing"):
        title = f"Table 7 with exact masks: {metric_name(name)} on the subsets"
        yield _by_subset(measured, f"t7-exact-{name}", title, name, both, "7", target="exact", folded=True)
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
                    printed(measure, subset), scale=1.0, digits=digits,
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
                both, table[1:], folded=share != 10, notes=[slip] if kind == "precision" and share != 30 else [],
            )  # fmt: skip


def _by_subset(
    measured: Measured,
    name: str,
    title: str,
    measure: str,
    rows: Sequence[Row],
    table: str,
    target: str = "regions",
    folded: bool = False,
    notes: Sequence[str] = (),
) -> Table:
    results = measured.results
    columns = [
        Column(
            SUBSET_TITLES[subset],
            scores(results, measure, target, subset),
            printed(measure, subset, table=table) if target == "regions" else None,
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
                said = f"{perturbation.title}, {SUBSET_TITLES[where]}"
                columns.append(
                    Column(
                        f"{said}: as in the paper" if how == "as in the paper" else said,
                        partial(changes, results, perturbation, where, target, how, "auroc"),
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
            + _changed_counts(results, subset, target),
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
                    partial(changes, results, perturbation, subset, target, "changed", "average_precision"),
                    signed=True,
                )
                for perturbation in PERTURBATIONS
                for subset in dict.fromkeys(
                    [perturbation.subset, *(["mdrb"] if perturbation.name == "random-boxes" else [])]
                )
            ], folded=True,
        )  # fmt: skip


def _changed_counts(results: Results, subset: str | None, target: str) -> str:
    said = []
    for perturbation in PERTURBATIONS:
        inside = results.instances.subset(subset or perturbation.subset) & results.has(target)
        changed = int((inside & results.changed(perturbation, target)).sum())
        said.append(f"{perturbation.title} {changed:,} of {int(inside.sum()):,}")
    return (
        f"Phrases changed: {'; '.join(said)}. Shuffle in Report leaves a phrase as it is where its report has no other "
        "target, or the same one again."
    )
