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

from rightlung.core import Grounding, Phrase
from rightlung.core.checks import check_text
from rightlung.core.errors import InputError
from rightlung.explain import as_heatmaps, shifted
from rightlung.lexicon import negative_prompts, positive_prompts
from rightlung.models.base import Gather, Similarities, TrainingBatch
from rightlung.models.clip.config import ClipConfig
from rightlung.models.clip.losses import LOSSES, LossInputs
from rightlung.models.dual_encoder import DualEncoder, paired_scores
from rightlung.models.inputs import Images, Phrases, as_list, as_pairs


class Clip(DualEncoder):
    """Image and text encoders in one space, trained on image-text pairs alone."""

    kind: ClassVar[str] = "clip"
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

    def encode_batch(self, batch: TrainingBatch, gather: Gather | None) -> LossInputs:
        """Return a batch with its encodings, which all losses share."""
        return LossInputs(self, batch, gather, self.image_encoder(batch.images), self.embed_texts(batch.texts))

    # --------------------------------------------------------------- inference

    def ground(self, images: Images, phrases: Phrases) -> list[Grounding]:
        """Return the cosine of each phrase with the patches of its image, shifted by ``heatmap_shift``.

        Images and phrases are paired by `as_pairs`. The model never abstains.
        """
        images, phrases = as_pairs(images, phrases)
        texts = [check_text(phrase.text if isinstance(phrase, Phrase) else phrase, "a phrase") for phrase in phrases]
        answers: dict[int, Grounding] = {}
        with self.eval_mode():
            for embeddings, extents, batches in self.encode_pairs(images):
                patches = normalize(embeddings.patch_embeddings.flatten(2).transpose(1, 2).float(), dim=-1)
                for pairs, rows in batches:
                    sentences = self.embed_texts([texts[pair] for pair in pairs]).global_embedding.float()
                    cosines = paired_scores(normalize(sentences, dim=-1)[:, None], patches, rows)
                    maps = shifted(cosines.reshape(-1, *self.image_encoder.grid), self.config.heatmap_shift)
                    heatmaps = as_heatmaps(maps, [extents[row] for row in rows])
                    answers |= {pair: Grounding(one) for pair, one in zip(pairs, heatmaps, strict=True)}
        return [answers[pair] for pair in range(len(texts))]

    def similarity(self, images: Images, texts: str | Sequence[str]) -> Similarities:
        """Return the cosine of every image with every text."""
        return Similarities(self.encode_image(images) @ self.encode_text(texts).T)

    def encode_prompts(self, prompts: Sequence[Sequence[str]]) -> NDArray[np.float32]:
        """Return one vector of unit length for each group of prompts, (groups, dimension): their mean embedding."""
        if not all(prompts):
            raise InputError("every group of prompts needs at least one prompt")
        embeddings = self.encode_text([prompt for group in prompts for prompt in group])
        ends = np.cumsum([len(group) for group in prompts])[:-1]
        means = [group.mean(axis=0) for group in np.split(embeddings, ends)] if prompts else []
        vectors = np.array(means, dtype=np.float32).reshape(len(means), self.config.dimension)
        unit: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit

    def classify(self, images: Images, findings: str | Sequence[str]) -> NDArray[np.float32]:
        """Return the probability of each finding in each image, (images, findings), from the findings' prompts.

        It is the softmax over the image's scaled cosines with the mean embedding of the positive prompts and with that
        of the negative ones.
        """
        names = as_list(findings)
        positive = self.encode_prompts([positive_prompts(name) for name in names])
        negative = self.encode_prompts([negative_prompts(name) for name in names])
        margins = self.scale.detach().cpu() * torch.from_numpy(self.encode_image(images) @ (positive - negative).T)
        return margins.sigmoid().numpy()

    def retrieve_texts(self, images: Images, texts: Sequence[str], count: int | None = None) -> NDArray[np.intp]:
        """Return the indices of the texts most similar to each image, (images, count), the best first."""
        return _best(self.similarity(images, texts).global_similarity, count)

    def retrieve_images(self, texts: str | Sequence[str], images: Images, count: int | None = None) -> NDArray[np.intp]:
        """Return the indices of the images most similar to each text, (texts, count), the best first."""
        return _best(self.similarity(images, texts).global_similarity.T, count)


def _best(similarity: NDArray[np.float32], count: int | None) -> NDArray[np.intp]:
    """Return the columns of each row from the most similar to the least, at most ``count``; ties keep their order."""
    return np.argsort(-similarity, axis=1, kind="stable")[:, :count]
