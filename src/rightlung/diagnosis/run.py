"""Rescore one predictions file under every known convention of a measure; find those that give a published number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.audit.coordinates import MOST, coordinate_mistakes
from rightlung.audit.run import source_of
from rightlung.core import InputError, OutputError
from rightlung.core.errors import check_known
from rightlung.core.files import folder_lock, plain
from rightlung.core.progress import Progress, no_progress
from rightlung.diagnosis.boxes import BoxOverlap, Precision, of_images, of_phrases
from rightlung.diagnosis.conventions import FAMILIES, MEASURES, Family
from rightlung.diagnosis.heatmaps import Heatmaps
from rightlung.diagnosis.labels import ImageLabels, Texts
from rightlung.diagnosis.page import make_page
from rightlung.lexicon.findings import canonical_finding
from rightlung.measuring import Targets, gather_targets
from rightlung.measuring.answered import answered
from rightlung.measuring.run import ANSWERED
from rightlung.measuring.targets import StudyLabels
from rightlung.pages.write import write_page
from rightlung.predictions import IMAGE_QUERY, Predictions, open_predictions
from rightlung.predictions.prediction import PHRASE_QUERY
from rightlung.results.estimate import BootstrapSettings, Estimate
from rightlung.results.estimator import Estimator
from rightlung.studies import Source
from rightlung.studies.sources import build_studies

SHOWN = 20
"""Conventions that are listed with an interval."""
AROUND = 10
"""Width of the window, in roundings, from which the number of matches by chance is estimated."""


@dataclass(frozen=True)
class Rescored:
    """A number by one convention: how that differs from ours, and what the differences mean."""

    family: str
    differences: Mapping[str, str]
    says: Sequence[str]
    value: float
    estimate: Estimate | None = None


@dataclass(frozen=True)
class Diagnosis:
    """The output: ``result`` is the content of ``diagnosis.json``."""

    folder: Path
    result: dict[str, Any]
    ours: Rescored
    found: Sequence[Rescored] = ()
    """Those that reproduce the published number, fewest differences first."""
    nearest: Sequence[Rescored] = ()
    """The nearest, if none reproduces it."""
    alone: Sequence[Rescored] = ()
    """Those with a single difference from ours."""

    @property
    def page(self) -> Path:
        """The HTML page."""
        return self.folder / "diagnosis.html"


def parse_published(text: str, bounded: bool = True) -> tuple[float, float]:
    """Return a published number and half of its last decimal; above 1, a share was given in percent.

    >>> parse_published("0.475"), parse_published("47.5")
    ((0.475, 0.0005), (0.475, 0.0005))
    """
    try:
        number = Decimal(text.strip().removesuffix("%").strip())
        exponent = int(number.as_tuple().exponent)
    except (InvalidOperation, ValueError):
        raise InputError(f"--published must be a number as printed, such as 0.475 or 47.5; got {text!r}") from None
    percent = "%" in text or (bounded and abs(number) > 1)
    half = Decimal(5).scaleb(exponent - 1)
    return (float(number / 100), float(half / 100)) if percent else (float(number), float(half))


def diagnose(
    predictions: str | Path | Predictions,
    source: str | Source | None,
    measure: str,
    published: str | float,
    out: str | Path = "diagnosis",
    *,
    settings: BootstrapSettings | None = None,
    progress: Progress = no_progress,
) -> Diagnosis:
    """Find the conventions under which a predictions file gives a published number, within its rounding.

    ``published`` is the number as printed: its decimals say how it was rounded. Writes ``diagnosis.html``,
    ``diagnosis.md`` and ``diagnosis.json``.
    """
    check_known("measure", measure, MEASURES)
    value, tolerance = parse_published(str(published), bounded=measure not in ("cnr", "cider"))
    opened = predictions if isinstance(predictions, Predictions) else open_predictions(predictions)
    studies, folder = source_of(opened, source), Path(out)
    settings = settings or BootstrapSettings(500)
    with folder_lock(folder, OutputError(f"{folder}: another diagnosis is writing to this folder; choose another")):
        targets = _targets(opened, studies, progress)
        every: list[Rescored] = []
        scorers: dict[str, Any] = {}
        for family in (one for one in FAMILIES.values() if measure in one.measures):
            scorer = _scorer(family, opened, targets, studies)
            if scorer.patients:
                every += _rescored(family, measure, scorer, first=not scorers, progress=progress)
                scorers[family.name] = scorer
        ours, every = every[:1], [one for one in every if not np.isnan(one.value)]
        if not every:
            raise InputError(f"{opened.path}: has no answers under the condition 'none' with a target for {measure!r}")

        def sure(some: Sequence[Rescored]) -> list[Rescored]:
            return [replace(one, estimate=_estimate(one, measure, scorers[one.family], settings)) for one in some]

        rest = sorted(every, key=lambda one: (len(one.says), abs(one.value - value)))
        hits = _fewest([one for one in rest if abs(one.value - value) <= tolerance * (1 + 1e-9)])
        near = sorted([] if hits else every, key=lambda one: (abs(one.value - value), len(one.says)))[:SHOWN]
        distinct = {round(one.value, 12) for one in every}
        around = sum(abs(one - value) <= AROUND * tolerance for one in distinct)
        patients = scorers[ours[0].family].patients
        sample = answered(opened.batches(), targets, MOST) if targets.phrases else ()
        mistakes = coordinate_mistakes([*sample], studies)
        result = {
            "note": NOT_A_MEDICAL_DEVICE, "version": __version__, "model": opened.model,
            "predictions": str(opened.path), "source": studies.address, "measure": measure,
            "published": value, "tolerance": tolerance, "instances": len(patients), "patients": len(set(patients)),
            "tried": len(every), "distinct_values": len(distinct), "expected_by_chance": round(around / AROUND, 2),
            "families": [FAMILIES[name].title for name in scorers],
            "warnings": [one.sentence for one in mistakes], "problems": [*targets.problems],
        }  # fmt: skip
        done = Diagnosis(
            folder, result, sure(ours)[0], found=[*sure(hits[:SHOWN]), *hits[SHOWN:]], nearest=sure(_fewest(near)[:5]),
            alone=[one for one in rest if len(one.says) < 2],
        )  # fmt: skip
        listed = {"reproduced_by": done.found, "nearest": done.nearest, "one_difference": done.alone}
        result |= {"ours": plain(vars(done.ours))}
        result |= {name: [plain(vars(one)) for one in some] for name, some in listed.items()}
        write_page(
            make_page(done), folder, html="diagnosis.html", markdown="diagnosis.md", json_name="diagnosis.json",
            data=result,
        )  # fmt: skip
    return done


def _estimate(one: Rescored, measure: str, scorer: Any, settings: BootstrapSettings) -> Estimate:
    """Return the number by a convention with its interval."""
    statistic = scorer.statistic({**FAMILIES[one.family].ours(measure), **one.differences})
    used = np.ones(len(scorer.patients), bool)
    return Estimator(scorer.patients, settings).aggregate(statistic, used)


def _targets(predictions: Predictions, source: Source, progress: Progress) -> Targets:
    """Return the targets of the studies and phrases that the predictions are about."""
    wanted: dict[str, set[int]] = {}
    for key in predictions.keys():  # noqa: SIM118  (not a mapping)
        match = PHRASE_QUERY.fullmatch(key.query)
        wanted.setdefault(key.study, set()).update([] if match is None else [int(match[1])])
    tell = lambda done, total: progress("reading studies", done, total)  # noqa: E731
    return gather_targets(source, wanted, progress=tell)


def _scorer(family: Family, predictions: Predictions, targets: Targets, source: Source) -> Any:
    """Return what rescores a family: it has patients of instances, and a statistic for each convention."""
    phrases = answered(predictions.batches(), targets)
    if family.name == "box-overlap":
        return BoxOverlap(of_phrases(phrases))
    if family.name == "phrase-detection":
        rows = of_phrases(phrases)
        return Precision([(one.patient, ", ".join(one.findings), boxes) for one, boxes in rows])
    if family.name == "detection":
        noted = [names for run in predictions.runs if isinstance(names := run.get("findings"), Sequence)]
        asked = {canonical_finding(str(name)) for names in noted for name in names}
        return Precision(of_images(_images(predictions, targets)), asked if noted else None)
    if family.name == "image-labels":
        return ImageLabels(_images(predictions, targets))
    if family.name in ("text-labels", "words"):
        images = [*_images(predictions, targets)]
        sections = _sections(source, dict.fromkeys(answer["study"] for answer, _ in images))
        return Texts(family.name, [(*one, sections.get(one[0]["study"], {})) for one in images])
    return Heatmaps(family.name, phrases)


def _images(predictions: Predictions, targets: Targets) -> Iterator[tuple[dict[str, Any], StudyLabels]]:
    """Yield the answers about whole images, with what is known about these."""
    for batch in predictions.batches():
        for place, key in enumerate(batch.keys):
            labels = targets.labels.get(key.study) if key.condition == "none" and key.query == IMAGE_QUERY else None
            if labels is not None and batch.columns.column("error")[place].as_py() is None:
                yield {name: batch.columns.column(name)[place].as_py() for name in ("study", *ANSWERED)}, labels


def _sections(source: Source, studies: Mapping[str, Any]) -> dict[str, Mapping[str, str]]:
    """Return the sections of reports by study."""
    places = [place for name in studies if (place := source._position(name)) is not None]
    built = build_studies(source, places, {})
    return {one.id: one.report.sections for one in built.values() if one.report is not None}


def _rescored(family: Family, measure: str, scorer: Any, first: bool, progress: Progress) -> Iterator[Rescored]:
    """Yield the number by each convention of a family; one that is not ours at all says so first."""
    own, every = family.ours(measure), [*family.conventions(measure)]
    once = np.ones((1, len(scorer.patients)))
    for place, differences in enumerate(every):
        if place % 50 == 0:
            progress(f"rescoring: {family.title}", place, len(every))
        says = [*([] if first else [f"another measure: {family.title}"]), *family.says(differences)]
        with np.errstate(all="ignore"):
            value = float(scorer.statistic({**own, **differences})(once)[0])
        yield Rescored(family.name, differences, says, value)
    progress(f"rescoring: {family.title}", len(every), len(every))


def _fewest(found: Sequence[Rescored]) -> list[Rescored]:
    """Return those of which no part of the differences gives the same."""
    kept: list[Rescored] = []
    for one in found:
        parts = (few for few in kept if few.family == one.family)
        if not any(few.differences.items() <= one.differences.items() for few in parts):
            kept.append(one)
    return kept
