from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rightlung.audit import Audit, audit
from rightlung.audit.gallery import answers_of, at_shares, case_tiles, choose, remarks
from rightlung.core import Box, Grounding, Heatmap, InputError, Phrase, Query, ScoredBox, Study
from rightlung.core.plotting import PREDICTED
from rightlung.pages.overlays import draw
from rightlung.predictions import Prediction, PredictionWriter, open_predictions, phrase_query
from tests.audit.cards import QUICK, Cards, audited, diagonal_map, true_map


def half_right(study: Study, phrase: Phrase, text: str) -> Heatmap:
    """Right about even studies, mirrored about odd ones."""
    heatmap = true_map(study, phrase, text)
    return heatmap.mirrored() if int(study.id[5:]) % 2 else heatmap


def test_the_best_and_the_worst_are_shown_no_study_twice_and_findings_in_turn(tmp_path: Path) -> None:
    done = audited(tmp_path, Cards(20), half_right, cases=3)
    best, worst = choose(done.table, 3)
    gains = [row["average_precision"] - row["prior_average_precision"] for row in best]
    assert gains == sorted(gains, reverse=True)
    rows = [row for row in done.table.to_pylist() if row["condition"] == "none" and row["findings"] == ["lung opacity"]]
    assert gains[0] == np.nanmax([row["average_precision"] - row["prior_average_precision"] for row in rows])
    assert max(row["average_precision"] for row in worst) < 0.1 or {"cardiomegaly"} & set(worst[-1]["findings"])
    assert len({row["study"] for row in (*best, *worst)}) == 6
    for rows in (best, worst):
        assert {row["findings"][0] for row in rows} == {"lung opacity", "cardiomegaly"}
    text = done.page.read_text(encoding="utf-8")
    shown = text[text.index('id="cases"') : text.index('id="overall"')]
    assert shown.index("Best: average precision, model − prior") < shown.index("Worst: average precision")
    assert shown.count("<img ") == 18  # three pictures a case
    assert all(re.findall(r'<img [^>]*alt="([^"]*)"', shown))
    for label in ("target", "model&#39;s map", "prior&#39;s map"):
        assert shown.count(f"<figcaption>{label}") == 6
    assert "peak inside the target" in shown
    wrong = "wrong side: peak on the patient&#39;s {}, target on the {}"
    assert wrong.format("left", "right") in shown or wrong.format("right", "left") in shown


def test_remarks_say_what_the_numbers_of_a_case_show() -> None:
    row: dict[str, Any] = {
        "reason": "", "target_side": "left", "peak_side": "left", "peak_on_side": 1.0, "pointing": 0.0, "entropy": 8.3,
        "scored_pixels": 64 * 64, "abstention": 0.75, "target_size": "small", "target_area": 0.0004,
        "average_precision": 0.1, "prior_average_precision": 0.2,
    }  # fmt: skip
    assert remarks(row) == [
        "peak misses the target but is on the correct side",
        "map nearly flat",
        "model abstains (0.75)",
        "small target (0.04 % of the image)",
        "the image-blind prior scores higher",
    ]
    assert "map nearly flat" not in remarks(row | {"scored_pixels": 128 * 128})  # a flat one has 9.7 nats
    good = {"pointing": 1.0, "entropy": 1.0, "abstention": 0.0, "target_size": "large", "average_precision": 0.9}
    assert remarks(row | good) == ["peak inside the target"]
    wrong = good | {"peak_side": "right", "peak_on_side": 0.0}
    assert remarks(row | wrong) == ["wrong side: peak on the patient's right, target on the left"]


def test_a_study_whose_image_cannot_be_read_leaves_a_case_without_pictures(tmp_path: Path) -> None:
    class Broken(Cards):
        def _build(self, position: int) -> Study:
            def load() -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
                raise InputError(f"card-{position}.png is damaged")

            return replace(super()._build(position), load=load)

    text = audited(tmp_path, Broken(5), diagonal_map, ("none",), cases=1).page.read_text(encoding="utf-8")
    assert "<img" not in text
    assert "is damaged" in text


def detected(folder: Path, boxes: list[ScoredBox]) -> Audit:
    """Audit a detector that answers everything with these boxes."""
    source = Cards(6, phrases=3)
    with PredictionWriter(folder / "p", source="cards", model="detector") as writer:
        for study in source:
            for index, phrase in enumerate(study.phrases):
                answer = Prediction(study.id, phrase_query(index), "none", Query(phrase.text), Grounding(boxes=boxes))
                writer.write(answer)
    return audit(folder / "p", source, folder / "out", settings=QUICK, cases=1)


def test_the_boxes_of_a_detector_are_drawn_and_it_gives_no_abstention(tmp_path: Path) -> None:
    done = detected(tmp_path, [ScoredBox(Box(0.1, 0.2, 0.4, 0.6), 0.7)])
    text = done.page.read_text(encoding="utf-8")
    assert text.count("<figcaption>model&#39;s boxes</figcaption>") == 3  # typical, best and worst
    assert "The predictions contain no abstention values." in text
    assert "never abstains" not in text
    (row,) = at_shares(done.table, [0.5])
    place = row["study"], row["query"]
    answer = answers_of(open_predictions(tmp_path / "p"), [place])[place]
    tiles = dict(case_tiles(row, Cards(6), answer.grounding, None))
    pixels = np.asarray(draw(tiles["model's boxes"], 100))[-100:]
    assert tuple(pixels[20, 25]) == PREDICTED  # the middle of the box's upper edge
    assert not (np.asarray(draw(tiles["target"], 100)) == PREDICTED).all(axis=2).any()


def test_a_detector_that_finds_nothing_anywhere_abstains(tmp_path: Path) -> None:
    done = detected(tmp_path, [])
    assert (done.found.abstention.given, done.found.abstention.ever) == (True, True)
    assert "<figcaption>model predicts no box</figcaption>" in done.page.read_text(encoding="utf-8")


def test_cases_can_be_chosen_among_phrases_with_a_side_and_shown_as_asked_with_it_swapped(tmp_path: Path) -> None:
    def doubting(study: Study, phrase: Phrase, text: str) -> Heatmap:
        return Heatmap(np.eye(4), abstention=0.25 if text == phrase.text else 0.75)

    done = audited(tmp_path, Cards(12), doubting)
    rows = at_shares(done.table, [0.9, 0.5, 0.1], sided=True)
    assert [row["query"] for row in rows] == ["phrase:0"] * 3  # the only one of four that names a side
    assert len({row["study"] for row in rows}) == 3
    place = rows[0]["study"], rows[0]["query"]
    for condition, abstention in (("none", 0.25), ("swap-sides", 0.75)):
        answer = answers_of(open_predictions(tmp_path / "p"), [place], condition)[place].grounding
        assert answer is not None
        assert answer.heatmap == Heatmap(np.eye(4), abstention=abstention)
