"""Anatomy-driven detection (ADPD; Müller et al., MICCAI 2023): find anatomical regions, and classify each of them.

No box of a finding is needed: findings are learned from labels of regions (``region_findings``, Loc-ADPD) or of whole
images (``image_findings``, MIL-ADPD: the image has a finding if one of its regions has it). The box of a finding is
that of a region. Regions are found by ChEX's detector, with one learned query and one box for each. Departure:
overlapping regions are not fused here; apply non-maximum suppression to the boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rightlung.core import Box, InputError, ScoredBox
from rightlung.core.checks import check_limits
from rightlung.lexicon import IMAGENOME_REGIONS
from rightlung.models.base import Gather, TrainingBatch
from rightlung.models.boxes import in_square, scored_boxes, to_centres
from rightlung.models.chex.config import DecoderConfig
from rightlung.models.chex.detector import PromptDetector
from rightlung.models.chex.matching import box_loss
from rightlung.models.classifier.losses import label_bce
from rightlung.models.encoders import ImageEncoder, ImageEncoderConfig
from rightlung.models.encoders.configured import ConfiguredModel, check_losses
from rightlung.models.findings import FindingColumns, FixedFindings
from rightlung.models.inputs import Images, as_images, as_list
from rightlung.models.preprocessing import letterbox_batches
from rightlung.models.roi import check_boxes

LOSSES = ("region_boxes", "region_findings", "image_findings")


@dataclass(frozen=True)
class AdpdConfig:
    """A detector of regions and a classifier of ``findings`` in them.

    - ``dimension``: of patches and region tokens; ``detector``, ``box_std`` and ``skip_probability`` are as in ChEX.
    - ``losses``: ``region_boxes`` with ``region_findings`` (Loc-ADPD) or with ``image_findings`` (MIL-ADPD).
    """

    findings: tuple[str, ...]
    image: ImageEncoderConfig = field(default_factory=ImageEncoderConfig)
    dimension: int = 256
    detector: DecoderConfig = field(default_factory=lambda: DecoderConfig(layers=3))
    box_std: float = 0.5
    skip_probability: float = 0.0
    boxes_per_prompt: ClassVar[int] = 1
    losses: tuple[str, ...] = ("region_boxes", "region_findings")
    save_dtype: Literal["float32", "float16"] = "float32"

    def __post_init__(self) -> None:
        FindingColumns(self.findings)  # raises for missing or repeated ones
        check_limits(self.dimension, "dimension", 1, 8192)
        check_limits(self.box_std, "box_std", 0.05, 10)
        check_limits(self.skip_probability, "skip_probability", 0, 1)
        if self.dimension % self.detector.heads:
            raise InputError(f"dimension {self.dimension} is not a multiple of detector.heads, {self.detector.heads}")
        check_losses(self.losses, LOSSES)


@dataclass(frozen=True, slots=True)
class RegionFindings:
    """The regions found in ``n`` images: boxes (n, 29, 4) by centre and size, and logits (n, 29, findings)."""

    boxes: Tensor
    logits: Tensor


class Adpd(FixedFindings, ConfiguredModel):
    """Boxes of findings, learned from labels of anatomical regions or of images."""

    kind: ClassVar[str] = "adpd"
    config_type = AdpdConfig
    loss_names = LOSSES
    config: AdpdConfig

    def __init__(self, config: AdpdConfig) -> None:
        super().__init__()
        self.image_encoder = ImageEncoder(config.image, config.dimension, global_embedding=False)
        self.config = replace(config, image=self.image_encoder.config)
        part: Any = config  # it has those of ChEX's fields that the detector reads
        self.detector = PromptDetector(part)
        self.detector.score_head = nn.Sequential()  # every region is there, so that its score is not used
        self.queries = nn.Parameter(torch.randn(len(IMAGENOME_REGIONS), config.dimension))
        self.head = nn.Linear(config.dimension, len(config.findings))
        nn.init.constant_(self.head.bias, -4.0)  # findings are rare, and the image has 29 chances to have one
        self.columns = FindingColumns(config.findings)

    def find(self, images: Tensor) -> RegionFindings:
        """Return boxes and findings of the regions of images (n, 1, size, size)."""
        patches = self.image_encoder.patches(images)
        found = self.detector(self.queries.expand(len(images), -1, -1), patches)
        return RegionFindings(found.boxes[:, :, 0], self.head(found.box_tokens[:, :, 0]).float())

    def forward(self, batch: TrainingBatch, gather: Gather | None = None) -> dict[str, Tensor]:
        """Return the configured losses by name. ``gather`` is not used."""
        self.check_size(batch, "image.size", self.config.image.size)
        found = self.find(batch.images)
        return {name: _LOSS_FUNCTIONS[name](found, batch) for name in self.config.losses}

    def detect(self, images: Images, findings: str | Sequence[str]) -> list[list[ScoredBox]]:
        """Return the box of each region for each finding, with the finding's probability in it, the best first.

        Findings that the model does not know have no boxes.
        """
        known, detected = self.columns.known_columns(as_list(findings)), []
        with self.eval_mode():
            for squares, extents in letterbox_batches(as_images(images), self.config.image.size, self.device):
                found = self.find(squares)
                scores = found.logits.sigmoid()
                for row, extent in enumerate(extents):
                    of_findings = (
                        scored_boxes(found.boxes[row], scores[row, :, column], extent, name)
                        for name, column in known.items()
                    )
                    detected.append(sorted((box for own in of_findings for box in own), key=lambda one: -one.score))
        return detected

    def classify(
        self, images: Images, findings: str | Sequence[str] | None = None, boxes: Sequence[Box] | None = None
    ) -> NDArray[np.float32]:
        """Return the probabilities of findings (all by default), (images, findings), in one box of each image.

        Without boxes, it is that of the image: of all its regions together, as in `image_logits`. Unknown findings have
        NaN.
        """
        arrays = as_images(images)
        names = list(self.findings) if findings is None else as_list(findings)
        self.columns.known_columns(names)  # raises if none is known
        if boxes is not None:
            check_boxes(boxes, arrays)
        parts, done = [torch.zeros(0, len(names))], 0
        with self.eval_mode():
            for squares, extents in letterbox_batches(arrays, self.config.image.size, self.device):
                if boxes is None:
                    logits = image_logits(self.find(squares).logits)
                else:
                    own = zip(boxes[done : done + len(extents)], extents, strict=True)
                    corners = torch.tensor([[in_square(box, extent)] for box, extent in own], device=self.device)
                    tokens = self.detector.at_boxes(to_centres(corners), self.image_encoder.patches(squares))
                    logits = self.head(tokens[:, 0]).float()
                parts.append(self.columns.scores(logits.sigmoid(), names).cpu())
                done += len(extents)
        return torch.cat(parts).numpy()


def image_logits(region_logits: Tensor) -> Tensor:
    """Return the logits (n, findings) that at least one region, (n, regions, findings), has a finding (noisy-or).

    >>> round(image_logits(torch.zeros(1, 2, 1)).sigmoid().item(), 4)
    0.75
    """
    log_absent = nn.functional.logsigmoid(-region_logits).sum(1)
    return torch.log(-torch.expm1(log_absent).clamp(max=-1e-7)) - log_absent


def _region_boxes(found: RegionFindings, batch: TrainingBatch) -> Tensor:
    """Return ChEX's box loss of the regions whose box is known."""
    target = batch.target("regions")
    present = target["present"]
    if not bool(present.any()):
        return found.boxes.sum() * 0.0
    return box_loss(found.boxes[present], to_centres(target["boxes"].float())[present]).mean()


def _region_findings(found: RegionFindings, batch: TrainingBatch) -> Tensor:
    """Return the cross-entropy of the known findings of regions."""
    target = batch.target("regions")
    labels = target["findings"].masked_fill(~target["present"][..., None], torch.nan)
    _check_count(labels, found, "regions")
    return label_bce(found.logits.flatten(0, 1), labels.flatten(0, 1))


def _image_findings(found: RegionFindings, batch: TrainingBatch) -> Tensor:
    """Return the cross-entropy of the known findings of images (multiple-instance learning)."""
    labels = batch.target("labels")["values"]
    _check_count(labels, found, "labels")
    return label_bce(image_logits(found.logits), labels)


def _check_count(labels: Tensor, found: RegionFindings, target: str) -> None:
    if labels.shape[-1] != found.logits.shape[-1]:
        raise InputError(
            f"data.target_options.{target}.findings must equal model.config.findings, which has "
            f"{found.logits.shape[-1]}; got {labels.shape[-1]}"
        )


_LOSS_FUNCTIONS: dict[str, Callable[[RegionFindings, TrainingBatch], Tensor]] = dict(
    zip(LOSSES, (_region_boxes, _region_findings, _image_findings), strict=True)
)
