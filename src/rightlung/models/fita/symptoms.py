"""KiUT's symptom graph, the saliency of symptoms, and FITA's image feature refiner (IFR).

Nodes are symptoms: an embedding weighted by the probability that a frozen classifier gives the symptom. Edges are the
lexicon's hierarchy of findings, and pairs that occur together in training reports more often than by chance. Graph
attention (Veličković et al., ICLR 2018) makes C; IFR makes Ĉ of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, leaky_relu

from rightlung.core.errors import InputError
from rightlung.lexicon import finding, positive_prompts
from rightlung.lexicon.findings import broader_findings
from rightlung.models.fita.attention import Attention
from rightlung.models.fita.config import FitaConfig

if TYPE_CHECKING:
    from rightlung.models.classifier import Classifier

EPSILON = 1e-4
UNKNOWN_PROBABILITY = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class SymptomPrior:
    """What a frozen model sees of ``k`` symptoms in ``n`` images, without gradient and from the images alone.

    - ``probabilities`` (n, k); 0.5 for symptoms that the classifier does not know.
    - ``saliency`` (n, k, p): Ŝ, maps with a sum of 1. Those of nothing are uniform.
    - ``pointing`` (n, k) bool: whether the map points anywhere.
    """

    probabilities: Tensor
    saliency: Tensor
    pointing: Tensor


def normalised(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Return maps (n, k, p) >= 0 with a sum of 1, uniform where they are zero, and which are not zero (n, k)."""
    totals = maps.sum(-1, keepdim=True)
    pointing = totals > 1e-8
    uniform = torch.full_like(maps, 1 / maps.shape[-1])
    return torch.where(pointing, maps / totals.clamp_min(1e-8), uniform), pointing[..., 0]


class Observer:
    """Makes the `SymptomPrior` of images."""

    def __init__(self, config: FitaConfig, grid: tuple[int, int]) -> None:
        self.config, self.grid = config, grid
        self._grounder: Any = None

    @torch.no_grad()
    def __call__(self, classifier: Classifier, images: Tensor) -> SymptomPrior:
        """Return the prior of images (n, 1, size, size) in 0 to 1."""
        names, count = self.config.symptoms, len(images)
        columns = [classifier.columns.column(name) for name in names]
        known = [place for place, column in enumerate(columns) if column is not None]
        chosen = [column for column in columns if column is not None]
        cell_logits = classifier.image_encoder.patches(images).float()
        probabilities = cell_logits.new_full((count, len(names)), UNKNOWN_PROBABILITY)
        probabilities[:, known] = classifier.pool(cell_logits).sigmoid()[:, chosen]
        maps = cell_logits.new_zeros(count, len(names), *self.grid)
        if self.config.ifr and self.config.saliency == "grad-cam":
            maps[:, known] = adaptive_avg_pool2d(classifier.activation_maps(cell_logits)[:, chosen], self.grid)
        elif self.config.ifr and self.config.saliency == "grounder":
            maps = self._grounded(images)
        return SymptomPrior(probabilities, *normalised(maps.flatten(2)))

    def _grounded(self, images: Tensor) -> Tensor:
        """Return the maps (n, k, rows, columns) of another model for the first prompt of each symptom."""
        if self._grounder is None:
            from rightlung.models.registry import load

            self._grounder = load(self.config.grounder)
            if not hasattr(self._grounder, "ground"):
                raise InputError(f"grounder: {self.config.grounder} has no maps; name a model that grounds phrases")
        if hasattr(self._grounder, "to"):
            self._grounder.to(images.device)
        pictures = [image[0].float().cpu().numpy() for image in images]
        prompts = [positive_prompts(name)[0] for name in self.config.symptoms]
        asked = [picture for picture in pictures for _ in prompts]
        found = self._grounder.ground(asked, prompts * len(pictures))
        maps = [torch.from_numpy(one.heatmap.to_size(self.grid).copy()) for one in found]
        return torch.stack(maps).view(len(images), len(prompts), *self.grid).to(images.device)


class GraphAttention(nn.Module):
    """One layer of graph attention: node i reads its neighbours j by softmax(LeakyReLU(a · [W x_i; W x_j]))."""

    def __init__(self, dimension: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(dimension, dimension, bias=False)
        self.receiving, self.sending = (nn.Parameter(torch.randn(heads, dimension // heads) * 0.1) for _ in range(2))

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """Return new nodes (n, k, d); ``edges`` (k, k) bool, with a true diagonal, says whom each node reads."""
        projected = self.project(nodes).unflatten(-1, (self.heads, -1))
        to, of = ((projected * weights).sum(-1).transpose(1, 2) for weights in (self.receiving, self.sending))
        scores = leaky_relu(to[..., :, None] + of[..., None, :], 0.2)
        weights = scores.masked_fill(~edges, -torch.inf).softmax(-1)
        found: Tensor = torch.einsum("nhij,njhd->nihd", weights, projected).flatten(2)
        return found


class SymptomGraph(nn.Module):
    """The graph of symptoms. How often they occur together is counted in training reports, in its first stage."""

    counts: Tensor
    hierarchy: Tensor

    def __init__(self, config: FitaConfig) -> None:
        super().__init__()
        names, size = [finding(name).name for name in config.symptoms], config.dimension
        count = len(names)
        self.present, self.absent = (nn.Parameter(torch.randn(count, size) * 0.02) for _ in range(2))
        self.layers = nn.ModuleList(GraphAttention(size, config.heads) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(3))
        hierarchy = torch.eye(count, dtype=torch.bool)
        for row, name in enumerate(names):
            for wider in broader_findings(name):
                if wider in names:
                    hierarchy[row, names.index(wider)] = hierarchy[names.index(wider), row] = True
        self.register_buffer("hierarchy", hierarchy, persistent=False)
        self.register_buffer("counts", torch.zeros(count + 1, count + 1))

    @torch.no_grad()
    def count(self, positive: Tensor) -> None:
        """Count which symptoms (n, k), 1 or 0, reports mention together; the last row and column count reports."""
        joint = torch.cat([positive, torch.ones_like(positive[:, :1])], dim=1)
        self.counts += joint.T @ joint

    def edges(self) -> Tensor:
        """Return whom each symptom reads, (k, k) bool: itself, broader and narrower ones, and those with PMI > 0."""
        joint, single, total = self.counts[:-1, :-1], self.counts[:-1, -1], self.counts[-1, -1]
        return self.hierarchy | (joint * total > single[:, None] * single[None])

    def forward(self, probabilities: Tensor) -> Tensor:
        """Return C (n, k, d) for the probabilities (n, k) of symptoms."""
        shares = probabilities[..., None].to(self.present.dtype)
        nodes = self.norms[0](shares * self.present + (1 - shares) * self.absent)
        edges = self.edges()
        for number, (layer, norm) in enumerate(zip(self.layers, self.norms[1:], strict=True)):
            changed = layer(nodes, edges)
            nodes = norm(nodes + (changed.relu() if number == 0 else changed))
        found: Tensor = nodes
        return found


class ImageRefiner(nn.Module):
    """IFR, Ĉ = IFR(C, V, S). **Our reading: the paper's formula stands in an appendix that is not public.**

    Symptoms attend to patches, and the saliency is the prior of that attention:
    Ĉ = LN(C + MHA(q = C, k = V, v = V, bias = γ · log(Ŝ + ε))), γ learned from 1. With a uniform Ŝ the bias is the same
    for all patches, so that this is cross-attention without a prior.
    """

    def __init__(self, config: FitaConfig) -> None:
        super().__init__()
        self.attention = Attention(config.dimension, config.heads, config.dropout)
        self.norm = nn.LayerNorm(config.dimension)
        self.strength = nn.Parameter(torch.ones(()))

    def forward(self, symptoms: Tensor, patches: Tensor, saliency: Tensor) -> Tensor:
        """Refine symptoms (n, k, d) by patches (n, p, d) under a saliency (n, k, p) with a sum of 1."""
        bias = (self.strength * (saliency + EPSILON).log())[:, None]
        refined: Tensor = self.norm(symptoms + self.attention(symptoms, self.attention.keys_values(patches), bias))
        return refined
