"""The tables that the paper does not have: exact targets beside the prior, another image, findings, training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from rightlung.audit.summary import metric_name
from rightlung.reproduce.wrong_lung.results import PERTURBATIONS, Flags, Floats, Model, Perturbation, Results
from rightlung.reproduce.wrong_lung.tables import (
    SUBSET_TITLES,
    Cell,
    Column,
    Heading,
    Measured,
    Row,
    Table,
    cell,
    changes,
    grid,
    model_row,
    stars,
    text_cell,
)

FEW_PATIENTS = 5
FINDINGS_SHOWN = 14
CHOSEN = ("retrained", "word-masking", "no-attn", "abnormal", "thirty-shot", "sided", "prior")
"""The models whose results by finding are shown."""


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
        "name it: only the image can tell. A peak in the middle counts half, so that chance is 50.",
        rows, lambda slug: results.within(results.peak_on_side(slug), without),
    )  # fmt: skip
    yield _beside(
        measured, "side-told", "The side that the words name",
        "Share of peaks on the finding's side, in percent, over phrases whose words name the side; a peak in the "
        "middle counts half.",
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
                partial(changes, results, exchange, subset, target, "changed", measure), signed=True,
            )
            for measure, target, subset in (
                ("auroc", "regions", "abnormal"), ("auroc", "exact", "abnormal"),
                ("average_precision", "exact", "abnormal"), ("pointing", "exact", "abnormal"),
                ("pointing", "exact", "one-lung"),
            )
        ],
    )  # fmt: skip
    if (nothing := _on_nothing(measured)) is not None:
        yield nothing
    for measure, target in (("auroc", "regions"), ("pointing", "exact")):
        found = _by_finding(measured, measure, target)
        if found is not None:
            yield found


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


def _on_nothing(measured: Measured) -> Table | None:
    """Make the table of No-Attn scores; ``None`` where no model ever attends to nothing."""
    results = measured.results
    able = [model for model in results.rows if np.nansum(results.answer(model.slug, "abstention")) > 0]
    if not able:
        return None
    rows = []
    for model in able:
        rows.append(model_row(model))
        if len(seeds := results.seeds(model.variant)) > 1:
            rows += [model_row(seed, label=f"{seed.label}, seed {seed.seed}") for seed in seeds]

    def score(inside: str | Flags, row: Row) -> Floats:
        return results.within(results.answer(row.model, "abstention"), inside)

    def change(perturbation: Perturbation, row: Row) -> Floats:
        assert perturbation.condition is not None
        perturbed = results.answer(row.model, "abstention", perturbation.condition)
        plain = results.answer(row.model, "abstention", perturbation.plain)
        return results.within(perturbed - plain, perturbation.subset)

    return grid(
        measured, "no-attn-scores", "The No-Attn score: attention on nothing",
        "Share of attention that lies on nothing, in percent, and how many points it rises by when words or image are "
        "changed so that what is asked for is most likely not there. Models that never attend to nothing are left out.",
        rows, [
            Column("All", partial(score, "all")),
            Column("Abnormal", partial(score, "abnormal")),
            Column("not Abnormal", partial(score, ~results.instances.subset("abnormal"))),
            *(
                Column(f"{found.title}, {SUBSET_TITLES[found.subset]}", partial(change, found), signed=True)
                for found in PERTURBATIONS
                if found.condition is not None
            ),
        ],
    )  # fmt: skip


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
    rows = [Row(f"{name} ({patients[name]:,} {results.instances.resampled})", name) for name in shown]

    def column(model: Model) -> Column:
        values = results.score(model.slug, measure, target)
        return Column(model.label, lambda row: results.within(values, flags[row.model]))

    rest = len(flags) - len(shown)
    note = [*([f"{rest} rarer findings are not shown."] if rest else []), *stars(models)]
    against = "region boxes" if target == "regions" else "exact masks"
    return grid(
        measured, f"findings-{measure}", f"By finding: {metric_name(measure)} against {against}",
        "In percent; a phrase counts for each finding it says is there.",
        rows, [column(model) for model in models], first="finding", notes=note, folded=measure != "pointing",
    )  # fmt: skip


def training_table(results: Results) -> Table | None:
    """Make the table of how each model was trained; ``None`` where no model says."""
    lines = []
    for model in results.models:
        training = model.training
        if not training:
            continue
        seed = "–" if model.seed is None else str(model.seed)
        lines.append(
            (
                text_cell(model.label),
                Cell(seed, value=model.seed, kind="text"),
                *(_count(training.get(name)) for name in ("steps", "images", "seconds")),
                text_cell(str(training.get("device") or "–")),
                text_cell(_ended(training)),
                Cell("", value=curve(training), kind="curve"),
            )
        )
    if not lines:
        return None
    header = (
        Heading("model", "text"), Heading("seed", "text"), Heading("steps"), Heading("images"), Heading("seconds"),
        Heading("device", "text"), Heading("how it ended", "text"), Heading("validation loss over steps", "curve"),
    )  # fmt: skip
    caption = (
        "A run that stopped before a plateau says less about its recipe than about its budget. Being flat at the end "
        "says little: where the learning rate falls to near zero along a cosine nearly every curve ends flat, and a "
        "longer schedule might still gain. Past its best: the loss ends above its lowest by more than 2 % of its range."
    )
    return Table("training", "Training", caption, header, tuple(lines), stars(results.models))


def _ended(training: Mapping[str, Any]) -> str:
    """Say how a run ended; one whose validation loss rises again has gone past its best."""
    ended = {True: "flat at its end", False: "stopped before a plateau", None: "not known"}[training.get("plateau")]
    losses = [loss for _, loss in curve(training)]
    if len(losses) > 1 and losses[-1] - min(losses) > 0.02 * (max(losses) - min(losses)):
        ended = "past its best"
    return ended + (", stopped early" if training.get("stopped_early") else "")


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


def models_table(results: Results) -> Table | None:
    """Make the table of what each model is; ``None`` where there is none."""
    groups = {"paper": "of the paper", "ours": "ours", "reference": "for reference"}
    lines = [
        (
            text_cell(model.label),
            text_cell(groups[model.group]),
            text_cell(model.note or "–"),
            text_cell(", ".join(str(one.seed) for one in results.seeds(model.variant) if one.seed is not None) or "–"),
            text_cell(str(model.about.get("weights") or "–")[:12]),
        )
        for model in results.rows
    ]
    if not lines:
        return None
    header = tuple(Heading(text, "text") for text in ("model", "whose", "what it is", "seeds", "weights"))
    caption = "The rows of the tables; those of several seeds are means over them, the weights those of the first."
    return Table("models", "Models", caption, header, tuple(lines), stars(results.rows))
