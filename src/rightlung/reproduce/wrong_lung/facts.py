"""What a page opens with: what was measured on what, what is missing, and what has to be known before reading on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rightlung import __version__
from rightlung.reproduce.wrong_lung.plan import QUICK_SOURCE
from rightlung.reproduce.wrong_lung.results import (
    CONDITIONS,
    MOVED_TARGETS,
    PERTURBATIONS,
    SHUFFLED,
    TARGETS,
    Instances,
    Model,
    Results,
    variants_missing,
)
from rightlung.reproduce.wrong_lung.tables import Measured
from rightlung.reproduce.wrong_lung.variants import VARIANTS

EXPECTED = {**{variant.slug: variant.name for variant in VARIANTS}, "prior": "the image-blind location prior"}
"""The variants that a whole experiment has, in their order."""

MOST_PROBLEMS = 20
_ASKED_WORDS = {one.condition: one.title for one in PERTURBATIONS if one.condition} | {
    "none": "the sentence as it stands",
    "synthetic": "synthetic sentences",
    "exchange-image": "another patient's image",
}
_AGAINST_WORDS = {
    "regions": "region boxes",
    "trimmed": "trimmed region boxes",
    "exact": "exact masks",
    "regions-shuffled": "shuffled region boxes",
    "exact-shuffled": "shuffled exact masks",
    "regions-random": "another patient's region boxes",
    "exact-random": "another patient's exact masks",
}
_WITHOUT_WORDS = {
    "swap-sides": "phrases without a word for a side, so that there is none to swap (Swap Left Right)",
    "random-sentence": "phrases for which there is no sentence of another report (Random Sentences)",
    "synthetic": "phrases that no synthetic sentence can be made of",
    "synthetic-swapped": "phrases without another condition seen in the same place (Synth w/ Swapped Conditions)",
    "exchange-image": "phrases for which there is no other patient's image",
    "regions": "phrases without region boxes",
    "trimmed": "phrases without trimmed region boxes",
    "exact": "phrases without an exact mask",
    "regions-shuffled": "phrases alone in their report, so that no other region boxes can be taken (Shuffle in Report)",
    "exact-shuffled": "phrases without an exact mask of their own and another in their report (Shuffle in Report)",
    "regions-random": "phrases for which there are no region boxes of another patient (Random BBoxes)",
    "exact-random": "phrases without an exact mask of their own and one of another patient (Random BBoxes)",
}
_COUNT_WORDS = {
    "patients": "patients",
    "studies without a patient": "studies whose patient is not known",
    "instances": "instances (a study and one of its phrases)",
    "abnormal": "instances in Abnormal",
    "one-lung": "instances in One Lung",
    "mdrb": "instances in MDRB",
    "in no subset": "instances in none of these subsets",
    "with an exact target": "instances with an exact mask",
    "without findings": "instances that name no finding",
}


def warning_of(results: Results) -> str:
    """Say that models of ``--quick`` have learned nothing."""
    trained = [model for model in results.models if model.training]
    quick = [model for model in trained if (model.training or {}).get("quick") is True]
    if not (quick or results.run.get("quick") is True or results.instances.about.get("source") == QUICK_SOURCE):
        return ""
    whose = "its models" if len(quick) in (0, len(trained)) else ", ".join(model.slug for model in quick)
    return (
        f"A rehearsal (--quick), not a result: {whose}, trained for a few steps on a few tiny images, learned nothing. "
        "This page shows that everything runs; its figures say nothing about any model, and its verdicts nothing about "
        "any claim."
    )


def facts_of(measured: Measured) -> dict[str, str]:
    """Return where everything comes from, with all counts of the instances."""
    results, sure = measured.results, measured.estimator.sureness
    about, instances = results.instances.about, results.instances
    return {
        "source": str(about.get("source") or "not given"),
        "protocol": str(about.get("protocol") or "not given"),
        "seed of the instances": str(about.get("seed", "not given")),
        "pixels a side of the targets": _size(about.get("size")),
        **{_COUNT_WORDS.get(name, name): f"{count:,}" for name, count in _counts(instances).items()},
        "models": f"{len(results.rows)} variants, {len(results.models)} with all seeds",
        "seeds of the models": _seeds(results)
        + (". What has several is given by its mean over them" if len(results.models) > len(results.rows) else ""),
        "intervals": f"{100 * sure.level:g} %, {_resampled(instances)} resampled {sure.resamples:,} times (BCa), seed "
        f"{sure.seed}; each for its own comparison",
        "rightlung": __version__,
    }


def _counts(instances: Instances) -> dict[str, int]:
    """Return all counts of ``instances.json``; those that follow from the instances are counted from them."""
    flags = [instances.subset(name) for name in ("abnormal", "one-lung", "mdrb")]
    patients = dict(zip(instances.texts["study"], instances.texts["patient"], strict=True))
    counted = {
        "studies": len(patients),
        "patients": len({patient for patient in patients.values() if patient}),
        "studies without a patient": sum(not patient for patient in patients.values()),
        "instances": len(instances),
        **{name: int(inside.sum()) for name, inside in zip(("abnormal", "one-lung", "mdrb"), flags, strict=True)},
        "in no subset": int((~(flags[0] | flags[1] | flags[2])).sum()),
        "with an exact target": int(instances.flags["has_exact"].sum()),
    }
    given = {str(name): int(count) for name, count in (instances.about.get("counts") or {}).items()}
    return counted | {name: count for name, count in given.items() if name not in counted}


def _resampled(instances: Instances) -> str:
    return {
        "patients": "patients",
        "studies": "studies (no patient is known)",
        "patients and studies": "patients (studies where the patient is not known)",
    }[instances.resampled]


def _seeds(results: Results) -> str:
    """Return the seeds of each variant, those of the same seeds together."""
    variants: dict[str, list[str]] = {}
    for row in results.rows:
        seeds = " ".join(str(model.seed) for model in results.seeds(row.variant) if model.seed is not None)
        variants.setdefault(seeds or "none given", []).append(row.marked(row.variant))
    return "; ".join(f"{seeds}: {', '.join(names)}" for seeds, names in variants.items()) or "no model is there"


def _size(size: Any) -> str:
    if isinstance(size, list | tuple):
        return " × ".join(str(part) for part in size)
    return "not given" if size is None else str(size)


def without_of(about: Mapping[str, Any]) -> dict[str, int]:
    """Return how many phrases a condition or a target does not apply to, in words."""
    return {_WITHOUT_WORDS.get(name, name): int(count) for name, count in (about.get("without") or {}).items()}


def absent_from(results: Results) -> list[str]:
    """Say what a whole experiment has and this one has not."""
    reasons = {str(slug): str(reason) for slug, reason in (results.run.get("missing") or {}).items()}
    said = [
        f"Not measured: {name}{f' ({reasons.pop(slug)})' if slug in reasons else ''}."
        for slug, name in variants_missing(results, EXPECTED).items()
    ]
    said += [f"Not measured: {slug} ({reason})." for slug, reason in reasons.items()]
    said += [f"measures/{name}: not finished, and left out." for name in results.unfinished]
    wanted = [
        *((condition, target) for condition in CONDITIONS for target in TARGETS),
        *(("none", target) for target in MOVED_TARGETS),
    ]
    problems = [str(problem) for problem in results.instances.about.get("problems") or ()]
    said += [f"While preparing: {problem}" for problem in problems[:MOST_PROBLEMS]]
    if len(problems) > MOST_PROBLEMS:
        said.append(f"… and {len(problems) - MOST_PROBLEMS} more problems, in instances.json.")
    if results.models and len(results.instances.differs) < len(SHUFFLED):
        said.append(
            "instances.parquet does not say which shuffled targets are the same mask: all are counted as changed."
        )
    has_exact = bool(results.instances.flags["has_exact"].any())
    for model in results.models:
        name = model.marked(model.slug)
        lacking = [
            f"{_ASKED_WORDS[condition]} against {_AGAINST_WORDS[target]}"
            for condition, target in wanted
            if (condition, target) not in model.scores and (has_exact or not target.startswith("exact"))
        ]
        if lacking:
            shown = ", ".join(lacking[:6]) + (f" and {len(lacking) - 6} more" if len(lacking) > 6 else "")
            said.append(f"{name}: no scores of {shown}.")
        if unread := (model.training or {}).get("left_out"):
            said.append(f"{name}: {unread:,} studies could not be learned from, or validated on.")
        if model.errors:
            said.append(f"{name}: {model.errors:,} answers could not be had.")
        similarities = [one for one in ("local", "global") if _never(model, f"similarity_{one}")]
        if similarities:
            said.append(f"{name}: gives no {' and no '.join(similarities)} similarity.")
    if results.models and not has_exact:
        said.append("No phrase has an exact mask: nothing can be told of exact masks.")
    return said


def _never(model: Model, name: str) -> bool:
    return all(math.isnan(value) for value in model.answers["none"][name].tolist())
