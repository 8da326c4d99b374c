"""Conditional DETR (Meng et al., ICCV 2021), a supervised detector of findings (ChEX, supp. E.4).

Transformer, matching and losses are those of `transformers`; the feature map is that of our image encoder, so that all
models can share a backbone. The model reads no phrase beyond the findings that it names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from rightlung.core import Extent, Grounding, Image, ScoredBox
from rightlung.core.frozen import FrozenMapping
from rightlung.models.base import Gather, TrainingBatch
from rightlung.models.boxes import scored_boxes, to_centres
from rightlung.models.encoders import ImageEncoder, ImageEncoderConfig
from rightlung.models.encoders.configured import ConfiguredModel, check_losses
from rightlung.models.encoders.pretrained import build_config
from rightlung.models.findings import FindingColumns, FixedFindings
from rightlung.models.inputs import Images, Phrases, as_images, as_list, as_pairs
from rightlung.models.preprocessing import letterbox_batches

BOXES_PER_IMAGE = 100
"""The most boxes that are returned for an image, as in the paper's evaluation."""
LOSSES = {"classification": "loss_ce", "box_l1": "loss_bbox", "box_giou": "loss_giou"}
"""The names of the losses, and those that `transformers` has for them."""
FOCAL_PRIOR = 0.01
"""The probability of each finding before training, which keeps the focal loss stable (Lin et al., ICCV 2017, 3.3)."""


@dataclass(frozen=True)
class DetrConfig:
    """A detector of ``findings``: canonical names, or the labels of a data set.

    - ``options``: fields of the configuration of `transformers`, such as ``num_queries``, ``d_model`` and
      ``decoder_layers``; those of the backbone are ``image``'s.
    - ``losses``: ``classification``, ``box_l1`` and ``box_giou``, each summed over decoder layers. In training,
      they are those of the recipe; the paper weighs them 2, 5 and 2.
    """

    findings: tuple[str, ...]
    image: ImageEncoderConfig = field(default_factory=ImageEncoderConfig)
    options: Mapping[str, Any] = field(default_factory=FrozenMapping)
    losses: tuple[str, ...] = tuple(LOSSES)
    save_dtype: Literal["float32", "float16"] = "float32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", FrozenMapping(self.options))
        FindingColumns(self.findings)  # raises for missing or repeated ones
        check_losses(self.losses, LOSSES)


class ConditionalDetr(FixedFindings, ConfiguredModel):
    """Boxes of findings, trained on boxes with labels."""

    kind: ClassVar[str] = "conditional-detr"
    config_type = DetrConfig
    loss_names = tuple(LOSSES)
    config: DetrConfig

    def __init__(self, config: DetrConfig) -> None:
        super().__init__()
        self.columns = FindingColumns(config.findings)
        self.detector = _build_detector(config)
        encoder = self.detector.model.backbone.encoder
        self.config = replace(config, image=encoder.config)

    # ---------------------------------------------------------------- training

    def forward(self, batch: TrainingBatch, gather: Gather | None = None) -> dict[str, Tensor]:
        """Return the configured losses by name, of the images whose boxes are known. ``gather`` is not used."""
        self.check_size(batch, "image.size", self.config.image.size)
        known = batch.target("boxes")["has_boxes"].nonzero()[:, 0]
        if not len(known):
            return self.no_losses()
        labels = self._labels(batch)
        output = self.detector(batch.images[known], labels=[labels[image] for image in known.tolist()])
        return {
            name: torch.stack([term for own, term in output.loss_dict.items() if own.startswith(LOSSES[name])]).sum()
            for name in self.config.losses
        }

    def _labels(self, batch: TrainingBatch) -> list[dict[str, Tensor]]:
        """Return boxes and classes of each image; a box with several findings counts once for each."""
        target = batch.target("boxes")
        rows: list[list[tuple[int, int]]] = [[] for _ in range(len(batch))]
        for box, (names, image) in enumerate(zip(target["labels"], target["image_indices"], strict=True)):
            rows[image] += [(box, column) for name in names if (column := self.columns.column(name)) is not None]
        boxes = to_centres(target["boxes"].float())
        pairs = [torch.tensor(own, dtype=torch.long, device=boxes.device).reshape(-1, 2) for own in rows]
        return [{"class_labels": own[:, 1], "boxes": boxes[own[:, 0]]} for own in pairs]

    # --------------------------------------------------------------- inference

    def detect(self, images: Images, findings: str | Sequence[str]) -> list[list[ScoredBox]]:
        """Return the boxes of findings in each image, the best first; findings that it does not know have none."""
        known = self.columns.known_columns(as_list(findings))
        if not known:
            return [[] for _ in as_images(images)]
        detected = []
        with self.eval_mode():
            for boxes, scores, extent in self._found(as_images(images)):
                best = scores[:, list(known.values())].flatten().topk(min(BOXES_PER_IMAGE, len(scores) * len(known)))
                names = list(known)
                own = [
                    scored_boxes(boxes[place // len(names), None], score[None], extent, names[place % len(names)])
                    for place, score in zip(best.indices.tolist(), best.values, strict=True)
                ]
                detected.append([box for some in own for box in some])
        return detected

    def ground(self, images: Images, phrases: Phrases) -> list[Grounding]:
        """Return the boxes of the findings that each phrase names, the best first; none if it names no known one."""
        images, phrases = as_pairs(images, phrases)
        groundings = []
        with self.eval_mode():
            for (boxes, scores, extent), phrase in zip(self._found(images), phrases, strict=True):
                asked = scores[:, self.columns.of_phrase(phrase)]
                found = scored_boxes(boxes, asked.amax(1), extent) if asked.shape[1] else []
                groundings.append(Grounding(boxes=found[:BOXES_PER_IMAGE]))
        return groundings

    def _found(self, images: Sequence[Image]) -> Iterator[tuple[Tensor, Tensor, Extent]]:
        """Yield the boxes (q, 4), by centre and size, of each image, their scores (q, findings), and its extent."""
        for squares, extents in letterbox_batches(images, self.config.image.size, self.device):
            output = self.detector(squares)
            yield from zip(output.pred_boxes.float(), output.logits.float().sigmoid(), extents, strict=True)


class _FeatureMap(nn.Module):
    """Our image encoder in the place of the backbone of `transformers`, which freezes a ResNet's weights."""

    def __init__(self, encoder: ImageEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, pixel_values: Tensor, pixel_mask: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return the feature map (n, d, rows, cols), and which of its cells are no padding: all."""
        patches = self.encoder.patches(pixel_values)
        return [(patches, torch.ones_like(patches[:, 0], dtype=torch.bool))]


def _build_detector(config: DetrConfig) -> Any:
    from transformers import ConditionalDetrForObjectDetection

    replaced = {"model_type": "resnet", "hidden_sizes": [1], "depths": [1], "layer_type": "basic"}
    options = {
        "num_queries": BOXES_PER_IMAGE, "auxiliary_loss": True, **config.options,
        "backbone_config": replaced, "num_labels": len(config.findings),
    }  # fmt: skip
    described: Any = build_config("conditional_detr", options, "detector")
    detector: Any = ConditionalDetrForObjectDetection(described)
    encoder = ImageEncoder(config.image, detector.config.d_model, global_embedding=False)
    detector.model.backbone, detector.model.input_projection = _FeatureMap(encoder), nn.Identity()
    # As in the released code; with those of `transformers`, all queries begin in the middle of the image.
    nn.init.normal_(detector.model.query_position_embeddings.weight)
    nn.init.constant_(detector.class_labels_classifier.bias, -math.log(1 / FOCAL_PRIOR - 1))
    return detector
