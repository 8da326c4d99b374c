"""The prompt detector of ChEX (supp. D.1, Fig. 12): boxes and features of the region that a prompt asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from rightlung.models.chex.layers import DecoderLayer, mlp
from rightlung.models.roi import gaussian_weights

if TYPE_CHECKING:
    from rightlung.models.chex.config import ChexConfig


@dataclass(frozen=True, slots=True)
class PromptDetections:
    """What is found for ``q`` prompts in each of ``n`` images, with ``m`` boxes for each prompt.

    ``boxes`` (n, q, m, 4) are centre x, centre y, width and height in 0 to 1, ``scores`` (n, q, m) their scores in 0 to
    1, ``box_tokens`` (n, q, m, d) their ROI tokens, and ``tokens`` (n, q, d) the mean of these, weighted by score.
    """

    boxes: Tensor
    scores: Tensor
    box_tokens: Tensor
    tokens: Tensor

    def split(self, counts: Sequence[int]) -> list[PromptDetections]:
        """Return what was found for the first prompts, the next ones, and so on."""
        values = self.boxes, self.scores, self.box_tokens, self.tokens
        parts = (torch.split(value, list(counts), dim=1) for value in values)
        return [PromptDetections(*own) for own in zip(*parts, strict=True)]


class PromptDetector(nn.Module):
    """Box tokens, conditioned on a prompt, search the patches of an image; features are pooled where they end up.

    Departures: features are a weighted *average* of the patches (the released code sums them by a slip), and the
    aggregate divides by the sum of the scores as in Eq. 2 (the released code by at least 1).
    """

    def __init__(self, config: ChexConfig) -> None:
        super().__init__()
        size, dropout, hidden = config.dimension, config.detector.dropout, config.detector.hidden_size
        self.box_std, self.skip_probability = config.box_std, config.skip_probability
        self.queries = nn.Parameter(torch.randn(config.boxes_per_prompt, size) / size**0.5)
        self.layers = nn.ModuleList(DecoderLayer(size, config.detector) for _ in range(config.detector.layers))
        self.box_head = nn.Sequential(nn.LayerNorm(size), mlp(size, size, 4, dropout=dropout, last_dropout=False))
        self.patch_projection = nn.Sequential(nn.LayerNorm(size), mlp(size, size, dropout=dropout))
        self.skip_dropout = nn.Dropout(dropout)
        self.roi_projection = nn.Sequential(nn.LayerNorm(size), mlp(size, hidden, size, dropout=dropout))
        self.score_head = mlp(size, size, 1, dropout=dropout, last_dropout=False)

    def forward(self, prompts: Tensor, patches: Tensor, fixed: Tensor | None = None) -> PromptDetections:
        """Find prompts (n, q, d) among patches (n, d, rows, cols), all prompts of all images at once.

        ``fixed`` (n,) bool are images in which losses of the features do not move the boxes.
        """
        found = self.decode(prompts, patches)
        boxes = self.box_head(found).float().sigmoid()
        places = boxes if fixed is None else torch.where(fixed[:, None, None, None], boxes.detach(), boxes)
        pooled = self.pool(places, patches)
        if self.training:
            skipped = torch.rand(found.shape[:3], device=found.device) < self.skip_probability
            pooled = pooled + skipped[..., None] * self.skip_dropout(found)
        box_tokens = self.roi_projection(pooled)
        scores = self.score_head(box_tokens)[..., 0].float().sigmoid()
        return PromptDetections(boxes, scores, box_tokens, aggregate(box_tokens, scores))

    def at_boxes(self, boxes: Tensor, patches: Tensor, prompts: Tensor | None = None) -> Tensor:
        """Return the ROI tokens (n, q, d) of given boxes (n, q, 4).

        With prompts (n, q, d), the mean of their decoded tokens is added to the features pooled at the box. The paper
        leaves such a query undefined, and the released code fails on it.
        """
        pooled = self.pool(boxes[:, :, None], patches)[:, :, 0]
        if prompts is not None:
            pooled = pooled + self.decode(prompts, patches).mean(2)
        token: Tensor = self.roi_projection(pooled)
        return token

    def decode(self, prompts: Tensor, patches: Tensor) -> Tensor:
        """Return the preliminary ROI tokens (n, q, m, d): the box tokens, after the decoder layers (Eq. 1)."""
        tokens = prompts[:, :, None] + self.queries.to(prompts.dtype)
        source = patches.flatten(2).transpose(1, 2)
        for layer in self.layers:
            tokens = layer(tokens, source)
        return tokens

    def pool(self, boxes: Tensor, patches: Tensor) -> Tensor:
        """Return features (n, q, m, d) of boxes (n, q, m, 4): a Gaussian-weighted mean of the projected patches."""
        rows, columns = patches.shape[2:]
        weights = gaussian_weights(boxes, (rows, columns), self.box_std).flatten(-2)
        weights = weights / weights.sum(-1, keepdim=True)
        projected = self.patch_projection(patches.flatten(2).transpose(1, 2))
        return torch.einsum("nqmp,npd->nqmd", weights.to(projected.dtype), projected)


def aggregate(box_tokens: Tensor, scores: Tensor) -> Tensor:
    """Return the mean of tokens (..., m, d), weighted by scores (..., m) (Eq. 2)."""
    weights = scores / scores.sum(-1, keepdim=True).clamp_min(1e-6)
    return (weights[..., None].to(box_tokens.dtype) * box_tokens).sum(-2)
