"""GLoRIA (Huang et al., ICCV 2021): images and reports in one space, as a whole and word by region.

Departures from the released code, each where it happens: the sentence mean leaves padding out; the local similarity is
the same in training and in use; and no answer depends on the other images of a batch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, normalize, softplus

from rightlung.core import Extent, Grounding, Image, InputError, Phrase
from rightlung.core.checks import check_text
from rightlung.core.keyed import key_number
from rightlung.explain import as_heatmaps, attention_maps
from rightlung.lexicon import negative_prompts, positive_prompts
from rightlung.lexicon.side_changes import with_sides_exchanged
from rightlung.models.base import Gather, Similarities, Target, TrainingBatch
from rightlung.models.encoders import ImageEncoder, TextEncoder, WordTokenizer
from rightlung.models.encoders.image import ImageEmbeddings
from rightlung.models.encoders.stored import StoredModel
from rightlung.models.encoders.text import TextEmbeddings
from rightlung.models.gloria.attention import AttentionRule, attend, local_similarity
from rightlung.models.gloria.config import GloriaConfig
from rightlung.models.gloria.losses import (
    Pairs,
    abstain_loss,
    apart_loss,
    contrastive_loss,
    global_logits,
    sentence_similarity,
    supervised_loss,
)
from rightlung.models.preprocessing import letterbox_all

IMAGES_AT_ONCE = 16
PAIRS_AT_ONCE = 256


class Gloria(StoredModel):
    """Image and text encoders, the attention between them, and what can be asked of it."""

    kind: ClassVar[str] = "gloria"
    config_type = GloriaConfig
    config: GloriaConfig

    def __init__(self, config: GloriaConfig, tokenizer: str) -> None:
        super().__init__()
        self.tokenizer = WordTokenizer(tokenizer, config.text.max_length)
        self.image_encoder = ImageEncoder(config.image, config.dimension)
        self.text_encoder = TextEncoder(config.text, config.dimension, len(self.tokenizer))
        self.config = replace(config, image=self.image_encoder.config, text=self.text_encoder.config)
        attention = config.attention
        self.no_attention_token = nn.Parameter(0.02 * torch.randn(config.dimension)) if attention.no_attention else None
        self.log_temperature = (
            nn.Parameter(torch.tensor(math.log(attention.temperature))) if attention.learn_temperature else None
        )

    # ---------------------------------------------------------------- encoding

    @property
    def rule(self) -> AttentionRule:
        """How this model attends."""
        settings = self.config.attention
        temperature = settings.temperature if self.log_temperature is None else self.log_temperature.exp()
        return AttentionRule(settings.softmaxes, temperature)

    def prepare(self, images: Sequence[Image]) -> tuple[Tensor, list[Extent]]:
        """Bring images to the squares that the image encoder sees, (n, size, size), and say where these lie in them."""
        return letterbox_all(images, self.config.image.size)

    def encode_texts(self, texts: Sequence[str]) -> TextEmbeddings:
        """Encode texts, each distinct one once."""
        distinct = list(dict.fromkeys(texts))
        found = self.text_encoder(self.tokenizer.encode(distinct).to(self.device))
        if len(distinct) == len(texts):
            return found  # type: ignore[no-any-return]
        place = {text: number for number, text in enumerate(distinct)}
        chosen = torch.tensor([place[text] for text in texts], device=self.device)
        return found[chosen]  # type: ignore[no-any-return]

    def region_vectors(self, regions: Tensor) -> Tensor:
        """Return regions (n, d, rows, cols) as (n, [1 +] rows cols, d), the No-Attn vector first where there is one."""
        flat = regions.flatten(2).transpose(1, 2)
        if self.no_attention_token is not None:
            flat = torch.cat([self.no_attention_token.to(flat.dtype).expand(len(flat), 1, -1), flat], dim=1)
        return normalize(flat, dim=-1) if self.config.attention.scores == "cosine" else flat

    def _cells(self, regions: Tensor) -> Tensor:
        """Return regions (n, [1 +] r, d) without the No-Attn vector: what a sentence can fit."""
        return regions if self.no_attention_token is None else regions[:, 1:]

    def word_vectors(self, words: Tensor) -> Tensor:
        """Return words (n, w, d) as attention compares them."""
        return normalize(words, dim=-1) if self.config.attention.scores == "cosine" else words

    def log_attention(
        self, texts: TextEmbeddings, regions: Tensor, asked_of: Tensor, most_asked: int | None = None
    ) -> Tensor:
        """Logarithm of a phrase's attention (p, [1 +] r) on ``regions`` (n, [1 +] r, d) of the image it is asked of."""
        if self.config.map_of == "sentence":
            scores = _paired_scores(self.word_vectors(texts.global_embedding[:, None]), regions, asked_of, most_asked)[:, 0]
            return (scores * self.rule.temperature).log_softmax(dim=-1)
        scores = _paired_scores(self.word_vectors(texts.word_embeddings), regions, asked_of, most_asked)
        attention = attend(scores, texts.attention_mask, self.rule) * texts.attention_mask[..., None]
        mean = attention.sum(1) / texts.attention_mask.sum(1, keepdim=True)
        return mean.clamp_min(1e-20).log()

    # ---------------------------------------------------------------- learning

    def forward(self, batch: TrainingBatch, gather: Gather | None = None) -> dict[str, Tensor]:
        """Return the losses of the configuration by name."""
        if batch.images.shape[-1] != self.config.image.size:
            raise InputError(
                f"the pictures have {batch.images.shape[-1]} pixels a side, and the model sees "
                f"{self.config.image.size}: data.size must be that of model.config.image.size"
            )
        names, count = self.config.losses, len(batch.texts)
        paired = torch.tensor(batch.image_of_text, device=self.device)
        images: ImageEmbeddings = self.image_encoder(batch.images)
        regions = self.region_vectors(images.patch_embeddings)
        exchanges = self.config.contrary or {"sides", "apart", "abstain"} & set(names)
        contrary = _contrary(batch) if exchanges else _Contrary([], [])
        phrases: Target = batch.target("phrases") if "supervised" in names else {"texts": ()}
        asked = [*batch.texts, *contrary.texts, *phrases["texts"]]
        everything = self.encode_texts(asked)
        texts = everything[_numbers(0, count, self.device)] if len(asked) > count else everything
        others = everything[_numbers(count, len(contrary.texts), self.device)]
        pairs = _pairs(batch, gather, self.config.duplicates == "ignore")
        losses: dict[str, Tensor] = {}
        for name in names:
            if name == "supervised":
                losses[name] = self._supervised(regions, everything, len(asked) - len(phrases["texts"]), phrases)
            elif name in ("sides", "apart", "abstain"):
                losses[name] = self._beside_contrary(name, regions, texts, paired, contrary, others)
            else:
                own_images, own_texts = self._logits(name, images, regions, texts, gather)
                wrong = None
                if self.config.contrary:
                    wrong = own_images.new_full((count,), -torch.inf)
                    if contrary.of:
                        to = torch.tensor(contrary.of, device=self.device)
                        found = self._logits(name, images, regions, others, None)[1]
                        wrong = wrong.index_put((to,), found.gather(1, paired[to][:, None])[:, 0])
                losses[name] = contrastive_loss(own_images, own_texts, pairs, wrong)
        return losses

    def _logits(
        self, name: str, images: ImageEmbeddings, regions: Tensor, texts: TextEmbeddings, gather: Gather | None
    ) -> tuple[Tensor, Tensor]:
        """Return the logits of own images with all texts, and of own texts with all images."""
        if name == "global":
            whole = (images.global_embedding, texts.global_embedding) if gather is None else (gather(images.global_embedding), gather(texts.global_embedding))
            temperature = self.config.global_temperature
            return global_logits(images.global_embedding, whole[1], temperature), global_logits(texts.global_embedding, whole[0], temperature)
        said: tuple[Tensor, ...] = self.word_vectors(texts.word_embeddings), texts.attention_mask
        if name == "sentence":
            said, regions = (self.word_vectors(texts.global_embedding),), self._cells(regions)

        def compare(regions: Tensor, *said: Tensor) -> Tensor:
            if name == "sentence":
                return self.config.local_temperature * sentence_similarity(said[0], regions, self.rule.temperature)
            how = self.rule, self.config.word_temperature, self.config.compiled
            return self.config.local_temperature * local_similarity(said[0], said[1], regions, *how)

        if gather is None:
            logits = compare(regions, *said)
            return logits.T, logits
        return compare(regions, *map(gather, said)).T, compare(gather(regions), *said)

    def _beside_contrary(
        self, name: str, regions: Tensor, texts: TextEmbeddings, of: Tensor, contrary: _Contrary, others: TextEmbeddings
    ) -> Tensor:
        """Compare texts that name a side with the same, side exchanged, in their own images; summed, over all texts.

        ``sides``: how much better the exchanged one fits; ``apart``: how much it attends to the same cells;
        ``abstain``: how much it attends to something, and the text itself to nothing.
        """
        if not contrary.of:
            return regions.sum() * 0.0
        own = torch.tensor(contrary.of, device=self.device)
        both = texts[own], others
        if name == "sides":
            cells = self._cells(regions)[of[own]]
            fits, exchanged = (
                sentence_similarity(self.word_vectors(part.global_embedding), cells, self.rule.temperature, paired=True)
                for part in both
            )
            found = softplus(self.config.local_temperature * (exchanged - fits))
        else:
            attention, exchanged = (self.log_attention(part, regions, of[own]) for part in both)
            if name == "abstain":
                found = abstain_loss(attention, exchanged)
            else:
                first = 0 if self.no_attention_token is None else 1  # attending to nothing is no place
                found = apart_loss(attention[:, first:], exchanged[:, first:])
        return found.sum() / len(of)

    def _supervised(self, regions: Tensor, everything: TextEmbeddings, before: int, phrases: Target) -> Tensor:
        if not phrases["texts"]:
            return regions.sum() * 0.0
        asked = everything[_numbers(before, len(phrases["texts"]), self.device)]
        image, most = torch.tensor(phrases["images"], device=self.device), max(Counter(phrases["images"]).values())
        attention = self.log_attention(asked, regions, image, most).float()
        masks = adaptive_avg_pool2d(phrases["masks"][:, None], self.image_encoder.grid).flatten(1)
        known = phrases["located"], phrases["present"], len(regions)
        return supervised_loss(attention, masks, *known, self.config.supervision, self.no_attention_token is not None)

    # ------------------------------------------------------------------ asking

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        """Return each phrase's attention on its image; the abstention is the attention on nothing."""
        if len(images) != len(phrases):
            raise InputError(f"{len(images)} images do not go with {len(phrases)} phrases")
        texts = [check_text(phrase.text if isinstance(phrase, Phrase) else phrase, "a phrase") for phrase in phrases]
        answers: list[Grounding | None] = [None] * len(texts)
        with self.asking():
            for pairs, regions, extents, asked_of in self._by_image(images):
                attention = self.log_attention(self.encode_texts([texts[pair] for pair in pairs]), regions, asked_of)
                maps, abstentions = attention_maps(attention.float().exp()[:, None], self.image_encoder.grid)
                for pair, heatmap in zip(pairs, as_heatmaps(maps, extents, abstentions.tolist()), strict=True):
                    answers[pair] = Grounding(heatmap)
        return [answer for answer in answers if answer is not None]

    def similarity(self, images: Sequence[Image], texts: Sequence[str]) -> Similarities:
        """Compare every image with every text: the cosine of the wholes, and the local similarity.

        The local one is what the ``local`` loss compares, but for its scale: the logarithm of the sum over words of
        exp(5 cosine), divided by 5; where the map is the sentence's, the soft maximum over regions of the ``sentence``
        loss. More words sum to more, and training has learned with that: with their mean long sentences always lose.
        """
        words = [check_text(text, "a text") for text in texts]
        whole = np.zeros((len(images), len(words)), dtype=np.float32)
        local = np.zeros_like(whole)
        if not len(images) or not words:
            return Similarities(whole, local)
        with self.asking():
            parts = [
                self.encode_texts(words[begin : begin + PAIRS_AT_ONCE]) for begin in range(0, len(words), PAIRS_AT_ONCE)
            ]
            for begin in range(0, len(images), IMAGES_AT_ONCE):
                squares, _ = self.prepare(images[begin : begin + IMAGES_AT_ONCE])
                found = self.image_encoder(squares[:, None].to(self.device))
                regions = self.region_vectors(found.patch_embeddings)
                rows = slice(begin, begin + len(squares))
                whole[rows] = torch.cat([global_logits(found.global_embedding, part.global_embedding, 1.0) for part in parts], 1).cpu()
                local[rows] = torch.cat([self._local(part, regions).T for part in parts], 1).cpu()
        return Similarities(whole, local)

    def classify(self, images: Sequence[Image], findings: Sequence[str]) -> NDArray[np.float32]:
        """Return how likely findings are, (images, findings), from their prompts.

        With a No-Attn vector: one less the abstention, the mean over positive prompts. Without: the share that the
        positive prompts have against the negative ones in a softmax of their cosines.
        """
        scores = np.zeros((len(images), len(findings)), dtype=np.float32)
        if not len(images):
            return scores
        said = [positive_prompts(name) for name in findings]
        denied = [] if self.no_attention_token is not None else [negative_prompts(name) for name in findings]
        prompts = [prompt for group in (*said, *denied) for prompt in group]  # all at once: an image is encoded once
        if self.no_attention_token is not None:
            answers = self.ground([image for image in images for _ in prompts], prompts * len(images))
            found = np.array([1.0 - answer.abstention for answer in answers], dtype=np.float32)
        else:
            found = self.similarity(images, prompts).whole
        ends = np.cumsum([len(group) for group in (*said, *denied)])[:-1]
        means = [part.mean(axis=1) for part in np.split(found.reshape(len(images), len(prompts)), ends, axis=1)]
        for column, mean in enumerate(means[: len(findings)]):
            against = self.config.global_temperature * (means[len(findings) + column] - mean) if denied else None
            scores[:, column] = mean if against is None else 1.0 / (1.0 + np.exp(against))
        return scores

    def _by_image(self, images: Sequence[Image]) -> Iterator[tuple[list[int], Tensor, list[Extent], Tensor]]:
        """Yield some pairs at a time: their numbers, their images' regions, extents, and whose regions are each one's.

        An image that comes several times (the same array) is encoded once.
        """
        numbers: dict[int, list[int]] = {}
        for pair, image in enumerate(images):
            numbers.setdefault(id(image), []).append(pair)
        groups = list(numbers.values())
        for begin in range(0, len(groups), IMAGES_AT_ONCE):
            some = groups[begin : begin + IMAGES_AT_ONCE]
            squares, extents = self.prepare([images[group[0]] for group in some])
            regions = self.region_vectors(self.image_encoder(squares[:, None].to(self.device)).patch_embeddings)
            pairs = [(pair, place) for place, group in enumerate(some) for pair in group]
            for first in range(0, len(pairs), PAIRS_AT_ONCE):
                now = pairs[first : first + PAIRS_AT_ONCE]
                places = [place for _, place in now]
                yield (
                    [pair for pair, _ in now],
                    regions,
                    [extents[place] for place in places],
                    torch.tensor(places, device=self.device),
                )

    def _local(self, texts: TextEmbeddings, regions: Tensor) -> Tensor:
        if self.config.map_of == "sentence":
            return sentence_similarity(self.word_vectors(texts.global_embedding), self._cells(regions), self.rule.temperature)
        temperature = self.config.word_temperature
        return (
            local_similarity(self.word_vectors(texts.word_embeddings), texts.attention_mask, regions, self.rule, temperature) / temperature
        )


def _paired_scores(queries: Tensor, regions: Tensor, asked_of: Tensor, most_asked: int | None) -> Tensor:
    """Scores (p, w, r) of queries (p, w, d) with the regions (n, r, d) of the image each is asked of.

    Queries are laid out by image, at most ``most_asked`` for each: regions are many and are not copied.
    """
    pairs, words, width = queries.shape
    order = asked_of.argsort(stable=True)
    sorted_images = asked_of[order]
    turn = torch.empty_like(asked_of)
    turn[order] = torch.arange(pairs, device=asked_of.device) - torch.searchsorted(sorted_images, sorted_images)
    most = most_asked if most_asked is not None else int(turn.max()) + 1 if pairs else 1
    laid_out = queries.new_zeros(len(regions), most, words, width).index_put((asked_of, turn), queries)
    products = torch.bmm(laid_out.flatten(1, 2), regions.transpose(1, 2).to(queries.dtype))
    return products.reshape(len(regions), most, words, -1)[asked_of, turn].float()


class _Contrary(NamedTuple):
    """Texts with their sides exchanged, and the number of the text that each was."""

    texts: list[str]
    of: list[int]


def _contrary(batch: TrainingBatch) -> _Contrary:
    """Exchange the sides of every text that names one, unless its image has the exchanged text as well."""
    said = set(zip(batch.image_of_text, batch.texts, strict=True))
    found = [
        (number, changed)
        for number, (image, text) in enumerate(zip(batch.image_of_text, batch.texts, strict=True))
        if (changed := with_sides_exchanged(text)) is not None and (image, changed) not in said
    ]
    return _Contrary([changed for _, changed in found], [number for number, _ in found])


def _numbers(first: int, count: int, device: torch.device) -> Tensor:
    return torch.arange(first, first + count, device=device)


def _pairs(batch: TrainingBatch, gather: Gather | None, ignores_same: bool) -> Pairs:
    """Return which texts of the joint batch belong to which images."""
    device = batch.images.device
    of = torch.tensor(batch.image_of_text, device=device)
    # Numbers that stand for the texts in every process (``hash`` differs between them).
    marks = torch.tensor([key_number(text) >> 1 for text in batch.texts], device=device)
    first = first_image = 0
    all_of, all_marks = of, marks
    if gather is not None:
        rank = torch.distributed.get_rank()
        first, first_image = rank * len(of), rank * len(batch)
        of = of + first_image
        all_of, all_marks = gather(of), gather(marks)
    same = None
    if ignores_same:
        same = marks[:, None] == all_marks[None]
        rows = torch.arange(len(of), device=device)
        same[rows, first + rows] = False
    return Pairs(of, all_of, first, first_image, same)
