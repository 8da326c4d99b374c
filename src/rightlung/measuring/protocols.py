"""Protocols: everything that a number depends on besides the model, with a short hash.

Numbers with different hashes must not be compared. The hash covers the questions and the scoring, not file locations:
the phrase set has its own hash, of every study, patient, phrase and target.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from rightlung.core.errors import InputError
from rightlung.core.registry import Registry
from rightlung.core.settings import read_settings
from rightlung.measuring.texts import COPIED_EXEMPLARS, COPIED_NEAREST, FURTHER_MEASURES
from rightlung.models.blind.sides import AT_LEAST, GIVEN_AWAY, ONE_SIDED
from rightlung.probes.rules import BOX_SIZE, LARGE, SMALL
from rightlung.scoring.localisation import METRICS
from rightlung.scoring.localisation.settings import SHARES, THRESHOLDS

if TYPE_CHECKING:
    from rightlung.measuring.targets import Targets

PROTOCOL_VERSION = 3
NOT_HASHED = ("source", "prior_source")
"""Fields that say where files lie; they change no number and no hash."""
HASHED_IF_SET = {
    "queries": ("image",),
    "text": "marks",
    "box_settings": "as predicted",
    "analysis": (),
}
"""Fields that do not count with these values, so that protocols older than the fields keep their hashes."""
NOT_HASHED_MEASURES = (*FURTHER_MEASURES, COPIED_NEAREST, COPIED_EXEMPLARS)
"""Measures that are added where their models are installed; they change no other number and no hash."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """What is measured and how. `applied_to` adds the phrases it is measured on."""

    name: str
    rules: tuple[str, ...]
    """Target rules (`rightlung.probes.rules`). Moved targets are measured under the condition ``none`` only."""
    measures: tuple[str, ...]
    pixels: int | None = None
    """Height and width of targets, on which maps are scored; None: the size of each mask."""
    conditions: tuple[str, ...] = ()
    """Conditions to ask under; empty: those of the predictions."""
    subsets: tuple[str, ...] = ()
    decimals: int | None = None
    """Number of decimals of the written measures."""
    queries: tuple[str, ...] = ("image",)
    """Kinds of queries of which scores, boxes and texts are measured: what their names have before the colon."""
    text: str = "marks"
    """How texts become words (`rightlung.scoring.language.TOKEN_RULES`)."""
    box_settings: str = "as predicted"
    """How predicted boxes are post-processed, and on what that was tuned."""
    analysis: tuple[str, ...] = ()
    """Limits and samples of gates, batteries and strata, as ``name = value`` (`rightlung.audit.analysis`)."""
    source: str = ""
    phrase_set: str = ""
    target_kinds: tuple[str, ...] = ()
    seed: int = 0
    resamples: int = 10_000
    level: float = 0.95
    prior_source: str = ""
    prior_set: str = "the same phrases, other patients"
    prior_folds: int = 5
    prior: str = (
        "mean target by finding, side and zone named in the words, shrunk by 5 phrases; 56 x 56; Gaussian of 0, 1, 2, "
        "3 or 5 cells by average precision among the fitted patients"
    )
    upsampling: str = "bilinear to the target's size, zero outside the map's extent; tied peaks share"
    boxes_as_targets: str = f"union painted on the target's pixels, {BOX_SIZE} x {BOX_SIZE} by default"
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
    labels: str = (
        "phrases: uncertain counts as asserted, unnamed is unknown, without a target abstention only; "
        "images: uncertain and unnamed are left out"
    )
    averaging: str = "mean over phrases; intervals by patient-clustered bootstrap (BCa)"
    version: int = PROTOCOL_VERSION

    @property
    def hashed(self) -> dict[str, Any]:
        """The fields that the hash covers, as plain values."""
        facts = {name: value for name, value in asdict(self).items() if name not in NOT_HASHED}
        facts = {name: value for name, value in facts.items() if value != HASHED_IF_SET.get(name, ...)}
        return facts | {"measures": [name for name in self.measures if name not in NOT_HASHED_MEASURES]}

    @property
    def hash(self) -> str:
        """Ten hexadecimal digits that identify the protocol."""
        return hashlib.sha256(json.dumps(self.hashed, sort_keys=True).encode()).hexdigest()[:10]

    def as_json(self) -> dict[str, Any]:
        """Return the hash and all fields as plain values."""
        facts = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return {"hash": self.hash, **facts}

    @classmethod
    def from_json(cls, given: Mapping[str, Any], where: str) -> Protocol:
        """Return the protocol that `as_json` gave; ``where`` names the file for errors."""
        known = {field.name for field in fields(cls)}
        if unknown := [name for name in given if name not in {*known, "hash"}]:
            raise InputError(
                f"{where}: the protocol has the field {unknown[0]!r}, which this version of rightlung does not know; "
                "measure again with this version"
            )
        facts: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in given.items() if name in known
        }
        read_settings(cls, facts, f"{where}: protocol")  # checks the types; it would turn 5 into 5.0, another hash
        protocol = cls(**facts)
        if given.get("hash") != protocol.hash:
            raise InputError(
                f"{where}: the protocol's hash is {given.get('hash')}, but its fields give {protocol.hash}; the file "
                "was changed, or written by another version of rightlung: measure again"
            )
        return protocol

    def applied_to(self, targets: Targets, **changes: Any) -> Protocol:
        """Return the protocol with the phrase set of ``targets`` and the given fields changed."""
        known = {"source": targets.source, "phrase_set": targets.phrase_set, "target_kinds": targets.kinds}
        known |= {name: targets.settings[name] for name in ("pixels", "seed")}
        return replace(self, **known | changes)


_AUDIT = Protocol(
    "audit",
    ("own",),
    (
        *METRICS, "peak_on_side", "abstention", "similarity_global", "similarity_local", "moved_mass", "moved_peak",
        "abstention_auroc",
    ),
)  # fmt: skip
_WRONG_LUNG = Protocol(
    "wrong-lung",
    ("regions", "trimmed", "exact", "regions-shuffled", "exact-shuffled", "regions-random", "exact-random"),
    (
        "auroc", "average_precision", "pointing", "iou@5", "iou@10", "iou@30", "precision@5", "precision@10",
        "precision@30", "mass_inside", "peak_on_side", "grid_entropy", "kl_random", "abstention", "similarity_global",
        "similarity_local",
    ),
    pixels=224,
    conditions=("none", "swap-sides", "random-sentence", "synthetic", "synthetic-swapped", "exchange-image"),
    subsets=("abnormal", "one_lung", "mdrb"),
    decimals=5,
)  # fmt: skip
_CLASSIFICATION = Protocol("classification", (), ("finding_auroc", "finding_average_precision", "finding_mcc"))
_ONE_OF_CLASSES = Protocol(
    "one-of-classes", (), ("class_accuracy", "class_macro_f1", "finding_auroc", "finding_average_precision"),
    resamples=250, labels="each image shows exactly one of the classes; images are chosen by the seed 0 and their ids",
)  # fmt: skip
_REPORTS = Protocol("reports", (), ("bleu_1", "bleu_4"))
_UNCERTAIN_NEGATIVE = "rule labeller; uncertain and blank are negative"
_TEXTS = (
    "bleu_1", "bleu_2", "bleu_3", "bleu_4", "meteor", "rouge_l", "cider", "micro_f1_14", "macro_f1_14",
    "example_f1_14", "micro_f1_13", "macro_f1_13", "macro_mcc_13", "micro_f1_5", "macro_f1_5", "sided_f1",
)  # fmt: skip
_WORDS = _TEXTS[:7]
_CASED = Protocol("cased", (), _WORDS, text="cased")
_UNCASED = Protocol("uncased", (), _WORDS, text="uncased")
_CLINICAL = Protocol(
    "clinical", (),
    (
        *(f"{name}_{one}" for name in ("ce_r2gen", "ce_r2gen_micro", "ce_promptmrg", "ce_organ", "ce_apart")
          for one in ("precision", "recall", "f1")),
        "macro_f1_14", "micro_f1_13", "macro_f1_13", "micro_f1_5", "macro_f1_5",
        "micro_f1_5_ones", "macro_f1_5_ones", "macro_mcc_13", "macro_mcc_10_positives", "sided_precision",
        "sided_recall", "sided_f1",
    ),
    text="whole", labels="rule labeller; blank is negative; uncertain as each measure says",
)  # fmt: skip
_DIVERSITY = Protocol("diversity", (), ("distinct_share", "most_frequent_share"), text="whole")
_R2GEN = Protocol("r2gen", (), _TEXTS, text="r2gen", labels=_UNCERTAIN_NEGATIVE)
_WHOLE = Protocol("whole", (), _TEXTS, text="whole", labels=_UNCERTAIN_NEGATIVE)
_SENTENCE_GROUNDING = Protocol("chex-sg", ("own",), ("box_miou", "box_miou_pooled", "sentence_map"), resamples=250)
_DETECTION = Protocol(
    "chex-od", (), ("map", "map@10", "map@20", "map@30", "map@40", "map@50", "map@60", "map@70"), resamples=250
)
_REGION_CLASSIFICATION = Protocol(
    "chex-rc", (), ("finding_auroc", "finding_auroc_weighted"), queries=("region",), resamples=250
)
_REGION_EXPLANATION = replace(_WHOLE, name="chex-re", queries=("region",))
_RETRIEVAL = Protocol(
    "retrieval", (),
    (
        "recall@1", "recall@5", "recall@10", "median_rank", "recall@1_once", "recall@5_once", "recall@10_once",
        "median_rank_once",
    ),
    queries=("image", "report"), resamples=250,
    labels="studies with the same report, but for case and spaces, are relevant for each other",
    averaging="mean over queries; an image's candidates are the distinct reports of the source, a report's all images; "
    "cosine of embeddings; ties in random order; "
    "intervals by patient-clustered bootstrap (BCa)",
)  # fmt: skip
PROTOCOLS = Registry(
    "protocol",
    (
        _AUDIT, _WRONG_LUNG, _CLASSIFICATION, _REPORTS, _R2GEN, _WHOLE, _SENTENCE_GROUNDING, _DETECTION,
        _REGION_CLASSIFICATION, _REGION_EXPLANATION, _RETRIEVAL, _ONE_OF_CLASSES, _CASED, _UNCASED, _CLINICAL,
        _DIVERSITY,
    ),
)  # fmt: skip
find_protocol = PROTOCOLS.find
