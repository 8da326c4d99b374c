"""Report generation (supp. D.4, Table 6): which prompts are asked, and which sentences are kept."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from rightlung.core import Box, InputError, Sentence
from rightlung.lexicon.labeller import read_sentence
from rightlung.models.chex import Chex, ReportSettings
from rightlung.models.chex.reports import CHEXPERT_FINDINGS, CLASSES, REPORT_REGIONS, Use, choose_sentences, contradict
from tests.models.chex.tiny import create, picture

USES: tuple[Use, ...] = ("yes", "positive", "no")
TABLE_6 = [ReportSettings(*pair) for pair in product(USES, USES) if pair != ("no", "no")]


@pytest.fixture(scope="module")
def model() -> Chex:
    return create()


def chosen(*candidates: tuple[str, float, list[float]], **settings: float) -> list[str]:
    """Return the texts kept of candidates given by text, score and embedding of unit length."""
    sentences = [Sentence(text, score=score) for text, score, _ in candidates]
    embeddings = torch.tensor([embedding for *_, embedding in candidates])
    return [one.text for one in choose_sentences(sentences, embeddings, ReportSettings(**settings))]  # type: ignore[arg-type]


def test_of_near_duplicates_the_one_with_the_higher_score_is_kept() -> None:
    candidates = [
        ("there is a small left effusion.", 0.4, [1.0, 0.0]),
        ("a small left effusion is seen.", 0.7, [0.96, 0.28]),  # cosine 0.96 with the first, 0.28 with the third
        ("the heart is enlarged.", 0.5, [0.0, 1.0]),
    ]
    kept = ["a small left effusion is seen.", "the heart is enlarged."]
    assert chosen(*candidates) == kept
    assert chosen(*candidates, similarity=0.97) == [*kept, "there is a small left effusion."]


def test_a_sentence_that_was_left_out_does_not_remove_others() -> None:
    """The second resembles both others, which do not resemble each other."""
    first, second, third = [1.0, 0.0], [0.92388, 0.38268], [0.70711, 0.70711]
    assert chosen(("one", 0.9, first), ("two", 0.8, second), ("three", 0.7, third)) == ["one", "three"]


def test_of_contradictions_the_one_with_the_higher_score_is_kept() -> None:
    one, other = [1.0, 0.0], [0.0, 1.0]
    assert chosen(("no pleural effusion.", 0.3, one), ("a left pleural effusion.", 0.6, other)) == [
        "a left pleural effusion."
    ]
    assert chosen(("no pleural effusion.", 0.7, one), ("a left pleural effusion.", 0.6, other)) == [
        "no pleural effusion."
    ]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("there is a left pleural effusion.", "no left pleural effusion.", True),
        ("there is a left pleural effusion.", "no right pleural effusion.", False),
        ("no pneumothorax.", "a small pneumothorax on the right.", True),
        ("no pneumothorax.", "the heart is enlarged.", False),
        ("no pneumothorax.", "no pneumothorax is seen.", False),
        ("the heart is enlarged.", "the lungs are clear.", False),
    ],
)
def test_sentences_contradict_each_other_on_the_same_side(one: str, other: str, expected: bool) -> None:
    assert contradict(one, other) is contradict(other, one) is expected


def test_at_most_so_many_sentences_are_kept() -> None:
    candidates = [(f"sentence {k}", k / 20, [float(j == k) for j in range(12)]) for k in range(12)]
    assert chosen(*candidates) == [f"sentence {k}" for k in range(11, 1, -1)]
    assert chosen(*candidates, max_sentences=1) == ["sentence 11"]


def test_the_prompt_sets_are_those_of_the_paper() -> None:
    assert len(CHEXPERT_FINDINGS) == 14
    assert len(REPORT_REGIONS) == len(set(REPORT_REGIONS)) == 15
    asked = ReportSettings().asked()  # Table 6: all findings, and regions that are positive
    assert asked == [(name, False) for name in CHEXPERT_FINDINGS] + [(name, True) for name in REPORT_REGIONS]
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


def test_a_report_without_findings_says_so_and_what_was_looked_for(
    model: Chex, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = torch.full((1, 29, len(CLASSES)), 0.2)
    monkeypatch.setattr(model, "finding_probabilities", lambda features, classes: nothing)
    (report,) = model.report([picture(1)], ReportSettings("positive", "positive"))
    assert report.sentences == ()
    assert report.text.startswith("No finding: there is no evidence of ")
    stated = read_sentence(report.text).findings
    assert {name: str(stated.get(name)) for name in CLASSES} == dict.fromkeys(CLASSES, "negative")
    assert report.sections["looked for"] == ", ".join([*CHEXPERT_FINDINGS, *REPORT_REGIONS])


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
