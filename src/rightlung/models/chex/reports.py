"""Report generation of ChEX (supp. D.4, A.4): a sentence for each prompt of a set, then the sentences to keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import normalize

from rightlung.core import Extent, Query, Report, Sentence
from rightlung.core.checks import check_limits, check_text
from rightlung.core.errors import InputError
from rightlung.explain import suppressed
from rightlung.lexicon import canonical_finding, finding
from rightlung.lexicon.labeller import OBSERVATIONS
from rightlung.models.boxes import scored_boxes
from rightlung.models.chex.contrastive import PATHOLOGY_TEMPERATURE, prompt_probability
from rightlung.models.encoders.image import ImageEmbeddings
from rightlung.models.sentences import judge_sentences, kept_sentences

if TYPE_CHECKING:
    from rightlung.models.chex.config import ChexConfig
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
LEFT_OUT = {
    "unlikely": "show no finding with a probability above 0.5",
    "silent": "gave no words",
    "duplicate": "gave a sentence that says the same as one with a higher score",
    "contradiction": "gave a sentence that contradicts one with a higher score",
    "surplus": "gave a sentence beyond the most that a report has",
}
"""Why a prompt has no sentence of its own."""
Use = Literal["yes", "positive", "no"]


@dataclass(frozen=True)
class ReportSettings:
    """Which prompts a report asks, and which sentences it keeps. ``findings="yes"`` is the paper's choice (Table 6).

    - ``findings``, ``regions``: whether to ask the set, and with ``positive`` to keep only the sentences of findings
      that are more likely than not, or of regions that show one.
    - ``prompts``: ask these instead of both sets. They are not filtered by probability, even if they are findings.
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
    asked = answerable(settings.asked(), model.config)
    if not asked:
        return [Report("No sentence: the model has not learned any finding to look for.")] * len(extents)
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
        here = [number for number, place in enumerate(places) if place[0] == row]
        own = [number for number in here if texts[number].strip()]
        candidates = []
        for number in own:
            column = places[number][1]
            boxes = scored_boxes(answers.found.boxes[row, column], answers.found.scores[row, column], extent)
            best = boxes[0].score if boxes else 0.0
            shown = tuple(box.box for box in suppressed(boxes, MAX_OVERLAP) if box.score >= best / 2)
            candidates.append(Sentence(texts[number], shown, best, asked[column][0]))
        if not candidates:
            reports.append(report_without_sentences(asked, not here, model.config))
            continue
        judged = judge_sentences(candidates, embeddings[own], settings.max_sentences, settings.similarity)
        why = Counter[str](judged) + Counter(unlikely=len(asked) - len(here), silent=len(here) - len(own))
        sentences = kept_sentences(candidates, judged)
        text = " ".join(sentence.text for sentence in sentences)
        reports.append(Report(text, _left_out(len(asked), why), sentences))
    return reports


def _left_out(asked: int, why: Mapping[str, int]) -> dict[str, str]:
    """Return the section that says how many prompts have no sentence of their own; none if all have one."""
    reasons = [f"{why[name]:,} {told}" for name, told in LEFT_OUT.items() if why.get(name)]
    return {"left out": f"{asked - why.get('kept', 0):,} of {asked:,} prompts: {'; '.join(reasons)}"} if reasons else {}


def learned_findings(config: ChexConfig) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which of `CLASSES` a model has learned for images, and which for regions."""
    of_images, of_regions = (set(map(canonical_finding, names)) for names in (config.findings, config.region_findings))
    return tuple(name for name in CLASSES if name in of_images), tuple(name for name in CLASSES if name in of_regions)


def answerable(asked: Sequence[tuple[str, bool]], config: ChexConfig) -> list[tuple[str, bool]]:
    """Leave out prompts that never show a finding and whose sentence is kept only if they do.

    These are "no finding", findings that the model has not learned, and regions if it has not learned any for them.
    """
    findings, of_regions = learned_findings(config)
    known = {*findings, *(REPORT_REGIONS if of_regions else ())}
    return [(prompt, only) for prompt, only in asked if not only or prompt in known]


def shows_finding(model: ChexNetwork, prompts: Sequence[str], tokens: Tensor, features: Tensor) -> Tensor:
    """Return whether each prompt (n, q) is about something abnormal: more probable than its absence.

    For a finding, that is the finding itself, by the detector's token (n, q, d), as in the classification of images;
    "no finding" and findings that the model has not learned never are. For anything else, it is any finding that the
    model has learned for regions, by the features after the post decoder, as in the classification of regions.
    """
    findings, of_regions = learned_findings(model.config)
    positive = torch.zeros(features.shape[:2], dtype=torch.bool, device=features.device)
    if of_regions:
        positive = model.finding_probabilities(features, of_regions).amax(-1) > 0.5
    columns = [column for column, prompt in enumerate(prompts) if prompt in findings]
    if columns:
        own = model.class_prompts([prompts[column] for column in columns])
        positive[:, columns] = prompt_probability(tokens[:, columns], *own, PATHOLOGY_TEMPERATURE) > 0.5
    never = {NO_FINDING, *CLASSES} - set(findings)
    positive[:, [column for column, prompt in enumerate(prompts) if prompt in never]] = False
    return positive


def report_without_sentences(asked: Sequence[tuple[str, bool]], nothing_found: bool, config: ChexConfig) -> Report:
    """Return a report that says that there is no finding, or else no sentence, and what was looked for.

    The findings are those that the model has learned and was asked for, in the image or in regions. They stand in a
    negation, so that a labeller does not take them for present.
    """
    prompts = {prompt for prompt, _ in asked}
    looked_for = {"looked for": ", ".join(prompt for prompt, _ in asked)}
    if not nothing_found:
        return Report("No sentence was generated for any of the prompts.", looked_for)
    findings, of_regions = learned_findings(config)
    in_image = prompts & set(findings)
    names = in_image | (set(of_regions) if prompts & set(REPORT_REGIONS) else set())
    *others, last = [name for name in CLASSES if name in names]
    listed = f"{', '.join(others)} or {last}" if others else last
    if not in_image:  # regions seldom show a finding, even where there is one
        return Report(f"No finding in these regions: no probability above 0.5 of {listed}.", looked_for)
    return Report(f"No finding: there is no evidence of {listed}.", looked_for)
