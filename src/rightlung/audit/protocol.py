"""What a score depends on besides the model. A short hash of it is printed with every number.

Two scores with different hashes must not be compared. The hash is taken over what was asked and how it was scored, not
over where the files lie: the phrase set has a hash of its own, of every study, patient, phrase and target, and so has
what the prior was fitted on, where that is something else.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from rightlung.audit.sidedness import AT_LEAST, GIVEN_AWAY
from rightlung.scoring.localisation.settings import SHARES, THRESHOLDS

PROTOCOL_VERSION = 2

BOX_SIZE = 256
"""Boxes are painted onto a mask of so many pixels a side: a box is a fraction of the image and has no pixels."""

SMALL, LARGE = 0.01, 0.05
"""A target is small below 1 % of the image's area, large from 5 % on, medium between."""

ONE_SIDED = 0.8
"""A target is left or right if at least this share of it lies there."""

_NOT_HASHED = ("source", "prior_source")


@dataclass(frozen=True, slots=True)
class Protocol:
    """Everything but the model that the numbers of an audit depend on."""

    source: str
    phrase_set: str
    """Hash of studies, patients, phrases and targets; see `PhraseSetHash`."""
    target_kinds: tuple[str, ...]
    resamples: int = 10_000
    level: float = 0.95
    seed: int = 0
    prior_source: str = ""
    prior_set: str = "the same phrases, other patients"
    prior_folds: int = 5
    prior: str = (
        "mean target by finding, side and zone named in the words, shrunk by 5 phrases; 56 x 56; Gaussian of 0, 1, 2, "
        "3 or 5 cells by average precision among the fitted patients"
    )
    upsampling: str = "bilinear to the mask's size, zero outside the map's extent; peaks tied share"
    boxes_as_targets: str = f"union painted on {BOX_SIZE} x {BOX_SIZE} pixels"
    boxes_as_answers: str = "without a map: each pixel has the highest score of the boxes over it"
    normalisation: str = "minmax (miou, mdice)"
    thresholds: tuple[float, ...] = THRESHOLDS
    shares: tuple[float, ...] = SHARES
    ties: str = "AUROC: half; top share: shared equally; pointing and side: share of the tied peaks"
    tolerance: float = 0.0
    midline: str = "between the lungs' boxes where the source has them, else the spine's box, else the image's middle"
    one_sided: float = ONE_SIDED
    side_from_image: str = (
        f"phrases that name no side, no devices, and no words of which {100 * GIVEN_AWAY:g} % or more of at least "
        f"{AT_LEAST} one-sided targets of other patients lie on one side"
    )
    movement: str = "half the L1 distance of maps of mass one, and the peaks' distance, on 64 x 64 cells"
    size_limits: tuple[float, float] = (SMALL, LARGE)
    labels: str = "uncertain counts as asserted; unnamed is unknown; phrases without a target give abstention only"
    averaging: str = "mean over phrases; intervals by patient-clustered bootstrap (BCa)"
    version: int = PROTOCOL_VERSION

    @property
    def hash(self) -> str:
        """Ten hexadecimal digits that stand for the protocol."""
        facts = {name: value for name, value in asdict(self).items() if name not in _NOT_HASHED}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:10]

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values, the hash first."""
        facts = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return {"hash": self.hash, **facts}


class PhraseSetHash:
    """A hash of studies, phrases, targets and facts about them that does not depend on the order in which they come."""

    def __init__(self) -> None:
        self._total = 0

    def add(self, study: str, query: str, text: str, target: bytes, **facts: Any) -> None:
        """Take in one phrase with a digest of its target (empty where it has none) and what else is known of it."""
        known = json.dumps([study, query, text, facts], sort_keys=True).encode()
        digest = hashlib.sha256(hashlib.sha256(known).digest() + target).digest()
        self._total = (self._total + int.from_bytes(digest, "big")) % 2**256

    @property
    def digest(self) -> str:
        """Ten hexadecimal digits."""
        return hashlib.sha256(self._total.to_bytes(32, "big")).hexdigest()[:10]
