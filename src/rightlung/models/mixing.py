"""Contrastive losses of mixed images and embeddings, which eCLIP is compared with: DACL, m²-mix and m³-mix.

- DACL (Verma et al., ICML 2021): images are mixed with others, so that each is mostly itself.
- m²-mix and m³-mix (Oh et al., NeurIPS 2023): embeddings are mixed on the sphere. m³-mix is the sum of the contrastive
  loss and ``m2``, ``v_mix``, ``l_mix`` and ``vl_mix``.

``*_released`` are the losses of eCLIP's code, errors included (docs/eclip.md). Everything random follows from the
batch's seed. Shapes: ``m`` pairs of unit vectors, images (m, d) and texts (m, d); ``ignored`` (m, m) bool are pairs of
different rows that are neither positives nor negatives. All compare the images and texts of one process only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from rightlung.core.checks import check_limits
from rightlung.core.errors import InputError
from rightlung.core.keyed import text_generator
from rightlung.models.base import TrainingBatch
from rightlung.models.contrastive import Pairs, contrastive_loss, cosine_similarity, find_pairs

LEAST_ANGLE = 1e-3
"""Below it, in radians, or as close to opposite, vectors are mixed along a line."""
RELEASED_SCALE, RELEASED_NEGATIVE_SCALE, RELEASED_DACL_ALPHA = 1 / 0.07, 0.01, 0.6


@dataclass(frozen=True)
class MixingConfig:
    """The settings of the mixing losses. Defaults are those of the papers; ``*_released`` have their own.

    - ``hard_negative_temperature``: the temperature of m²-mix, apart from that of the contrastive loss.
    - ``alpha``: embeddings are mixed by λ ~ Beta(alpha, alpha), one λ for each loss and batch.
    - ``dacl_least_share``: DACL mixes images by λ ~ U(dacl_least_share, 1).
    """

    hard_negative_temperature: float = 0.07
    alpha: float = 0.5
    dacl_least_share: float = 0.5

    def __post_init__(self) -> None:
        for name in ("hard_negative_temperature", "alpha"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"mixing.{name} must be positive; got {getattr(self, name)}")
        check_limits(self.dacl_least_share, "mixing.dacl_least_share", 0, 1)


def slerp(first: Tensor, second: Tensor, share: float) -> Tensor:
    """Return the point of the arc between unit vectors (m, d) that is ``share`` of the way to the first."""
    cosine = (first * second).sum(-1, keepdim=True).clamp(-1.0, 1.0)
    sine = (1 - cosine.square()).clamp_min(LEAST_ANGLE**2).sqrt()
    angle = torch.atan2(sine, cosine)
    arc = (torch.sin(share * angle) * first + torch.sin((1 - share) * angle) * second) / torch.sin(angle)
    line = share * first + (1 - share) * second
    return torch.where(1 - cosine.square() > LEAST_ANGLE**2, arc, line)


def soft_cross_entropy(logits: Tensor, targets: Tensor, ignored: Tensor) -> Tensor:
    """Return the mean over the rows of -Σ target · log softmax; ``ignored`` columns are left out unless targets."""
    kept = logits.masked_fill(ignored & (targets == 0), torch.finfo(logits.dtype).min)
    return -(targets * kept.log_softmax(-1)).sum(-1).mean()


def hard_negative_mix(
    images: Tensor, texts: Tensor, share: float, ignored: Tensor, temperature: float = 0.07
) -> Tensor:
    """Return m²-mix: each image against its text and the other pairs' mixtures of image and text; texts likewise."""
    return _against_mixtures(images, texts, share, ignored, 1 / temperature, 1 / temperature)


def _against_mixtures(
    images: Tensor, texts: Tensor, share: float, ignored: Tensor, scale: float, negative_scale: float
) -> Tensor:
    mixed, own = slerp(images, texts, share), torch.arange(len(images), device=images.device)
    right = scale * (images * texts).sum(-1)
    losses = []
    for queries in (images, texts):
        logits = (negative_scale * queries @ mixed.T).masked_fill(ignored, torch.finfo(mixed.dtype).min)
        losses.append(cross_entropy(torch.diagonal_scatter(logits, right), own))
    return torch.stack(losses).mean()


def unimodal_mix(mixed: Tensor, others: Tensor, share: float, scale: Tensor | float, ignored: Tensor) -> Tensor:
    """Return V-mix or L-mix: ``mixed`` holds ``share`` of row i and the rest of row m - 1 - i of one modality.

    Row i of the other modality is right by ``share``, row m - 1 - i by the rest, in both directions.
    """
    unit = torch.eye(len(mixed), device=mixed.device)
    return _both_ways(scale * mixed @ others.T, share * unit + (1 - share) * unit.flip(0), ignored | ignored.flip(0))


def joint_mix(images: Tensor, texts: Tensor, scale: Tensor | float, ignored: Tensor) -> Tensor:
    """Return VL-mix: images and texts that are mixed by the same share; both the row and its partner are right."""
    unit = torch.eye(len(images), device=images.device)
    either = ignored | ignored.flip(0)
    return _both_ways(scale * images @ texts.T, unit + unit.flip(0), either | either.flip(1))


def _both_ways(logits: Tensor, targets: Tensor, ignored: Tensor) -> Tensor:
    return (soft_cross_entropy(logits, targets, ignored) + soft_cross_entropy(logits.T, targets.T, ignored.T)) / 2


def mixed_views(images: Tensor, shares: Tensor, partners: Tensor) -> Tensor:
    """Return images (n, c, h, w), each by its share (n,) and the rest of its partner (n,)."""
    weights = shares.to(images)[:, None, None, None]
    return weights * images + (1 - weights) * images[partners]


def view_pairs(batch: TrainingBatch, ignore_duplicates: bool, twins_are_negatives: bool) -> Pairs:
    """Return the pairs of two views of a batch, one after the other, with the texts twice.

    Texts of the other view of an image are neither positives nor negatives, unless ``twins_are_negatives``.
    """
    one = find_pairs(batch, None, ignore_duplicates)
    images = torch.cat([one.image_indices, one.image_indices + len(batch)])
    if twins_are_negatives:
        return Pairs(images, images, 0, 0, None)
    same = one.image_indices[:, None] == one.image_indices[None]
    if one.duplicates is not None:
        same = same | one.duplicates
    duplicates = same.repeat(2, 2)
    duplicates.fill_diagonal_(False)
    return Pairs(images, images, 0, 0, duplicates)


class _MixingLoss(nn.Module):
    """A loss for CLIP, and for the global embeddings of GLoRIA."""

    def __init__(self, config: Any = None) -> None:
        super().__init__()

    def extra_texts(self, batch: TrainingBatch) -> Sequence[str]:
        """Return the texts that it needs besides those of the batch."""
        return ()


class Dacl(_MixingLoss):
    """DACL: two views of each image, mixed with other images by λ ~ U(least share, 1), against the texts."""

    released = False

    def forward(self, inputs: Any) -> Tensor:
        """Return the contrastive loss of the views."""
        batch, model, random = inputs.batch, inputs.model, text_generator(inputs.batch.seed, "dacl")
        views = []
        for _ in range(2):
            shares = random.uniform(model.config.mixing.dacl_least_share, 1.0, len(batch))
            if self.released:
                shares[:] = random.beta(RELEASED_DACL_ALPHA, RELEASED_DACL_ALPHA)
            partners = torch.from_numpy(random.permutation(len(batch))).to(batch.images.device)
            views.append(mixed_views(batch.images, torch.from_numpy(shares), partners))
        images = model.image_encoder(torch.cat(views)).global_embedding
        logits = model.scale * cosine_similarity(images, inputs.texts.global_embedding.repeat(2, 1))
        ignore = model.config.duplicate_texts == "ignore" and not self.released
        return contrastive_loss(logits, logits.T, view_pairs(batch, ignore, self.released)) / 2


class DaclReleased(Dacl):
    """DACL as released: one λ ~ Beta(0.6, 0.6) for each view, and a text's second copy is a negative."""

    released = True


class _EmbeddingMix(_MixingLoss):
    """A loss of mixed embeddings; subclasses compare them."""

    def forward(self, inputs: Any) -> Tensor:
        """Return the loss of the pairs of a batch."""
        batch, model = inputs.batch, inputs.model
        pairs = find_pairs(batch, None, model.config.duplicate_texts == "ignore")
        ignored = pairs.image_indices[:, None] == pairs.image_indices[None]
        if pairs.duplicates is not None:
            ignored = ignored | pairs.duplicates
        ignored.fill_diagonal_(False)
        settings: MixingConfig = model.config.mixing
        share = float(text_generator(batch.seed, type(self).__name__).beta(settings.alpha, settings.alpha))
        with torch.autocast(batch.images.device.type, enabled=False):
            images = normalize(inputs.images.global_embedding.float(), dim=-1)[pairs.image_indices]
            texts = normalize(inputs.texts.global_embedding.float(), dim=-1)
            return self.compare(images, texts, share, self.scale(model), ignored)

    def scale(self, model: Any) -> Tensor | float:
        """Return the factor on cosines: that of the contrastive loss, unless a subclass has its own."""
        found: Tensor | float = model.scale
        return found

    def compare(self, images: Tensor, texts: Tensor, share: float, scale: Tensor | float, ignored: Tensor) -> Tensor:
        """Return the loss of ``m`` pairs."""
        raise NotImplementedError


class HardNegativeMix(_EmbeddingMix):
    """m²-mix, `hard_negative_mix`."""

    def scale(self, model: Any) -> float:
        """Return the inverse of its own temperature."""
        return 1 / float(model.config.mixing.hard_negative_temperature)

    def compare(self, images: Tensor, texts: Tensor, share: float, scale: Tensor | float, ignored: Tensor) -> Tensor:
        """Return the loss."""
        return hard_negative_mix(images, texts, share, ignored, 1 / float(scale))


class HardNegativeMixReleased(_EmbeddingMix):
    """m²-mix as released: the negatives' cosines are multiplied by the temperature, so that they hardly count."""

    def compare(self, images: Tensor, texts: Tensor, share: float, scale: Tensor | float, ignored: Tensor) -> Tensor:
        """Return the loss."""
        nothing = torch.zeros_like(ignored)
        return _against_mixtures(images, texts, share, nothing, RELEASED_SCALE, RELEASED_NEGATIVE_SCALE)


class ImageMix(_EmbeddingMix):
    """V-mix, `unimodal_mix` of images."""

    def compare(self, images: Tensor, texts: Tensor, share: float, scale: Tensor | float, ignored: Tensor) -> Tensor:
        """Return the loss."""
        return unimodal_mix(slerp(images, images.flip(0), share), texts, share, scale, ignored)


class TextMix(_EmbeddingMix):
    """L-mix, `unimodal_mix` of texts."""

    def compare(self, images: Tensor, texts: Tensor, share: float, scale: Tensor | float, ignored: Tensor) -> Tensor:
        """Return the loss."""
        return unimodal_mix(slerp(texts, texts.flip(0), share), images, share, scale, ignored)


class JointMix(_EmbeddingMix):
    """VL-mix, `joint_mix`."""

    def compare(self, images: Tensor, texts: Tensor, share: float, scale: Tensor | float, ignored: Tensor) -> Tensor:
        """Return the loss."""
        return joint_mix(slerp(images, images.flip(0), share), slerp(texts, texts.flip(0), share), scale, ignored)


MIXING_LOSSES: dict[str, type[nn.Module]] = {
    "dacl": Dacl,
    "dacl_released": DaclReleased,
    "m2": HardNegativeMix,
    "m2_released": HardNegativeMixReleased,
    "v_mix": ImageMix,
    "l_mix": TextMix,
    "vl_mix": JointMix,
}
