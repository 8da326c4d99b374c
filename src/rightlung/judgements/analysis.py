"""Analyse judgements: ratings of models, agreement of annotators, correlation with automatic measures.

Counterparts in "That's the Wrong Lung!": means of each rating (Figure 4), custom prompts (Figure 13), intuitiveness by
abnormality (Figure 16), correlations with automatic measures (Figure 6). Intervals, paired comparisons and agreement
are additions: the paper has one radiologist and 50 instances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from rightlung.core.errors import InputError
from rightlung.core.progress import Progress, no_progress
from rightlung.judgements.blinding import BlindingKey
from rightlung.judgements.judgement import RATINGS, Judgement
from rightlung.judgements.measures import Instances, Measures
from rightlung.lexicon.labeller import read_sentence
from rightlung.results.estimate import BootstrapSettings, Estimate
from rightlung.results.estimator import Estimator, Flags, Floats
from rightlung.results.groups import FEW_PATIENTS
from rightlung.scoring.statistics import krippendorff_interval

ALL = "all models together"
KEY_NEEDED = "measures use model names and judgements use codes; give the key (--key) as well"
Value = dict[str, Any]
"""An estimate in ``judgements.json``: estimate, low, high, n, clusters; for a comparison also p and shown."""


def as_value(found: Estimate) -> Value:
    """Return an estimate as JSON values; its instances are judgements and its patients may be studies."""
    keys = {"phrases": "n", "patients": "clusters"}
    return {keys.get(key, key): value for key, value in found.as_json().items()}


def estimate_of(value: Mapping[str, Any] | None) -> Estimate | None:
    """Return the estimate of JSON values made by `as_value`."""
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
    """Return all results of a study as JSON values. Without ``key``, models are named by their codes.

    Patients and findings come from ``instances`` (by default those of ``measures``). If the patient is unknown, the
    bootstrap resamples studies; if the findings are unknown, they are extracted from the prompt.
    """
    report = progress or no_progress
    if not judgements:
        raise InputError("no row of the table is judged, so there is nothing to analyse")
    if measures is not None and key is None:
        raise InputError(KEY_NEEDED)
    known = instances if instances is not None else measures.instances if measures is not None else {}
    study = _Study(judgements, key, known, settings or BootstrapSettings())
    result: dict[str, Any] = {
        "blinded": key is None,
        "models": study.models,
        "counts": study.counts(),
        "clusters": "patients" if study.patients_known else "studies",
        "settings": asdict(study.settings),
    }
    parts: dict[str, Callable[[], Any]] = {
        "means": lambda: _rated(study, "model", study.report), "differences": lambda: _differences(study),
        "prompts": lambda: _prompts(study), "findings": lambda: _findings(study),
        "annotators": lambda: _rated(study, "annotator", study.report | True), "agreement": lambda: _agreement(study),
    }  # fmt: skip
    for done, (name, part) in enumerate(parts.items()):
        report("computing ratings", done, len(parts))
        result[name] = part()
    report("computing ratings", len(parts), len(parts))
    notes = study.notes()
    result["correlations"] = [] if measures is None else list(_correlations(study, measures, notes, report))
    return result | {"notes": notes}


class _Study:
    """All judgements as a data frame with patients and findings, in an order independent of the table's."""

    def __init__(
        self, judgements: Sequence[Judgement], key: BlindingKey | None, known: Instances, settings: BootstrapSettings
    ) -> None:
        self.settings, self._known = settings, known
        self._patients = {one.study: one.patient for one in known.values()}
        names = {one.model: one.model for one in judgements} if key is None else key.models
        for one in judgements:
            if one.model not in names:
                raise InputError(f"the key has no code {one.model!r}; it has {', '.join(sorted(names))}")
        ordered = sorted(
            judgements, key=lambda one: (one.study, one.phrase, one.prompt, names[one.model], one.annotator)
        )
        self.rows = pd.DataFrame(
            [
                {name: getattr(one, name) for name in ("annotator", "study", "custom", *RATINGS)}
                | {"model": names[one.model], "asked": one.question[1], "findings": self._findings(one)}
                for one in ordered
            ]
        )
        self.models = sorted(set(self.rows["model"]))
        self.report = ~self.rows["custom"].to_numpy(dtype=bool)
        self.estimator = self.over(self.rows["study"])
        self.extracted = sum((one.study, one.phrase) not in known for one in judgements)

    def _findings(self, one: Judgement) -> tuple[str, ...]:
        if (one.study, one.phrase) in self._known:
            return self._known[one.study, one.phrase].findings
        read = read_sentence(one.prompt).findings.items()
        return tuple(name for name, polarity in read if polarity != "negative")

    @property
    def patients_known(self) -> bool:
        """Whether any patient is known; otherwise studies are resampled."""
        return any(self._patients.get(study) is not None for study in self.rows["study"])

    def clusters(self, studies: Iterable[str]) -> list[str]:
        patients = ((study, self._patients.get(study)) for study in studies)
        return [f"study {study}" if patient is None else f"patient {patient}" for study, patient in patients]

    def over(self, studies: Iterable[str]) -> Estimator:
        """Return an estimator for arrays with one entry per study in ``studies``."""
        return Estimator(self.clusters(studies), self.settings)

    def where(self, field: str, value: str) -> Flags:
        """Return which judgements have a value in a field, such as a model or an annotator."""
        return np.asarray(self.rows[field] == value, dtype=bool)

    def columns(self, rows: Flags) -> list[Floats]:
        """Return each rating where ``rows`` is true, NaN elsewhere."""
        return [np.where(rows, self.rows[name].to_numpy(dtype=np.float64), np.nan) for name in RATINGS]

    def ratings(self, rows: Flags) -> dict[str, Value]:
        """Return the mean of each rating over the selected judgements."""
        return dict(zip(RATINGS, map(as_value, self.estimator.means(self.columns(rows))), strict=True))

    def counts(self) -> dict[str, int]:
        rows = self.rows
        return {
            "judgements": len(rows),
            "annotators": rows["annotator"].nunique(),
            "models": len(self.models),
            "prompts": len(rows[["study", "asked"]].drop_duplicates()),
            "custom_prompts": len(rows.loc[~self.report, ["study", "asked"]].drop_duplicates()),
            "studies": rows["study"].nunique(),
            "clusters": len(set(self.clusters(rows["study"]))),
        }

    def notes(self) -> list[str]:
        unknown = sum(self._patients.get(study) is None for study in set(self.rows["study"]))
        notes = []
        if unknown and not self.patients_known:
            notes.append(
                "patients are unknown; if several studies belong to the same person, the intervals are too narrow"
            )
        elif unknown:
            notes.append(
                f"{unknown:,} studies have no known patient and count as separate patients; if some belong to the same "
                "person, the intervals are too narrow"
            )
        if self.extracted:
            notes.append(f"the findings of {self.extracted:,} judgements were extracted from their prompts")
        return notes


def _rated(study: _Study, field: str, rows: Flags) -> list[dict[str, Any]]:
    """Return the mean ratings of each model or annotator."""
    return [
        {field: name, "judgements": int(of_name.sum()), "ratings": study.ratings(of_name)}
        for name in sorted(set(study.rows[field]))
        if (of_name := study.where(field, name) & rows).any()
    ]


def _differences(study: _Study) -> list[dict[str, Any]]:
    """Return paired differences of models on prompts that the same annotator judged for both; one family of tests."""
    asked = study.rows[study.report].groupby(["annotator", "study", "asked", "model"])[[*RATINGS]].last().unstack()
    columns = {place: asked[place].to_numpy(dtype=np.float64) for place in asked.columns}
    compared = [
        (name, first, second)
        for first, second in combinations(sorted({model for _, model in columns}), 2)
        for name in RATINGS
        if not np.isnan(columns[name, first] - columns[name, second]).all()
    ]
    if not compared:
        return []
    estimator = study.over(asked.index.get_level_values("study"))
    sides = [[columns[name, pair[side]] for name, *pair in compared] for side in (0, 1)]
    found = estimator.adjusted(estimator.differences(*sides))
    return [
        {"rating": name, "first": first, "second": second} | as_value(one)
        for (name, first, second), one in zip(compared, found, strict=True)
    ]


def _prompts(study: _Study) -> list[dict[str, Any]]:
    """Return ratings of custom prompts and of report prompts (unpaired), for models with custom prompts."""
    found = []
    for model in study.models:
        custom, report = (study.where("model", model) & rows for rows in (~study.report, study.report))
        if not custom.any():
            continue
        row: dict[str, Any] = {"model": model, "custom": study.ratings(custom), "report": None}
        if report.any():
            pairs = zip(RATINGS, study.columns(custom), study.columns(report), strict=True)
            contrasts = {name: study.estimator.contrast(one, other, "percentile") for name, one, other in pairs}
            row |= {
                "report": study.ratings(report),
                "difference": {name: as_value(contrasts[name]) for name in RATINGS},
            }
        found.append(row)
    return found


def _findings(study: _Study) -> list[dict[str, Any]]:
    """Return intuitiveness by finding, most judged first; a prompt counts for each finding it asserts."""
    found = []
    for name in sorted({name for names in study.rows["findings"] for name in names}):
        rows = np.array([name in names for names in study.rows["findings"]], dtype=bool)
        by_model = {model: rows & study.where("model", model) for model in study.models}
        every = study.ratings(rows)["intuitiveness"]
        prompts = len(study.rows.loc[rows, ["study", "asked"]].drop_duplicates())
        group = {"finding": name, "prompts": prompts, "clusters": every["clusters"]}
        group |= {"few": every["clusters"] < FEW_PATIENTS, "all": every}
        means = {model: study.ratings(flags)["intuitiveness"] for model, flags in by_model.items() if flags.any()}
        found.append(group | {"models": means})
    return sorted(found, key=lambda group: -group["prompts"])


def _agreement(study: _Study) -> dict[str, Any]:
    """Return Krippendorff's alpha of each rating, and how often two annotators agree exactly or within one step."""
    units = study.rows.groupby(["study", "asked", "model", "annotator"])[[*RATINGS]].last().unstack()
    shared = units[units[RATINGS[0]].notna().sum(axis=1) > 1]
    people = study.rows["annotator"].nunique()
    result: dict[str, Any] = {"units": len(shared), "annotators": people, "ratings": {}}
    if not len(shared):
        return result
    studies = [*shared.index.get_level_values("study")]
    pairs = list(combinations(range(people), 2))
    of_pairs = study.over(studies * len(pairs))
    options = {"clusters": study.clusters(studies), **study.settings.as_options()}
    for name in RATINGS:
        table = shared[name].to_numpy(dtype=np.float64).T  # (annotators, units)
        found = {
            level: Estimate.of(krippendorff_interval(table, level, **options)) for level in ("ordinal", "interval")
        }
        gaps = np.concatenate([np.abs(table[first] - table[second]) for first, second in pairs])
        shares = of_pairs.means([np.where(np.isnan(gaps), np.nan, gaps <= step) for step in (0, 1)])
        found |= dict(zip(("exact", "within_one"), shares, strict=True))
        result["ratings"][name] = {kind: as_value(one) for kind, one in found.items()}
    return result


def _correlations(study: _Study, measures: Measures, notes: list[str], report: Progress) -> Iterator[dict[str, Any]]:
    """Yield correlations of ratings with measures over instances, for each model and for all models together.

    An instance judged by several annotators is one pair, with the mean of their ratings.
    """
    judged = study.rows[study.report].groupby(["model", "study", "asked"])[[*RATINGS]].mean()
    asked = np.zeros(len(judged), dtype=bool)
    values: dict[str, Floats] = {}
    groups: dict[str, Flags] = {}
    for model in study.models:
        slug = measures.find(model)
        if slug is None:
            notes.append(f"model {model!r} has no measures")
            continue
        rows = np.asarray(judged.index.get_level_values("model") == model, dtype=bool)
        asked[rows], columns = measures.values(slug, [(of, question) for _, of, question in judged.index[rows]])
        groups[model] = rows & asked
        for name, column in columns.items():
            values.setdefault(name, np.full(len(judged), np.nan))[rows] = column
        if missing := int((rows & ~asked).sum()):
            notes.append(f"{missing:,} judged prompts of model {model!r} have no measures")
    if not asked.any():
        raise InputError(f"none of the judged prompts has measures; measures exist for {', '.join(measures.names)}")
    if len(groups) > 1:
        groups[ALL] = asked
    rated = {name: judged[name].to_numpy(dtype=np.float64) for name in RATINGS}
    estimator = study.over(judged.index.get_level_values("study"))
    for done, (model, rows) in enumerate(groups.items()):
        report("correlating", done, len(groups))
        of_model = {name: np.where(rows, column, np.nan) for name, column in values.items()}
        yield {"model": model, "pairs": int(rows.sum()), "values": _correlated(estimator, rated, of_model)}
    report("correlating", len(groups), len(groups))


def _correlated(
    estimator: Estimator, rated: Mapping[str, Floats], values: Mapping[str, Floats]
) -> list[dict[str, Any]]:
    """Correlate every rating with every measure that has values; one family of tests per coefficient."""
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
