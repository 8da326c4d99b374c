"""The losses of ChEX by name (supp. D.2): functions of what a training step finds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rightlung.core.errors import InputError
from rightlung.lexicon import canonical_finding
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
from rightlung.models.chex.matching import box_loss, focal_loss, match_boxes, matching_cost
from rightlung.models.chex.step import ChexStep

SCORE_WEIGHT = 3.0
"""Weight of the focal loss next to the box loss (D.2)."""


def pathology_detection(step: ChexStep) -> Tensor:
    """Box loss of matched boxes, and 3 times the focal loss of the scores (after Eq. 5).

    Boxes that are matched in the first round should have a high score; all others of an image whose boxes are known, a
    low one.
    """
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


def pathology_contrastive(step: ChexStep) -> Tensor:
    """Findings of an image with their positive or negative prompt (Eq. 6)."""
    tokens = step.pathology
    return pathology_contrast(tokens.found.tokens, tokens.positive, tokens.negative, step.labels)


def pathology_probability(step: ChexStep) -> Tensor:
    """Focal loss of the probability that detection uses: the softmax of a finding's positive and negative prompt.

    Not in the paper. Eq. 6 compares a token with the prompts of all findings, and so learns slowly to tell "effusion"
    from "no effusion".
    """
    tokens = step.pathology
    present = prompt_probability(tokens.found.tokens, tokens.positive, tokens.negative, PATHOLOGY_TEMPERATURE)
    return _label_loss(present, step.labels, ~step.labels.isnan())


def pathology_score(step: ChexStep) -> Tensor:
    """Box scores of images that have labels but no boxes: that of the best box of a finding follows the label.

    Not in the paper, whose scores learn from boxes alone. It lets scores learn from data sets without boxes.
    """
    known = ~step.batch.target("boxes")["has_boxes"][:, None] & ~step.labels.isnan()
    return _label_loss(step.pathology.found.scores.amax(-1), step.labels, known)


def _label_loss(scores: Tensor, labels: Tensor, known: Tensor) -> Tensor:
    """Return the mean focal loss of scores (n, c) with labels where these are known."""
    truth = torch.where(known, labels, 0.0)[..., None]
    losses = focal_loss(scores[..., None], truth, known)[..., 0]
    return torch.where(known, losses, 0.0).sum() / known.sum().clamp_min(1)


def anatomy_detection(step: ChexStep) -> Tensor:
    """Box loss of the regions: all boxes of a region with its box, or matched with the boxes of its two parts."""
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


def anatomy_contrastive(step: ChexStep) -> Tensor:
    """Regions with the prompts of their findings (Eq. 7), each with its own labels.

    Features come from the post decoder once it is trained.
    """
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
    prompts = step.drawn_prompts(names)
    features = step.anatomy_features if "post_decoder" in step.config.trained else tokens.features
    return region_contrast(features, *prompts, labels, used)


def _any_part(labels: Tensor) -> Tensor:
    """Return the labels (n, a, c) of regions with parts (n, a, p, c): 1 if one part has it, NaN if not known."""
    present, unknown = (labels == 1).any(2), labels.isnan().any(2)
    return torch.where(present, 1.0, torch.where(unknown, torch.nan, 0.0))


def anatomy_generation(step: ChexStep) -> Tensor:
    """The language model writes the sentences of each region."""
    features, texts = step.region_sentences
    return step.model.generator.loss(features, texts) if texts else features.sum()


def anatomy_mse(step: ChexStep) -> Tensor:
    """The features of each region resemble the embedding of its sentences."""
    features, texts = step.region_sentences
    return _squared_distance(features, step.model.prompt_embeddings(texts)) if texts else features.sum()


def sentence_contrastive(step: ChexStep) -> Tensor:
    """Sentences with their own embedding, against all sentences of the batch (Eq. 8)."""
    sentences = step.sentence_prompts
    after = "post_decoder" in step.config.trained
    features = step.sentence_features if after else sentences.of(step.found["sentence"].tokens)
    return sentence_contrast(features, sentences.prompts, sentences.images, sentences.wordings)


def sentence_generation(step: ChexStep) -> Tensor:
    """The language model writes each sentence that was asked for."""
    kept = step.draw(len(step.batch.texts), step.config.max_generated)
    return step.model.generator.loss(step.sentence_features[kept], [step.batch.texts[one] for one in kept])


def sentence_mse(step: ChexStep) -> Tensor:
    """The features of each sentence resemble its embedding."""
    return _squared_distance(step.sentence_features, step.sentence_prompts.prompts)


def global_contrastive(step: ChexStep) -> Tensor:
    """The CLIP loss of the mean patch and the mean sentence of each image that has texts (D.2, last paragraph)."""
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


def language_pretraining(step: ChexStep) -> Tensor:
    """Text-only pretraining (D.3): the language model writes a sentence from its embedding. No image is looked at."""
    texts = list(dict.fromkeys(step.batch.texts))
    return step.model.generator.loss(step.model.prompt_embeddings(texts), texts)


def _squared_distance(features: Tensor, prompts: Tensor) -> Tensor:
    """Return the squared error, summed over features as in the released code: the weights of Eq. 10 are for the sum."""
    return (features.float() - prompts.float()).square().sum(-1).mean()


LOSSES: dict[str, Callable[[ChexStep], Tensor]] = {
    loss.__name__: loss
    for loss in (
        pathology_detection,
        pathology_contrastive,
        pathology_probability,
        pathology_score,
        anatomy_detection,
        anatomy_contrastive,
        anatomy_generation,
        anatomy_mse,
        sentence_contrastive,
        sentence_generation,
        sentence_mse,
        global_contrastive,
        language_pretraining,
    )
}
