from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score

from rightlung.audit import audit
from rightlung.core import Box, Grounding, Heatmap, Phrase, Polarity, Query, ScoredBox
from rightlung.predictions import Prediction, PredictionWriter, phrase_query
from rightlung.results.estimate import BootstrapSettings
from tests.audit.oracle import NODULE, Ward

ELSEWHERE = Box(0.0, 0.9, 0.1, 1.0)


def answered(source: Ward, folder: Path, declines: dict[str, set[str]]) -> dict[str, Any]:
    """Audit a model that points at every target and at a wrong place, and declines some studies' phrases."""
    with PredictionWriter(folder / "p", source="ward", model="mine") as writer:
        for study in source:
            for index, phrase in enumerate(study.phrases):
                about = "target" if phrase.boxes else "none"
                abstention = 0.8 if study.id in declines.get(about, set()) else 0.2
                boxes = [*phrase.boxes, ELSEWHERE]
                values = np.zeros((10, 10), np.float32)
                for box in boxes[: max(1, len(boxes) - 1)]:
                    values[box.pixel_slices((10, 10))] = 1
                grounding = Grounding(Heatmap(values, abstention=abstention), [ScoredBox(box, 0.5) for box in boxes])
                writer.write(Prediction(study.id, phrase_query(index), "none", Query(phrase.text), grounding))
    settings = BootstrapSettings(resamples=100, flips=100)
    audit(folder / "p", source, folder / "out", settings=settings, cases=0)
    found: dict[str, Any] = json.loads((folder / "out/audit.json").read_text())
    return found


def test_scores_with_and_without_declined_phrases(tmp_path: Path) -> None:
    """12 nodules and 4 hearts with a target, 12 negations without; every answer also has a wrong box."""
    studies = {f"s{n}" for n in range(12)}
    declines = {"none": studies - {"s0", "s1", "s2"}, "target": {"s1", "s2"}}
    found = answered(Ward(), tmp_path, declines)["answering"]
    measures = {kind: by["model"] for kind, by in found["measures"].items()}
    assert measures["none"]["declined"]["estimate"] == 9 / 12
    assert measures["one"]["declined"]["estimate"] == 2 / 16
    assert measures["one"]["pointing"]["estimate"] == pytest.approx(14 / 16)
    assert measures["one"]["pointing_answered"]["estimate"] == 1.0
    # Regions as a classification of boxes: 14 of 16 targets are hit, and each answer has a box that hits nothing.
    true, said = [1] * 16 + [0] * 14, [1] * 14 + [0] * 2 + [1] * 14
    assert measures["one"]["region_f1"]["estimate"] == pytest.approx(f1_score(true, said))
    true, said = [1] * 14 + [0] * 14, [1] * 28
    assert measures["one"]["region_f1_answered"]["estimate"] == pytest.approx(f1_score(true, said))
    # By hand: 17 answers with abstention 0.2, of which 3 negations are wrong, before 11 with 0.8, of which 9 are wrong.
    # Expected risk at k: 3/17 up to 17, then (3 + (k - 17) * 9 / 11) / k.
    risks = [3 / 17] * 17 + [(3 + (k - 17) * 9 / 11) / k for k in range(18, 29)]
    assert found["aurc"]["model, by abstention"]["estimate"] == pytest.approx(np.mean(risks))
    assert found["measures"]["none"]["prior"]["declined"]["estimate"] == 0.0
    assert "Answering and declining" in (tmp_path / "out/audit.html").read_text()


class Pairs(Ward):
    """The same with one phrase about two nodules in each study."""

    def _build(self, position: int) -> Any:
        study = super()._build(position)
        object.__setattr__(study, "phrases", (
            Phrase("Two nodules.", tuple(NODULE.values()), findings={"nodule": Polarity.POSITIVE}),
        ))  # fmt: skip
        return study


def test_phrases_with_several_targets_have_their_own_row_and_single_ones_no_section(tmp_path: Path) -> None:
    found = answered(Pairs(), tmp_path / "several", {})["answering"]["measures"]
    assert set(found) == {"several", "all"}
    assert found["several"]["model"]["region_f1"]["estimate"] == pytest.approx(2 * 2 / (3 + 2))
