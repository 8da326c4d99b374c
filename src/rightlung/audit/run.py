"""An audit from end to end: a predictions file and its source to rows, numbers and a page.

``instances.parquet`` holds a row for every answer, ``audit.json`` every number, ``audit.html`` the page.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.audit.aggregate import Instances, Sureness, aggregate
from rightlung.audit.gallery import make_gallery
from rightlung.audit.instances import write_instances
from rightlung.audit.page import render_page
from rightlung.audit.prior import LocationPrior, PriorRow
from rightlung.audit.protocol import PhraseSetHash, Protocol
from rightlung.audit.summary import sentences
from rightlung.audit.targets import (
    MaskStore,
    Target,
    Targets,
    gather_targets,
    midline_of,
    phrase_facts,
    side_of_target,
    target_digest,
    target_pixels,
)
from rightlung.core import InputError, OutputError, Phrase
from rightlung.core.files import write_whole
from rightlung.predictions import Predictions, open_predictions, phrase_query
from rightlung.predictions.prediction import PHRASE_QUERY
from rightlung.studies import Source, open_source

_LOOK = "import pyarrow.parquet as pq; print(*pq.read_table({path!r}).slice(0, 3).to_pylist(), sep='\\n')"

Progress = Callable[[str, int, int], None]
"""Called with the stage, how much of it is done, and how much there is."""


@dataclass(frozen=True)
class Audit:
    """What an audit wrote and found. ``result`` is what ``audit.json`` holds; ``prior`` is there for more maps."""

    folder: Path
    result: dict[str, Any]
    prior: LocationPrior | None

    @property
    def page(self) -> Path:
        """The HTML page."""
        return self.folder / "audit.html"

    @property
    def instances(self) -> Path:
        """The per-instance table."""
        return self.folder / "instances.parquet"

    @property
    def problems(self) -> list[str]:
        """What was left out, with the reason."""
        problems: list[str] = self.result["problems"]
        return problems


def audit(
    predictions: str | Path | Predictions,
    source: str | Source | None = None,
    out: str | Path = "audit",
    *,
    prior_source: str | Source | None = None,
    sureness: Sureness | None = None,
    cases: int = 6,
    next_steps: tuple[str, ...] = (),
    progress: Progress | None = None,
) -> Audit:
    """Audit predictions against their source, and write rows, numbers and page into the folder ``out``.

    Parameters
    ----------
    predictions
        A predictions file or folder, whatever wrote it.
    source
        The studies, or their address; by default what the predictions name.
    prior_source
        Where the image-blind prior is fitted; by default on the same phrases, cross-fitted over patients.
    cases
        How many of the best and of the worst cases to draw.
    """
    sure = sureness or Sureness()
    folder = Path(out)
    opened = predictions if isinstance(predictions, Predictions) else open_predictions(predictions)
    studies = _source_of(opened, source)
    tell = progress or (lambda stage, done, total: None)
    wanted, other = _wanted(opened)
    _make_folder(folder)  # now, not after all the work
    notes = _notes(opened, studies, other)
    prior = LocationPrior(source=studies.address)
    with MaskStore() as store:

        def learn(phrase: Phrase, target: Target, pixels: NDArray[np.bool_]) -> None:
            prior.add(PriorRow(target.patient, phrase.text, phrase.findings, pixels, target.side))

        targets = gather_targets(
            studies,
            wanted,
            store,
            seen=learn if prior_source is None else None,
            progress=lambda done: tell("reading studies", done, len(wanted)),
        )
        if not targets.phrases:
            raise InputError(_nothing_matches(opened, studies, targets))
        fitted, prior_set = studies.address, None
        if prior_source is not None:
            elsewhere = open_source(prior_source) if isinstance(prior_source, str) else prior_source
            fitted = elsewhere.address
            prior_set = _fit_elsewhere(prior, elsewhere, tell)
        protocol = _protocol(targets, studies, sure, prior, fitted, prior_set)
        metadata = {"rightlung.protocol": json.dumps(protocol.as_json()), "rightlung.model": opened.model or ""}
        rows = write_instances(
            folder / "instances.parquet",
            opened,
            targets.phrases,
            store,
            prior if len(prior) else None,
            metadata=metadata,
            progress=lambda done: tell("scoring", done, len(opened)),
        )
    tell("working out intervals", 0, 1)
    result = _result(opened, studies, targets, protocol, rows, notes)
    result |= aggregate(Instances.read(folder / "instances.parquet"), sure)
    result["summary"] = sentences(result)
    tell("working out intervals", 1, 1)
    write_whole(folder / "audit.json", json.dumps(plain(result), indent=1, allow_nan=False))
    tell("drawing the page", 0, 1)
    gallery = make_gallery(folder / "instances.parquet", opened, studies, prior if len(prior) else None, cases)
    steps = next_steps or _next_steps(opened, studies, folder)
    write_whole(folder / "audit.html", render_page(result, gallery, steps))
    tell("drawing the page", 1, 1)
    return Audit(folder, result, prior if len(prior) else None)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: the folder cannot be made ({error.strerror or error})") from error


def _source_of(predictions: Predictions, source: str | Source | None) -> Source:
    if isinstance(source, Source):
        return source
    address = source or predictions.source
    if address is None:
        raise InputError(f"{predictions.path}: the predictions name no source; give the address of the studies as well")
    return open_source(address)


def _wanted(predictions: Predictions) -> tuple[dict[str, set[int]], int]:
    """Return which phrases of which studies were asked, and how many rows ask anything else."""
    if not len(predictions):
        raise InputError(f"{predictions.path}: the predictions hold no row")
    wanted: dict[str, set[int]] = {}
    other = 0
    for key in predictions.keys():  # noqa: SIM118  (not a mapping)
        match = PHRASE_QUERY.fullmatch(key.query)
        if match is None:
            other += 1
        else:
            wanted.setdefault(key.study, set()).add(int(match[1]))
    if not wanted:
        raise InputError(
            f"{predictions.path}: no row asks a phrase of the source (queries 'phrase:0', 'phrase:1', …), and only "
            "those have a known target"
        )
    return wanted, other


def _notes(predictions: Predictions, source: Source, other: int) -> list[str]:
    notes = []
    if other:
        notes.append(f"{other:,} rows ask something else than the source's phrases and were passed over")
    if predictions.source is not None and predictions.source != source.address:
        notes.append(f"the predictions name the source {predictions.source}, and were audited against {source.address}")
    return notes


def _nothing_matches(predictions: Predictions, source: Source, targets: Targets) -> str:
    named = f", which name the source {predictions.source!r}," if predictions.source else ""
    example = f" ({targets.problems[0]})" if targets.problems else ""
    return f"{predictions.path}: none of the studies in the predictions{named} is in {source.address}{example}"


def _fit_elsewhere(prior: LocationPrior, source: Source, tell: Progress) -> str:
    """Fit the prior on a source of its own and return a hash of what it was fitted on."""
    prior.source = source.address
    fitted_on = PhraseSetHash()
    for done, study in enumerate(source, start=1):
        patient, midline = study.patient or f"study {study.id}", midline_of(study)
        for index, phrase in enumerate(study.phrases):
            pixels, _ = target_pixels(phrase)
            if pixels is not None:
                side = side_of_target(pixels, midline)
                prior.add(PriorRow(patient, phrase.text, phrase.findings, pixels, side))
                facts = phrase_facts(phrase, patient, midline)
                fitted_on.add(study.id, phrase_query(index), phrase.text, target_digest(pixels), **facts)
        tell("fitting the prior", done, len(source))
    if not len(prior):
        raise InputError(f"source {source.address} has no phrase with a target to fit a prior on")
    return fitted_on.digest


def _protocol(
    targets: Targets, source: Source, sure: Sureness, prior: LocationPrior, fitted: str, prior_set: str | None
) -> Protocol:
    kinds = sorted({target.kind for target in targets.phrases.values() if target.kind is not None})
    return Protocol(
        source=source.address,
        phrase_set=targets.phrase_set,
        target_kinds=tuple(kinds),
        resamples=sure.resamples,
        level=sure.level,
        seed=sure.seed,
        prior_source=fitted,
        prior_set="the same phrases, other patients" if prior_set is None else f"other phrases, {prior_set}",
        prior_folds=prior.folds,
    )


def _result(
    predictions: Predictions, source: Source, targets: Targets, protocol: Protocol, rows: int, notes: list[str]
) -> dict[str, Any]:
    asked = targets.phrases.values()
    if targets.studies_without_patient:
        notes.append(
            f"{targets.studies_without_patient:,} studies name no patient; each counts as a patient of its own, and "
            "intervals are too narrow if some are of the same person"
        )
    return {
        "note": NOT_A_MEDICAL_DEVICE,
        "version": __version__,
        "protocol": protocol.as_json(),
        "model": predictions.model,
        "predictions": str(predictions.path),
        "source": source.address,
        "counts": {
            "rows": rows,
            "studies": len({target.study for target in asked}),
            "patients": len({target.patient for target in asked}),
            "phrases": len(targets.phrases),
            "phrases_with_target": sum(target.place is not None for target in asked),
            "rows_by_condition": dict(predictions.rows_by_condition),
        },
        "problems": [*targets.problems, *(str(problem) for problem in source.problems)],
        "notes": notes,
    }


def _next_steps(predictions: Predictions, source: Source, folder: Path) -> tuple[str, ...]:
    return (
        "# the table behind every number, a row an answer",
        shlex.join(["python", "-c", _LOOK.format(path=str(folder / "instances.parquet"))]),
        "# what the predictions hold",
        shlex.join(["rightlung", "predictions", str(predictions.path)]),
        "# look at the studies",
        shlex.join(["rightlung", "data", "show", source.address, "--sheet", str(folder / "studies.png")]),
    )


def plain(value: object) -> Any:
    """Return a value as JSON can write it: what is not a number becomes null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
