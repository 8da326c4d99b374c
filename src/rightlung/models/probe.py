"""Linear probes: what a linear layer can read from frozen image embeddings (eCLIP supp. A.3).

Two protocols. ``logistic`` fits a logistic regression to convergence. ``five-epochs`` is the paper's: with its small
learning rates a fresh layer barely moves in five epochs, so its result says more about the protocol than about the
embedding.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from rightlung.core import Image, InputError
from rightlung.core.errors import check_known
from rightlung.core.keyed import key_uniform
from rightlung.lexicon import canonical_finding, label_set

Floats = NDArray[np.float64]
HEADS: Mapping[str, tuple[str, ...]] = {
    "pneumonia": ("pneumonia",),
    "cxr-8": tuple(label_set("nih-8-boxed").findings.values()),
    "openi-5": ("no finding", "cardiomegaly", "lung opacity", "atelectasis", "lung"),
}
"""The outputs of the paper's heads. Which five of Open-I are meant is not said; these are the groups of its code."""
STRENGTHS = tuple(10.0**power for power in range(-4, 3))
"""Inverse regularisation strengths (scikit-learn's C) to choose from."""


@dataclass(frozen=True)
class ProbeSettings:
    """How a probe is fitted. Fields from ``epochs`` on apply to ``five-epochs``."""

    protocol: Literal["logistic", "five-epochs"] = "logistic"
    share: float = 1.0
    """Share of the training patients whose labels are used; a smaller share is part of a larger one."""
    validation: float = 0.1
    """Share of these patients that is held out: to choose C, or the best epoch."""
    seed: int = 0
    epochs: int = 5
    learning_rate: float | None = None
    """Default: the paper's, 2e-5 for one output and 1e-5 for several."""
    batch_size: int = 64
    """Not said in the paper, nor is the optimiser: AdamW here."""

    def __post_init__(self) -> None:
        check_known("protocol of a probe", self.protocol, ("logistic", "five-epochs"))
        if not 0 < self.share <= 1 or not 0 < self.validation < 1:
            raise InputError(f"share must be in (0, 1] and validation in (0, 1); got {self.share}, {self.validation}")

    def sentence(self) -> str:
        """Say how the probe is fitted."""
        how = "logistic regression to convergence, C chosen on"
        if self.protocol == "five-epochs":
            how = f"{self.epochs} epochs, the one with the lowest loss on"
        share = f"{100 * self.validation:g} % of the training patients"
        return f"linear probe: {how} {share}; labels of {100 * self.share:g} % of them"


@dataclass(frozen=True)
class ProbeWeights:
    """A linear layer: logits are features @ weight.T + bias."""

    findings: tuple[str, ...]
    weight: Floats = field(repr=False)  # (findings, dimension)
    bias: Floats = field(repr=False)  # (findings,)
    patients: int
    """Number of training patients, with the held-out ones."""
    chosen: Mapping[str, float]
    """C of each finding, or the best epoch."""
    left_out: tuple[str, ...] = ()
    """Findings that the training labels have in one class only."""


def first_patients(patients: Sequence[str], share: float, seed: int, purpose: str) -> NDArray[np.bool_]:
    """Return which rows belong to a random share of the patients, (rows,); at least to one patient.

    The order of the patients depends on the seed and the purpose, so a smaller share is part of a larger one.
    """
    order = sorted(set(patients), key=lambda patient: key_uniform(seed, purpose, patient))
    kept = set(order[: max(1, math.ceil(share * len(order) - 1e-9))])
    return np.array([patient in kept for patient in patients], bool)


def fit_probe(
    features: ArrayLike,
    labels: ArrayLike,
    patients: Sequence[str],
    findings: Sequence[str],
    settings: ProbeSettings | None = None,
) -> ProbeWeights:
    """Fit a probe to features (n, dimension) and labels (n, findings): 1, 0, or NaN for unknown."""
    settings = settings or ProbeSettings()
    values, truth = np.asarray(features, np.float64), np.asarray(labels, np.float64)
    if values.ndim != 2 or truth.shape != (len(values), len(findings)) or len(patients) != len(values):
        raise InputError(
            f"expected features (n, dimension), labels (n, {len(findings)}) and n patients; got {values.shape}, "
            f"{truth.shape} and {len(patients)}"
        )
    used = first_patients(patients, settings.share, settings.seed, "label share")
    values, truth, owners = values[used], truth[used], [one for one, there in zip(patients, used, strict=True) if there]
    held_out = first_patients(owners, settings.validation, settings.seed, "validation")
    both = [{0.0, 1.0} <= set(truth[~held_out, column].tolist()) for column in range(len(findings))]
    kept = tuple(name for name, there in zip(findings, both, strict=True) if there)
    if not kept:
        raise InputError(
            f"no finding is present in some and absent in other images of the {len(set(owners))} training patients: "
            f"{', '.join(findings) or 'there is none'}"
        )
    chosen: dict[str, float] = {}
    if settings.protocol == "logistic":
        weight, bias = np.zeros((len(kept), values.shape[1])), np.zeros(len(kept))
        for place, name in enumerate(kept):
            column = truth[:, findings.index(name)]
            known = ~np.isnan(column)
            found = _logistic(values[known], column[known], held_out[known])
            weight[place], bias[place], chosen[name] = found
    else:
        columns = [findings.index(name) for name in kept]
        weight, bias, chosen["epoch"] = _five_epochs(values, truth[:, columns], held_out, settings)
    left_out = tuple(name for name in findings if name not in kept)
    return ProbeWeights(kept, weight, bias, len(set(owners)), chosen, left_out)


def _logistic(features: Floats, labels: Floats, held_out: NDArray[np.bool_]) -> tuple[Floats, float, float]:
    """Return weight, bias and C of a logistic regression on standardised features, for the features as they are."""
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        raise InputError("scikit-learn is not installed: pip install 'rightlung[retrieval]'") from None
    mean, std = features.mean(axis=0), features.std(axis=0)
    scaled = (features - mean) / np.where(std > 0, std, 1.0)

    def fitted(strength: float, rows: NDArray[np.bool_]) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # one that did not converge is no result
            return LogisticRegression(C=strength, max_iter=10_000).fit(scaled[rows], labels[rows])

    def loss(strength: float) -> float:
        logits = fitted(strength, ~held_out).decision_function(scaled[held_out])
        return float(np.logaddexp(0, np.where(labels[held_out] > 0, -logits, logits)).mean())

    # Without held-out labels, the strongest prior but one: few labels say little.
    strength = min(STRENGTHS, key=loss) if held_out.any() else STRENGTHS[1]
    model = fitted(strength, np.ones(len(labels), bool))
    weight = model.coef_[0] / np.where(std > 0, std, 1.0)
    return weight, float(model.intercept_[0] - weight @ mean), strength


def _five_epochs(
    features: Floats, labels: Floats, held_out: NDArray[np.bool_], settings: ProbeSettings
) -> tuple[Floats, Floats, float]:
    """Return weight and bias of the epoch with the lowest validation loss, and that epoch."""
    chance = torch.Generator().manual_seed(settings.seed)
    inputs, truth = (torch.from_numpy(one).float() for one in (features, labels))
    train, validation = (torch.from_numpy(np.flatnonzero(rows)) for rows in (~held_out, held_out))
    bound = 1 / math.sqrt(inputs.shape[1])  # as a fresh torch.nn.Linear
    shapes = (labels.shape[1], inputs.shape[1]), (labels.shape[1],)
    weight, bias = ((torch.rand(shape, generator=chance) * 2 - 1).mul_(bound).requires_grad_() for shape in shapes)
    rate = settings.learning_rate or (2e-5 if labels.shape[1] == 1 else 1e-5)
    optimiser = torch.optim.AdamW([weight, bias], lr=rate)
    steps = settings.epochs * math.ceil(len(train) / settings.batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: warm_cosine(step, steps))

    def loss(rows: Tensor) -> Tensor:
        known = ~truth[rows].isnan()
        return binary_cross_entropy_with_logits((inputs[rows] @ weight.T + bias)[known], truth[rows][known])

    best = (math.inf, 0, weight.detach().clone(), bias.detach().clone())
    for epoch in range(1, settings.epochs + 1):
        for rows in train[torch.randperm(len(train), generator=chance)].split(settings.batch_size):
            if not truth[rows].isnan().all():
                optimiser.zero_grad()
                loss(rows).backward()
                optimiser.step()
            schedule.step()
        with torch.no_grad():
            found = float(loss(validation))  # NaN if nothing is known there: the last epoch counts
        if not found >= best[0]:
            best = (found, epoch, weight.detach().clone(), bias.detach().clone())
    return best[2].double().numpy(), best[3].double().numpy(), float(best[1])


def warm_cosine(step: int, steps: int, warm_up: float = 0.1) -> float:
    """Return the factor of the learning rate: linear to 1 over the first 10 % of the steps, then a cosine to 0."""
    first = max(1, round(warm_up * steps))
    if step < first:
        return (step + 1) / first
    return 0.5 * (1 + math.cos(math.pi * (step - first) / max(1, steps - first)))


class LinearProbe:
    """A classifier of whole images: a linear layer on an embedder's frozen image embeddings."""

    def __init__(self, embedder: Any, weights: ProbeWeights) -> None:
        if not hasattr(embedder, "encode_image"):
            raise InputError(f"a linear probe needs encode_image, which a {type(embedder).__name__} lacks")
        self.embedder: Any = embedder
        self.findings = weights.findings
        self.weight, self.bias = weights.weight, weights.bias
        self._place = {canonical_finding(name): place for place, name in enumerate(weights.findings)}

    def knows(self, finding: str) -> bool:
        """Return whether the probe has an output for a finding."""
        return canonical_finding(finding) in self._place

    def classify(self, images: Sequence[Image], findings: Sequence[str], boxes: None = None) -> NDArray[np.float64]:
        """Return probabilities (images, findings), NaN for a finding without an output."""
        if boxes is not None:
            raise InputError("a linear probe classifies whole images, not boxes")
        logits = np.asarray(self.embedder.encode_image(list(images)), np.float64) @ self.weight.T + self.bias
        found = np.full((len(images), len(findings)), np.nan)
        for column, name in enumerate(findings):
            if self.knows(name):
                found[:, column] = 1 / (1 + np.exp(-logits[:, self._place[canonical_finding(name)]]))
        return found
