"""What judgements say: about the models, the annotators, and the automatic measures.

Counterparts in "That's the Wrong Lung!": means of each rating (Figure 4), custom prompts (Figure 13), intuitiveness by
abnormality (Figure 16), correlations with automatic measures (Figure 6). Intervals, paired comparisons and agreement
between annotators go beyond it: there, one radiologist judged 50 instances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import combinations
from typing import Any

import numpy as np

from rightlung.core.errors import InputError
from rightlung.core.progress import Progress, no_progress
from rightlung.judgements.blinding import BlindingKey
from rightlung.judgements.judgement import RATINGS, Judgement
from rightlung.judgements.measures import Instances, Measures
from rightlung.lexicon.labeller import read_sentence
from rightlung.results.estimate import BootstrapSettings, Comparison, Estimate
from rightlung.results.estimator import Estimator, Flags, Floats
from rightlung.scoring.statistics import krippendorff_interval

ALL = "all models together"
FEW_PATIENTS = 5
"""Groups of fewer patients are marked: their intervals mean little."""

Value = dict[str, Any]
"""An estimate as ``judgements.json`` holds it: estimate, low, high, n, clusters; p and shown of a comparison."""


def as_value(found: Estimate) -> Value:
    """Return an estimate as plain values."""
    value: Value = {"estimate": found.value, "low": found.low, "high": found.high, "n": found.n}
    value |= {"clusters": found.patients} | ({"reason": found.reason} if found.reason else {})
    if isinstance(found, Comparison):
        value |= {"p": found.p, "shown": found.shown}
        value |= {} if found.p_adjusted is None else {"p_adjusted": found.p_adjusted}
    return value


def estimate_of(value: Mapping[str, Any] | None) -> Estimate | None:
    """Return the estimate behind plain values."""
    return None if value is None else Estimate(*(value[name] for name in ("estimate", "low", "high", "n", "clusters")))


def analyse(
    judgements: Sequence[Judgement],
    *,
    key: BlindingKey | None = None,
    instances: Instances | None = None,
    measures: Measures | None = None,
    settings: BootstrapSettings | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return every number of a study as plain values. Without ``key``, models are called by their codes.

    Patients and findings come from ``instances`` (by default those of ``measures``). Where the patient is not known,
    the study is the cluster; where the findings are not known, they are read from the prompt's words.
    """
    tell = progress or no_progress
    if not judgements:
        raise InputError("there is nothing to analyse: no row is judged")
    if measures is not None and key is None:
        raise InputError("measures go by models' names and judgements by codes: give the key as well")
    known = instances if instances is not None else measures.instances if measures is not None else {}
    study = _Study(_named(judgements, key), known, settings or BootstrapSettings())
    result: dict[str, Any] = {
        "blinded": key is None,
        "models": study.models,
        "counts": study.counts(),
        "clusters": "patients" if study.patients_known else "studies",
        "settings": asdict(study.settings),
    }
    sections: dict[str, Callable[[_Study], Any]] = {
        "means": lambda study: _rated(study, "model", ~study.custom), "differences": _differences,
        "prompts": _prompts, "findings": _findings,
        "annotators": lambda study: _rated(study, "annotator", np.ones_like(study.custom)), "agreement": _agreement,
    }  # fmt: skip
    for done, (name, section) in enumerate(sections.items()):
        tell("computing ratings", done, len(sections))
        result[name] = section(study)
    tell("computing ratings", len(sections), len(sections))
    notes = study.notes()
    result["correlations"] = [] if measures is None else list(_correlations(study, measures, notes, tell))
    return result | {"notes": notes}


def _named(judgements: Sequence[Judgement], key: BlindingKey | None) -> list[Judgement]:
    """Return the judgements with names for codes, in an order that does not depend on the table's."""
    if key is not None:
        for one in judgements:
            if one.model not in key.models:
                raise InputError(f"the key does not have the code {one.model!r}. It has: {', '.join(key.codes)}")
        judgements = [replace(one, model=key.models[one.model]) for one in judgements]
    return sorted(judgements, key=lambda one: (one.study, one.phrase, one.prompt, one.model, one.annotator))


class _Study:
    """All judgements with patients and findings; each rating is one array over the judgements."""

    def __init__(self, judgements: Sequence[Judgement], instances: Instances, settings: BootstrapSettings) -> None:
        self.judgements, self.instances, self.settings = judgements, instances, settings
        self._patients = {one.study: one.patient for one in instances.values()}
        self.models = sorted({one.model for one in judgements})
        self.clusters = np.array([self.cluster(one.study) for one in judgements])
        self.estimator = Estimator(self.clusters, settings)
        self.columns: dict[str, Floats] = {
            name: np.array([one.rating(name) for one in judgements], dtype=np.float64) for name in RATINGS
        }
        self.custom = self.where("custom", True)

    @property
    def patients_known(self) -> bool:
        """Whether any patient is known; else clusters are studies."""
        return any(self._patients.get(one.study) is not None for one in self.judgements)

    def cluster(self, study: str) -> str:
        patient = self._patients.get(study)
        return f"study {study}" if patient is None else f"patient {patient}"

    def over(self, studies: Iterable[str]) -> Estimator:
        """Return what makes estimates of arrays with an entry for each of these studies."""
        return Estimator([self.cluster(study) for study in studies], self.settings)

    def where(self, field: str, value: object) -> Flags:
        """Return which judgements have a value in a field."""
        return np.array([getattr(one, field) == value for one in self.judgements], dtype=bool)

    def ratings(self, rows: Flags, names: Sequence[str] = RATINGS) -> dict[str, Value]:
        """Return the mean of each rating over some of the judgements."""
        found = self.estimator.means([np.where(rows, self.columns[name], np.nan) for name in names])
        return {name: as_value(one) for name, one in zip(names, found, strict=True)}

    def findings(self, one: Judgement) -> tuple[str, ...]:
        instance = self.instances.get((one.study, one.phrase))
        if instance is not None:
            return instance.findings
        read = read_sentence(one.prompt).findings.items()
        return tuple(name for name, polarity in read if polarity != "negative")

    def counts(self) -> dict[str, int]:
        rows = self.judgements
        return {
            "judgements": len(rows),
            "annotators": len({one.annotator for one in rows}),
            "models": len(self.models),
            "prompts": len({one.question for one in rows}),
            "custom_prompts": len({one.question for one in rows if one.custom}),
            "studies": len({one.study for one in rows}),
            "clusters": len(set(self.clusters.tolist())),
        }

    def notes(self) -> list[str]:
        unknown = sum(self._patients.get(study) is None for study in {one.study for one in self.judgements})
        notes = []
        if unknown and not self.patients_known:
            notes.append("patients are not known; intervals are too narrow if several studies are of the same person")
        elif unknown:
            notes.append(
                f"the patient of {unknown:,} studies is not known; each counts as a patient of its own, and intervals "
                "are too narrow if some are of the same person"
            )
        if unread := sum((one.study, one.phrase) not in self.instances for one in self.judgements):
            notes.append(f"the findings of {unread:,} judgements are read from the words of their prompts")
        return notes


def _rated(study: _Study, field: str, rows: Flags) -> list[dict[str, Any]]:
    """Each rating's mean for each model, or for each annotator: those differ by person, and by what each was given."""
    return [
        {field: name, "judgements": int(of_name.sum()), "ratings": study.ratings(of_name)}
        for name in sorted({getattr(one, field) for one in study.judgements})
        if (of_name := study.where(field, name) & rows).any()
    ]


def _differences(study: _Study) -> list[dict[str, Any]]:
    """Each pair of models on what the same annotator judged for both; one family of tests."""
    report = [one for one in study.judgements if not one.custom]
    asked = sorted({(one.annotator, one.question) for one in report})
    place = {pair: row for row, pair in enumerate(asked)}
    columns = {(model, name): np.full(len(asked), np.nan) for model in study.models for name in RATINGS}
    for one in report:
        for name in RATINGS:
            columns[one.model, name][place[one.annotator, one.question]] = one.rating(name)
    compared = [
        (name, first, second)
        for first, second in combinations(study.models, 2)
        for name in RATINGS
        if not np.isnan(columns[first, name] - columns[second, name]).all()
    ]
    if not compared:
        return []
    estimator = study.over(question[0] for _, question in asked)
    firsts = [columns[first, name] for name, first, _ in compared]
    seconds = [columns[second, name] for name, _, second in compared]
    found = estimator.adjusted(estimator.differences(firsts, seconds))
    return [
        {"rating": name, "first": first, "second": second} | as_value(one)
        for (name, first, second), one in zip(compared, found, strict=True)
    ]


def _prompts(study: _Study) -> list[dict[str, Any]]:
    """Custom prompts next to prompts from reports, for models with custom ones. The two are not paired."""
    found = []
    for model in study.models:
        custom, report = (study.where("model", model) & rows for rows in (study.custom, ~study.custom))
        if not custom.any():
            continue
        row: dict[str, Any] = {"model": model, "custom": study.ratings(custom), "report": None}
        if report.any():
            row["report"] = study.ratings(report)
            pairs = {name: [np.where(rows, column, np.nan) for rows in (custom, report)]
                     for name, column in study.columns.items()}  # fmt: skip
            contrasts = {name: study.estimator.contrast(*pair, "percentile") for name, pair in pairs.items()}
            row["difference"] = {name: as_value(found) for name, found in contrasts.items()}
        found.append(row)
    return found


def _findings(study: _Study) -> list[dict[str, Any]]:
    """Intuitiveness for each finding, the most judged first; a prompt counts for each finding it asserts."""
    groups: dict[str, Flags] = {}
    for row, one in enumerate(study.judgements):
        for name in study.findings(one):
            groups.setdefault(name, np.zeros(len(study.judgements), dtype=bool))[row] = True

    def mean(rows: Flags) -> Value:
        return study.ratings(rows, ("intuitiveness",))["intuitiveness"]

    found = []
    for name, rows in groups.items():
        patients = len(set(study.clusters[rows].tolist()))
        by_model = {model: rows & study.where("model", model) for model in study.models}
        found.append(
            {
                "finding": name,
                "prompts": len({study.judgements[row].question for row in np.flatnonzero(rows)}),
                "clusters": patients,
                "few": patients < FEW_PATIENTS,
                "all": mean(rows),
                "models": {model: mean(of_model) for model, of_model in by_model.items() if of_model.any()},
            }
        )
    return sorted(found, key=lambda group: (-group["prompts"], group["finding"]))


def _agreement(study: _Study) -> dict[str, Any]:
    """Krippendorff's alpha of each rating, and how often two annotators agree exactly or within one step."""
    annotators = sorted({one.annotator for one in study.judgements})
    units: dict[tuple[tuple[str, str], str], dict[str, Judgement]] = {}
    for one in study.judgements:
        units.setdefault((one.question, one.model), {})[one.annotator] = one
    shared = {unit: judged for unit, judged in units.items() if len(judged) > 1}
    result: dict[str, Any] = {"units": len(shared), "annotators": len(annotators), "ratings": {}}
    if not shared:
        return result
    clusters = [study.cluster(question[0]) for question, _ in shared]
    pairs = [pair for judged in shared.values() for pair in combinations(judged.values(), 2)]
    of_pairs = study.over(first.study for first, _ in pairs)
    for name in RATINGS:
        table = np.array(
            [
                [judged[who].rating(name) if who in judged else np.nan for judged in shared.values()]
                for who in annotators
            ]
        )
        alphas = {
            level: Estimate.of(krippendorff_interval(table, level, clusters=clusters, **study.settings.as_options()))
            for level in ("ordinal", "interval")
        }
        gaps = np.array([abs(first.rating(name) - second.rating(name)) for first, second in pairs])
        shares = of_pairs.means([(gaps == 0).astype(np.float64), (gaps <= 1).astype(np.float64)])
        found = alphas | dict(zip(("exact", "within_one"), shares, strict=True))
        result["ratings"][name] = {kind: as_value(one) for kind, one in found.items()}
    return result


def _correlations(study: _Study, measures: Measures, notes: list[str], tell: Progress) -> Iterator[dict[str, Any]]:
    """Each rating with each measure over instances, for each model and for all together.

    An instance that several annotators judged has the mean of their ratings: it is one pair, not several.
    """
    judged: dict[tuple[str, tuple[str, str]], list[Judgement]] = {}
    for one in study.judgements:
        if not one.custom:
            judged.setdefault((one.model, one.question), []).append(one)
    asked = np.zeros(len(judged), dtype=bool)
    values: dict[str, Floats] = {}
    groups: dict[str, Flags] = {}
    for model in study.models:
        slug = measures.find(model)
        if slug is None:
            notes.append(f"there are no measures of the model {model!r}")
            continue
        rows = np.array([model == of for of, _ in judged], dtype=bool)
        asked[rows], columns = measures.values(slug, [question for of, question in judged if of == model])
        groups[model] = rows & asked
        for name, column in columns.items():
            values.setdefault(name, np.full(len(judged), np.nan))[rows] = column
        if missing := int((rows & ~asked).sum()):
            notes.append(f"{missing:,} judged prompts of the model {model!r} have no measures")
    if not asked.any():
        raise InputError(f"none of the judged prompts has measures; there are those of {', '.join(measures.names)}")
    if len(groups) > 1:
        groups[ALL] = asked
    rated = {
        name: np.array([np.mean([one.rating(name) for one in same]) for same in judged.values()]) for name in RATINGS
    }
    estimator = study.over(question[0] for _, question in judged)
    for done, (model, rows) in enumerate(groups.items()):
        tell("correlating", done, len(groups))
        of_model = {name: np.where(rows, column, np.nan) for name, column in values.items()}
        yield {"model": model, "pairs": int(rows.sum()), "values": _correlated(estimator, rated, of_model)}
    tell("correlating", len(groups), len(groups))


def _correlated(
    estimator: Estimator, rated: Mapping[str, Floats], values: Mapping[str, Floats]
) -> list[dict[str, Any]]:
    """Correlate every rating with every measure that is defined anywhere; one family of tests for each coefficient."""
    tested = [(name, measure) for measure, y in values.items() if not np.isnan(y).all() for name in RATINGS]
    rows: list[dict[str, Any]] = [
        {"rating": name, "measure": measure, "pairs": int((~np.isnan(values[measure])).sum())}
        for name, measure in tested
    ]
    for kind in ("pearson", "spearman"):
        found = [estimator.correlation(rated[name], values[measure], kind) for name, measure in tested]
        for row, one in zip(rows, estimator.adjusted(found), strict=True):
            row[kind] = as_value(one)
    return rows
