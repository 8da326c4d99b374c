"""The smallest model that can be trained: a convolution, a bag of hashed words, three losses, and a map."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, binary_cross_entropy_with_logits, cross_entropy, normalize

from rightlung.core import Grounding, Heatmap, Image, Phrase
from rightlung.models.base import Gather, TrainingBatch

WORDS = 97


class Tiny(nn.Module):
    """Learns pairs (`global`) and phrases (`supervised`), and counts (`zero`) nothing."""

    kind: ClassVar[str] = "tiny"

    def __init__(self, width: int = 8, dropout: float = 0.0, breaks_above: int = 10**9, poison: str = "") -> None:
        super().__init__()
        self.settings: dict[str, Any] = {
            "width": width,
            "dropout": dropout,
            "breaks_above": breaks_above,
            "poison": poison,
        }
        self.first = nn.Conv2d(1, width, 5, stride=4, padding=2)
        self.norm = nn.GroupNorm(1, width)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.words = nn.Embedding(WORDS, width)
        self.dropout = nn.Dropout(dropout)
        self.vocabulary: list[str] = []

    @classmethod
    def create(cls, config: Mapping[str, Any], texts: Iterable[str], seed: int) -> Self:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = cls(**config)
        made.vocabulary = sorted({word for text in texts for word in text.lower().split()})[:50]
        return made

    def to_config(self) -> dict[str, Any]:
        return dict(self.settings)

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.state_dict())

    def extra_files(self) -> dict[str, bytes]:
        return {"vocabulary.json": json.dumps(self.vocabulary).encode()}

    @classmethod
    def from_parts(cls, config: Mapping[str, Any], tensors: Mapping[str, Tensor], files: Mapping[str, bytes]) -> Self:
        made = cls(**config)
        made.load_state_dict(dict(tensors))
        made.vocabulary = json.loads(files["vocabulary.json"])
        return made

    def features(self, images: Tensor) -> Tensor:
        found: Tensor = self.second(self.dropout(torch.relu(self.norm(self.first(images)))))
        return found

    def texts(self, texts: Sequence[str]) -> Tensor:
        vectors = []
        for text in texts:
            numbers = [zlib.crc32(word.encode()) % WORDS for word in text.lower().split()]
            vectors.append(self.words(torch.tensor(numbers, device=self.words.weight.device)).mean(0))
        return torch.stack(vectors) if vectors else torch.zeros(0, self.words.embedding_dim)

    def forward(self, batch: TrainingBatch, gather: Gather | None = None) -> dict[str, Tensor]:
        if len(batch) > self.settings["breaks_above"]:
            raise torch.OutOfMemoryError("too large")
        features = self.features(batch.images)
        images, texts = normalize(features.mean((2, 3)), dim=1), normalize(self.texts(batch.texts), dim=1)
        all_images, all_texts = (gather(images), gather(texts)) if gather else (images, texts)
        begin = 0
        if gather is not None:
            begin = torch.distributed.get_rank() * len(batch)
        own = torch.arange(begin, begin + len(batch), device=images.device)
        one, other = 5 * images @ all_texts.T, 5 * texts @ all_images.T
        losses = {"global": (cross_entropy(one, own) + cross_entropy(other, own)) / 2}
        losses["supervised"] = features.sum() * 0
        if "phrases" in batch.targets and batch.targets["phrases"]["texts"]:
            maps = self.maps(features[batch.targets["phrases"]["image_indices"]], batch.targets["phrases"]["texts"])
            losses["supervised"] = self.supervised(maps, batch)
        if self.settings["poison"] in batch.ids:
            losses["supervised"] = losses["supervised"] * float("nan")
        losses["zero"] = features.sum() * 0
        return losses

    def maps(self, features: Tensor, phrases: Sequence[str]) -> Tensor:
        return (features * self.texts(phrases)[:, :, None, None]).sum(1)

    def supervised(self, maps: Tensor, batch: TrainingBatch) -> Tensor:
        phrases = batch.targets["phrases"]
        present: Tensor = phrases["present"]
        known = ~present.isnan()
        seen = binary_cross_entropy_with_logits(maps.amax((1, 2))[known], present[known], reduction="sum")
        masks = adaptive_avg_pool2d(phrases["masks"][:, None], (maps.shape[1], maps.shape[2]))[:, 0]
        placed = binary_cross_entropy_with_logits(maps, masks, reduction="none").mean((1, 2))
        loss: Tensor = (seen + (placed * phrases["has_mask"]).sum()) / len(batch)  # of which every process has as many
        return loss

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        texts = [phrase if isinstance(phrase, str) else phrase.text for phrase in phrases]
        features = self.features(torch.stack([torch.tensor(image)[None] for image in images]))
        return [Grounding(Heatmap(grid.sigmoid().numpy())) for grid in self.maps(features, texts).detach()]
