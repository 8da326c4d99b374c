"""The maps of written sentences against outlines, with maps whose scores are known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rightlung.audit.sentence_maps import PIXELS, SCORES, map_estimates, outlines, written_maps
from rightlung.core import Box, Heatmap, Phrase, Polarity, Report, Sentence, Study
from rightlung.pages.report import report_page
from rightlung.results.estimate import BootstrapSettings
from rightlung.studies import open_source

LEFT, RIGHT = Box(0.5, 0.25, 1.0, 0.75), Box(0.0, 0.25, 0.5, 0.75)


def study(number: int) -> Study:
    side, box = ("left", LEFT) if number % 2 else ("right", RIGHT)
    phrase = Phrase(f"{side} pneumothorax", (box,), findings={"pneumothorax": Polarity.POSITIVE})
    image = np.full((32, 32), 0.5, np.float32)
    return Study(f"s{number}", lambda: image, patient=f"p{number}", phrases=(phrase,))


def reporter(wrong: bool = False) -> Any:
    """Writes of a pneumothorax on the side that the image does not tell, with a map of that side."""
    count = iter(range(1000))

    def report(images: list[Any]) -> list[Report]:
        found = []
        for _ in images:
            left = bool(next(count) % 2) != wrong
            values = np.zeros((4, 4), np.float32)
            values[1:3, 2:] = left
            values[1:3, :2] = not left
            heatmap = Heatmap(values, abstention=0.25)
            text = f"There is a {'left' if left else 'right'} pneumothorax."
            found.append(
                Report(text, sentences=(Sentence(text, heatmap=heatmap), Sentence("No edema.", heatmap=heatmap)))
            )
        return found

    return SimpleNamespace(report=report)


def test_maps_on_the_finding_score_one_and_maps_on_the_other_side_score_nothing() -> None:
    studies = [study(number) for number in range(12)]
    right, wrong = (written_maps(reporter(flag), studies, 5).table().to_pandas() for flag in (False, True))
    assert len(right) == 24
    told = right[right.finding == "pneumothorax"]
    assert len(told) == 12
    np.testing.assert_allclose(told[["pointing", "auroc"]], 1.0, atol=0.02)
    assert wrong.pointing.dropna().unique().tolist() == [0.0]
    assert right[right.finding.isna()].pointing.isna().all()
    assert right.abstention.unique().tolist() == [0.25]


def test_the_prior_reads_the_sentence_and_has_learned_from_other_patients() -> None:
    table = written_maps(reporter(), [study(number) for number in range(24)]).table()
    found = map_estimates(table, BootstrapSettings(200))
    assert [*found] == [*SCORES]
    own, prior, difference = found["pointing"]
    assert prior.value == pytest.approx(1.0)  # the words name the side, and the side is all there is to know
    assert difference.value == pytest.approx(own.value - prior.value)


def test_outlines_of_a_phantom_are_its_masks_and_those_of_broader_findings() -> None:
    one = next(one for one in open_source("phantom?count=20&size=128&seed=7") if len(one.located_findings) > 1)
    found = outlines(one)
    for phrase in one.located_findings:
        (name,) = phrase.findings
        assert phrase.mask is not None
        expected = phrase.mask.resized((PIXELS, PIXELS)).pixels
        assert (found[name][1] & expected).sum() == expected.sum()
        assert found[name][1].mean() == pytest.approx(expected.mean(), abs=0.2)


def test_the_page_of_a_report_links_sentences_to_their_maps() -> None:
    image = np.full((40, 60), 0.5, np.float32)
    (report,) = reporter().report([image])
    page = report_page(image, report, "<x>.png", "fita", "advice")
    assert page.count('<g class="map" data-sentence="') == 2
    assert "25 % from the words before" in page
    assert "&lt;x&gt;.png" in page
    assert "geometric mean" in page
