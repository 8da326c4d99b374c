"""The network of ChEX (supp. D.1): its parts, how it is built and saved, and how queries pass through it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from rightlung.core import Extent, InputError, Query
from rightlung.core.settings import read_settings
from rightlung.lexicon import negative_prompts, positive_prompts
from rightlung.models.base import Gather, TrainingBatch
from rightlung.models.boxes import in_square, to_centres
from rightlung.models.chex.config import PARTS, ChexConfig
from rightlung.models.chex.contrastive import REGION_TEMPERATURE, prompt_probability
from rightlung.models.chex.detector import PromptDetections, PromptDetector
from rightlung.models.chex.generator import PostDecoder, SentenceGenerator
from rightlung.models.chex.losses import LOSSES
from rightlung.models.chex.step import ChexStep
from rightlung.models.contrastive import cosine_similarity
from rightlung.models.encoders import ImageEncoder, TextEncoder
from rightlung.models.encoders.configured import ConfiguredTextModel, config_of_encoders
from rightlung.models.encoders.image import ImageEmbeddings
from rightlung.models.encoders.tokenizer import WordTokenizer

TEXT_BATCH_SIZE, SENTENCES_AT_ONCE = 256, 512
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


class ChexNetwork(ConfiguredTextModel):
    """Image encoder, frozen prompt encoder, prompt detector, post decoder and sentence generator."""

    config_type = ChexConfig
    loss_names = tuple(LOSSES)
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
    def _redesigned(cls, start: ChexNetwork, config: Mapping[str, Any], seed: int) -> Self:
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

    def forward(self, batch: TrainingBatch, gather: Gather | None = None) -> dict[str, Tensor]:
        """Return the configured losses by name. ``gather`` is not used."""
        self.check_size(batch, "image.size", self.config.image.size)
        step = ChexStep(self, batch)
        return {name: LOSSES[name](step) for name in self.config.losses}

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
        texts = [query.phrase or "" for own in queries for query in own]
        prompts = self.prompt_embeddings(texts).view(len(queries), len(queries[0]), -1)
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

    def finding_probabilities(self, features: Tensor, findings: Sequence[str], multiclass: bool = False) -> Tensor:
        """Return the probability (..., f) that regions with features (..., d) show findings (D.4, RC)."""
        positive, negative = self.class_prompts(findings)
        if multiclass:
            return (cosine_similarity(features, positive) / REGION_TEMPERATURE).softmax(-1)
        return prompt_probability(features[..., None, :], positive, negative, REGION_TEMPERATURE)

    def class_prompts(self, findings: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return the mean embeddings (f, d) of the positive and of the negative prompts of findings."""
        means = []
        for prompts in (positive_prompts, negative_prompts):
            groups = [prompts(name) for name in findings]
            embedded = normalize(self.prompt_embeddings([text for own in groups for text in own]).float(), dim=-1)
            parts = torch.split(embedded, [len(own) for own in groups])
            means.append(torch.stack([part.mean(0) for part in parts]))
        return means[0], means[1]

    def write(self, features: Tensor) -> list[str]:
        """Return the sentence of each of the features (s, d)."""
        room = self.config.generator.max_length - self.config.prefix.length - 1
        length, texts = min(MAX_NEW_TOKENS, room), []
        for begin in range(0, len(features), SENTENCES_AT_ONCE):
            texts += self.generator.write(features[begin : begin + SENTENCES_AT_ONCE], length)
        return texts
