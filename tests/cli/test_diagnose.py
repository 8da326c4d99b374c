from __future__ import annotations

from pathlib import Path

import numpy as np

from rightlung import open_source
from rightlung.core import Grounding, Heatmap, Query
from rightlung.predictions import Prediction, PredictionWriter, phrase_query
from tests.cli.conftest import Run, found


def test_diagnose_names_the_convention_and_writes_the_page(call: Run, tmp_path: Path) -> None:
    address, chance = "phantom?count=6&size=64&seed=5", np.random.default_rng(0)
    with PredictionWriter(tmp_path / "p", source=address, model="random") as writer:
        for study in open_source(address):
            for index, phrase in enumerate(study.phrases):
                grounding = Grounding(Heatmap(chance.random((8, 8), np.float32)))
                writer.write(Prediction(study.id, phrase_query(index), "none", Query(phrase.text), grounding))
    ours = found(call("diagnose", "p", "--measure", "iou@10", "--published", "0.999", "--json"))["ours"]["value"]
    result = call("diagnose", "p", address, "--measure", "iou@10", "--published", f"{ours:.3f}", "--out", "d")
    assert result.returncode == 0
    assert f"✓ Our convention reproduces {ours:.3f} (±0.0005)." in result.stderr
    assert {path.name for path in (tmp_path / "d").iterdir()} >= {"diagnosis.html", "diagnosis.md", "diagnosis.json"}


def test_diagnose_refuses_a_word_for_a_number(call: Run) -> None:
    result = call("diagnose", "p", "--measure", "miou", "--published", "half")
    assert result.returncode == 2
    assert "--published must be a number as printed, such as 0.475 or 47.5; got 'half'" in result.stderr
