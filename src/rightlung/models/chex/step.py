"""A training step of ChEX: what the losses of a batch share.

Three kinds of tokens are asked: a prompt for each finding (pathology tokens), the name of each region (anatomy tokens),
and the sentences of a report (sentence tokens). A batch has those for which it has targets: ``boxes`` and ``labels``,
``regions``, and its texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rightlung.core.errors import InputError
from rightlung.lexicon import IMAGENOME_REGIONS, REGIONS, negative_prompts, positive_prompts
from rightlung.models.base import TrainingBatch
from rightlung.models.boxes import to_centres
from rightlung.models.chex.detector import PromptDetections
from rightlung.models.encoders.image import ImageEmbeddings

if TYPE_CHECKING:
    from rightlung.models.chex.network import ChexNetwork

REGION_NAMES = tuple(REGIONS)
"""The 29 regions of Chest ImaGenome, and regions that consist of two of them, such as "lungs"."""
PARTS_OF_REGION = [[IMAGENOME_REGIONS.index(part) for part in REGIONS[name].parts or (name,)] for name in REGION_NAMES]
"""The numbers of each region's parts among the 29; most are their own only part."""


@dataclass(frozen=True, slots=True)
class PathologyTokens:
    """``c`` findings, drawn from the model's: their numbers, prompts (c, d), and what is found in the images."""

    chosen: list[int]
    positive: Tensor
    negative: Tensor
    found: PromptDetections


@dataclass(frozen=True, slots=True)
class AnatomyTokens:
    """``a`` regions: their numbers, what is found, and which (n, a) were asked (those without a box are not)."""

    chosen: list[int]
    found: PromptDetections
    features: Tensor  # (n, a, d): tokens of the text or box queries
    by_text: Tensor  # (n,) bool: images whose regions are asked by name alone
    asked: Tensor  # (n, a) bool


@dataclass(frozen=True, slots=True)
class SentencePrompts:
    """The ``s`` sentences of a batch as prompts (s, d), sorted into (n, k) slots of the images."""

    images: Tensor  # (s,)
    slots: Tensor  # (s,)
    prompts: Tensor  # (s, d)
    wordings: Tensor  # (s,) equal for equal texts
    queries: Tensor  # (n, k, d)

    def of(self, values: Tensor) -> Tensor:
        """Return the values (s, ...) of the sentences from (n, k, ...)."""
        return values[self.images, self.slots]


class ChexStep:
    """One batch: its encoded images, and the tokens of each kind, made when the first loss asks for them."""

    def __init__(self, model: ChexNetwork, batch: TrainingBatch) -> None:
        self.model, self.batch, self.config = model, batch, model.config
        # In evaluation the draws are always the same, so that validations can be compared.
        self.generator = None if model.training else torch.Generator().manual_seed(0)

    @cached_property
    def images(self) -> ImageEmbeddings:
        """The encoded images."""
        encoded: ImageEmbeddings = self.model.image_encoder(self.batch.images)
        return encoded

    @cached_property
    def found(self) -> dict[str, PromptDetections]:
        """What is found for the prompts of each kind that the losses need; the detector is called once for all."""
        kinds = {
            "pathology": lambda: self.finding_prompts[1].expand(len(self.batch), -1, -1),
            "anatomy": lambda: self.region_prompts[1].expand(len(self.batch), -1, -1),
            "sentence": lambda: self.sentence_prompts.queries,
        }
        needed = [kind for kind in kinds if any(name.startswith(kind) for name in self.config.losses)]
        queries = [kinds[kind]() for kind in needed]
        fixed = None if self.config.boxes_from_labels else ~self.batch.target("boxes")["has_boxes"]
        found = self.model.detector(torch.cat(queries, dim=1), self.images.patch_embeddings, fixed)
        return dict(zip(needed, found.split([own.shape[1] for own in queries]), strict=True))

    @cached_property
    def finding_prompts(self) -> tuple[list[int], Tensor, Tensor]:
        """Findings drawn from the model's, and their positive and negative prompts (c, d), in one of the wordings."""
        chosen = self.draw(len(self.config.findings), self.config.findings_per_batch)
        return chosen, *self.drawn_prompts([self.config.findings[one] for one in chosen])

    @cached_property
    def region_prompts(self) -> tuple[list[int], Tensor]:
        """Regions that are drawn, and their names as prompts (a, d)."""
        chosen = self.draw(len(REGION_NAMES), self.config.regions_per_batch)
        return chosen, self.model.prompt_embeddings([REGION_NAMES[one] for one in chosen])

    @cached_property
    def region_parts(self) -> Tensor:
        """The two parts (a, 2) of the regions that are drawn; those with a single part have it twice."""
        parts = [PARTS_OF_REGION[one] for one in self.region_prompts[0]]
        return torch.tensor([[own[0], own[-1]] for own in parts], device=self.batch.images.device)

    @cached_property
    def sentence_prompts(self) -> SentencePrompts:
        """The texts of the batch as prompts."""
        texts, images = list(self.batch.texts), list(self.batch.image_of_text)
        if not texts:
            raise InputError("ChEX learns from the sentences of reports, and the batch has no texts")
        slots, taken = [], [0] * len(self.batch)
        for image in images:
            slots.append(taken[image])
            taken[image] += 1
        device = self.batch.images.device
        numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        rows, columns = torch.tensor(images, device=device), torch.tensor(slots, device=device)
        prompts = self.model.prompt_embeddings(texts)
        queries = prompts.new_zeros(len(self.batch), max(taken), prompts.shape[-1]).index_put((rows, columns), prompts)
        wordings = torch.tensor([numbers[text] for text in texts], device=device)
        return SentencePrompts(rows, columns, prompts, wordings, queries)

    @cached_property
    def pathology(self) -> PathologyTokens:
        """The pathology tokens: a prompt for each finding."""
        return PathologyTokens(*self.finding_prompts, self.found["pathology"])

    @cached_property
    def anatomy(self) -> AnatomyTokens:
        """The anatomy tokens. For some images, regions are asked by box, or by name and box, instead of by name."""
        target, count = self.batch.target("regions"), len(self.batch)
        (chosen, names), found = self.region_prompts, self.found["anatomy"]
        patches = self.images.patch_embeddings
        kinds = torch.rand(count, generator=self.generator).to(patches.device)
        by_box = kinds < self.config.box_queries
        by_both = ~by_box & (kinds < self.config.box_queries + self.config.both_queries)
        parts = self.region_parts
        asked = target["present"][:, parts].all(-1) & ((parts[:, 0] == parts[:, 1]) | ~(by_box | by_both)[:, None])
        features = found.tokens
        if self.config.box_queries or self.config.both_queries:
            boxes = to_centres(target["boxes"][:, parts[:, 0]])
            at_box = self.model.detector.at_boxes(boxes, patches)
            at_both = self.model.detector.at_boxes(boxes, patches, names.expand(count, -1, -1))
            features = torch.where(by_box[:, None, None], at_box, features)
            features = torch.where(by_both[:, None, None], at_both, features)
        return AnatomyTokens(chosen, found, features, ~(by_box | by_both), asked)

    @cached_property
    def anatomy_features(self) -> Tensor:
        """The regions' features (n, a, d) after the post decoder."""
        tokens = self.anatomy
        has_boxes = tokens.by_text[:, None].expand(tokens.asked.shape)
        return self.model.look_again(tokens.features, tokens.found.box_tokens, has_boxes, self.images)

    @cached_property
    def sentence_features(self) -> Tensor:
        """The sentences' features (s, d) after the post decoder."""
        found = self.found["sentence"]
        has_boxes = torch.ones(found.tokens.shape[:2], dtype=torch.bool, device=found.tokens.device)
        return self.sentence_prompts.of(self.model.look_again(found.tokens, found.box_tokens, has_boxes, self.images))

    @cached_property
    def region_sentences(self) -> tuple[Tensor, list[str]]:
        """Features (s, d) of regions that have sentences, and these; at most ``max_generated`` of them, drawn."""
        given, tokens = self.batch.target("regions")["sentences"], self.anatomy
        pairs, texts = [], []
        for image, asked in enumerate(tokens.asked.tolist()):
            for column, number in enumerate(tokens.chosen):
                own = [given[image][part] for part in PARTS_OF_REGION[number]]
                # A sentence about both lungs is one about each of them.
                shared = [text for text in own[0] if all(text in others for others in own[1:])]
                if asked[column] and shared:
                    pairs.append((image, column))
                    texts.append(" ".join(shared))
        kept = self.draw(len(pairs), self.config.max_generated)
        chosen = torch.tensor([pairs[one] for one in kept], dtype=torch.long, device=self.batch.images.device)
        return self.anatomy_features[tuple(chosen.view(-1, 2).T)], [texts[one] for one in kept]

    @cached_property
    def labels(self) -> Tensor:
        """The labels (n, c) of the findings of the pathology tokens: 1, 0 or NaN for unknown."""
        labels: Tensor = self.batch.target("labels")["values"]
        if labels.shape[1] != len(self.config.findings):
            raise InputError(
                "data.target_options.labels.findings must equal model.config.findings "
                f"({', '.join(self.config.findings)}); got {labels.shape[1]} labels for each image"
            )
        return labels[:, self.pathology.chosen]

    def draw(self, count: int, most: int) -> list[int]:
        """Return all of ``count`` numbers, or ``most`` of them, drawn by chance."""
        if count <= most:
            return list(range(count))
        return sorted(torch.randperm(count, generator=self.generator)[:most].tolist())

    def drawn_prompts(self, findings: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return the positive and the negative prompts (f, d) of findings, each in a wording drawn by chance."""
        positive, negative = (
            self.model.prompt_embeddings([self.pick(prompts(name)) for name in findings])
            for prompts in (positive_prompts, negative_prompts)
        )
        return positive, negative

    def pick(self, wordings: Sequence[str]) -> str:
        """Return one of the wordings of a prompt, drawn by chance."""
        return wordings[int(torch.randint(len(wordings), (1,), generator=self.generator))]
