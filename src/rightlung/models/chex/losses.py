"""The losses of ChEX as modules (supp. D.2), and what they share in a training step.

Three kinds of tokens are asked: a prompt for each finding (pathology tokens), the name of each region (anatomy tokens),
and the sentences of a report (sentence tokens). A batch has those for which it has targets: ``boxes`` and ``labels``,
``regions``, and its texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rightlung.core.errors import InputError
from rightlung.lexicon import IMAGENOME_REGIONS, REGIONS, canonical_finding, negative_prompts, positive_prompts
from rightlung.models.base import TrainingBatch
from rightlung.models.chex.boxes import to_centres
from rightlung.models.chex.contrastive import (
    global_contrast,
    match_probability,
    pathology_contrast,
    region_contrast,
    sentence_contrast,
)
from rightlung.models.chex.detector import PromptDetections
from rightlung.models.chex.matching import box_loss, focal_loss, match_boxes, matching_cost
from rightlung.models.encoders.image import ImageEmbeddings

if TYPE_CHECKING:
    from rightlung.models.chex.model import Chex

SCORE_WEIGHT = 3.0
"""Weight of the focal loss next to the box loss (D.2)."""
REGION_NAMES = tuple(REGIONS)
"""The 29 regions of Chest ImaGenome, and regions that consist of two of them, such as "lungs"."""
PARTS_OF_REGION = [[IMAGENOME_REGIONS.index(part) for part in REGIONS[name].parts or (name,)] for name in REGION_NAMES]


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
class SentenceTokens:
    """The ``s`` sentences of a batch, sorted into (n, k) slots: prompts (s, d) and what is found."""

    images: Tensor  # (s,)
    slots: Tensor  # (s,)
    prompts: Tensor  # (s, d)
    wordings: Tensor  # (s,) equal for equal texts
    found: PromptDetections  # (n, k, ...)

    def of(self, values: Tensor) -> Tensor:
        """Return the values (s, ...) of the sentences from (n, k, ...)."""
        return values[self.images, self.slots]


class ChexStep:
    """One batch: its encoded images, and the tokens of each kind, made when the first loss asks for them."""

    def __init__(self, model: Chex, batch: TrainingBatch) -> None:
        self.model, self.batch, self.config = model, batch, model.config
        # In evaluation the draws are always the same, so that validations can be compared.
        self.generator = None if model.training else torch.Generator().manual_seed(0)

    @cached_property
    def images(self) -> ImageEmbeddings:
        """The encoded images."""
        encoded: ImageEmbeddings = self.model.image_encoder(self.batch.images)
        return encoded

    @cached_property
    def pathology(self) -> PathologyTokens:
        """The pathology tokens: a prompt for each finding, in one of its wordings."""
        chosen = self.draw(len(self.config.findings), self.config.findings_per_batch)
        positive, negative = (
            self.model.prompt_embeddings([self.pick(prompts(self.config.findings[one])) for one in chosen])
            for prompts in (positive_prompts, negative_prompts)
        )
        queries = positive.expand(len(self.batch), -1, -1)
        return PathologyTokens(chosen, positive, negative, self.model.detector(queries, self.images.patch_embeddings))

    @cached_property
    def anatomy(self) -> AnatomyTokens:
        """The anatomy tokens. For some images, regions are asked by box, or by name and box, instead of by name."""
        target, count = self.batch.target("regions"), len(self.batch)
        chosen = self.draw(len(REGION_NAMES), self.config.regions_per_batch)
        names = self.model.prompt_embeddings([REGION_NAMES[one] for one in chosen]).expand(count, -1, -1)
        patches = self.images.patch_embeddings
        found = self.model.detector(names, patches)
        kinds = torch.rand(count, generator=self.generator).to(patches.device)
        by_box = kinds < self.config.box_queries
        by_both = ~by_box & (kinds < self.config.box_queries + self.config.both_queries)
        single = torch.tensor([len(PARTS_OF_REGION[one]) == 1 for one in chosen], device=patches.device)
        parts = [PARTS_OF_REGION[one] for one in chosen]
        present = torch.stack([target["present"][:, own].all(1) for own in parts], dim=1)
        asked = present & (single | ~(by_box | by_both)[:, None])
        features = found.tokens
        if self.config.box_queries or self.config.both_queries:
            boxes = to_centres(target["boxes"][:, [own[0] for own in parts]])
            at_box = self.model.detector.at_boxes(boxes, patches)
            at_both = self.model.detector.at_boxes(boxes, patches, names)
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
    def sentences(self) -> SentenceTokens:
        """The sentence tokens: the texts of the batch."""
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
        found = self.model.detector(queries, self.images.patch_embeddings)
        wordings = torch.tensor([numbers[text] for text in texts], device=device)
        return SentenceTokens(rows, columns, prompts, wordings, found)

    @cached_property
    def sentence_features(self) -> Tensor:
        """The sentences' features (s, d) after the post decoder."""
        found = self.sentences.found
        has_boxes = torch.ones(found.tokens.shape[:2], dtype=torch.bool, device=found.tokens.device)
        return self.sentences.of(self.model.look_again(found.tokens, found.box_tokens, has_boxes, self.images))

    @cached_property
    def region_sentences(self) -> tuple[list[tuple[int, int]], list[str]]:
        """Pairs of image and column of the anatomy tokens that have sentences, and these; some of them, drawn."""
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
        return [pairs[one] for one in kept], [texts[one] for one in kept]

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

    def pick(self, wordings: Sequence[str]) -> str:
        """Return one of the wordings of a prompt, drawn by chance."""
        return wordings[int(torch.randint(len(wordings), (1,), generator=self.generator))]


class _Loss(nn.Module):
    """A loss; called with a `ChexStep`."""

    def forward(self, step: ChexStep) -> Tensor:
        """Return the loss of the batch."""
        raise NotImplementedError


class PathologyDetection(_Loss):
    """Box loss of matched boxes, and 3 times the focal loss of the scores (after Eq. 5).

    Boxes that are matched in the first round should have a high score; all others of an image whose boxes are known, a
    low one.
    """

    def forward(self, step: ChexStep) -> Tensor:
        """Return the loss of the batch."""
        target, tokens = step.batch.target("boxes"), step.pathology
        found = tokens.found
        findings = [canonical_finding(step.config.findings[one]) for one in tokens.chosen]
        columns: dict[tuple[int, int], list[int]] = {}
        for box, (image, labels) in enumerate(zip(target["image_indices"], target["labels"], strict=True)):
            for column, name in enumerate(findings):
                if name in labels:
                    columns.setdefault((image, column), []).append(box)
        with torch.no_grad():
            certain = match_probability(found.box_tokens, tokens.positive[:, None], tokens.negative[:, None])
        boxes = to_centres(target["boxes"].float())
        predicted, of_target, positive = _matched(columns, found.boxes, boxes, certain, found.scores)
        loss = found.boxes.sum() * 0.0
        if predicted:
            index = torch.tensor(predicted, device=boxes.device).T
            loss = loss + box_loss(found.boxes[tuple(index)], boxes[of_target]).mean()
        truth = torch.zeros_like(found.scores)
        if positive:
            truth[tuple(torch.tensor(positive, device=boxes.device).T)] = 1.0
        # A finding that a source does not know has no boxes there, and is not absent either.
        known = target["has_boxes"][:, None] & ~step.labels.isnan()
        if bool(known.any()):
            loss = loss + SCORE_WEIGHT * focal_loss(found.scores, truth, known)[known].mean()
        return loss


def _matched(
    columns: dict[tuple[int, int], list[int]],
    predicted: Tensor,
    boxes: Tensor,
    certain: Tensor | None = None,
    scores: Tensor | None = None,
) -> tuple[list[tuple[int, int, int]], list[int], list[tuple[int, int, int]]]:
    """Match the predicted boxes (n, q, m, 4) of each (image, column) with its targets, numbers of ``boxes`` (b, 4).

    Return the places of the predicted boxes, the target of each, and the places that were matched in the first round.
    The costs of all pairs are computed at once.
    """
    if not columns:
        return [], [], []
    places = torch.tensor(list(columns), device=boxes.device).T
    most = max(map(len, columns.values()))
    padded = torch.tensor([[*own, *([own[0]] * (most - len(own)))] for own in columns.values()], device=boxes.device)
    with torch.no_grad():
        own, targets = predicted[tuple(places)], boxes[padded]
        zero = torch.zeros_like(own[..., 0])
        by_class = zero if certain is None else certain[tuple(places)]
        costs = matching_cost(own, targets, by_class, zero if scores is None else scores[tuple(places)]).cpu().numpy()
    found: list[tuple[int, int, int]] = []
    of_target: list[int] = []
    positive: list[tuple[int, int, int]] = []
    for ((image, column), numbers), cost in zip(columns.items(), costs, strict=True):
        chosen, first = match_boxes(cost[:, : len(numbers)])
        for number, (one, in_first) in enumerate(zip(chosen, first, strict=True)):
            found.append((image, column, number))
            of_target.append(numbers[one])
            positive += [(image, column, number)] if in_first else []
    return found, of_target, positive


class PathologyContrastive(_Loss):
    """Findings of an image with their positive or negative prompt (Eq. 6)."""

    def forward(self, step: ChexStep) -> Tensor:
        """Return the loss of the batch."""
        tokens = step.pathology
        return pathology_contrast(tokens.found.tokens, tokens.positive, tokens.negative, step.labels)


class AnatomyDetection(_Loss):
    """Box loss of the regions: all boxes of a region with its box, or matched with the boxes of its two parts."""

    def forward(self, step: ChexStep) -> Tensor:
        """Return the loss of the batch."""
        target, tokens = step.batch.target("regions"), step.anatomy
        boxes = to_centres(target["boxes"].float())
        regions = boxes.shape[1]
        present = torch.stack([target["present"][:, PARTS_OF_REGION[one]].all(1) for one in tokens.chosen], dim=1)
        columns = {
            (image, column): [image * regions + part for part in PARTS_OF_REGION[tokens.chosen[column]]]
            for image, column in present.nonzero().tolist()
        }
        flat = boxes.flatten(0, 1)
        predicted, of_target, _ = _matched(columns, tokens.found.boxes, flat)
        if not predicted:
            return tokens.found.boxes.sum() * 0.0
        index = torch.tensor(predicted, device=boxes.device).T
        return box_loss(tokens.found.boxes[tuple(index)], flat[of_target]).mean()


class AnatomyContrastive(_Loss):
    """Regions with the prompts of their findings (Eq. 7), each with its own labels.

    Features come from the post decoder once it is trained.
    """

    def forward(self, step: ChexStep) -> Tensor:
        """Return the loss of the batch."""
        tokens, names = step.anatomy, step.config.region_findings
        given = step.batch.target("regions")["findings"]
        if given.shape[-1] != len(names) or not names:
            raise InputError(
                "anatomy_contrastive: model.config.region_findings and data.target_options.regions.findings must "
                f"name the same findings; got {len(names)} and {given.shape[-1]}"
            )
        # A region of two parts has what one of them has.
        labels = torch.stack([_any_part(given[:, PARTS_OF_REGION[one]]) for one in tokens.chosen], dim=1)
        labels = torch.where(tokens.asked[..., None], labels, torch.nan)
        there = (labels == 1).flatten(0, 1).any(0)
        negative = (~there).nonzero()[:, 0]
        used = there.clone()
        used[negative[step.draw(len(negative), step.config.negative_findings)]] = True
        positive, opposite = (
            step.model.prompt_embeddings([step.pick(prompts(name)) for name in names])
            for prompts in (positive_prompts, negative_prompts)
        )
        features = step.anatomy_features if "post_decoder" in step.config.trained else tokens.features
        return region_contrast(features, positive, opposite, labels, used)


def _any_part(labels: Tensor) -> Tensor:
    """Return the labels (n, c) of regions with parts (n, p, c): 1 if one part has it, NaN if that is not known."""
    present, unknown = (labels == 1).any(1), labels.isnan().any(1)
    return torch.where(present, 1.0, torch.where(unknown, torch.nan, 0.0))


class AnatomyGeneration(_Loss):
    """The language model writes the sentences of each region."""

    def forward(self, step: ChexStep) -> Tensor:
        """Return the loss of the batch."""
        pairs, texts = step.region_sentences
        if not pairs:
            return step.anatomy_features.sum() * 0.0
        return step.model.generator.loss(step.anatomy_features[_index(pairs, step)], texts)


class AnatomyMse(_Loss):
    """The features of each region resemble the embedding of its sentences."""

    def forward(self, step: ChexStep) -> Tensor:
        """Return the loss of the batch."""
        pairs, texts = step.region_sentences
        if not pairs:
            return step.anatomy_features.sum() * 0.0
        return _squared_distance(step.anatomy_features[_index(pairs, step)], step.model.prompt_embeddings(texts))


class SentenceTokenContrastive(_Loss):
    """Sentences with their own embedding, against all sentences of the batch (Eq. 8)."""

    def forward(self, step: ChexStep) -> Tensor:
        """Return the loss of the batch."""
        tokens = step.sentences
        after = "post_decoder" in step.config.trained
        features = step.sentence_features if after else tokens.of(tokens.found.tokens)
        return sentence_contrast(features, tokens.prompts, tokens.images, tokens.wordings)


class SentenceGeneration(_Loss):
    """The language model writes each sentence that was asked for."""

    def forward(self, step: ChexStep) -> Tensor:
        """Return the loss of the batch."""
        kept = step.draw(len(step.batch.texts), step.config.max_generated)
        return step.model.generator.loss(step.sentence_features[kept], [step.batch.texts[one] for one in kept])


class SentenceMse(_Loss):
    """The features of each sentence resemble its embedding."""

    def forward(self, step: ChexStep) -> Tensor:
        """Return the loss of the batch."""
        return _squared_distance(step.sentence_features, step.sentences.prompts)


class MeanPatchContrastive(_Loss):
    """The CLIP loss of the mean patch and the mean sentence of each image that has texts (D.2, last paragraph)."""

    def forward(self, step: ChexStep) -> Tensor:
        """Return the loss of the batch."""
        own: dict[int, list[str]] = {}
        for image, text in zip(step.batch.image_of_text, step.batch.texts, strict=True):
            own.setdefault(image, []).append(text)
        patches = step.images.patch_embeddings.mean((2, 3))
        if not own:
            return patches.sum() * 0.0
        embedded = torch.split(
            step.model.prompt_embeddings([text for texts in own.values() for text in texts]),
            [len(texts) for texts in own.values()],
        )
        wordings = [set(texts) for texts in own.values()]
        same = torch.tensor([[one == other for other in wordings] for one in wordings], device=patches.device)
        return global_contrast(patches[list(own)], torch.stack([texts.mean(0) for texts in embedded]), same)


class LanguagePretraining(_Loss):
    """Text-only pretraining (D.3): the language model writes a sentence from its embedding. No image is looked at."""

    def forward(self, step: ChexStep) -> Tensor:
        """Return the loss of the batch."""
        texts = list(dict.fromkeys(step.batch.texts))
        return step.model.generator.loss(step.model.prompt_embeddings(texts), texts)


def _index(pairs: list[tuple[int, int]], step: ChexStep) -> tuple[Tensor, ...]:
    return tuple(torch.tensor(pairs, device=step.batch.images.device).T)


def _squared_distance(features: Tensor, prompts: Tensor) -> Tensor:
    """Return the squared error, summed over features as in the released code: the weights of Eq. 10 are for the sum."""
    return (features.float() - prompts.float()).square().sum(-1).mean()


LOSSES: dict[str, type[Any]] = {
    "pathology_detection": PathologyDetection,
    "pathology_contrastive": PathologyContrastive,
    "anatomy_detection": AnatomyDetection,
    "anatomy_contrastive": AnatomyContrastive,
    "anatomy_generation": AnatomyGeneration,
    "anatomy_mse": AnatomyMse,
    "sentence_contrastive": SentenceTokenContrastive,
    "sentence_generation": SentenceGeneration,
    "sentence_mse": SentenceMse,
    "global_contrastive": MeanPatchContrastive,
    "language_pretraining": LanguagePretraining,
}
