"""A damaged file is a sentence, whatever was damaged."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from rightlung.core import Box, Grounding, Heatmap, InputError, Query, ScoredBox, Sentence
from rightlung.predictions import Prediction, PredictionWriter, check_predictions, open_predictions


def test_any_damaged_bytes_are_refused_in_words_or_change_nothing_that_is_checked(tmp_path: Path) -> None:
    whole = Box(0, 0, 1, 1)
    with PredictionWriter(tmp_path / "p", source="s", model="m", run={"seed": 1}) as writer:
        for number in range(4):
            values = np.random.default_rng(number).random((7, 7), dtype=np.float32)
            grounding = Grounding(Heatmap(values), (ScoredBox(whole, 0.5, "edema"),))
            sentences = (Sentence("Clear.", (whole,), 0.5, "lungs"),)
            writer.write(
                Prediction(
                    f"s{number}", "phrase:0", "none", Query("x", whole), grounding, 0.5, 0.5, sentences, {"a": 1}
                )
            )
    good = (tmp_path / "p" / "part-00000.parquet").read_bytes()
    chance = random.Random(5)
    damaged_file = tmp_path / "damaged.parquet"
    refused = 0
    for _ in range(80):
        damaged = bytearray(good)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        damaged_file.write_bytes(damaged)
        problems = check_predictions(damaged_file)
        if problems:
            refused += 1
            with pytest.raises(InputError, match=r"damaged\.parquet"):
                list(open_predictions(damaged_file))
        else:
            assert len(list(open_predictions(damaged_file))) == 4
    assert refused > 40
