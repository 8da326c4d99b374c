"""Report generation of ChEX (supp. D.4, A.4): a sentence for each prompt of a set, then the sentences to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import normalize

from rightlung.core import Extent, Query, Report, Sentence
from rightlung.core.checks import check_limits, check_text
from rightlung.core.errors import InputError
from rightlung.explain import suppressed
from rightlung.lexicon import finding
from rightlung.lexicon.labeller import OBSERVATIONS
from rightlung.models.boxes import scored_boxes
from rightlung.models.chex.contrastive import PATHOLOGY_TEMPERATURE, prompt_probability
from rightlung.models.encoders.image import ImageEmbeddings
from rightlung.models.sentences import choose_sentences

if TYPE_CHECKING:
    from rightlung.models.chex.network import ChexNetwork

REPORT_REGIONS = (
    *(f"{side} {zone}" for zone in (
        "lower lung zone", "mid lung zone", "upper lung zone", "hilar structures", "apical zone", "clavicle",
    ) for side in ("right", "left")),
    "mediastinum", "cardiac silhouette", "abdomen",
)  # fmt: skip
"""The 15 regions that reports ask for (D.4)."""
NO_FINDING = "no finding"
MAX_OVERLAP = 0.25  # IoU of two boxes of a sentence (E.2)
CHEXPERT_FINDINGS = tuple(finding(name).name for name in OBSERVATIONS)
"""CheXpert's 14 observations by the lexicon's names."""
CLASSES = tuple(name for name in CHEXPERT_FINDINGS if name != NO_FINDING)
"""The findings that make a prompt positive."""
Use = Literal["yes", "positive", "no"]


@dataclass(frozen=True)
class ReportSettings:
    """Which prompts a report asks, and which sentences it keeps. ``findings="yes"`` is the paper's choice (Table 6).

    - ``findings``, ``regions``: whether to ask the set, and with ``positive`` to keep only the sentences of findings
      that are more likely than not, or of regions that show one. ``prompts``: ask these instead of both sets.
    - ``similarity``: of two sentences with a higher cosine, the one with the lower score is left out.
    - ``max_sentences``: at most so many sentences are kept.
    """

    findings: Use = "positive"
    regions: Use = "positive"
    prompts: tuple[str, ...] = ()
    similarity: float = 0.9
    max_sentences: int = 10

    def __post_init__(self) -> None:
        check_limits(self.similarity, "similarity", -1, 1)
        check_limits(self.max_sentences, "max_sentences", 1, 1000)
        prompts: object = self.prompts
        if isinstance(prompts, str):
            raise InputError(f"prompts must be a list of texts; got the text {prompts!r}")
        for prompt in self.prompts:
            check_text(prompt, "a prompt")
        for name, use in (("findings", self.findings), ("regions", self.regions)):
            if use not in get_args(Use):
                raise InputError(f"{name} must be yes, positive or no; got {use!r}")
        if not self.prompts and self.findings == self.regions == "no":
            raise InputError("a report needs prompts: findings, regions or your own")

    def asked(self) -> list[tuple[str, bool]]:
        """Return the prompts, and for each whether its sentence is kept only if its region shows a finding."""
        if self.prompts:
            return [(prompt, False) for prompt in self.prompts]
        findings = [] if self.findings == "no" else [(name, self.findings == "positive") for name in CHEXPERT_FINDINGS]
        regions = [] if self.regions == "no" else [(name, self.regions == "positive") for name in REPORT_REGIONS]
        return [*findings, *regions]


def write_report(
    model: ChexNetwork, images: ImageEmbeddings, extents: Sequence[Extent], settings: ReportSettings
) -> list[Report]:
    """Return the report of each of some encoded images."""
    asked = settings.asked()
    queries = [[Query(prompt) for prompt, _ in asked]] * len(extents)
    answers = model.ask(images, queries, extents)
    features = model.look_again(answers.tokens, answers.found.box_tokens, answers.has_boxes, images)
    positive = shows_finding(model, [prompt for prompt, _ in asked], answers.tokens, features)
    kept = positive | ~torch.tensor([only for _, only in asked], device=positive.device)
    places = kept.nonzero().tolist()
    texts = model.write(features[kept])
    embeddings = normalize(model.prompt_embeddings(texts).float(), dim=-1) if texts else features[:0, 0]
    reports = []
    for row, extent in enumerate(extents):
        own = [number for number, place in enumerate(places) if place[0] == row and texts[number].strip()]
        candidates = []
        for number in own:
            column = places[number][1]
            boxes = scored_boxes(answers.found.boxes[row, column], answers.found.scores[row, column], extent)
            best = boxes[0].score if boxes else 0.0
            shown = tuple(box.box for box in suppressed(boxes, MAX_OVERLAP) if box.score >= best / 2)
            candidates.append(Sentence(texts[number], shown, best, asked[column][0]))
        sentences = choose_sentences(candidates, embeddings[own], settings.max_sentences, settings.similarity)
        text = " ".join(sentence.text for sentence in sentences)
        nothing = not bool(kept[row].any())
        reports.append(Report(text, sentences=sentences) if sentences else report_without_sentences(asked, nothing))
    return reports


def shows_finding(model: ChexNetwork, prompts: Sequence[str], tokens: Tensor, features: Tensor) -> Tensor:
    """Return whether each prompt (n, q) is about something abnormal: more probable than its absence.

    For a finding, that is the finding itself, by the detector's token (n, q, d), as in the classification of images;
    "no finding" and findings that the model has not learned never are. For anything else, it is any finding, by the
    features after the post decoder, as in the classification of regions.
    """
    positive = model.finding_probabilities(features, CLASSES).amax(-1) > 0.5
    columns = [column for column, prompt in enumerate(prompts) if prompt in CLASSES]
    if columns:
        own = model.class_prompts([prompts[column] for column in columns])
        positive[:, columns] = prompt_probability(tokens[:, columns], *own, PATHOLOGY_TEMPERATURE) > 0.5
    never = {NO_FINDING, *CLASSES} - set(model.config.findings)
    positive[:, [column for column, prompt in enumerate(prompts) if prompt in never]] = False
    return positive


def report_without_sentences(asked: Sequence[tuple[str, bool]], nothing_found: bool) -> Report:
    """Return a report that says that there is no finding, or else no sentence, and what was looked for.

    The findings stand in a negation, so that a labeller does not take them for present.
    """
    looked_for = {"looked for": ", ".join(prompt for prompt, _ in asked)}
    if not nothing_found:
        return Report("No sentence was generated for any of the prompts.", looked_for)
    return Report(f"No finding: there is no evidence of {', '.join(CLASSES[:-1])} or {CLASSES[-1]}.", looked_for)
