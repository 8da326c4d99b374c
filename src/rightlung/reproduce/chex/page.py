"""Lay out the page of ChEX: the finding, one figure and one table; then all others, folded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rightlung.measuring import find_measure
from rightlung.pages.content import Figure, Page, Section, Table
from rightlung.pages.figures import SeedsPanel, panel_figure
from rightlung.reproduce.chex.interactive_page import InteractivePage, holding
from rightlung.reproduce.chex.measuring import TASKS, WHOLE
from rightlung.reproduce.chex.paper_tables import IN_TABLE_2, TABLES, TYPES, ChexTables
from rightlung.reproduce.chex.pictures import hint_galleries, report_galleries
from rightlung.reproduce.measurements import OVER_PATIENTS, Measurements
from rightlung.reproduce.tables import Quantity, model_row

OTHER_DATA = (
    "The paper's numbers come from other data (the data set is named in the column) and a model of 1,051 million "
    "weights. Compare the direction of effects with them, not the values."
)
IMAGE_BLIND = "image-blind"
MOST_DRAWN = 2.0
"""Of the axis of Figure 3."""
_TITLES = {
    "tasks": ("Ablations and ways of asking (Tables 3 to 6)", ("3", "4", "5", "6")),
    "baselines": ("Every baseline by task (Tables 7 to 14)", ("7", "8", "9", "10", "11", "12", "13", "14")),
}


def make_page(found: Measurements) -> Page:
    """Estimate everything and return the page."""
    make = ChexTables(found)
    asked = InteractivePage(make)
    maps, quantities = found.tables, _map_quantities(found)
    rows = [model_row(model) for model in found.measured.rows if found.measured.asked(model.slug).any()]
    maps_table = maps.table(
        "maps", "Localisation of phrases", "Maps, and boxes painted as maps, against exact masks; in percent.", rows,
        quantities,
    )  # fmt: skip
    sections = [
        Section("finding", "Finding", _findings(make, asked),
                parts=[*relative_figure(make), *_tables(make, ["2"], False)]),
        *(Section(name, title, [OTHER_DATA, OVER_PATIENTS], parts=_tables(make, numbers), folded=True)
          for name, (title, numbers) in _TITLES.items()),
        Section("interactive", "Interactive questions (Figures 4 to 6, 8 and 9)", asked.asked(),
                parts=[*asked.claims_tables(), *asked.figures(), *hint_galleries(make), *asked.tables()], folded=True),
        Section("reports", "Generated reports (Figures 7, 10 and 11)", parts=report_galleries(make), folded=True),
        Section("maps", "Maps next to the location prior", parts=[maps_table], folded=True),
        Section("seeds", "Effect of the training seed", parts=maps.seeds(quantities), folded=True),
        Section("paper", "Where the paper contradicts itself", items=list(found.published.remarks), folded=True),
        Section("training", "Models and training", parts=found.model_tables(), folded=True),
        Section("missing", "Missing", items=[*found.absent()]),
        Section("commands", "Commands", code="\n".join(found.commands), folded=True),
    ]  # fmt: skip
    lead = f"Tables and figures of {found.published.paper}, measured on {found.prepared.targets.source}. {OTHER_DATA}"
    return Page(found.paper.title, lead, sections, found.facts, found.warning)


def _map_quantities(found: Measurements) -> list[Quantity]:
    names = ("auroc", "average_precision", "pointing")
    return [Quantity(find_measure(name).title, found.tables.values(name, "exact"), ranked=True) for name in names]


def _tables(make: ChexTables, numbers: Sequence[str], folded: bool = True) -> list[Table]:
    tables = (make.table(TABLES[number], folded) for number in numbers)
    return [table for table in tables if table is not None]


def relative_values(make: ChexTables) -> dict[str, list[tuple[str, float | None]]]:
    """Return, by kind of baseline, its best value in each column of Table 2 as a share of ChEX's, None without one.

    A column that ChEX was not measured in is left out.
    """
    found: dict[str, list[tuple[str, float | None]]] = {kind: [] for kind in TYPES}
    for task, measure in ((task, name) for task, names in IN_TABLE_2 for name in names):
        whole = make.estimate(WHOLE, task, measure)
        if whole is None or not whole.defined or whole.value <= 0:
            continue
        for kind, row in TYPES.items():
            _, best = make.best(row, task, measure)
            label = f"{TASKS[task].title}, {find_measure(measure).title}"
            found[kind].append((label, None if best is None else best.value / whole.value))
    return found


def relative_figure(make: ChexTables) -> Iterator[Figure]:
    """Yield the counterpart of Figure 3: every kind of baseline relative to ChEX."""
    relative = relative_values(make)
    labels = [label for label, _ in next(iter(relative.values()))]
    measured = {kind: values for kind, values in relative.items() if any(value is not None for _, value in values)}
    if labels and measured:
        panels = [
            SeedsPanel(
                title=kind,
                seeds=[[] if one is None else [min(one, MOST_DRAWN)] for _, one in values],
                line=1.0,
                scale=100.0,
                limits=(-0.05, MOST_DRAWN + 0.05),
            )
            for kind, values in measured.items()
        ]
        yield panel_figure(
            "figure-f3", "Figure 3: baselines relative to ChEX", "The best baseline of each kind in percent of ChEX, "
            "by task and measure; the line is ChEX. Left of it, ChEX is better. What is above "
            f"{100 * MOST_DRAWN:g} % is drawn there. The numbers are in Table 2.", labels, panels,
            unit="percent of ChEX", shared=True,
        )  # fmt: skip


def _findings(make: ChexTables, asked: InteractivePage) -> list[str]:
    """Return what was found, in a sentence or two."""
    relative = relative_values(make)
    trained = [values for kind, values in relative.items() if kind != IMAGE_BLIND]
    columns = list(zip(*trained, strict=True)) if trained else []
    known = [[value for _, value in column if value is not None] for column in columns]
    compared = [max(values) for values in known if values]
    blind = [value for _, value in relative.get(IMAGE_BLIND, []) if value is not None]
    sentences = []
    if compared:
        ahead = sum(value < 1 for value in compared)
        sentences.append(f"ChEX is ahead of every trained baseline in {ahead} of {len(compared)} measures of Table 2.")
    if blind:
        sentences.append(
            f"It is ahead of the image-blind baseline in {sum(value < 1 for value in blind)} of {len(blind)}."
        )
    if judged := asked.claims():
        sentences.append(
            f"Of the paper's {len(judged)} claims about interactive questions, {holding(judged)} hold here."
        )
    return [" ".join(sentences)] if sentences else []
