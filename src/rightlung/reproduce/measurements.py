"""All measurements of an experiment: the data, what is missing, and how the models were trained."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rightlung import __version__
from rightlung.core import InputError
from rightlung.core.files import read_json
from rightlung.pages.content import Cell, Column, Table
from rightlung.pages.protocols import protocol_facts
from rightlung.reproduce.claims import JudgedClaim
from rightlung.reproduce.papers import Paper
from rightlung.reproduce.prepared import PreparedStudies
from rightlung.reproduce.published import Published, published_in
from rightlung.reproduce.tables import TableMaker, stars
from rightlung.results.estimate import BootstrapSettings
from rightlung.results.estimator import Estimator
from rightlung.results.measured import Measured
from rightlung.results.model import MeasuredModel

MOST_PROBLEMS = 20
RESAMPLES = 1000
OVER_PATIENTS = (
    "Each confidence interval is for a single comparison and covers the variation between patients, not between "
    "training seeds."
)


@dataclass(frozen=True)
class Measurements:
    """The content of an experiment folder, with the estimator for its numbers."""

    folder: Path
    paper: Paper
    measured: Measured
    estimator: Estimator
    published: Published
    prepared: PreparedStudies
    run: Mapping[str, Any] = field(default_factory=dict)
    """The content of ``run.json``: whether it was a ``--quick`` run, and why variants are missing."""
    commands: Sequence[str] = ()
    judgements: Mapping[str, Any] | None = None
    """The analysis of radiologists' judgements, if a table was given."""
    judged: list[JudgedClaim] = field(default_factory=list)

    @classmethod
    def read(
        cls,
        folder: Path,
        paper: Paper,
        prepared: PreparedStudies,
        *,
        commands: Sequence[str] = (),
        judgements: Path | None = None,
        key: Path | None = None,
        settings: BootstrapSettings | None = None,
    ) -> Measurements:
        """Read an experiment folder and, if given, judgements of its models' maps."""
        measured, found = Measured.read(folder), None
        if not measured.models:
            raise InputError(f"{folder}: no model is measured yet, so there is no page; leave out --only")
        if judgements is not None:
            from rightlung.judgements import analyse_table

            out = folder / "judgements"
            found = analyse_table(judgements, out, key=key, measures=[folder], settings=settings).result
        settings = settings or BootstrapSettings(resamples=RESAMPLES)
        return cls(
            folder,
            paper,
            measured,
            measured.estimator(settings),
            published_in(f"rightlung.reproduce.{paper.name.replace('-', '_')}"),
            prepared,
            read_json(folder / "run.json") if (folder / "run.json").exists() else {},
            commands,
            found,
        )

    @property
    def tables(self) -> TableMaker:
        """The table maker for these measurements."""
        return TableMaker(self.measured, self.estimator, self.published)

    def as_json(self) -> dict[str, Any]:
        """Return the JSON values that are not in the page's tables and figures."""
        settings = self.estimator.settings
        return {
            "version": __version__,
            "paper": self.published.paper,
            "intervals": {**settings.as_options(), "resampled": self.measured.resampled, "method": "BCa"},
            "source": self.prepared.targets.source,
            "protocol": self.prepared.protocol.as_json(),
            "left_out": dict(self.prepared.targets.left_out),
            "missing": list(self.absent()),
            "commands": list(self.commands),
            "models": [{**model.about, "errors": model.errors} for model in self.measured.models],
            "claims": [one.as_json() for one in self.judged],
        }

    @property
    def warning(self) -> str:
        """A warning for ``--quick`` runs, whose models have learned nothing."""
        trained = [model for model in self.measured.models if model.training]
        quick = [model for model in trained if (model.training or {}).get("quick") is True]
        if not (quick or self.run.get("quick") is True or self.prepared.targets.source == self.paper.quick_source):
            return ""
        which = "its models" if len(quick) in (0, len(trained)) else ", ".join(model.slug for model in quick)
        return (
            f"Test run (--quick), not a result: {which} were trained for a few steps on a few tiny images and learned "
            "nothing. This page shows that everything runs. Its numbers and verdicts mean nothing."
        )

    @property
    def facts(self) -> dict[str, str]:
        """The source, the protocol and all counts."""
        measured, settings, targets = self.measured, self.estimator.settings, self.prepared.targets
        subsets = {f"phrases in subset {name}": measured.subset(name) for name in self.prepared.protocol.subsets}
        kinds = {f"phrases with target {name}": measured.has(name) for name in measured.targets}
        asked = {f"phrases under condition {name}": measured.changed(name) for name in measured.conditions}
        return {
            "source": targets.source,
            "protocol": self.prepared.protocol.hash,
            "studies": f"{len({study for study, _ in measured.keys}):,}",
            "patients": f"{len(set(measured.patients.tolist())):,}",
            "phrases": f"{len(measured):,}",
            **{name: f"{int(flags.sum()):,}" for name, flags in (subsets | kinds | asked).items()},
            "models": f"{len(measured.rows)} variants, {len(measured.models)} models in total",
            "seeds": _seeds(measured),
            "intervals": f"{100 * settings.level:g} %, BCa bootstrap over {measured.resampled} with "
            f"{settings.resamples:,} resamples, seed {settings.seed}; one per comparison",
            **{f"left out: {reason}": f"{count:,}" for reason, count in targets.left_out.items()},
            **{f"protocol, {name}": value for name, value in protocol_facts(self.prepared.protocol.as_json()).items()},
        }

    def absent(self) -> Iterator[str]:
        """Yield what is missing from a complete experiment."""
        reasons = {str(slug): str(reason) for slug, reason in (self.run.get("missing") or {}).items()}
        there = {model.variant for model in self.measured.models}
        for variant in self.paper.variants:
            if variant.slug not in there:
                reason = reasons.pop(variant.slug, "")
                yield f"Not measured: {variant.name}{f' ({reason})' if reason else ''}."
        yield from (f"Not measured: {slug} ({reason})." for slug, reason in reasons.items())
        yield from (f"measures/{name}: unfinished, left out." for name in self.measured.unfinished)
        problems = self.prepared.targets.problems
        yield from (f"Preparing the studies: {problem}" for problem in problems[:MOST_PROBLEMS])
        if len(problems) > MOST_PROBLEMS:
            yield f"… and {len(problems) - MOST_PROBLEMS} more problems, in studies/targets.json."
        for model in self.measured.models:
            yield from (f"{model.slug}: {what}" for what in self._lacking(model))

    def _lacking(self, model: MeasuredModel) -> Iterator[str]:
        if unread := (model.training or {}).get("left_out"):
            yield f"{unread:,} studies could not be used for training or validation."
        if model.errors:
            yield f"{model.errors:,} questions have no answer."
        compared = len(self.measured.conditions) > 1  # similarities are compared with those of other texts
        for kind in ("local", "global") if compared else ():
            if np.isnan(self.measured.value(model.slug, f"similarity_{kind}")).all():
                yield f"has no {kind} similarity."

    def model_tables(self) -> list[Table]:
        """Return the tables of the models and of their training."""
        return [table for table in (self._models_table(), self._training_table()) if table.rows]

    def _models_table(self) -> Table:
        lines = []
        for model in self.measured.rows:
            seeds = [str(one.seed) for one in self.measured.seeds(model.variant) if one.seed is not None]
            weights = str(model.about.get("weights") or "–")[:12]
            texts = (model.label, model.group, model.note or "–", ", ".join(seeds) or "–", weights)
            lines.append([Cell(text) for text in texts])
        columns = [Column(text, "text") for text in ("model", "origin", "description", "seeds", "weights")]
        caption = "The rows of the tables. A row with several seeds is their mean; weights: hash of the first seed's."
        return Table("models", "Models", caption, columns, lines, stars(self.measured.rows))

    def _training_table(self) -> Table:
        lines = []
        trained = [(model, model.training) for model in self.measured.models if model.training]
        validated = any(curve(training) for _, training in trained)
        for model, training in trained:
            counts = [_count(training.get(name)) for name in ("steps", "images", "seconds")]
            points = curve(training)
            first_to_last = f"{points[0][1]:.3g} to {points[-1][1]:.3g}" if len(points) > 1 else ""
            device = Cell(str(training.get("device") or "–"))
            ended = [Cell(how_it_ended(training)), Cell("", first_to_last, points, curve=points)] if validated else []
            seed = Cell("–" if model.seed is None else str(model.seed))
            lines.append([Cell(model.label), seed, *counts, device, *ended])
        columns = [
            Column("model", "text"), Column("seed", "text"), Column("steps"), Column("images"), Column("seconds"),
            Column("device", "text"),
        ]  # fmt: skip
        if not validated:
            caption = "No run was validated, so these do not show whether training had converged."
            return Table("training", "Training", caption, columns, lines, stars(self.measured.models))
        columns += [Column("end of training", "text"), Column("validation loss over steps", "curve")]
        caption = (
            "A run that stopped before a plateau was limited by its budget. Flat at the end is weak evidence of "
            "convergence, because a cosine schedule flattens nearly every curve. Past the minimum: the final loss is "
            "above the lowest by more than 2 % of the range."
        )
        return Table("training", "Training", caption, columns, lines, stars(self.measured.models))


def _seeds(measured: Measured) -> str:
    """Return the seeds of each variant, grouped by equal seeds."""
    variants: dict[str, list[str]] = {}
    for row in measured.rows:
        seeds = " ".join(str(model.seed) for model in measured.seeds(row.variant) if model.seed is not None)
        variants.setdefault(seeds or "none", []).append(f"{row.variant}{'' if row.comparable else ' *'}")
    text = "; ".join(f"{seeds}: {', '.join(names)}" for seeds, names in variants.items())
    several = len(measured.models) > len(measured.rows)
    return f"{text}. Variants with several seeds are reported as their mean" if several else text


def _count(value: float | None) -> Cell:
    return Cell("–") if value is None else Cell(f"{value:,.0f}", value=value)


def curve(training: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Return the steps and losses of a validation curve, without missing values."""
    found = [(entry[0], entry[1]) for entry in training.get("curve") or ()]
    return [(float(step), float(loss)) for step, loss in found if loss is not None and math.isfinite(loss)]


def how_it_ended(training: Mapping[str, Any]) -> str:
    """Return how a run ended, from its validation losses.

    Flat: stopped early, or the last third improved the loss by at most 2 % of the total improvement. At least six
    validations are needed.
    """
    losses, stopped = [loss for _, loss in curve(training)], bool(training.get("stopped_early"))
    after = ", stopped early" if stopped else ""
    if len(losses) > 1 and losses[-1] - min(losses) > 0.02 * (max(losses) - min(losses)):
        return f"past the minimum{after}"
    if stopped:
        return f"flat at the end{after}"
    if len(losses) < 6:
        return "unknown"
    last = len(losses) - len(losses) // 3
    gained = losses[0] - min(losses)
    flat = min(losses[:last]) - min(losses[last:]) <= 0.02 * max(gained, 0.0)
    return "flat at the end" if flat else "stopped before a plateau"
