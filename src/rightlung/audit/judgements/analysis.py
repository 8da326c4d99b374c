"""What judgements say: of the models, of the annotators, and of the automatic measures.

Counterparts in "That's the Wrong Lung!": means of each rating (Figure 4), custom prompts (Figure 13), intuitiveness by
abnormality (Figure 16), correlations with automatic measures (Figure 6). Intervals, paired comparisons and agreement
between annotators go beyond it: there, one radiologist judged 50 instances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import combinations
from typing import Any

import numpy as np

from rightlung.audit.estimates import Sureness
from rightlung.audit.judgements.blinding import Key
from rightlung.audit.judgements.estimates import Value, adjust, apart, correlation, mean, of_interval, paired
from rightlung.audit.judgements.instances import JudgedInstance
from rightlung.audit.judgements.judgement import RATINGS, Judgement
from rightlung.audit.judgements.measures import Measures
from rightlung.core import InputError
from rightlung.lexicon.labeller import read_sentence
from rightlung.scoring.statistics import krippendorff_interval

ALL = "all models together"
FEW_PATIENTS = 5
"""Groups of fewer patients are marked: their intervals mean little."""

Progress = Callable[[str, int, int], None]


def analyse(
    judgements: Sequence[Judgement],
    *,
    key: Key | None = None,
    instances: Mapping[tuple[str, str], JudgedInstance] | None = None,
    measures: Measures | None = None,
    sure: Sureness | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return every number of a study as plain values. Without ``key``, models are called by their codes.

    Patients and findings come from ``instances`` (by default those of ``measures``); where the patient is not known
    the study is the cluster, and where the findings are not known the prompt's words are read.
    """
    sure = sure or Sureness()
    tell = progress or (lambda stage, done, total: None)
    if not judgements:
        raise InputError("there is nothing to analyse: no row is judged")
    if measures is not None and key is None:
        raise InputError("measures go by models' names and judgements by codes: give the key as well")
    known = instances if instances is not None else measures.instances if measures is not None else {}
    named = _named(judgements, key)
    rows = _Rows(named, known)
    report = [one for one in named if not one.custom]
    models = sorted({one.model for one in named})
    tell("working out ratings", 0, 4)
    result: dict[str, Any] = {
        "blinded": key is None,
        "models": models,
        "counts": rows.counts(),
        "clusters": "patients" if rows.patients_known else "studies",
        "settings": asdict(sure),
        "means": _means(report, models, rows, sure),
        "differences": _differences(report, models, rows, sure),
    }
    tell("working out ratings", 1, 4)
    result["prompts"] = _prompts(named, models, rows, sure)
    tell("working out ratings", 2, 4)
    result["findings"] = _findings(named, models, rows, sure)
    tell("working out ratings", 3, 4)
    result["annotators"] = _annotators(named, rows, sure)
    result["agreement"] = _agreement(named, rows, sure)
    tell("working out ratings", 4, 4)
    notes = rows.notes()
    result["correlations"] = []
    if measures is not None:
        result["correlations"] = _correlations(report, models, measures, rows, sure, notes, tell)
    return result | {"notes": notes}


def _named(judgements: Sequence[Judgement], key: Key | None) -> list[Judgement]:
    """Return the judgements with names for codes, in an order that does not depend on the table's."""
    if key is not None:
        for one in judgements:
            if one.model not in key.models:
                raise InputError(f"the key does not have the code {one.model!r}. It has: {', '.join(key.codes)}")
        judgements = [replace(one, model=key.models[one.model]) for one in judgements]
    return sorted(judgements, key=lambda one: (one.study, one.phrase, one.prompt, one.model, one.annotator))


class _Rows:
    """What belongs to judgements beside their ratings: patient and findings."""

    def __init__(self, judgements: Sequence[Judgement], instances: Mapping[tuple[str, str], JudgedInstance]) -> None:
        self._judgements = judgements
        self._instances = instances
        self._patients = {one.study: one.patient for one in instances.values()}

    @property
    def patients_known(self) -> bool:
        """Whether any patient is known; else clusters are studies."""
        return any(self._patients.get(one.study) is not None for one in self._judgements)

    def cluster(self, study: str) -> str:
        patient = self._patients.get(study)
        return f"study {study}" if patient is None else f"patient {patient}"

    def clusters(self, judgements: Iterable[Judgement]) -> list[str]:
        return [self.cluster(one.study) for one in judgements]

    def findings(self, one: Judgement) -> tuple[str, ...]:
        instance = self._instances.get((one.study, one.phrase))
        if instance is not None:
            return instance.findings
        said = read_sentence(one.prompt).findings.items()
        return tuple(name for name, polarity in said if polarity != "negative")

    def counts(self) -> dict[str, int]:
        rows = self._judgements
        return {
            "judgements": len(rows),
            "annotators": len({one.annotator for one in rows}),
            "models": len({one.model for one in rows}),
            "prompts": len({one.question for one in rows}),
            "custom_prompts": len({one.question for one in rows if one.custom}),
            "studies": len({one.study for one in rows}),
            "clusters": len(set(self.clusters(rows))),
        }

    def notes(self) -> list[str]:
        studies = {one.study for one in self._judgements}
        unknown = sum(self._patients.get(study) is None for study in studies)
        notes = []
        if unknown and not self.patients_known:
            notes.append("patients are not known; intervals are too narrow if several studies are of the same person")
        elif unknown:
            notes.append(
                f"of {unknown:,} studies the patient is not known; each counts as a patient of its own, and intervals "
                "are too narrow if some are of the same person"
            )
        unread = sum((one.study, one.phrase) not in self._instances for one in self._judgements)
        if unread:
            notes.append(f"the findings of {unread:,} judgements are read from the words of their prompts")
        return notes


def _means(rows: Sequence[Judgement], models: Sequence[str], about: _Rows, sure: Sureness) -> list[dict[str, Any]]:
    """Each rating's mean for each model, over the prompts that stand in reports."""
    return [
        {"model": model, "judgements": len(chosen), "ratings": _ratings(chosen, about, sure)}
        for model in models
        if (chosen := [one for one in rows if one.model == model])
    ]


def _ratings(rows: Sequence[Judgement], about: _Rows, sure: Sureness) -> dict[str, Value]:
    clusters = about.clusters(rows)
    return {name: mean([one.rating(name) for one in rows], clusters, sure) for name in RATINGS}


def _differences(
    rows: Sequence[Judgement], models: Sequence[str], about: _Rows, sure: Sureness
) -> list[dict[str, Any]]:
    """Each pair of models on what the same annotator judged for both; tested as many as there are rows here."""
    by_model: dict[str, dict[tuple[str, tuple[str, str]], Judgement]] = {model: {} for model in models}
    for one in rows:
        by_model[one.model][one.annotator, one.question] = one
    found = []
    for first, second in combinations(models, 2):
        both = sorted(by_model[first].keys() & by_model[second].keys())
        if not both:
            continue
        clusters = [about.cluster(question[0]) for _, question in both]
        for name in RATINGS:
            sides = [[by_model[model][pair].rating(name) for pair in both] for model in (first, second)]
            value = paired(sides[0], sides[1], clusters, sure)
            found.append({"rating": name, "first": first, "second": second} | value)
    adjust(found, sure.level)
    return found


def _prompts(rows: Sequence[Judgement], models: Sequence[str], about: _Rows, sure: Sureness) -> list[dict[str, Any]]:
    """Prompts from reports beside custom ones, for models that have both."""
    found = []
    for model in models:
        chosen = [one for one in rows if one.model == model]
        custom = [one for one in chosen if one.custom]
        report = [one for one in chosen if not one.custom]
        if not custom:
            continue
        row: dict[str, Any] = {"model": model, "custom": _ratings(custom, about, sure), "report": None}
        if report:
            row["report"] = _ratings(report, about, sure)
            clusters, flags = about.clusters(chosen), [not one.custom for one in chosen]
            row["difference"] = {
                name: apart([one.rating(name) for one in chosen], flags, clusters, sure) for name in RATINGS
            }
        found.append(row)
    return found


def _findings(rows: Sequence[Judgement], models: Sequence[str], about: _Rows, sure: Sureness) -> list[dict[str, Any]]:
    """Intuitiveness for each finding, the most judged first; a prompt counts for each finding it asserts."""
    groups: dict[str, list[Judgement]] = {}
    for one in rows:
        for name in about.findings(one):
            groups.setdefault(name, []).append(one)
    found = []
    for name in sorted(groups, key=lambda name: (-len({one.question for one in groups[name]}), name)):
        chosen = groups[name]
        patients = len(set(about.clusters(chosen)))
        by_model = {
            model: mean([one.intuitiveness for one in of_model], about.clusters(of_model), sure)
            for model in models
            if (of_model := [one for one in chosen if one.model == model])
        }
        found.append(
            {
                "finding": name,
                "prompts": len({one.question for one in chosen}),
                "clusters": patients,
                "few": patients < FEW_PATIENTS,
                "all": mean([one.intuitiveness for one in chosen], about.clusters(chosen), sure),
                "models": by_model,
            }
        )
    return found


def _annotators(rows: Sequence[Judgement], about: _Rows, sure: Sureness) -> list[dict[str, Any]]:
    """How much each annotator judged and how kindly: means differ by person, and by what each was given."""
    return [
        {"annotator": name, "judgements": len(chosen), "ratings": _ratings(chosen, about, sure)}
        for name in sorted({one.annotator for one in rows})
        if (chosen := [one for one in rows if one.annotator == name])
    ]


def _agreement(rows: Sequence[Judgement], about: _Rows, sure: Sureness) -> dict[str, Any]:
    """Krippendorff's alpha of each rating, and how often two annotators say the same or differ by one step at most."""
    annotators = sorted({one.annotator for one in rows})
    units: dict[tuple[tuple[str, str], str], dict[str, Judgement]] = {}
    for one in rows:
        units.setdefault((one.question, one.model), {})[one.annotator] = one
    shared = {unit: judged for unit, judged in units.items() if len(judged) > 1}
    result: dict[str, Any] = {"units": len(shared), "annotators": len(annotators), "ratings": {}}
    if not shared:
        return result
    clusters = [about.cluster(question[0]) for question, _ in shared]
    for name in RATINGS:
        table = np.full((len(annotators), len(shared)), np.nan)
        gaps: list[float] = []
        of_gap: list[str] = []
        for column, (judged, cluster) in enumerate(zip(shared.values(), clusters, strict=True)):
            given = {annotator: one.rating(name) for annotator, one in judged.items()}
            for row, annotator in enumerate(annotators):
                table[row, column] = given.get(annotator, np.nan)
            for first, second in combinations(given.values(), 2):
                gaps.append(abs(first - second))
                of_gap.append(cluster)
        result["ratings"][name] = {
            level: of_interval(krippendorff_interval(table, level, clusters=clusters, **asdict(sure)))
            for level in ("ordinal", "interval")
        } | {
            "exact": mean([float(gap == 0) for gap in gaps], of_gap, sure),
            "within_one": mean([float(gap <= 1) for gap in gaps], of_gap, sure),
        }
    return result


def _correlations(
    rows: Sequence[Judgement],
    models: Sequence[str],
    measures: Measures,
    about: _Rows,
    sure: Sureness,
    notes: list[str],
    tell: Progress,
) -> list[dict[str, Any]]:
    """Each rating with each measure over instances, for each model and for all together.

    An instance that several annotators judged has the mean of their ratings: it is one pair, not several.
    """
    pairs: dict[str, list[tuple[str, dict[str, float], dict[str, float]]]] = {}
    for model in models:
        values = measures.of(model)
        if values is None:
            notes.append(f"there are no measures of the model {model!r}")
            continue
        judged: dict[tuple[str, str], list[Judgement]] = {}
        for one in rows:
            if one.model == model:
                judged.setdefault(one.question, []).append(one)
        pairs[model] = [
            (
                about.cluster(question[0]),
                {name: float(np.mean([one.rating(name) for one in same])) for name in RATINGS},
                values[question],
            )
            for question, same in judged.items()
            if question in values
        ]
        if missing := len(judged) - len(pairs[model]):
            notes.append(f"{missing:,} judged prompts of the model {model!r} have no measures")
    if not any(pairs.values()):
        raise InputError(f"none of the judged prompts has measures; there are those of {', '.join(measures.names)}")
    if len(pairs) > 1:
        pairs = {**pairs, ALL: [pair for found in pairs.values() for pair in found]}
    listed = measures.listed()
    found = []
    for done, (model, of_model) in enumerate(pairs.items()):
        tell("correlating", done, len(pairs))
        clusters = [cluster for cluster, _, _ in of_model]
        table: list[dict[str, Any]] = []
        for measure in listed:
            y = [measured.get(measure, np.nan) for _, _, measured in of_model]
            if np.isnan(y).all():
                continue
            for name in RATINGS:
                x = [rated[name] for _, rated, _ in of_model]
                table.append({"rating": name, "measure": measure} | correlation(x, y, clusters, sure))
        for kind in ("pearson", "spearman"):
            adjust([row[kind] for row in table], sure.level)
        found.append({"model": model, "pairs": len(of_model), "values": table})
    tell("correlating", len(pairs), len(pairs))
    return found
