"""The paper's Tables 1 to 4 and 6 to 12 with our numbers, and the numbers behind its Figures 3, 5, 14 and 15."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from rightlung.measuring.measures import find_measure
from rightlung.pages.content import Table
from rightlung.reproduce.tables import Quantity, TableMaker, model_row
from rightlung.reproduce.wrong_lung.variants import PERTURBATIONS, SUBSET_TITLES, SUBSETS, TARGET_TITLES
from rightlung.results.measured import Measured

RELEASED_CODE = (
    "The paper's models were trained with code that has two softmaxes, although its Eq. 1 has one. Its numbers are "
    "printed next to the variants of the same name."
)
RELEASED_WEIGHTS = (
    "The paper's column is GLoRIA with its released weights. Its numbers for Retrained are in Tables 3, 7 and 12."
)
SLIP = "The text of B.11 attributes the precision above 70 % to +Masking; in its Table 11 it belongs to +30-shot."
_HOWS: tuple[Literal["changed", "all"], ...] = ("changed", "all")


def _title(measure: str) -> str:
    return find_measure(measure).title


def localisation_tables(make: TableMaker) -> Iterator[Table]:
    """Yield Tables 1 to 3, 6, 7, 11 and 12."""
    rows = [model_row(model) for model in make.measured.rows]
    yield from _first_tables(make)
    yield make.table(
        "t3", "Table 3: localisation of all variants, against region boxes and against exact masks",
        "All instances, in percent. Exact: the phrase's own mask, or its own boxes if it has no mask; phrases with "
        "neither are left out.",
        rows,
        [
            *(
                Quantity(f"{_title(name)}, regions", make.values(name, "regions"), make.printed(name), ranked=True)
                for name in ("auroc", "average_precision")
            ),
            *(
                Quantity(f"{_title(name)}, exact", make.values(name, "exact"), ranked=True)
                for name in ("auroc", "average_precision", "pointing")
            ),
        ],
        notes=[RELEASED_CODE] if make.measured.model("retrained-one-softmax") is not None else [],
    )  # fmt: skip
    yield make.table(
        "t6", "Table 6: localisation with large boxes removed",
        "All instances, against the trimmed labels (B.1), in percent.", rows,
        [
            Quantity(_title(name), make.values(name, "trimmed"), make.printed(name, "all", "trimmed"), ranked=True)
            for name in ("auroc", "average_precision")
        ],
    )  # fmt: skip
    for name in ("auroc", "average_precision"):
        yield _by_subset(make, f"t7-{name}", name)
    for name in ("auroc", "average_precision", "pointing"):
        yield _by_subset(make, f"t7-exact-{name}", name, target="exact", folded=True)
    for table, kind in (("t11", "precision"), ("t12", "iou")):
        for share in (5, 10, 30):
            notes = [SLIP] if kind == "precision" and share != 30 else []
            yield _by_subset(make, f"{table}-{share}", f"{kind}@{share}", folded=share != 10, notes=notes)


def _first_tables(make: TableMaker) -> Iterator[Table]:
    retrained = make.measured.model("retrained")
    if retrained is None:
        return
    quantities = [
        Quantity(_title(name), make.values(name, "regions"), make.printed(name, model="gloria"))
        for name in ("auroc", "average_precision", "iou@5", "iou@10", "iou@30")
    ]
    yield make.table(
        "t1", "Table 1: localisation of Retrained, the counterpart of GLoRIA",
        "All instances, against region boxes, in percent.", [model_row(retrained)], quantities,
        notes=[RELEASED_WEIGHTS],
    )  # fmt: skip
    yield make.table(
        "t2", "Table 2: localisation of Retrained on subsets", "Against region boxes, in percent.",
        [model_row(retrained, label=SUBSET_TITLES[name], subset=name) for name in SUBSETS[1:]], quantities,
        first="subset", notes=[RELEASED_WEIGHTS],
    )  # fmt: skip


def _by_subset(
    make: TableMaker, name: str, measure: str, target: str = "regions", folded: bool = False, notes: Sequence[str] = ()
) -> Table:
    """Return a table of a measure on every subset, for real and synthetic sentences."""
    number = name.partition("-")[0].removeprefix("t")
    rows = [
        model_row(model, label=f"{model.label}, {word}", condition=condition)
        for model in make.measured.rows
        for condition, word in (("none", "real"), ("synthetic", "synthetic"))
    ]
    quantities = [
        Quantity(
            SUBSET_TITLES[subset], make.values(measure, target, subset),
            make.printed(measure, subset, table=number) if target == "regions" else None, ranked=True,
        )
        for subset in SUBSETS
    ]  # fmt: skip
    title = f"Table {number}{' with exact masks' if target == 'exact' else ''}: {_title(measure)} on the subsets"
    caption = (
        f"Against {TARGET_TITLES[target]}, in percent, for sentences from reports (real) and synthetic sentences (A.3)."
    )
    return make.table(name, title, caption, rows, quantities, first="model, sentences", folded=folded, notes=notes)


def selection_tables(make: TableMaker) -> Iterator[Table]:
    """Yield Tables 4 and 9."""
    rows = [model_row(model) for model in make.measured.rows]
    for name, subsets in (("t4", SUBSETS[:2]), ("t9", SUBSETS[2:])):
        yield make.table(
            name, f"Table {name[1:]}: candidate selection accuracy",
            "How often the image is more similar to its own sentence than to a sentence of another report, in percent. "
            "A tie counts half; chance is 50. Local and global are the two similarities of the model.",
            rows, [
                Quantity(
                    f"{SUBSET_TITLES[subset]}, {kind}", make.values(f"selection_{kind}", None, subset),
                    make.printed(f"selection_{kind}", subset), ranked=True,
                )
                for subset in subsets for kind in ("local", "global")
            ],
        )  # fmt: skip


def map_tables(make: TableMaker) -> Iterator[Table]:
    """Yield Tables 8 and 10."""
    rows = [model_row(model) for model in make.measured.rows]
    for name, measure, printed, title, caption in (
        ("t8", "kl_random", "kl_random", "Table 8: random attention KL divergence",
         "Mean in nats: symmetric divergence between the maps of the sentence and of a random sentence."),
        ("t10", "grid_entropy", "entropy", "Table 10: attention entropy",
         "Mean in nats over the cells of the map. The maximum, ln(cells), depends on the size of the grid."),
    ):  # fmt: skip
        quantities = [
            Quantity(
                SUBSET_TITLES[subset], make.values(measure, None, subset), make.printed(printed, subset), 1.0, 3,
            )
            for subset in SUBSETS
        ]  # fmt: skip
        yield make.table(name, title, caption, rows, quantities)


def change_table(make: TableMaker, target: str, subset: str | None) -> Table:
    """Return the change of AUROC under each perturbation: Figures 3 and 5 or, on one subset, Figure 14."""
    quantities = []
    for perturbation in PERTURBATIONS:
        where = subset or perturbation.subset
        for how in _HOWS:
            title = f"{perturbation.title}, {SUBSET_TITLES[where]}"
            values = make.changes(perturbation, where, target, how=how)
            quantities.append(Quantity(f"{title}: as in the paper" if how != "changed" else title, values, signed=True))
    title = (
        "Figures 3 and 5: change of AUROC, each perturbation on its subset"
        if subset is None
        else f"Figure 14: change of AUROC on {SUBSET_TITLES[subset]}"
    )
    return make.table(
        f"changes-{target}" + (f"-{subset}" if subset else ""), f"{title} ({TARGET_TITLES[target]})",
        "Perturbed minus original in percentage points: over the phrases that the perturbation changes and, as in the "
        "paper, over all phrases of the subset, where unchanged phrases count 0. "
        + _changed_counts(make.measured, subset, target),
        [model_row(model) for model in make.measured.rows], quantities, folded=subset is not None,
    )  # fmt: skip


def precision_changes(make: TableMaker) -> Table:
    """Return the change of average precision under each perturbation (Figure 15), with random boxes also on MDRB."""
    places = [(one, one.subset) for one in PERTURBATIONS]
    places.insert(4, (PERTURBATIONS[3], "mdrb"))
    return make.table(
        "changes-average-precision", "Figure 15: change of average precision (region boxes)",
        "Perturbed minus original in percentage points, over the phrases that change; each perturbation on its subset, "
        "and random boxes also on MDRB (B.5).",
        [model_row(model) for model in make.measured.rows], [
            Quantity(
                f"{perturbation.title}, {SUBSET_TITLES[subset]}",
                make.changes(perturbation, subset, "regions", "average_precision"),
                signed=True,
            )
            for perturbation, subset in places
        ], folded=True,
    )  # fmt: skip


def _changed_counts(measured: Measured, subset: str | None, target: str) -> str:
    counts = []
    for perturbation in PERTURBATIONS:
        inside = measured.subset(subset or perturbation.subset) & measured.has(target)
        changed = int((inside & measured.changed(perturbation, target)).sum())
        counts.append(f"{perturbation.title} {changed:,} of {int(inside.sum()):,}")
    return (
        f"Phrases changed: {'; '.join(counts)}. Shuffle in Report does not change a phrase whose report has no "
        "different target."
    )
