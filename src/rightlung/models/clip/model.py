"""CLIP (Radford et al., ICML 2021): an image and a text are similar if their embeddings point the same way.

Patches are projected like the whole image, so that a phrase can be compared with each of them (ChEX, section 3.1). CLIP
does not train this: with a ViT's class token, a patch's embedding need not say what the patch shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize

from rightlung.core import Box, Extent, Grounding, Image, ScoredBox
from rightlung.explain import BoxRule, as_heatmaps, boxes_of, shifted
from rightlung.models.base import Gather, Similarities, TrainingBatch
from rightlung.models.clip.config import ClipConfig
from rightlung.models.clip.losses import LOSSES, ClipLossInputs
from rightlung.models.dual_encoder import DualEncoder, paired_scores
from rightlung.models.inputs import Images, Phrases, as_list, as_pairs, phrase_texts
from rightlung.scoring.nearest import nearest


class Clip(DualEncoder):
    """Image and text encoders in one space, trained on image-text pairs alone."""

    kind: ClassVar[str] = "clip"
    own_map = "similarity"
    config_type = ClipConfig
    loss_names = tuple(LOSSES)
    config: ClipConfig

    def __init__(self, config: ClipConfig, tokenizer: str) -> None:
        super().__init__(config, tokenizer)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(config.logit_scale)))  # a logarithm, as CLIP stores it
        self.losses = nn.ModuleDict({name: config.loss_types[name]() for name in config.losses})

    @property
    def scale(self) -> Tensor:
        """The learned factor on cosines, at most ``max_logit_scale``."""
        return self.logit_scale.clamp(max=self._max_log).exp()

    @property
    def _max_log(self) -> float:
        return math.log(self.config.max_logit_scale)

    # ---------------------------------------------------------------- training

    def forward(self, batch: TrainingBatch, gather: Gather | None = None) -> dict[str, Tensor]:
        """Return the configured losses by name."""
        self.check_size(batch, "image.size", self.config.image.size)
        if self.training:
            with torch.no_grad():  # the parameter itself, so that it has a gradient that can lower it again
                self.logit_scale.clamp_(max=self._max_log)
        inputs = self.encode_batch(batch, gather)
        return {name: loss(inputs) for name, loss in self.losses.items()}

    def encode_batch(self, batch: TrainingBatch, gather: Gather | None) -> ClipLossInputs:
        """Return a batch with its encodings, which all losses share."""
        return ClipLossInputs(self, batch, gather, self.embed_images(batch), self.embed_texts(batch.texts))

    # --------------------------------------------------------------- inference

    def ground(self, images: Images, phrases: Phrases) -> list[Grounding]:
        """Return the cosine of each phrase with the patches of its image, shifted by ``heatmap_shift``.

        Images and phrases are paired by `as_pairs`. The model never abstains. `use_map` chooses other maps.
        """
        if self.map_kind != "own":
            return self.ground_by_kind(images, phrases)
        images, phrases = as_pairs(images, phrases)
        texts = phrase_texts(phrases)
        cosines = self._cosine_maps(images, texts)
        maps = [(shifted(values[None], self.config.heatmap_shift), [extent]) for values, extent in cosines]
        return [Grounding(as_heatmaps(*one)[0]) for one in maps]

    def ground_boxes(self, images: Sequence[Image], texts: Sequence[str], rule: BoxRule) -> list[Sequence[ScoredBox]]:
        """Return the boxes of each text; thresholds apply to the cosines above their minimum, scores are cosines."""
        if self.map_kind != "own":
            return super().ground_boxes(images, texts, rule)
        found: list[Sequence[ScoredBox]] = []
        for cosines, extent in self._cosine_maps(images, texts):
            lowest = float(cosines.min())
            (heatmap,) = as_heatmaps(cosines[None] - lowest, [extent])
            found.append([ScoredBox(one.box, one.score + lowest) for one in boxes_of(heatmap, rule)])
        return found

    def _cosine_maps(self, images: Sequence[Image], texts: Sequence[str]) -> list[tuple[Tensor, Extent]]:
        """Return the cosine of each text with the patches of its image, (rows, cols), and where these lie."""
        answers: dict[int, tuple[Tensor, Extent]] = {}
        with self.eval_mode():
            for embeddings, extents, batches in self.encode_pairs(images):
                patches = normalize(embeddings.patch_embeddings.flatten(2).transpose(1, 2).float(), dim=-1)
                for pairs, rows in batches:
                    sentences = self.embed_texts([texts[pair] for pair in pairs]).global_embedding.float()
                    cosines = paired_scores(normalize(sentences, dim=-1)[:, None], patches, rows)
                    maps = cosines.reshape(-1, *self.image_encoder.grid)
                    places = [extents[row] for row in rows]
                    answers |= dict(zip(pairs, zip(maps, places, strict=True), strict=True))
        return [answers[pair] for pair in range(len(texts))]

    def similarity(self, images: Images, texts: str | Sequence[str]) -> Similarities:
        """Return the cosine of every image with every text."""
        return Similarities(self.encode_image(images) @ self.encode_text(texts).T)

    def classify(
        self,
        images: Images,
        findings: str | Sequence[str],
        boxes: Sequence[Box] | None = None,
        multiclass: bool = False,
    ) -> NDArray[np.float32]:
        """Return the probability of each finding, (images, findings), from the findings' prompts.

        It is that of the whole image or, with ``boxes``, of one box in each, whose patches are pooled or which is
        cropped, as the configuration's ``regions`` says. With ``multiclass``, each has exactly one of the findings: the
        softmax is over them (ChEX, E.4).
        """
        embeddings = self.encode_image(images) if boxes is None else self.encode_regions(images, boxes)
        return self.prompt_probabilities(embeddings, as_list(findings), self.scale.item(), multiclass)

    def retrieve_texts(self, images: Images, texts: Sequence[str], count: int | None = None) -> NDArray[np.intp]:
        """Return the indices of the texts most similar to each image, (images, count), the best first."""
        return _best(self.encode_image(images), self.encode_text(texts), count)

    def retrieve_images(self, texts: str | Sequence[str], images: Images, count: int | None = None) -> NDArray[np.intp]:
        """Return the indices of the images most similar to each text, (texts, count), the best first."""
        return _best(self.encode_text(texts), self.encode_image(images), count)


def _best(queries: NDArray[np.float32], candidates: NDArray[np.float32], count: int | None) -> NDArray[np.intp]:
    """Return the candidates of each query from the most similar to the least, at most ``count``."""
    most = len(candidates) if count is None else min(count, len(candidates))
    return nearest(queries, candidates, most)[0]
