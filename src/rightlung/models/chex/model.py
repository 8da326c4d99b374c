"""ChEX (Müller et al., ECCV 2024): finds what a text describes, and describes what a text or a box asks for.

Departures from the paper: sides of texts are mirrored with the pixels (training); queries may combine a text and a box;
no answer depends on chance or on the other images of a call (the released detector draws its skip path in inference,
too). Contrastive losses compare the sentences of one process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from rightlung.core import Box, Extent, Grounding, Image, InputError, Query, Report, ScoredBox
from rightlung.core.checks import check_text
from rightlung.explain import as_heatmaps
from rightlung.lexicon import positive_prompts
from rightlung.models.base import Similarities
from rightlung.models.boxes import scored_boxes
from rightlung.models.chex.contrastive import PATHOLOGY_TEMPERATURE, prompt_probability
from rightlung.models.chex.network import ChexNetwork
from rightlung.models.chex.reports import ReportSettings, write_report
from rightlung.models.encoders.image import ImageEmbeddings
from rightlung.models.inputs import (
    Images,
    Phrases,
    Queries,
    as_images,
    as_list,
    as_pairs,
    as_queries,
    pairs_by_image,
    phrase_texts,
)
from rightlung.models.maps import ChoosesMap
from rightlung.models.preprocessing import letterbox_batches
from rightlung.models.roi import gaussian_weights

IMAGE_BATCH_SIZE, PROMPTS_AT_ONCE = 16, 64


class Chex(ChoosesMap, ChexNetwork):
    """Finds what a text describes, and describes what a text or a box asks for."""

    kind: ClassVar[str] = "chex"
    report_settings = ReportSettings
    default_report = ReportSettings()

    def ground(self, images: Images, phrases: Phrases) -> list[Grounding]:
        """Return boxes with scores, and a map of them, for each phrase in its image.

        The map is the highest Gaussian of a box at each place, times its score; the abstention is one minus the best
        score. With `use_map`, there is another map, and no boxes.
        """
        if self.map_kind != "own":
            return self.ground_by_kind(images, phrases)
        images, phrases = as_pairs(images, phrases)
        texts = phrase_texts(phrases)
        answers: list[Grounding | None] = [None] * len(texts)
        with self.eval_mode():
            for pairs, encoded, extents in self._groups(images):
                queries = _padded([[Query(texts[pair]) for pair in own] for own in pairs])
                found = self.ask(encoded, queries, extents).found
                for own, boxes, scores, extent in zip(pairs, found.boxes, found.scores, extents, strict=True):
                    maps = self._maps(boxes[: len(own)], scores[: len(own)])
                    abstentions = (1 - scores.amax(-1)).tolist()[: len(own)]
                    heatmaps = as_heatmaps(maps, [extent] * len(own), abstentions)
                    for pair, heatmap, own_boxes, own_scores in zip(own, heatmaps, boxes, scores, strict=False):
                        answers[pair] = Grounding(heatmap, scored_boxes(own_boxes, own_scores, extent))
        return [answer for answer in answers if answer is not None]

    def text_vectors(self, texts: Sequence[str]) -> Tensor:
        """Return the embeddings (n, d) of texts."""
        return self.prompt_embeddings(texts)

    def image_vectors(self, embeddings: ImageEmbeddings) -> Tensor:
        """Return the mean patches (n, d) of images, which the global loss compares with texts."""
        return embeddings.patch_embeddings.mean((2, 3))

    def detect(self, images: Images, findings: str | Sequence[str]) -> list[list[ScoredBox]]:
        """Return the boxes of findings in each image, labelled: box score times class probability (D.4).

        The probability is the softmax of the box's token with the finding's positive and negative prompt.
        """
        images, names = as_images(images), as_list(findings)
        if not names:
            return [[] for _ in images]
        detected: list[list[ScoredBox]] = []
        with self.eval_mode():
            positive, negative = self.class_prompts(names)
            queries = [Query(positive_prompts(name)[0]) for name in names]
            for encoded, extents in self._encoded(images):
                found = self.ask(encoded, [queries] * len(extents), extents).found
                classes = prompt_probability(
                    found.box_tokens, positive[:, None], negative[:, None], PATHOLOGY_TEMPERATURE
                )
                scores = found.scores * classes
                for row, extent in enumerate(extents):
                    columns = zip(found.boxes[row], scores[row], names, strict=True)
                    detected.append([box for one in columns for box in scored_boxes(*one[:2], extent, one[2])])
        return detected

    def classify(
        self,
        images: Images,
        findings: str | Sequence[str],
        boxes: Sequence[Box] | None = None,
        queries: Sequence[Query] | None = None,
        multiclass: bool = False,
    ) -> NDArray[np.float32]:
        """Return the probability of each finding, (images, findings), in the whole image or in one box of each.

        In a box: the softmax of the region's features after the post decoder with the finding's positive and negative
        prompts or, with ``multiclass``, with the positive prompts of all findings (D.4, RC). With ``queries``, one for
        each image, the region is what the query's text finds, its box, or both. In the whole image: the softmax of the
        token that the detector finds for the finding.
        """
        arrays, names = as_images(images), as_list(findings)
        if boxes is not None and queries is not None:
            raise InputError("classify takes boxes or queries, not both: a Query may have a box and a text")
        listed = [Query(box=box) for box in boxes] if boxes is not None else queries
        if listed is not None and len(listed) != len(arrays):
            what = "queries" if boxes is None else "boxes"
            raise InputError(f"expected one for each image; got {len(arrays)} images and {len(listed)} {what}")
        if multiclass and listed is None:
            raise InputError("classify needs boxes or queries with multiclass: an image may show several findings")
        if not names:
            return np.zeros((len(arrays), 0), dtype=np.float32)
        scores = torch.zeros(len(arrays), len(names))
        with self.eval_mode():
            if listed is not None:
                for pairs, features in self._region_features(arrays, listed):
                    scores[pairs] = self.finding_probabilities(features, names, multiclass).cpu()
                return scores.numpy()
            positive, negative = self.class_prompts(names)
            prompts, done = [Query(positive_prompts(name)[0]) for name in names], 0
            for encoded, extents in self._encoded(arrays):
                tokens = self.ask(encoded, [prompts] * len(extents), extents).tokens
                found = prompt_probability(tokens, positive, negative, PATHOLOGY_TEMPERATURE)
                scores[done : done + len(extents)] = found.cpu()
                done += len(extents)
        return scores.numpy()

    def describe(self, images: Images, queries: Queries) -> list[str]:
        """Return a sentence for each query about its image. A query without text and box asks for the whole image."""
        arrays, listed = as_queries(images, queries)
        answers = [""] * len(listed)
        with self.eval_mode():
            for pairs, features in self._region_features(arrays, listed):
                for pair, text in zip(pairs, self.write(features), strict=True):
                    answers[pair] = text
        return answers

    def report(self, images: Images, settings: ReportSettings | None = None) -> list[Report]:
        """Return a report of each image: the sentences for a set of prompts, filtered, each with its boxes (D.4)."""
        reports = []
        with self.eval_mode():
            for encoded, extents in self._encoded(as_images(images)):
                reports += write_report(self, encoded, extents, settings or self.default_report)
        return reports

    def similarity(self, images: Images, texts: str | Sequence[str]) -> Similarities:
        """Return the cosine of every image's mean patch with every text, and of the token found for the text with it.

        The first is what the global loss trains, the second what the contrastive loss of sentences does.
        """
        arrays, listed = as_images(images), [check_text(text, "a text") for text in as_list(texts)]
        found = [(torch.zeros(0, len(listed)), torch.zeros(0, len(listed)))]
        with self.eval_mode():
            if not listed:
                return Similarities(*(np.zeros((len(arrays), 0), dtype=np.float32) for _ in range(2)))
            prompts = normalize(self.prompt_embeddings(listed).float(), dim=-1)
            for encoded, extents in self._encoded(arrays):
                whole = normalize(encoded.patch_embeddings.mean((2, 3)).float(), dim=-1) @ prompts.T
                local = []
                for begin in range(0, len(listed), PROMPTS_AT_ONCE):
                    part = listed[begin : begin + PROMPTS_AT_ONCE]
                    tokens = self.ask(encoded, [[Query(text) for text in part]] * len(extents), extents).tokens
                    own = prompts[begin : begin + len(part)]
                    local.append((normalize(tokens.float(), dim=-1) * own).sum(-1))
                found.append((whole.cpu(), torch.cat(local, dim=1).cpu()))
        return Similarities(*(torch.cat(parts).numpy() for parts in zip(*found, strict=True)))

    def encode_image(self, images: Images) -> NDArray[np.float32]:
        """Return the mean patch of each image, (images, dimension), of unit length."""
        embeddings = [torch.zeros(0, self.config.dimension)]
        with self.eval_mode():
            for encoded, _ in self._encoded(as_images(images)):
                embeddings.append(encoded.patch_embeddings.mean((2, 3)).float().cpu())
        return normalize(torch.cat(embeddings), dim=-1).numpy()

    def encode_text(self, texts: str | Sequence[str]) -> NDArray[np.float32]:
        """Return the embedding of each text, (texts, dimension), of unit length."""
        listed = [check_text(text, "a text") for text in as_list(texts)]
        if not listed:
            return np.zeros((0, self.config.dimension), dtype=np.float32)
        with self.eval_mode():
            return normalize(self.prompt_embeddings(listed).float(), dim=-1).cpu().numpy()

    def _region_features(self, images: Sequence[Image], queries: Sequence[Query]) -> Iterator[tuple[list[int], Tensor]]:
        """Yield some pairs of image and query, and their features (pairs, d) after the post decoder."""
        for pairs, encoded, extents in self._groups(images):
            asked = self.ask(
                encoded, _padded([[_whole_if_empty(queries[pair]) for pair in own] for own in pairs]), extents
            )
            features = self.look_again(asked.tokens, asked.found.box_tokens, asked.has_boxes, encoded)
            chosen = [features[row, column] for row, own in enumerate(pairs) for column in range(len(own))]
            yield [pair for own in pairs for pair in own], torch.stack(chosen)

    def _maps(self, boxes: Tensor, scores: Tensor) -> Tensor:
        weights = gaussian_weights(boxes, self.image_encoder.grid, self.config.box_std / 2)
        return (weights * scores[..., None, None]).amax(1)

    def _encoded(self, images: Sequence[Image]) -> Iterator[tuple[ImageEmbeddings, list[Extent]]]:
        """Yield some encoded images at a time, and the extents of their squares."""
        batches = letterbox_batches(images, self.config.image.size, self.device, IMAGE_BATCH_SIZE)
        for squares, extents in batches:
            yield self.image_encoder(squares), extents

    def _groups(self, images: Sequence[Image]) -> Iterator[tuple[list[list[int]], ImageEmbeddings, list[Extent]]]:
        """Yield pairs by image: the pairs of each of some images, these encoded (each once), and their extents."""
        groups = sorted(pairs_by_image(images), key=len)  # images with as many queries together: little padding
        for begin in range(0, len(groups), IMAGE_BATCH_SIZE):
            some = groups[begin : begin + IMAGE_BATCH_SIZE]
            encoded, extents = next(self._encoded([images[own[0]] for own in some]))
            longest = max(map(len, some))
            for first in range(0, longest, PROMPTS_AT_ONCE):
                parts = [own[first : first + PROMPTS_AT_ONCE] for own in some]
                rows = [row for row, part in enumerate(parts) if part]
                chosen = ImageEmbeddings(encoded.patch_embeddings[rows], encoded.global_embedding[rows])
                yield [parts[row] for row in rows], chosen, [extents[row] for row in rows]


def _whole_if_empty(query: Query) -> Query:
    return Query(box=Box(0.0, 0.0, 1.0, 1.0)) if query.kind == "image" else query


def _padded(queries: Sequence[Sequence[Query]]) -> list[list[Query]]:
    """Return as many queries for each image: its last one is repeated."""
    longest = max(map(len, queries))
    return [[*own, *([own[-1]] * (longest - len(own)))] for own in queries]
