"""UNITER (Chen et al., ECCV 2020) as "That's the Wrong Lung!" modifies it (2.2, A.1, A.2): asked with regions.

The regions are those that the ground truth names, not a detector's, and a region's vector is its pixels. Of UNITER's
tasks, words are told from regions (``language``), regions from words (``regions``), and whether a text belongs to an
image (``matching``). Word-region alignment by optimal transport is left out: the paper does not read its plan, which
makes every region equally important (A.1), and takes the saliency from attention instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, linear, pad
from torch.nn.utils.rnn import pad_sequence

from rightlung.core import Box, Extent, Grounding, Heatmap, Image, InputError, Phrase, ScoredBox
from rightlung.core.checks import check_text
from rightlung.explain import as_heatmaps
from rightlung.models.base import Gather, TrainingBatch
from rightlung.models.encoders import WordTokenizer
from rightlung.models.encoders.stored import StoredModel
from rightlung.models.encoders.tokenizer import MASK, Tokens
from rightlung.models.preprocessing import letterbox_all, standardise
from rightlung.models.uniter.config import UniterConfig
from rightlung.models.uniter.hiding import choose, exchange, hide_pieces
from rightlung.models.uniter.regions import crop_regions, locations, paint, region_saliency
from rightlung.models.uniter.stream import Head, JointEncoder, Streamed, initialize_weights

PAIRS_AT_ONCE = 32

_Regions = tuple[Tensor, Tensor, Tensor]  # features (n, k, feature), locations (n, k, 7), and which are there (n, k)
_Chance = torch.Generator | None


class Uniter(StoredModel):
    """Words and ground-truth regions in one BERT; says which of the regions it is given a phrase is about."""

    kind: ClassVar[str] = "uniter"
    config_type = UniterConfig
    config: UniterConfig

    def __init__(self, config: UniterConfig, tokenizer: str) -> None:
        super().__init__()
        self.tokenizer = WordTokenizer(tokenizer, config.max_length)
        mask = self.tokenizer.number_of(MASK)
        if mask is None:
            raise InputError(f"a UNITER's tokenizer must have {MASK}")
        self._mask = mask
        self.stream = JointEncoder(config, len(self.tokenizer))
        self.config = self.stream.config
        width, spread = self.stream.width, self.stream.initializer_range
        self.language_head, self.region_head = Head(width, spread), Head(width, spread)
        # Both read their answers off the matrices that embed, as in UNITER.
        self.language_bias = nn.Parameter(torch.zeros(self.stream.words.word_embeddings.num_embeddings))
        self.region_bias = nn.Parameter(torch.zeros(config.feature))
        self.pooler, self.matching_head = nn.Linear(width, width), nn.Linear(width, 1)
        initialize_weights(spread, self.pooler, self.matching_head)

    # ---------------------------------------------------------------- learning

    def features(self, images: Tensor, boxes: Tensor) -> Tensor:
        """Return the vectors (n, k, feature) of boxes (n, k, 4) in pictures (n, 1, size, size): pixels, then zeros."""
        pixels = crop_regions(standardise(images), boxes, self.config.side).flatten(2)
        return pad(pixels, (0, self.config.feature - pixels.shape[2]))

    def forward(self, batch: TrainingBatch, gather: Gather | None = None) -> dict[str, Tensor]:
        """Return the losses of the configuration by name.

        ``gather`` is not used: texts are exchanged within a process's own batch. In training, what is hidden and
        exchanged follows torch's seed; otherwise it is always the same, so that validations can be compared.
        """
        self._check(batch)
        chance = None if self.training else torch.Generator().manual_seed(0)
        tokens = self.tokenizer.encode(batch.texts)  # on the CPU, where chance is drawn
        target = batch.target("regions")
        regions = self.features(batch.images, target["boxes"]), locations(target["boxes"]), target["present"]
        compute = {"language": self._language, "regions": self._regions, "matching": self._matching}
        return {
            name: loss(batch, tokens, regions, chance) for name, loss in compute.items() if name in self.config.losses
        }

    def _check(self, batch: TrainingBatch) -> None:
        if len(batch.texts) != len(batch):
            raise InputError(
                f"a UNITER takes one text an image, and the batch has {len(batch.texts)} texts for {len(batch)} "
                "images; the recipe needs data.train[...].texts: 1"
            )
        target = batch.targets.get("regions")
        if target is None or not bool(target["present"].any()):
            raise InputError(
                "a UNITER learns from the boxes of regions, and the batch has none; the recipe needs data.boxes: true, "
                "and sources whose studies have regions"
            )
        if batch.images.shape[-1] != self.config.size:
            raise InputError(
                f"the model is made for pictures of {self.config.size} pixels a side (model.config.size), but the "
                f"recipe's data.size is {batch.images.shape[-1]}"
            )

    def _language(self, batch: TrainingBatch, tokens: Tokens, regions: _Regions, chance: _Chance) -> Tensor:
        """Cross-entropy of hidden pieces, given all regions."""
        chosen = choose((tokens.word > 0) & (tokens.ids != self._mask), self.config.masked, chance)
        hidden = hide_pieces(tokens.ids, chosen, self._mask, len(self.tokenizer), chance)
        rows, columns = (part.to(self.device) for part in chosen.nonzero(as_tuple=True))
        found: Streamed = self.stream(hidden.to(self.device), tokens.attention_mask.to(self.device), *regions)
        table = self.stream.words.word_embeddings.weight
        logits = linear(self.language_head(found.pieces[rows, columns]), table, self.language_bias)
        right = tokens.ids[chosen].to(self.device)
        return cross_entropy(logits.float(), right, reduction="sum") / max(len(right), 1)

    def _regions(self, batch: TrainingBatch, tokens: Tokens, regions: _Regions, chance: _Chance) -> Tensor:
        """Mean squared difference of hidden regions' vectors, given all words.

        As in UNITER, a region that overlaps a hidden one is still to be seen.
        """
        features, places, there = regions
        chosen = choose(there, self.config.masked, chance)
        ids, attention_mask = tokens.ids.to(self.device), tokens.attention_mask.to(self.device)
        found: Streamed = self.stream(ids, attention_mask, features * ~chosen[..., None], places, there)
        predicted = linear(self.region_head(found.regions), self.stream.pixels.weight.T, self.region_bias)
        difference = (predicted.float() - features).square().mean(dim=-1)
        return (difference * chosen).sum() / chosen.sum().clamp_min(1)

    def _matching(self, batch: TrainingBatch, tokens: Tokens, regions: _Regions, chance: _Chance) -> Tensor:
        """Binary cross-entropy of whether a text is the image's own; images without regions do not count."""
        whose, right = exchange(batch.texts, chance)
        ids, attention_mask = (part[whose].to(self.device) for part in (tokens.ids, tokens.attention_mask))
        logits = self._logits(self.stream(ids, attention_mask, *regions))
        counted = regions[2].any(dim=1).float()
        losses = binary_cross_entropy_with_logits(logits, right.to(self.device), reduction="none")
        return (losses * counted).sum() / counted.sum().clamp_min(1)

    def _logits(self, found: Streamed) -> Tensor:
        logits: Tensor = self.matching_head(self.pooler(found.pieces[:, 0]).tanh())[:, 0]
        return logits.float()

    # ------------------------------------------------------------------ asking

    def ground_regions(
        self, images: Sequence[Image], phrases: Sequence[Phrase | str], regions: Sequence[Mapping[str, Box]]
    ) -> list[Grounding]:
        """Return each phrase's saliency: every region with its share, and the map that they are painted on.

        See `region_saliency` and `paint`. An image without regions gets an empty map with an abstention of 1.
        """
        texts = [phrase.text if isinstance(phrase, Phrase) else phrase for phrase in phrases]
        side = self.config.map_size
        nothing = Grounding(Heatmap(np.zeros((side, side), dtype=np.float32), abstention=1.0), [])
        answers = [nothing] * len(texts)
        with self.asking():
            for pairs, tokens, found, there in self._asked(images, texts, regions, "a phrase", attentions=True):
                scores = region_saliency(found.attentions, tokens.word > 0, there)
                boxes, _ = _padded([[box.as_tuple() for box in regions[pair].values()] for pair in pairs])
                maps = paint(boxes.to(self.device), there, scores, side)
                for pair, heatmap, shares in zip(pairs, as_heatmaps(maps), scores.tolist(), strict=True):
                    named = zip(regions[pair].items(), shares, strict=False)  # behind the last region is padding
                    answers[pair] = Grounding(heatmap, [ScoredBox(box, share, name) for (name, box), share in named])
        return answers

    def similarity_regions(
        self, images: Sequence[Image], texts: Sequence[str], regions: Sequence[Mapping[str, Box]]
    ) -> NDArray[np.float32]:
        """Return the logit of each text belonging to its image, (pairs,); NaN for an image without regions."""
        similar = np.full(len(texts), np.nan, dtype=np.float32)
        with self.asking():
            for pairs, _, found, _ in self._asked(images, texts, regions, "a text"):
                similar[pairs] = self._logits(found).cpu().numpy()
        return similar

    def _asked(
        self,
        images: Sequence[Image],
        texts: Sequence[str],
        regions: Sequence[Mapping[str, Box]],
        what: str,
        attentions: bool = False,
    ) -> Iterator[tuple[list[int], Tokens, Streamed, Tensor]]:
        """Yield some pairs at a time: their numbers, their tokens, what comes of them, and which regions are there.

        Pairs without regions are left out. An image that comes several times in a row is cut up once.
        """
        if not len(images) == len(texts) == len(regions):
            raise InputError(
                f"{len(images)} images, {len(texts)} texts and the regions of {len(regions)} images do not go together"
            )
        for text in texts:
            check_text(text, what)
        for given in regions:
            if not isinstance(given, Mapping) or not all(isinstance(box, Box) for box in given.values()):
                raise InputError(f"regions must map names to Box values, for each image; got {given!r}")
        asked = [pair for pair in range(len(texts)) if regions[pair]]
        for begin in range(0, len(asked), PAIRS_AT_ONCE):
            pairs = asked[begin : begin + PAIRS_AT_ONCE]
            first = {(id(images[pair]), id(regions[pair])): pair for pair in reversed(pairs)}
            order = {key: number for number, key in enumerate(first)}
            chosen = torch.tensor([order[id(images[pair]), id(regions[pair])] for pair in pairs], device=self.device)
            squares, extents = letterbox_all([images[pair] for pair in first.values()], self.config.size)
            distinct = zip(first.values(), extents, strict=True)
            boxes, real = _padded([_in_square(regions[pair], extent) for pair, extent in distinct])
            boxes, there = boxes.to(self.device), real.to(self.device)[chosen]
            features = self.features(squares[:, None].to(self.device), boxes)[chosen]
            tokens = self.tokenizer.encode([texts[pair] for pair in pairs]).to(self.device)
            found = self.stream(
                tokens.ids, tokens.attention_mask, features, locations(boxes)[chosen], there, attentions
            )
            yield pairs, tokens, found, there


def _in_square(regions: Mapping[str, Box], extent: Extent) -> list[tuple[float, float, float, float]]:
    """Return boxes, which are fractions of an image, in fractions of the square that it was brought to."""
    return [Extent.crop(box).seen_from(extent).as_tuple() for box in regions.values()]


def _padded(boxes: Sequence[Sequence[tuple[float, float, float, float]]]) -> tuple[Tensor, Tensor]:
    """Return boxes as one tensor (n, k, 4), zeros where there are fewer, and which of them are there (n, k)."""
    padded = pad_sequence([torch.tensor(given).reshape(-1, 4) for given in boxes], batch_first=True)
    return padded, pad_sequence([torch.ones(len(given), dtype=torch.bool) for given in boxes], batch_first=True)
