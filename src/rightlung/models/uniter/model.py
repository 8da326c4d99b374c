"""UNITER (Chen et al., ECCV 2020) as modified in "That's the Wrong Lung!" (2.2, A.1, A.2): it needs regions as input.

The regions are the ground truth's boxes, not a detector's, and the features of a region are its pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from rightlung.core import Box, Grounding, Heatmap, InputError, Phrase, ScoredBox
from rightlung.core.checks import check_text
from rightlung.explain import as_heatmaps
from rightlung.models.base import Gather, TrainingBatch
from rightlung.models.boxes import in_square
from rightlung.models.encoders import WordTokenizer
from rightlung.models.encoders.configured import ConfiguredTextModel
from rightlung.models.encoders.tokenizer import MASK, Tokens
from rightlung.models.inputs import ImageInput, as_images
from rightlung.models.preprocessing import letterbox_all, standardise
from rightlung.models.uniter.config import UniterConfig
from rightlung.models.uniter.joint_encoder import JointEmbeddings, JointEncoder
from rightlung.models.uniter.losses import LOSSES, ImageTextMatching, UniterLossInputs
from rightlung.models.uniter.regions import Regions, box_locations, crop_regions, paint, region_saliency

PAIR_BATCH_SIZE = 32


class Uniter(ConfiguredTextModel):
    """Tokens and given regions in one BERT; says which of the regions a phrase is about."""

    kind: ClassVar[str] = "uniter"
    config_type = UniterConfig
    loss_names = tuple(LOSSES)
    config: UniterConfig

    def __init__(self, config: UniterConfig, tokenizer: str) -> None:
        super().__init__()
        self.tokenizer = WordTokenizer(tokenizer, config.max_length)
        mask_id = self.tokenizer.token_id(MASK)
        if mask_id is None:
            raise InputError(f"UNITER's tokenizer must have the token {MASK}")
        self.mask_id = mask_id
        self.encoder = JointEncoder(config, len(self.tokenizer))
        self.config = self.encoder.config
        self.losses = nn.ModuleDict({name: loss(self.encoder) for name, loss in LOSSES.items()})

    def encode_regions(self, images: Tensor, boxes: Tensor, present: Tensor) -> Regions:
        """Return the regions of boxes (n, k, 4) in images (n, 1, size, size): their features are pixels, then zeros."""
        pixels = crop_regions(standardise(images), boxes, self.config.region_size).flatten(2)
        features = pad(pixels, (0, self.config.feature_size - pixels.shape[2]))
        return Regions(features, box_locations(boxes), present)

    # ---------------------------------------------------------------- training

    def forward(self, batch: TrainingBatch, gather: Gather | None = None) -> dict[str, Tensor]:
        """Return the configured losses by name.

        ``gather`` is not used: texts are exchanged within a process's own batch. Masks follow torch's seed in training;
        in evaluation they are always the same, so that validations can be compared.
        """
        self._check(batch)
        target = batch.target("regions")
        inputs = UniterLossInputs(
            self.encoder,
            batch.texts,
            self.tokenizer.encode(batch.texts),
            self.mask_id,
            len(self.tokenizer),
            self.encode_regions(batch.images, target["boxes"], target["present"]),
            None if self.training else torch.Generator().manual_seed(0),
        )
        return {name: loss(inputs) for name, loss in self.losses.items() if name in self.config.losses}

    def _check(self, batch: TrainingBatch) -> None:
        if len(batch.texts) != len(batch):
            raise InputError(
                f"UNITER needs one text per image; got {len(batch.texts)} texts for {len(batch)} images. Set "
                "data.train[...].texts_per_image: 1 in the recipe"
            )
        target = batch.targets.get("regions")
        if target is None or not bool(target["present"].any()):
            raise InputError(
                "UNITER needs the boxes of regions, and the batch has none. Add regions to data.targets in the recipe, "
                "and use sources whose studies have regions"
            )
        self.check_size(batch, "image_size", self.config.image_size)

    # --------------------------------------------------------------- inference

    def ground_regions(
        self, images: Sequence[ImageInput], phrases: Sequence[Phrase | str], regions: Sequence[Mapping[str, Box]]
    ) -> list[Grounding]:
        """Return the saliency of each phrase: a score for every region (`region_saliency`), and their map (`paint`).

        An image without regions gets an empty map and an abstention of 1.
        """
        texts = [phrase.text if isinstance(phrase, Phrase) else phrase for phrase in phrases]
        side = self.config.map_size
        answers = [Grounding(Heatmap(np.zeros((side, side), dtype=np.float32), abstention=1.0), [])] * len(texts)
        with self.eval_mode():
            for pairs, tokens, found, present in self._encode(images, texts, regions, "a phrase", attentions=True):
                scores = region_saliency(found.attentions, tokens.word_index > 0, present)
                boxes, _ = _padded([[box.as_tuple() for box in regions[pair].values()] for pair in pairs])
                maps = paint(boxes.to(self.device), present, scores, side)
                for pair, heatmap, shares in zip(pairs, as_heatmaps(maps), scores.tolist(), strict=True):
                    named = zip(regions[pair].items(), shares, strict=False)  # the rest of the shares is padding
                    answers[pair] = Grounding(heatmap, [ScoredBox(box, share, name) for (name, box), share in named])
        return answers

    def similarity_regions(
        self, images: Sequence[ImageInput], texts: Sequence[str], regions: Sequence[Mapping[str, Box]]
    ) -> NDArray[np.float32]:
        """Return the logit that each text belongs to its image, (pairs,); NaN for an image without regions."""
        logits = np.full(len(texts), np.nan, dtype=np.float32)
        matching = self.losses["itm"]
        assert isinstance(matching, ImageTextMatching)
        with self.eval_mode():
            for pairs, _, found, _ in self._encode(images, texts, regions, "a text"):
                logits[pairs] = matching.logits(found).cpu().numpy()
        return logits

    def _encode(
        self,
        images: Sequence[ImageInput],
        texts: Sequence[str],
        regions: Sequence[Mapping[str, Box]],
        what: str,
        attentions: bool = False,
    ) -> Iterator[tuple[list[int], Tokens, JointEmbeddings, Tensor]]:
        """Yield batches of pairs: their indices, tokens and joint embeddings, and which regions are present.

        Pairs without regions are left out. An image that occurs several times in a batch is cropped once.
        """
        images = as_images(images)
        if not len(images) == len(texts) == len(regions):
            raise InputError(
                f"expected as many images as texts and regions; got {len(images)} images, {len(texts)} texts and the "
                f"regions of {len(regions)} images"
            )
        for text in texts:
            check_text(text, what)
        for given in regions:
            if not isinstance(given, Mapping) or not all(isinstance(box, Box) for box in given.values()):
                raise InputError(f"regions must map names to Box values, for each image; got {given!r}")
        asked = [pair for pair in range(len(texts)) if regions[pair]]
        for begin in range(0, len(asked), PAIR_BATCH_SIZE):
            pairs = asked[begin : begin + PAIR_BATCH_SIZE]
            first = {(id(images[pair]), id(regions[pair])): pair for pair in reversed(pairs)}
            order = {key: row for row, key in enumerate(first)}
            rows = torch.tensor([order[id(images[pair]), id(regions[pair])] for pair in pairs], device=self.device)
            squares, extents = letterbox_all([images[pair] for pair in first.values()], self.config.image_size)
            distinct = zip(first.values(), extents, strict=True)
            boxes, present = _padded(
                [[in_square(box, extent) for box in regions[pair].values()] for pair, extent in distinct]
            )
            squares, boxes, present = (part.to(self.device) for part in (squares, boxes, present))
            found = self.encode_regions(squares[:, None], boxes, present)
            chosen = Regions(found.features[rows], found.locations[rows], present[rows])
            tokens = self.tokenizer.encode([texts[pair] for pair in pairs]).to(self.device)
            yield pairs, tokens, self.encoder(tokens.ids, tokens.attention_mask, chosen, attentions), chosen.present


def _padded(boxes: Sequence[Sequence[tuple[float, float, float, float]]]) -> tuple[Tensor, Tensor]:
    """Return boxes as one tensor (n, k, 4), padded with zeros, and which of them are present (n, k)."""
    padded = pad_sequence([torch.tensor(given).reshape(-1, 4) for given in boxes], batch_first=True)
    return padded, pad_sequence([torch.ones(len(given), dtype=torch.bool) for given in boxes], batch_first=True)
