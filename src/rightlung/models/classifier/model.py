"""The supervised baseline: an image encoder whose patch embeddings are the logits of findings.

Each cell of the grid has a logit for each finding. Their pooling, by the mean or by log-sum-exp (Wang et al.,
*ChestX-ray8*, CVPR 2017, section 4.1), is the logit of the image; log-sum-exp lets a small nodule outvote the empty
rest. The default is a ResNet-18 (He et al., CVPR 2016) whose last two levels are added up, on 14 x 14 cells.

The model reads no phrase beyond the finding that it names: sides, locations and negations are ignored. That makes it
the control for models that claim to understand them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rightlung.core import Extent, Grounding, Image, InputError, Phrase
from rightlung.core.errors import unknown_name
from rightlung.explain import as_heatmaps
from rightlung.lexicon import find
from rightlung.lexicon.findings import broader_findings
from rightlung.models.base import Gather, TrainingBatch
from rightlung.models.classifier.losses import LOSSES, LossInputs
from rightlung.models.encoders import ImageEncoder, ImageEncoderConfig
from rightlung.models.encoders.configured import ConfiguredModel, check_losses
from rightlung.models.inputs import Images, Phrases, as_images, as_list, as_pairs
from rightlung.models.preprocessing import letterbox_all

IMAGE_BATCH_SIZE = 32
RESNET_18 = {"embedding_size": 64, "hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2], "layer_type": "basic"}
_WORD = re.compile(r"[^\W_]+(?:[-/'][^\W_]+)*")
_LONGEST_NAME = 6  # words


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
        if not self.findings:
            raise InputError("findings must name at least one finding")
        if repeated := next((name for name in self.findings if self.findings.count(name) > 1), None):
            raise InputError(f"findings: {repeated!r} is given more than once")
        if not (math.isfinite(self.sharpness) and self.sharpness > 0):
            raise InputError(f"sharpness must be a positive number; got {self.sharpness!r}")
        check_losses(self.losses, LOSSES)


class Classifier(ConfiguredModel):
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
        self._columns = {name: column for column, name in enumerate(config.findings)}
        self._by_meaning = {
            meaning.name: column for name, column in self._columns.items() if (meaning := find(name)) is not None
        }

    @property
    def findings(self) -> tuple[str, ...]:
        """The findings, in the order of the logits."""
        return self.config.findings

    def pool(self, cell_logits: Tensor) -> Tensor:
        """Pool the logits of cells (n, k, rows, cols) to those of images (n, k)."""
        flat = cell_logits.flatten(2).float()  # exponentials of sharpened logits exceed half precision
        if self.config.pooling == "mean":
            return flat.mean(dim=2)
        sharpness = self.config.sharpness
        return (torch.logsumexp(flat * sharpness, dim=2) - math.log(flat.shape[2])) / sharpness

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
        inputs = LossInputs(self, batch, cell_logits, labels)
        return {name: loss(inputs) for name, loss in self.losses.items()}

    # ------------------------------------------------------------------ asking

    def classify(self, images: Images, findings: str | Sequence[str] | None = None) -> NDArray[np.float32]:
        """Return the probabilities of findings (all of them by default), (images, findings)."""
        images, names = as_images(images), self.findings if findings is None else as_list(findings)
        columns = [self._column(name) for name in names]
        if None in columns:
            raise unknown_name("finding of this classifier", names[columns.index(None)], self.findings)
        parts = [np.zeros((0, len(columns)), dtype=np.float32)]
        with self.eval_mode():
            for cell_logits, _ in self._cell_logits(images):
                parts.append(self.pool(cell_logits)[:, columns].sigmoid().cpu().numpy())
        return np.concatenate(parts)

    def ground(self, images: Images, phrases: Phrases) -> list[Grounding]:
        """Return the class activation map of the findings that each phrase names, added up if it names several.

        The map is what the cells add to the image's logit, without its negative part; for these poolings that is
        Grad-CAM. The abstention is one minus the greatest probability of the findings. A phrase that names no known
        finding, nor a narrower one, gets an empty map and an abstention of 1.
        """
        images, phrases = as_pairs(images, phrases)
        named = [self.columns_of(phrase) for phrase in phrases]
        groundings: list[Grounding] = []
        with self.eval_mode():
            for cell_logits, extents in self._cell_logits(images):
                asked = torch.zeros(cell_logits.shape[:2], device=cell_logits.device)
                for row, columns in enumerate(named[len(groundings) : len(groundings) + len(asked)]):
                    asked[row, columns] = 1.0
                activation = (cell_logits - self._bias()).clamp_min(0) / cell_logits[0, 0].numel()
                maps = (asked[:, :, None, None] * activation).sum(dim=1)
                absent = 1.0 - (asked * self.pool(cell_logits).sigmoid()).amax(dim=1)
                groundings += [Grounding(heatmap) for heatmap in as_heatmaps(maps, extents, absent.tolist())]
        return groundings

    def columns_of(self, phrase: Phrase | str) -> list[int]:
        """Return the columns of a phrase's findings: those it carries, else those its words name."""
        if isinstance(phrase, Phrase) and phrase.findings:
            names = list(phrase.findings)
        else:
            names = _findings_named(phrase.text if isinstance(phrase, Phrase) else phrase)
        columns = (self._column(name, broader=True) for name in names)
        return sorted({column for column in columns if column is not None})

    def _column(self, name: str, broader: bool = False) -> int | None:
        """Return the column of a finding, or of the nearest broader one: a consolidation is an opacity."""
        if name in self._columns:
            return self._columns[name]
        if (meaning := find(name)) is None:
            return None
        steps = (meaning.name, *(broader_findings(meaning.name) if broader else ()))
        return next((self._by_meaning[step] for step in steps if step in self._by_meaning), None)

    def _bias(self) -> Tensor:
        """Return the part of the logits that is the same in every cell, (k, 1, 1)."""
        layers: Any = self.image_encoder.patch_projections
        return torch.stack([layer.bias for layer in layers]).sum(0)[:, None, None]

    def _cell_logits(self, images: Sequence[Image]) -> Iterator[tuple[Tensor, list[Extent]]]:
        """Yield the logits (n, k, rows, cols) of some images at a time, and the extents of their grids."""
        for start in range(0, len(images), IMAGE_BATCH_SIZE):
            squares, extents = letterbox_all(images[start : start + IMAGE_BATCH_SIZE], self.config.image.size)
            yield self.image_encoder.patches(squares[:, None].to(self.device)).float(), extents


def _findings_named(text: str) -> list[str]:
    """Return the canonical findings whose names or synonyms occur in a text, the longest name at each position."""
    words = _WORD.findall(text)
    found: list[str] = []
    start = 0
    while start < len(words):
        for length in range(min(_LONGEST_NAME, len(words) - start), 0, -1):
            meaning = find(" ".join(words[start : start + length]))
            if meaning is not None:
                found.append(meaning.name)
                start += length
                break
        else:
            start += 1
    return found
