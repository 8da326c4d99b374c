"""Report generation (supp. D.4, Table 6): which prompts are asked, and which sentences are kept."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from rightlung.core import Box, InputError
from rightlung.lexicon.labeller import read_sentence
from rightlung.models.chex import Chex, ReportSettings, reports
from rightlung.models.chex.reports import CHEXPERT_FINDINGS, CLASSES, REPORT_REGIONS, Use
from tests.models.chex.tiny import create, picture

USES: tuple[Use, ...] = ("yes", "positive", "no")
TABLE_6 = [ReportSettings(*pair) for pair in product(USES, USES) if pair != ("no", "no")]


@pytest.fixture(scope="module")
def model() -> Chex:
    return create(findings=list(CLASSES), region_findings=list(CLASSES))


def test_the_prompt_sets_are_those_of_the_paper() -> None:
    assert len(CHEXPERT_FINDINGS) == 14
    assert len(REPORT_REGIONS) == len(set(REPORT_REGIONS)) == 15
    regions = [(name, True) for name in REPORT_REGIONS]
    paper = ReportSettings("yes", "positive").asked()  # Table 6: all findings, and regions that are positive
    assert paper == [(name, False) for name in CHEXPERT_FINDINGS] + regions
    assert ReportSettings().asked() == [(name, True) for name in CHEXPERT_FINDINGS] + regions
    assert ReportSettings(prompts=("what about the heart",)).asked() == [("what about the heart", False)]


@pytest.mark.parametrize("settings", TABLE_6, ids=lambda one: f"{one.findings}-{one.regions}")
def test_the_eight_settings_of_table_6(model: Chex, settings: ReportSettings) -> None:
    (report,) = model.report([picture(1)], settings)
    asked = {prompt for prompt, _ in settings.asked()}
    assert len(asked) == 14 * (settings.findings != "no") + 15 * (settings.regions != "no")
    assert report.text == " ".join(sentence.text for sentence in report.sentences)
    assert 1 <= len(report.sentences) <= 10
    for sentence in report.sentences:
        assert sentence.prompt in asked
        assert sentence.score is not None
        assert all(isinstance(box, Box) for box in sentence.boxes)


def only(prompts: dict[int, int], count: int) -> Tensor:
    """Return probabilities (images, prompts, findings) that are high for one finding of one prompt of an image."""
    found = torch.full((len(prompts), count, len(CLASSES)), 0.1)
    for image, prompt in prompts.items():
        found[image, prompt, 3] = 0.9
    return found


def test_positive_filtering_keeps_the_prompts_whose_region_shows_a_finding(
    model: Chex, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, images = ReportSettings("no", "positive"), [picture(1), picture(2)]
    monkeypatch.setattr(model, "finding_probabilities", lambda features, classes: only({0: 4, 1: 14}, 15))
    monkeypatch.setattr(model, "write", lambda features: [f"sentence {number}." for number in range(len(features))])
    first, second = model.report(images, settings)
    assert [sentence.prompt for sentence in first.sentences] == [REPORT_REGIONS[4]]
    assert [sentence.prompt for sentence in second.sentences] == [REPORT_REGIONS[14]]
    monkeypatch.setattr(model, "finding_probabilities", lambda features, classes: only({0: 4, 1: 3}, 29))
    both = model.report(images, ReportSettings("yes", "positive", similarity=1.0, max_sentences=100))
    assert [len(report.sentences) for report in both] == [14, 14]  # prompts 3 and 4 are findings


def test_a_finding_is_kept_by_its_own_probability_and_no_finding_never(
    model: Chex, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = torch.full((1, 3, len(CLASSES)), 0.9)
    monkeypatch.setattr(model, "finding_probabilities", lambda features, classes: everything)
    given = ["pneumonia", reports.NO_FINDING, "left lung"]
    tokens = torch.randn(1, 3, model.config.dimension, generator=torch.Generator().manual_seed(0))
    positive, negative = model.class_prompts(["pneumonia"])
    cosines = [torch.nn.functional.cosine_similarity(tokens[0, 0], one[0], dim=0) for one in (positive, negative)]
    expected = [[bool(cosines[0] > cosines[1]), False, True]]
    assert reports.shows_finding(model, given, tokens, tokens).tolist() == expected
    opposite = tokens.clone()
    opposite[0, 0] = -tokens[0, 0]
    assert reports.shows_finding(model, given, opposite, tokens)[0, 0] != expected[0][0]


def test_a_report_without_findings_says_so_and_what_was_looked_for(
    model: Chex, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = torch.full((1, 28, len(CLASSES)), 0.2)  # "no finding" is not asked
    monkeypatch.setattr(model, "finding_probabilities", lambda features, classes: nothing)
    monkeypatch.setattr(reports, "prompt_probability", lambda tokens, *_: torch.full(tokens.shape[:2], 0.2))
    (report,) = model.report([picture(1)], ReportSettings("positive", "positive"))
    assert report.sentences == ()
    assert report.text.startswith("No finding: there is no evidence of ")
    stated = read_sentence(report.text).findings
    assert {name: str(stated.get(name)) for name in CLASSES} == dict.fromkeys(CLASSES, "negative")
    assert report.sections["looked for"] == ", ".join([*CLASSES, *REPORT_REGIONS])


REGION_CLASSES = ("cardiomegaly", "edema")


@pytest.fixture(scope="module")
def narrow() -> Chex:
    """A model that has learned some findings of images, and fewer of regions."""
    return create(findings=[*REGION_CLASSES, "fracture", "hernia"], region_findings=[*REGION_CLASSES, "hernia"])


def test_regions_are_kept_because_of_findings_that_the_model_has_learned_for_regions(
    narrow: Chex, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Sequence[str]] = []

    def unlikely(features: Tensor, classes: Sequence[str]) -> Tensor:
        asked.append(tuple(classes))
        found = torch.full((*features.shape[:2], len(classes)), 0.9)
        found[..., [place for place, name in enumerate(classes) if name in REGION_CLASSES]] = 0.1
        return found

    monkeypatch.setattr(narrow, "finding_probabilities", unlikely)
    (report,) = narrow.report([picture(1)], ReportSettings("no", "positive"))
    assert asked == [REGION_CLASSES]
    assert report.sentences == ()
    assert report.text == "No finding in these regions: no probability above 0.5 of cardiomegaly or edema."


def test_a_report_denies_only_what_the_model_has_learned(narrow: Chex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "prompt_probability", lambda tokens, *_: torch.full(tokens.shape[:2], 0.2))
    (report,) = narrow.report([picture(1)], ReportSettings("positive", "no"))
    assert report.text == "No finding: there is no evidence of cardiomegaly, edema or fracture."
    assert report.sections == {"looked for": "cardiomegaly, edema, fracture"}
    nothing_to_find = create(findings=["hernia"])
    (report,) = nothing_to_find.report([picture(1)])
    assert report.text == "No sentence: the model has not learned any finding to look for."


def test_a_report_says_why_prompts_have_no_sentence_of_their_own(narrow: Chex, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["The heart is large.", "The heart is large.", "", "No cardiomegaly.", "An effusion.", "A fracture."]
    monkeypatch.setattr(narrow, "write", lambda features: texts)
    given = tuple(f"prompt {number}" for number in range(6))
    (report,) = narrow.report([picture(1)], ReportSettings(prompts=given, similarity=1.0, max_sentences=1))
    assert report.sections["left out"].startswith("5 of 6 prompts: 1 gave no words; ")
    counted = sum(int(part.split()[0]) for part in report.sections["left out"].split(": ")[1].split("; "))
    assert counted == 5
    monkeypatch.setattr(narrow, "write", lambda features: ["The heart is large."] * len(features))
    (report,) = narrow.report([picture(1)], ReportSettings(prompts=given))
    said = "5 of 6 prompts: 5 gave a sentence that says the same as one with a higher score"
    assert report.sections == {"left out": said}
    (report,) = narrow.report([picture(1)], ReportSettings(prompts=("heart",)))
    assert report.sections == {}


def test_a_generator_that_writes_nothing_is_not_a_report_without_findings(
    model: Chex, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(features: Tensor) -> Sequence[str]:
        return [""] * len(features)

    monkeypatch.setattr(model, "write", silent)
    (report,) = model.report([picture(1)], ReportSettings(prompts=("left effusion", "heart")))
    assert report.text == "No sentence was generated for any of the prompts."
    assert report.sections == {"looked for": "left effusion, heart"}


def test_settings_that_ask_nothing_are_refused() -> None:
    with pytest.raises(InputError, match="a report needs prompts"):
        ReportSettings("no", "no")
    with pytest.raises(InputError, match="at least one character"):
        ReportSettings(prompts=(" ",))
    with pytest.raises(InputError, match="max_sentences"):
        ReportSettings(max_sentences=0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"prompts": "heart"}, "prompts must be a list of texts; got the text 'heart'"),
        ({"prompts": ("heart", " ")}, "a prompt must be a text with at least one character"),
        ({"regions": "maybe"}, "regions must be yes, positive or no; got 'maybe'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        ReportSettings(**given)
