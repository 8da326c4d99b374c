"""Probes that change the image, and the model with random weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rightlung.asking.questions import Walk
from rightlung.core import Box, Image, InputError, Mask, Phrase, Polarity, Study
from rightlung.models.untrained import untrained
from rightlung.probes import Setting, find_probe
from rightlung.probes.images import MeanImage
from rightlung.probes.twins import occluded_finding
from rightlung.studies import open_source
from tests.asking.models import Listed

EFFUSION = {"pleural effusion": Polarity.POSITIVE}


def image(value: float = 0.2, size: int = 60) -> Image:
    return (value + 0.3 * np.random.default_rng(0).random((size, size))).astype(np.float32)


def study(name: str, *boxes: Box, patient: str | None = None, findings: dict[str, Polarity] = EFFUSION) -> Study:
    regions = {"right lung": Box(0.1, 0.1, 0.45, 0.9), "left lung": Box(0.55, 0.1, 0.9, 0.9)}
    phrases = (Phrase("small effusion, left", boxes, findings=findings),)
    return Study(name, image, patient=patient, phrases=phrases, regions=regions)


def asked(probe: str, one: Study, phrase: Phrase | None, setting: Setting | None = None) -> Any:
    """Return what a probe asks, which applies."""
    found = find_probe(probe).ask(one, phrase, setting or Setting())
    assert found is not None
    return found


def changed(probe: str, one: Study) -> Image:
    pixels: Image = asked(probe, one, one.phrases[0]).alter(one.image)
    return pixels


@pytest.mark.parametrize("box", [Box(0.6, 0.5, 0.8, 0.8), Box(0.4, 0.4, 0.6, 0.6)])  # one lung, the midline
def test_occlusion_elsewhere_has_the_area_and_strength_of_that_of_the_target_and_does_not_touch_it(box: Box) -> None:
    one = study("a", box)
    target = Mask.from_boxes([box], (60, 60)).pixels
    there, elsewhere = (changed(f"occlude-{where}", one) - one.image for where in ("target", "elsewhere"))
    assert (there != 0)[target].mean() > 0.95
    assert not (there[~target]).any()
    assert not elsewhere[target].any()
    assert (elsewhere != 0).sum() == pytest.approx(target.sum(), rel=0.1)
    assert np.sqrt((elsewhere**2).sum()) == pytest.approx(np.sqrt((there**2).sum()), rel=0.1)


def test_a_target_that_fills_the_chest_leaves_no_place_to_occlude() -> None:
    one = study("a", Box(0.05, 0.05, 0.95, 0.95))
    assert find_probe("occlude-elsewhere").ask(one, one.phrases[0], Setting()) is None
    assert find_probe("occlude-target").ask(study("b"), Phrase("no target"), Setting()) is None


def test_noise_is_the_same_for_all_phrases_of_a_study_and_unlike_the_image() -> None:
    one, other = study("a"), study("b")
    setting = Setting(seed=1)
    first, second = (asked("noise-image", one, phrase, setting).alter for phrase in (one.phrases[0], None))
    assert first == second
    assert first != asked("noise-image", other, None, setting).alter
    noise = first(one.image)
    assert abs(np.corrcoef(noise.ravel(), one.image.ravel())[0, 1]) < 0.1
    assert noise.std() == pytest.approx(np.sqrt(1 / 12), rel=0.05)


def test_the_mean_image_is_the_mean_of_images_of_any_size() -> None:
    mean = MeanImage([lambda: np.full((30, 40), 0.2, np.float32), lambda: np.full((64, 64), 0.6, np.float32)])
    np.testing.assert_allclose(mean(image()), 0.4, atol=1e-6)
    assert mean(image(size=50)).shape == (50, 50)


def test_the_same_finding_comes_from_another_patient_who_has_it() -> None:
    one = study("a", patient="p")
    others = [
        study("b", patient="p"),
        study("c", patient="q", findings={"edema": Polarity.POSITIVE}),
        study("d", patient="r"),
    ]
    setting = Setting(neighbours=[one, *others])
    assert asked("exchange-same-finding", one, one.phrases[0], setting).image_of == "d"
    assert find_probe("exchange-same-finding").ask(one, one.phrases[0], Setting(neighbours=others[:2])) is None


def test_prompts_without_meaning_have_no_word_of_the_phrase() -> None:
    one = study("a")
    nonsense = asked("nonsense-prompt", one, one.phrases[0]).phrase.text
    assert [*map(len, nonsense.split())] == [5, 9, 4]
    assert not {*nonsense.split()} & {"small", "effusion,", "left"}
    assert asked("empty-prompt", one, one.phrases[0]).phrase.text == "."


def test_an_untrained_model_has_other_weights_and_the_same_ones_for_a_seed() -> None:
    torch.manual_seed(3)
    model: Any = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(4, 2))
    model[1].running_mean += 5
    first, again, other = (untrained(model, seed) for seed in (0, 0, 1))
    assert torch.equal(first[0].weight, again[0].weight)
    assert not torch.equal(first[0].weight, other[0].weight)
    assert not torch.equal(first[2].weight, model[2].weight)
    assert not first[1].running_mean.any()
    assert model[1].running_mean.all()


def test_what_cannot_be_done_is_refused_with_a_sentence() -> None:
    with pytest.raises(InputError, match="str has no weights of PyTorch"):
        untrained("model")
    with pytest.raises(InputError, match="condition twin-removed needs exact twins, which only the sources phantom"):
        Walk(Listed([study("a")]), ["twin-removed"], ["phrases"], 0, None)


def test_without_a_phrase_the_same_finding_is_covered_here_as_is_taken_out_of_the_twin() -> None:
    for one in (found for found in open_source("phantom?count=12&seed=7&size=64") if found.located_findings):
        covered = occluded_finding(one)
        removed = find_probe("twin-removed").ask(one, None, Setting())
        assert (covered is None) == (removed is None)
        if covered is None:
            continue
        assert [*covered.findings] == [asked("twin-removed", one, None).alter.finding]
        question = asked("occlude-target", one, None)
        assert question.phrase is None
        assert covered.mask is not None
        assert not ((question.alter(one.image) != one.image) & ~covered.mask.pixels).any()


def test_phrases_about_one_finding_are_covered_together() -> None:
    one = study("a", Box(0.6, 0.5, 0.7, 0.6))
    other = Phrase("another effusion", (Box(0.1, 0.6, 0.2, 0.8),), findings=EFFUSION)
    both = occluded_finding(replace(one, phrases=(*one.phrases, other)))
    assert both is not None
    assert set(both.boxes) == {*one.phrases[0].boxes, *other.boxes}
