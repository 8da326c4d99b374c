"""The supervised baseline: an image encoder whose patch embeddings are the logits of findings.

Each cell of the grid has a logit for each finding. Their pooling, by the mean or by log-sum-exp (Wang et al.,
*ChestX-ray8*, CVPR 2017, section 4.1), is the logit of the image; log-sum-exp lets a small nodule outvote the empty
rest. The default is a ResNet-18 (He et al., CVPR 2016) whose last two levels are added up, on 14 x 14 cells.

The model reads no phrase beyond the finding that it names: sides, locations and negations are ignored. That makes it
the control for models that claim to understand them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rightlung.core import Box, Extent, Grounding, Image, InputError, ScoredBox
from rightlung.explain import BoxRule, as_heatmaps, boxes_of
from rightlung.models.base import Gather, TrainingBatch
from rightlung.models.classifier.losses import LOSSES, ClassifierLossInputs
from rightlung.models.encoders import ImageEncoder, ImageEncoderConfig
from rightlung.models.encoders.configured import ConfiguredModel, check_losses
from rightlung.models.findings import FindingColumns, FixedFindings
from rightlung.models.inputs import Images, Phrases, as_images, as_list, as_pairs
from rightlung.models.preprocessing import letterbox_batches
from rightlung.models.roi import box_weights, check_boxes

IMAGE_BATCH_SIZE = 32
RESNET_18 = {"embedding_size": 64, "hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2], "layer_type": "basic"}


@dataclass(frozen=True)
class ClassifierConfig:
    """A classifier of ``findings``: canonical names, or the labels of a data set.

    - ``pooling``: how the logits of cells become those of the image: their ``mean``, or log-sum-exp (``lse``).
    - ``sharpness``: of log-sum-exp pooling; near 0 it is the mean, towards infinity the maximum.
    - ``losses``: names in `rightlung.models.classifier.losses.LOSSES`. In training, they are those of the recipe.
    - ``save_dtype``: the number format of saved matrices.
    """

    findings: tuple[str, ...]
    image: ImageEncoderConfig = field(
        default_factory=lambda: ImageEncoderConfig(options=RESNET_18, pyramid_levels=(-2, -1))
    )
    pooling: Literal["mean", "lse"] = "lse"
    sharpness: float = 3.0
    losses: tuple[str, ...] = ("label_bce",)
    save_dtype: Literal["float32", "float16"] = "float32"

    def __post_init__(self) -> None:
        FindingColumns(self.findings)  # raises for missing or repeated ones
        if not (math.isfinite(self.sharpness) and self.sharpness > 0):
            raise InputError(f"sharpness must be a positive number; got {self.sharpness!r}")
        check_losses(self.losses, LOSSES)


class Classifier(FixedFindings, ConfiguredModel):
    """Probabilities of findings, and a class activation map of the findings that a phrase names."""

    kind: ClassVar[str] = "classifier"
    config_type = ClassifierConfig
    loss_names = tuple(LOSSES)
    config: ClassifierConfig

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        self.image_encoder = ImageEncoder(config.image, len(config.findings), global_embedding=False)
        self.config = replace(config, image=self.image_encoder.config)
        self.losses = nn.ModuleDict({name: LOSSES[name]() for name in config.losses})
        self.columns = FindingColumns(config.findings)

    def pool(self, cell_logits: Tensor, weights: Tensor | None = None) -> Tensor:
        """Pool the logits of cells (n, k, rows, cols) to those of images (n, k).

        ``weights`` (n, rows, cols) with a sum of 1 are those of a region of each image.
        """
        flat = cell_logits.flatten(2).float()  # exponentials of sharpened logits exceed half precision
        of_cells = torch.full_like(flat[:, :1], 1 / flat.shape[2]) if weights is None else weights.flatten(1)[:, None]
        if self.config.pooling == "mean":
            return (flat * of_cells).sum(dim=2)
        sharpness = self.config.sharpness
        return torch.logsumexp(flat * sharpness + of_cells.log(), dim=2) / sharpness

    # ---------------------------------------------------------------- training

    def forward(self, batch: TrainingBatch, gather: Gather | None = None) -> dict[str, Tensor]:
        """Return the configured losses by name. No image is compared with another, so ``gather`` is not used."""
        self.check_size(batch, "image.size", self.config.image.size)
        labels: Tensor = batch.target("labels")["values"]
        if labels.shape[1] != len(self.findings):
            raise InputError(
                f"data.target_options.labels.findings must equal model.config.findings ({', '.join(self.findings)}); "
                f"got {labels.shape[1]} labels for each image"
            )
        cell_logits = self.image_encoder.patches(batch.images)
        inputs = ClassifierLossInputs(self, batch, cell_logits, labels)
        return {name: loss(inputs) for name, loss in self.losses.items()}

    # ------------------------------------------------------------------ asking

    def classify(
        self, images: Images, findings: str | Sequence[str] | None = None, boxes: Sequence[Box] | None = None
    ) -> NDArray[np.float32]:
        """Return the probabilities of findings (all of them by default), (images, findings); NaN for unknown ones.

        With ``boxes``, one for each image, only the cells in the box are pooled (ChEX, supp. E.4).
        """
        images, names = as_images(images), self.findings if findings is None else as_list(findings)
        self.columns.known_columns(names)  # raises if none is known
        if boxes is not None:
            check_boxes(boxes, images)
        parts = [np.zeros((0, len(names)), dtype=np.float32)]
        done = 0
        with self.eval_mode():
            for cell_logits, extents in self._cell_logits(images):
                weights = None
                if boxes is not None:
                    own = boxes[done : done + len(extents)]
                    weights = box_weights(own, extents, self.image_encoder.grid).to(cell_logits.device)
                scores = self.pool(cell_logits, weights).sigmoid()
                parts.append(self.columns.scores(scores, names).cpu().numpy())
                done += len(extents)
        return np.concatenate(parts)

    def detect(
        self, images: Images, findings: str | Sequence[str], rule: BoxRule | None = None
    ) -> list[list[ScoredBox]]:
        """Return boxes around the high values of each finding's class activation map, as CheXNet is evaluated.

        A box's score is the mean of the map in the box, as a fraction of the map's maximum, times the probability of
        the finding. Findings that the model does not know have no boxes.
        """
        rule, known = rule or BoxRule(score="box"), self.columns.known_columns(as_list(findings))
        detected: list[list[ScoredBox]] = []
        with self.eval_mode():
            for cell_logits, extents in self._cell_logits(as_images(images)):
                maps = self.activation_maps(cell_logits)
                maps = maps / maps.amax((2, 3), keepdim=True).clamp_min(torch.finfo(maps.dtype).tiny)
                absent = 1.0 - self.pool(cell_logits).sigmoid()
                found: list[list[ScoredBox]] = [[] for _ in extents]
                for name, column in known.items():
                    heatmaps = as_heatmaps(maps[:, column], extents, absent[:, column].tolist())
                    for own, heatmap in zip(found, heatmaps, strict=True):
                        own += [ScoredBox(one.box, one.score, name) for one in boxes_of(heatmap, rule)]
                detected += found
        return detected

    def ground(self, images: Images, phrases: Phrases) -> list[Grounding]:
        """Return the class activation map of the findings that each phrase names, added up if it names several.

        The map is what the cells add to the image's logit, without its negative part; for these poolings that is
        Grad-CAM. The abstention is one minus the greatest probability of the findings. A phrase that names no known
        finding, nor a narrower one, gets an empty map and an abstention of 1.
        """
        images, phrases = as_pairs(images, phrases)
        named = [self.columns.of_phrase(phrase) for phrase in phrases]
        groundings: list[Grounding] = []
        with self.eval_mode():
            for cell_logits, extents in self._cell_logits(images):
                asked = torch.zeros(cell_logits.shape[:2], device=cell_logits.device)
                for row, columns in enumerate(named[len(groundings) : len(groundings) + len(asked)]):
                    asked[row, columns] = 1.0
                maps = (asked[:, :, None, None] * self.activation_maps(cell_logits)).sum(dim=1)
                absent = 1.0 - (asked * self.pool(cell_logits).sigmoid()).amax(dim=1)
                groundings += [Grounding(heatmap) for heatmap in as_heatmaps(maps, extents, absent.tolist())]
        return groundings

    def activation_maps(self, cell_logits: Tensor) -> Tensor:
        """Return what cells add to the logits of the image, (n, k, rows, cols), without the negative part."""
        layers: Any = self.image_encoder.patch_projections
        bias = torch.stack([layer.bias for layer in layers]).sum(0)[:, None, None]  # the same in every cell
        return (cell_logits - bias).clamp_min(0) / cell_logits[0, 0].numel()

    def _cell_logits(self, images: Sequence[Image]) -> Iterator[tuple[Tensor, list[Extent]]]:
        """Yield the logits (n, k, rows, cols) of some images at a time, and the extents of their grids."""
        for squares, extents in letterbox_batches(images, self.config.image.size, self.device, IMAGE_BATCH_SIZE):
            yield self.image_encoder.patches(squares).float(), extents
