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
from rightlung.models.boxes import to_centres
from rightlung.models.chex.contrastive import (
    PATHOLOGY_TEMPERATURE,
    global_contrast,
    match_probability,
    pathology_contrast,
    prompt_probability,
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
        positive, negative = (
            self.model.prompt_embeddings([self.pick(prompts(self.config.findings[one])) for one in chosen])
            for prompts in (positive_prompts, negative_prompts)
        )
        return chosen, positive, negative

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
        found, boxes = tokens.found, to_centres(target["boxes"].float())
        column = {canonical_finding(step.config.findings[one]): place for place, one in enumerate(tokens.chosen)}
        own: dict[tuple[int, int], list[int]] = {}
        for box, (image, labels) in enumerate(zip(target["image_indices"], target["labels"], strict=True)):
            for name in column.keys() & labels:
                own.setdefault((image, column[name]), []).append(box)
        with torch.no_grad():
            certain = match_probability(found.box_tokens, tokens.positive[:, None], tokens.negative[:, None])
        truth, losses = torch.zeros_like(found.scores), [found.boxes.sum()[None] * 0.0]
        for count in sorted({len(numbers) for numbers in own.values()}):
            some = {place: numbers for place, numbers in own.items() if len(numbers) == count}
            places, numbers = (torch.tensor(list(given), device=boxes.device) for given in (some, some.values()))
            loss, first = _matched(places, numbers, found.boxes, boxes, certain, found.scores)
            losses.append(loss.flatten())
            truth[tuple(places.T)] = first.to(truth.dtype)
        total = torch.cat(losses).sum() / max(1, sum(map(len, losses)) - 1)
        # A finding that a source does not know has no boxes there, and is not absent either.
        known = target["has_boxes"][:, None] & ~step.labels.isnan()
        if bool(known.any()):
            total = total + SCORE_WEIGHT * focal_loss(found.scores, truth, known)[known].mean()
        return total


def _matched(
    places: Tensor,
    numbers: Tensor,
    predicted: Tensor,
    boxes: Tensor,
    certain: Tensor | None = None,
    scores: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Match the predicted boxes (n, q, m, 4) of ``places`` (k, 2), pairs of image and prompt, with t targets each.

    ``numbers`` (k, t) are those of the targets among ``boxes`` (b, 4). Return the losses (k, m) of the predicted boxes,
    and which of them (k, m) were matched in the first round.
    """
    images, prompts = places.unbind(1)
    own = predicted[images, prompts]
    zero = torch.zeros_like(own[..., 0])
    with torch.no_grad():
        beliefs = [zero if one is None else one[images, prompts] for one in (certain, scores)]
        target, first = match_boxes(matching_cost(own, boxes[numbers], *beliefs))
    return box_loss(own, boxes[numbers.gather(1, target)]), first


class PathologyContrastive(_Loss):
    """Findings of an image with their positive or negative prompt (Eq. 6)."""

    def forward(self, step: ChexStep) -> Tensor:
        """Return the loss of the batch."""
        tokens = step.pathology
        return pathology_contrast(tokens.found.tokens, tokens.positive, tokens.negative, step.labels)


class PathologyProbability(_Loss):
    """Focal loss of the probability that detection uses: the softmax of a finding's positive and negative prompt.

    Not in the paper. Eq. 6 compares a token with the prompts of all findings, and so learns slowly to tell "effusion"
    from "no effusion".
    """

    def forward(self, step: ChexStep) -> Tensor:
        """Return the loss of the batch."""
        tokens = step.pathology
        present = prompt_probability(tokens.found.tokens, tokens.positive, tokens.negative, PATHOLOGY_TEMPERATURE)
        return _label_loss(present, step.labels, ~step.labels.isnan())


class PathologyScore(_Loss):
    """Box scores of images that have labels but no boxes: that of the best box of a finding follows the label.

    Not in the paper, whose scores learn from boxes alone. It lets scores learn from data sets without boxes.
    """

    def forward(self, step: ChexStep) -> Tensor:
        """Return the loss of the batch."""
        known = ~step.batch.target("boxes")["has_boxes"][:, None] & ~step.labels.isnan()
        return _label_loss(step.pathology.found.scores.amax(-1), step.labels, known)


def _label_loss(scores: Tensor, labels: Tensor, known: Tensor) -> Tensor:
    """Return the mean focal loss of scores (n, c) with labels where these are known."""
    truth = torch.where(known, labels, 0.0)[..., None]
    losses = focal_loss(scores[..., None], truth, known)[..., 0]
    return torch.where(known, losses, 0.0).sum() / known.sum().clamp_min(1)


class AnatomyDetection(_Loss):
    """Box loss of the regions: all boxes of a region with its box, or matched with the boxes of its two parts."""

    def forward(self, step: ChexStep) -> Tensor:
        """Return the loss of the batch."""
        target, tokens = step.batch.target("regions"), step.anatomy
        boxes = to_centres(target["boxes"].float())
        losses = [tokens.found.boxes.sum()[None] * 0.0]
        parts = step.region_parts
        present, single = target["present"][:, parts].all(-1), parts[:, 0] == parts[:, 1]
        for count, some in ((1, present & single), (2, present & ~single)):
            places = some.nonzero()
            numbers = places[:, :1] * boxes.shape[1] + parts[places[:, 1], :count]
            losses.append(_matched(places, numbers, tokens.found.boxes, boxes.flatten(0, 1))[0].flatten())
        return torch.cat(losses).sum() / max(1, sum(map(len, losses)) - 1)


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
        labels = _any_part(given[:, step.region_parts])
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
    """Return the labels (n, a, c) of regions with parts (n, a, p, c): 1 if one part has it, NaN if not known."""
    present, unknown = (labels == 1).any(2), labels.isnan().any(2)
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
        sentences = step.sentence_prompts
        after = "post_decoder" in step.config.trained
        features = step.sentence_features if after else sentences.of(step.found["sentence"].tokens)
        return sentence_contrast(features, sentences.prompts, sentences.images, sentences.wordings)


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
        return _squared_distance(step.sentence_features, step.sentence_prompts.prompts)


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
        embedded = step.model.prompt_embeddings(step.batch.texts)
        rows = torch.tensor(step.batch.image_of_text, device=patches.device)
        counts = torch.bincount(rows, minlength=len(step.batch)).clamp_min(1)
        means = embedded.new_zeros(len(step.batch), embedded.shape[-1]).index_add(0, rows, embedded) / counts[:, None]
        numbers: dict[frozenset[str], int] = {}
        wordings = [numbers.setdefault(frozenset(texts), len(numbers)) for texts in own.values()]
        of_image = torch.tensor(wordings, device=patches.device)
        return global_contrast(patches[list(own)], means[list(own)], of_image[:, None] == of_image)


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
    "pathology_probability": PathologyProbability,
    "pathology_score": PathologyScore,
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
