"""ChEX (Müller et al., ECCV 2024): finds what a text describes, and describes what a text or a box asks for.

Departures from the paper: sides of texts are mirrored with the pixels (training); queries may combine a text and a box;
no answer depends on chance or on the other images of a call (the released detector draws its skip path in inference,
too). Contrastive losses compare the sentences of one process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize

from rightlung.core import Box, Extent, Grounding, Image, InputError, Query, Report, ScoredBox
from rightlung.core.checks import check_text
from rightlung.core.settings import read_settings
from rightlung.explain import as_heatmaps
from rightlung.lexicon import negative_prompts, positive_prompts
from rightlung.models.base import Gather, Similarities, TrainingBatch
from rightlung.models.boxes import in_square, scored_boxes, to_centres
from rightlung.models.chex.config import PARTS, ChexConfig
from rightlung.models.chex.contrastive import PATHOLOGY_TEMPERATURE, REGION_TEMPERATURE, prompt_probability
from rightlung.models.chex.detector import PromptDetections, PromptDetector
from rightlung.models.chex.generator import PostDecoder, SentenceGenerator
from rightlung.models.chex.losses import LOSSES
from rightlung.models.chex.reports import ReportSettings, write_report
from rightlung.models.chex.step import ChexStep
from rightlung.models.encoders import ImageEncoder, TextEncoder
from rightlung.models.encoders.configured import ConfiguredTextModel, config_of_encoders
from rightlung.models.encoders.image import ImageEmbeddings
from rightlung.models.encoders.tokenizer import WordTokenizer
from rightlung.models.inputs import (
    Images,
    Phrases,
    as_images,
    as_list,
    as_pairs,
    as_queries,
    pairs_by_image,
    phrase_texts,
)
from rightlung.models.preprocessing import letterbox_batches
from rightlung.models.roi import gaussian_weights

IMAGE_BATCH_SIZE, TEXT_BATCH_SIZE, PROMPTS_AT_ONCE, SENTENCES_AT_ONCE = 16, 256, 64, 512
MAX_NEW_TOKENS = 128
"""The most tokens of a generated sentence (supp. D.1)."""
GENERATOR_TOKENIZER_FILE = "generator_tokenizer.json"


@dataclass(frozen=True, slots=True)
class QueryTokens:
    """The answers to ``q`` queries about each of ``n`` images: what was found, and the features of each query.

    ``box_tokens`` and ``scores`` of queries with a box are those of its prompt; ``has_boxes`` (n, q) is False there.
    """

    found: PromptDetections
    tokens: Tensor
    has_boxes: Tensor


class PromptCache:
    """Embeddings of texts, each computed once. It starts anew when it holds too many."""

    def __init__(self, most: int = 200_000) -> None:
        self.most, self.rows, self.table = most, dict[str, int](), torch.zeros(0)

    def embeddings(self, texts: Sequence[str], embed: Callable[[Sequence[str]], Tensor]) -> Tensor:
        """Return the embeddings (t, d) of texts; ``embed`` makes those that are new."""
        if len(self.rows) > self.most:
            self.rows, self.table = {}, torch.zeros(0)
        if new := [text for text in dict.fromkeys(texts) if text not in self.rows]:
            made = embed(new)
            self.table = torch.cat([self.table, made]) if self.rows else made
            self.rows |= {text: len(self.rows) + number for number, text in enumerate(new)}
        return self.table[torch.tensor([self.rows[text] for text in texts], device=self.table.device)]


class Chex(ConfiguredTextModel):
    """Image encoder, frozen prompt encoder, prompt detector, post decoder and sentence generator."""

    kind: ClassVar[str] = "chex"
    config_type = ChexConfig
    loss_names = tuple(LOSSES)
    report_settings = ReportSettings
    config: ChexConfig

    def __init__(self, config: ChexConfig, tokenizer: str, generator_tokenizer: str) -> None:
        super().__init__()
        self.tokenizer = config.text.read_tokenizer(tokenizer)
        self.image_encoder = ImageEncoder(config.image, config.dimension)
        self.text_encoder = TextEncoder(config.text, config.dimension, len(self.tokenizer))
        self.detector = PromptDetector(config)
        self.post_decoder = PostDecoder(config)
        room = config.generator.max_length - config.prefix.length  # the prefix takes positions, too
        written = WordTokenizer(generator_tokenizer, room, config.generator.end_token)
        self.generator = SentenceGenerator(config, written)
        language = self.generator.language_model.config
        self.config = replace(
            config, image=self.image_encoder.config, text=self.text_encoder.config, generator=language
        )
        self._prompts = PromptCache()
        for part in PARTS:
            self.get_submodule(part).requires_grad_(part in config.trained)
        self._freeze_image_layers(config.frozen_image_layers)

    @classmethod
    def _trained_parts(cls, config: Any, texts: Iterable[str]) -> tuple[str, ...]:
        listed = list(texts)
        return *super()._trained_parts(config, listed), config.generator.tokenizer_file(listed)

    @classmethod
    def _stored_parts(cls, files: Mapping[str, bytes]) -> tuple[str, ...]:
        if GENERATOR_TOKENIZER_FILE not in files:
            raise InputError(f"{GENERATOR_TOKENIZER_FILE} is missing; a chex needs the tokenizer of its generator")
        return *super()._stored_parts(files), files[GENERATOR_TOKENIZER_FILE].decode(errors="replace")

    @classmethod
    def from_encoders(cls, start: Any, config: Mapping[str, Any], texts: Iterable[str], seed: int) -> Self:
        """Return a new model with the image and text encoder of a GLoRIA or CLIP.

        From a ChEX it takes all weights that fit the configuration, and the tokenizers; other weights are new.
        """
        if isinstance(start, cls):
            return cls._redesigned(start, config, seed)
        created = cls.create({**config, **config_of_encoders(start, config, cls.kind)}, texts, seed)
        model = cls(created.config, start.tokenizer.definition, created.generator.tokenizer.definition)
        for part in ("detector", "post_decoder", "generator"):
            model.get_submodule(part).load_state_dict(created.get_submodule(part).state_dict())
        model.image_encoder.load_state_dict(start.image_encoder.state_dict())
        model.text_encoder.load_state_dict(start.text_encoder.state_dict())
        return model

    @classmethod
    def _redesigned(cls, start: Chex, config: Mapping[str, Any], seed: int) -> Self:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            read = read_settings(ChexConfig, config)
            model = cls(read, start.tokenizer.definition, start.generator.tokenizer.definition)
        given = start.state_dict()
        fits = {name: given[name] for name, weight in model.state_dict().items()
                if name in given and given[name].shape == weight.shape}  # fmt: skip
        model.load_state_dict(fits, strict=False)
        return model

    def extra_files(self) -> dict[str, bytes]:
        """Return the files of both tokenizers."""
        definition = json.loads(self.generator.tokenizer.definition)
        return {**super().extra_files(), GENERATOR_TOKENIZER_FILE: json.dumps(definition, indent=0).encode()}

    def _freeze_image_layers(self, count: int) -> None:
        if not count or "image_encoder" not in self.config.trained:
            return
        if self.config.image.kind != "vit":
            raise InputError(f"frozen_image_layers needs a vit; the image encoder is a {self.config.image.kind}")
        backbone: Any = self.image_encoder.backbone
        # The list of layers has another name in some versions of transformers; it is the only one.
        layers = next(module for module in backbone.modules() if isinstance(module, nn.ModuleList))
        for module in (backbone.embeddings, *layers[:count]):
            module.requires_grad_(False)

    def train(self, mode: bool = True) -> Self:
        """Set training mode; frozen parts stay in evaluation mode."""
        super().train(mode)
        for part in PARTS:
            if part not in self.config.trained:
                self.get_submodule(part).eval()
        return self

    # ---------------------------------------------------------------- encoding

    def prompt_embeddings(self, texts: Sequence[str]) -> Tensor:
        """Return the embeddings (t, d) of texts; each distinct text is encoded once, in training once in all."""
        frozen = self.training and "text_encoder" not in self.config.trained
        cache = self._prompts if frozen else PromptCache()
        return cache.embeddings(texts, self._embed)

    def _embed(self, texts: Sequence[str]) -> Tensor:
        encoded = [
            self.text_encoder(self.tokenizer.encode(texts[begin : begin + TEXT_BATCH_SIZE]).to(self.device))
            for begin in range(0, len(texts), TEXT_BATCH_SIZE)
        ]
        return torch.cat([one.global_embedding for one in encoded])

    def look_again(self, tokens: Tensor, box_tokens: Tensor, has_boxes: Tensor, images: ImageEmbeddings) -> Tensor:
        """Return the features (n, q, d) of regions after the post decoder."""
        patches = images.patch_embeddings.flatten(2).transpose(1, 2)
        source = torch.cat([patches, images.global_embedding[:, None].to(patches.dtype)], dim=1)
        features: Tensor = self.post_decoder(tokens, box_tokens, has_boxes, source)
        return features

    def ask(
        self, images: ImageEmbeddings, queries: Sequence[Sequence[Query]], extents: Sequence[Extent]
    ) -> QueryTokens:
        """Ask ``q`` queries about each of ``n`` images in one pass; each image has the same number of queries."""
        flat = [query for own in queries for query in own]
        count, each = len(queries), len(queries[0])
        texts = [query.phrase or "" for query in flat]
        prompts = self.prompt_embeddings(texts).view(count, each, -1)
        patches = images.patch_embeddings
        found: PromptDetections = self.detector(prompts, patches)
        has_box = torch.tensor([[query.box is not None for query in own] for own in queries], device=patches.device)
        tokens = found.tokens
        if bool(has_box.any()):
            boxes = to_centres(torch.tensor([
                [(0.0, 0.0, 1.0, 1.0) if query.box is None else in_square(query.box, extent) for query in own]
                for own, extent in zip(queries, extents, strict=True)
            ], device=patches.device))  # fmt: skip
            at_box = self.detector.at_boxes(boxes, patches)
            at_both = self.detector.at_boxes(boxes, patches, prompts)
            has_text = torch.tensor([[query.phrase is not None for query in own] for own in queries])
            at_box = torch.where(has_text.to(patches.device)[..., None], at_both, at_box)
            tokens = torch.where(has_box[..., None], at_box, tokens)
        return QueryTokens(found, tokens, ~has_box)

    # ---------------------------------------------------------------- training

    def forward(self, batch: TrainingBatch, gather: Gather | None = None) -> dict[str, Tensor]:
        """Return the configured losses by name. ``gather`` is not used."""
        self.check_size(batch, "image.size", self.config.image.size)
        step = ChexStep(self, batch)
        return {name: LOSSES[name](step) for name in self.config.losses}

    # --------------------------------------------------------------- inference

    def ground(self, images: Images, phrases: Phrases) -> list[Grounding]:
        """Return boxes with scores, and a map of them, for each phrase in its image.

        The map is the highest Gaussian of a box at each place, times its score; the abstention is one minus the best
        score.
        """
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

    def detect(self, images: Images, findings: str | Sequence[str]) -> list[list[ScoredBox]]:
        """Return the boxes of findings in each image, labelled: box score times class probability (D.4).

        The probability is the softmax of the box's token with the finding's positive and negative prompt.
        """
        images, names = as_images(images), as_list(findings)
        if not names:
            return [[] for _ in images]
        detected: list[list[ScoredBox]] = []
        with self.eval_mode():
            positive, negative = self._class_prompts(names)
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
            positive, negative = self._class_prompts(names)
            prompts, done = [Query(positive_prompts(name)[0]) for name in names], 0
            for encoded, extents in self._encoded(arrays):
                tokens = self.ask(encoded, [prompts] * len(extents), extents).tokens
                found = prompt_probability(tokens, positive, negative, PATHOLOGY_TEMPERATURE)
                scores[done : done + len(extents)] = found.cpu()
                done += len(extents)
        return scores.numpy()

    def describe(self, images: Images, queries: Query | Sequence[Query]) -> list[str]:
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
                reports += write_report(self, encoded, extents, settings or ReportSettings())
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

    def write(self, features: Tensor) -> list[str]:
        """Return the sentence of each of the features (s, d)."""
        room = self.config.generator.max_length - self.config.prefix.length - 1
        length, texts = min(MAX_NEW_TOKENS, room), []
        for begin in range(0, len(features), SENTENCES_AT_ONCE):
            texts += self.generator.write(features[begin : begin + SENTENCES_AT_ONCE], length)
        return texts

    def _region_features(self, images: Sequence[Image], queries: Sequence[Query]) -> Iterator[tuple[list[int], Tensor]]:
        """Yield some pairs of image and query, and their features (pairs, d) after the post decoder."""
        for pairs, encoded, extents in self._groups(images):
            asked = self.ask(
                encoded, _padded([[_whole_if_empty(queries[pair]) for pair in own] for own in pairs]), extents
            )
            features = self.look_again(asked.tokens, asked.found.box_tokens, asked.has_boxes, encoded)
            chosen = [features[row, column] for row, own in enumerate(pairs) for column in range(len(own))]
            yield [pair for own in pairs for pair in own], torch.stack(chosen)

    def finding_probabilities(self, features: Tensor, findings: Sequence[str], multiclass: bool = False) -> Tensor:
        """Return the probability (..., f) that regions with features (..., d) show findings (D.4, RC)."""
        positive, negative = self._class_prompts(findings)
        if multiclass:
            cosines = normalize(features.float(), dim=-1) @ normalize(positive, dim=-1).T
            return (cosines / REGION_TEMPERATURE).softmax(-1)
        return prompt_probability(features[..., None, :], positive, negative, REGION_TEMPERATURE)

    def _class_prompts(self, findings: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return the mean embeddings (f, d) of the positive and of the negative prompts of findings."""
        means = []
        for prompts in (positive_prompts, negative_prompts):
            groups = [prompts(name) for name in findings]
            embedded = normalize(self.prompt_embeddings([text for own in groups for text in own]).float(), dim=-1)
            parts = torch.split(embedded, [len(own) for own in groups])
            means.append(torch.stack([part.mean(0) for part in parts]))
        return means[0], means[1]

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
