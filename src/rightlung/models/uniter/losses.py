"""UNITER's losses: masked language modelling (MLM), masked region modelling (MRM), image-text matching (ITM).

UNITER's word-region alignment is left out: "That's the Wrong Lung!" does not use its transport plan, in which every
region has the same weight (A.1), and takes the saliency from attention instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, gelu, linear

from rightlung.models.encoders.tokenizer import Tokens
from rightlung.models.uniter.joint_encoder import JointEmbeddings, JointEncoder, initialize_weights
from rightlung.models.uniter.regions import Regions

REPLACED, KEPT = 0.1, 0.1
"""Shares of the masked tokens that become a random token, or stay, instead of becoming ``[MASK]`` (BERT, 3.1)."""


@dataclass(frozen=True, slots=True, eq=False)
class UniterLossInputs:
    """What the losses of a training step share; ``tokens`` are on the CPU, where random numbers are drawn.

    ``generator`` is None in training: random numbers then follow torch's seed.
    """

    encoder: JointEncoder
    texts: Sequence[str]
    tokens: Tokens
    mask_id: int
    vocab_size: int
    regions: Regions
    generator: torch.Generator | None


class _Loss(nn.Module):
    """A loss with a prediction head: dense, GELU and LayerNorm, as in BERT, and the bias of the prediction."""

    def __init__(self, encoder: JointEncoder, outputs: int) -> None:
        super().__init__()
        self.dense, self.norm = nn.Linear(encoder.width, encoder.width), nn.LayerNorm(encoder.width, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(outputs))  # the weights are those of the embedding, as in UNITER
        initialize_weights(encoder.initializer_range, self.dense)

    def _transform(self, hidden: Tensor) -> Tensor:
        transformed: Tensor = self.norm(gelu(self.dense(hidden)))
        return transformed


class MaskedLanguageModelling(_Loss):
    """Cross-entropy of the masked tokens, given all regions."""

    def __init__(self, encoder: JointEncoder) -> None:
        super().__init__(encoder, encoder.token_embedder.word_embeddings.num_embeddings)

    def forward(self, inputs: UniterLossInputs) -> Tensor:
        """Return the mean over the masked tokens."""
        tokens, encoder = inputs.tokens, inputs.encoder
        candidates = (tokens.word_index > 0) & (tokens.ids != inputs.mask_id)
        mask = draw_mask(candidates, encoder.config.mask_probability, inputs.generator)
        masked_ids = mask_tokens(tokens.ids, mask, inputs.mask_id, inputs.vocab_size, inputs.generator)
        hidden = encoder(masked_ids, tokens.attention_mask, inputs.regions).token_embeddings
        rows, columns = (part.to(hidden.device) for part in mask.nonzero(as_tuple=True))
        weights = encoder.token_embedder.word_embeddings.weight
        logits = linear(self._transform(hidden[rows, columns]), weights, self.bias)
        targets = tokens.ids[mask].to(hidden.device)
        return cross_entropy(logits.float(), targets, reduction="sum") / max(len(targets), 1)


class MaskedRegionModelling(_Loss):
    """Mean squared error of the features of masked regions, given all tokens.

    As in UNITER, a region that overlaps a masked one is still visible.
    """

    def __init__(self, encoder: JointEncoder) -> None:
        super().__init__(encoder, encoder.config.feature_size)

    def forward(self, inputs: UniterLossInputs) -> Tensor:
        """Return the mean over the masked regions."""
        encoder, regions = inputs.encoder, inputs.regions
        mask = draw_mask(regions.present, encoder.config.mask_probability, inputs.generator)
        masked = Regions(regions.features * ~mask[..., None], regions.locations, regions.present)
        hidden = encoder(inputs.tokens.ids, inputs.tokens.attention_mask, masked).region_embeddings
        predicted = linear(self._transform(hidden), encoder.feature_projection.weight.T, self.bias)
        errors = (predicted.float() - regions.features).square().mean(dim=-1)
        return (errors * mask).sum() / mask.sum().clamp_min(1)


class ImageTextMatching(nn.Module):
    """Binary cross-entropy of whether a text belongs to an image; half of the images get another image's text."""

    def __init__(self, encoder: JointEncoder) -> None:
        super().__init__()
        self.pooler, self.classifier = nn.Linear(encoder.width, encoder.width), nn.Linear(encoder.width, 1)
        initialize_weights(encoder.initializer_range, self.pooler, self.classifier)

    def logits(self, embeddings: JointEmbeddings) -> Tensor:
        """Return the logits (n,) that text and image belong together."""
        pooled = self.pooler(embeddings.token_embeddings[:, 0]).tanh()
        logits: Tensor = self.classifier(pooled)[:, 0]
        return logits.float()

    def forward(self, inputs: UniterLossInputs) -> Tensor:
        """Return the mean over the images that have regions."""
        indices, matches = exchange_texts(inputs.texts, inputs.generator)
        ids, attention_mask = inputs.tokens.ids[indices], inputs.tokens.attention_mask[indices]
        logits = self.logits(inputs.encoder(ids, attention_mask, inputs.regions))
        counted = inputs.regions.present.any(dim=1).float()
        losses = binary_cross_entropy_with_logits(logits, matches.to(logits.device), reduction="none")
        return (losses * counted).sum() / counted.sum().clamp_min(1)


def draw_mask(candidates: Tensor, probability: float, generator: torch.Generator | None = None) -> Tensor:
    """Return a random mask (n, m) of the ``candidates`` (n, m): at least one in every row that has any."""
    drawn = torch.rand(candidates.shape, generator=generator).to(candidates.device, non_blocking=True)
    drawn = drawn.masked_fill(~candidates, 2.0)
    least = drawn.amin(dim=1, keepdim=True) if candidates.shape[1] else drawn
    return candidates & ((drawn < probability) | (drawn == least))


def mask_tokens(
    ids: Tensor, mask: Tensor, mask_id: int, vocab_size: int, generator: torch.Generator | None = None
) -> Tensor:
    """Return token ids (n, length) with the masked ones as ``[MASK]``, a random token, or unchanged."""
    fate = torch.rand(ids.shape, generator=generator)
    random_ids = torch.randint(vocab_size, ids.shape, generator=generator)
    return torch.where(mask & (fate < 1.0 - KEPT), torch.where(fate < REPLACED, random_ids, mask_id), ids)


def exchange_texts(texts: Sequence[str], generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Give half of the images another image's text: the index of each image's text (n,), and whether it matches (n,).

    The same words from another image match (1.0). Other words may match, too, which UNITER ignores.
    """
    count = len(texts)
    order = torch.randperm(count, generator=generator)
    half = count // 2
    indices = torch.arange(count)
    indices[order[:half]] = order[1 : half + 1]
    matches = [float(texts[other] == text) for text, other in zip(texts, indices.tolist(), strict=True)]
    return indices, torch.tensor(matches)


LOSSES = {"mlm": MaskedLanguageModelling, "mrm": MaskedRegionModelling, "itm": ImageTextMatching}
