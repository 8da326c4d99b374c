from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.audit import Audit, Sureness, audit
from rightlung.audit.gallery import answers_of, case_tiles, maps_of, remarks, spread
from rightlung.audit.markup import element
from rightlung.core import Box, Grounding, Heatmap, Mask, Query, ScoredBox, Study
from rightlung.pages.overlays import PREDICTED, draw
from rightlung.predictions import Prediction, PredictionWriter, open_predictions, phrase_query
from tests.audit.cards import Cards, true_map, write_answers
from tests.pages import Outline

HOSTILE = 'Opacity <script>alert("x")</script> in the left lower lobe & "more".'


class Hostile(Cards):
    """Cards on which one phrase is markup."""

    def _build(self, position: int) -> Study:
        study = super()._build(position)
        return replace(study, phrases=(replace(study.phrases[0], text=HOSTILE), *study.phrases[1:]))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    folder, source = tmp_path_factory.mktemp("page"), Hostile(16)
    write_answers(source, folder / "p", true_map)
    return audit(folder / "p", source, folder / "out", sureness=Sureness(resamples=200), cases=3)


@pytest.fixture(scope="module")
def outline(done: Audit) -> Outline:
    found = Outline()
    found.feed(done.page.read_text(encoding="utf-8"))
    assert found.open == []
    return found


def test_the_page_has_its_sections_under_headings_in_order(outline: Outline) -> None:
    second = [heading[3:] for heading in outline.headings if heading.startswith("h2")]
    assert second[:4] == [
        "What was found",
        "Beside the image-blind prior",
        "Left and right",
        "When the question is changed",
    ]
    assert {"By group", "Abstention", "Best and worst cases", "Protocol", "What to try next"} <= set(second)
    assert outline.headings[0] == "h1 Audit of known"
    assert outline.tags.count("h1") == outline.tags.count("main") == 1


def test_the_page_needs_no_network_and_no_script(done: Audit, outline: Outline) -> None:
    assert "script" not in outline.tags
    assert "link" not in outline.tags
    for tag, name, value in outline.attributes:
        if name in ("src", "href"):
            assert value.startswith(("data:image/", "#")), (tag, name, value[:40])
        assert not name.startswith("on")
    text = done.page.read_text(encoding="utf-8")
    assert re.findall(r"https?:|url\(|@import", text) == []
    assert len(text) < 5_000_000


def test_what_came_from_a_file_is_shown_and_never_obeyed(done: Audit) -> None:
    text = done.page.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "Opacity &lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; in the left lower lobe &amp;" in text
    assert element("p", "<b>", title='"') == '<p title="&quot;">&lt;b&gt;</p>'


def test_tables_have_captions_and_can_be_reached_by_keyboard(outline: Outline) -> None:
    assert outline.tags.count("caption") == outline.tags.count("table") > 10
    reachable = [value for tag, name, value in outline.attributes if tag == "div" and name == "tabindex"]
    assert reachable == ["0"] * outline.tags.count("table")
    identities = [value for _, name, value in outline.attributes if name == "id"]
    assert len(identities) == len(set(identities))
    labelled = [value for _, name, value in outline.attributes if name == "aria-labelledby"]
    targets = [value[1:] for _, name, value in outline.attributes if name == "href" and value.startswith("#")]
    assert set(labelled) | set(targets) <= set(identities)
    pictures = [value for tag, name, value in outline.attributes if tag == "img" and name == "alt"]
    assert len(pictures) == outline.tags.count("img") == 18  # three of the best and the worst, three pictures each
    assert all(pictures)


def test_the_page_carries_the_protocol_and_that_it_is_no_medical_device(done: Audit) -> None:
    text = done.page.read_text(encoding="utf-8")
    assert text.count(NOT_A_MEDICAL_DEVICE) == 2
    assert text.count(done.result["protocol"]["hash"]) >= 4
    assert "@media print" in text
    assert "prefers-color-scheme: dark" in text
    assert 'lang="en"' in text


def test_the_json_holds_what_the_page_shows_and_no_nan(done: Audit) -> None:
    written = json.loads((done.folder / "audit.json").read_text(), parse_constant=pytest.fail)
    assert written["summary"] == done.result["summary"]
    assert written["note"] == NOT_A_MEDICAL_DEVICE
    for sentence in written["summary"]:
        assert sentence.replace("'", "&#x27;") in done.page.read_text(encoding="utf-8")


def test_a_study_whose_image_cannot_be_read_leaves_a_case_without_pictures(tmp_path: Path) -> None:
    from rightlung.core import InputError

    class Broken(Cards):
        def _build(self, position: int) -> Study:
            def load() -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
                raise InputError(f"card-{position}.png is damaged")

            return replace(super()._build(position), load=load)

    source = Broken(5)
    write_answers(source, tmp_path / "p", lambda *_: Heatmap(np.eye(4)), conditions=("none",))
    done = audit(tmp_path / "p", source, tmp_path / "out", sureness=Sureness(resamples=200), cases=1)
    text = done.page.read_text(encoding="utf-8")
    assert "<img" not in text
    assert "is damaged" in text


QUICK = Sureness(resamples=200)


def test_the_boxes_of_a_detector_are_drawn_and_it_gives_no_abstention(tmp_path: Path) -> None:
    source = Cards(6, phrases=3)
    box = Box(0.1, 0.2, 0.4, 0.6)
    with PredictionWriter(tmp_path / "p", source="cards", model="detector") as writer:
        for study in source:
            for index, phrase in enumerate(study.phrases):
                answer = Grounding(boxes=[ScoredBox(box, 0.7)])
                writer.write(Prediction(study.id, phrase_query(index), "none", Query(phrase.text), answer))
    done = audit(tmp_path / "p", source, tmp_path / "out", sureness=QUICK, cases=1)
    text = done.page.read_text(encoding="utf-8")
    assert text.count("<figcaption>the model&#x27;s boxes</figcaption>") == 2
    assert "Orange: the model&#x27;s boxes." in text
    assert "The predictions give no abstention." in text
    assert "never abstains" not in text
    (row,) = spread(done.instances, [0.5])
    place = row["study"], row["query"]
    answer = answers_of(open_predictions(tmp_path / "p"), [place])[place]
    tiles = dict(case_tiles(row, source, answer.heatmap, None, answer.boxes))
    pixels = np.asarray(draw(tiles["the model's boxes"], 100))
    assert tuple(pixels[20, 25]) == PREDICTED  # the middle of the box's upper edge
    assert not (np.asarray(draw(tiles["true outline"], 100)) == PREDICTED).all(axis=2).any()


def test_a_detector_that_finds_nothing_anywhere_abstains(tmp_path: Path) -> None:
    source = Cards(6, phrases=1)
    with PredictionWriter(tmp_path / "p", source="cards", model="detector") as writer:
        for study in source:
            writer.write(Prediction(study.id, "phrase:0", "none", Query("x"), Grounding(boxes=[])))
    found = audit(tmp_path / "p", source, tmp_path / "out", sureness=QUICK, cases=0).result["abstention"]
    assert found["given"]
    assert found["ever"]


@pytest.mark.parametrize("side", [64, 128])
def test_a_flat_map_is_called_flat_whatever_the_size_of_the_mask(tmp_path: Path, side: int) -> None:
    class Resized(Cards):
        def _build(self, position: int) -> Study:
            study = super()._build(position)
            pixels = np.zeros((side, side), dtype=bool)
            pixels[: side // 8, : side // 8] = True
            return replace(study, phrases=(replace(study.phrases[0], mask=Mask(pixels)),))

    source = Resized(4)
    peaked = np.full((8, 8), 0.02)
    peaked[2:4, 2:4] = 1.0

    def flagged(values: np.ndarray[tuple[int, int], np.dtype[np.float64]], name: str) -> bool:
        folder = write_answers(source, tmp_path / name, lambda *_: Heatmap(values), conditions=("none",))
        done = audit(folder, source, tmp_path / f"{name}-out", sureness=QUICK, cases=0)
        (row,) = spread(done.instances, [0.5])
        assert row["scored_pixels"] == side * side
        return "the map is nearly flat" in remarks(row)

    assert flagged(np.ones((8, 8)), "flat")
    assert not flagged(peaked, "peaked")


def test_names_of_conditions_become_ids_without_blanks(tmp_path: Path) -> None:
    source = Cards(5)
    folder = write_answers(
        source, tmp_path / "p", true_map, conditions=("none", "noise image (50 %)", "noise-image 50")
    )
    done = audit(folder, source, tmp_path / "out", sureness=QUICK, cases=0)
    found = Outline()
    found.feed(done.page.read_text(encoding="utf-8"))
    identities = [value for _, name, value in found.attributes if name == "id"]
    labelled = [value for _, name, value in found.attributes if name == "aria-labelledby"]
    assert all(re.fullmatch(r"[a-z0-9@_-]+", one) for one in identities), identities
    assert len(identities) == len(set(identities))
    assert set(labelled) <= set(identities)


def test_the_next_steps_can_be_pasted_and_need_no_pandas(tmp_path: Path) -> None:
    source = Cards(5)
    folder = tmp_path / 'it\'s a "folder" of mine'
    write_answers(source, tmp_path / "p", true_map, conditions=("none",))
    from rightlung.audit.run import _next_steps

    done = audit(tmp_path / "p", source, folder, sureness=QUICK, cases=0)
    command = shlex.split(_next_steps(open_predictions(tmp_path / "p"), source, done.folder)[1])
    assert command[:2] == ["python", "-c"]
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "pandas.py").write_text("raise ImportError('not installed')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "without")}
    run = subprocess.run(
        [sys.executable, *command[1:]], capture_output=True, text=True, check=False, env=environment, timeout=120
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("'average_precision'") == 3


def test_print_shows_what_is_folded_and_wraps_commands(done: Audit) -> None:
    text = done.page.read_text(encoding="utf-8")
    printed = re.sub(r"\s+", " ", text[text.index("@media print") : text.index("</style>")])
    assert "details::details-content { content-visibility: visible; block-size: auto;" in printed
    assert "pre { white-space: pre-wrap;" in printed
    assert printed.count("{") == printed.count("}")


def test_cases_can_be_chosen_among_phrases_with_a_side_and_shown_as_asked_with_it_swapped(tmp_path: Path) -> None:
    source = Cards(12)
    folder = write_answers(source, tmp_path / "p", lambda *_: Heatmap(np.eye(4), abstention=0.25), ("none",))
    with PredictionWriter(folder, source="cards", model="known") as writer:
        for study in source:
            answer = Grounding(Heatmap(np.ones((4, 4)), abstention=0.75))
            writer.write(Prediction(study.id, "phrase:0", "swap-sides", Query("other words"), answer))
    done = audit(folder, source, tmp_path / "out", sureness=QUICK, cases=0)
    rows = spread(done.instances, [0.9, 0.5, 0.1], sided=True)
    assert [row["query"] for row in rows] == ["phrase:0"] * 3  # the only one of four that names a side
    assert len({row["study"] for row in rows}) == 3
    place = rows[0]["study"], rows[0]["query"]
    as_it_stands, swapped = (maps_of(open_predictions(folder), [place], name)[place] for name in ("none", "swap-sides"))
    assert as_it_stands == Heatmap(np.eye(4), abstention=0.25)
    assert swapped == Heatmap(np.ones((4, 4)), abstention=0.75)
