from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rightlung.core import InputError
from rightlung.judgements import BlindingKey, blind, read_key, write_key

MODELS = ["GLoRIA", "retrained", "no-attn", "abnormal", "few-shot"]


def test_codes_follow_from_the_seed_and_not_from_the_order_of_the_models() -> None:
    assert blind(MODELS, 3) == blind(MODELS[::-1], 3)
    assert blind(MODELS, 3) != blind(MODELS, 4)
    ranks = {tuple(key.models[code] for code in key.codes) for key in (blind(MODELS, seed) for seed in range(30))}
    for seed in range(50):
        assert not {"A2", "A3"} & set(blind(["A2", "a3", "B4", "c5"], seed).models)  # a code is never a model's name
    assert sorted(blind(MODELS, 3).models.values()) == sorted(MODELS)
    assert len(ranks) > 20  # the alphabetical order of the codes does not give the models away


@pytest.mark.parametrize(
    ("make", "given", "said"),
    [
        (BlindingKey, {}, "needs at least one"),
        (BlindingKey, {"no-attn": "no-attn"}, "expected a code of one or two capital letters"),
        (BlindingKey, {"A7": "x", "B7": "x"}, "has two codes"),
        (BlindingKey, {"A7": " "}, "'A7' has no model"),
        (BlindingKey, {"A7": "R50", "R50": "x"}, "also the name of a model"),
        (partial(blind, seed=0), ["a", "a"], "given twice"),
        (partial(blind, seed=0), ["a", " "], "blank"),
        (partial(blind, seed=0), [f"model {number}" for number in range(193)], "at most 192 models"),
    ],
)
def test_models_and_codes_that_do_not_go_together_are_refused(
    make: Callable[[Any], Any], given: Any, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        make(given)


def test_a_key_is_written_once_and_read_back(tmp_path: Path) -> None:
    key = blind([*MODELS, 'with, "quotes"'], 1)
    write_key(key, tmp_path / "key.csv")
    assert read_key(tmp_path / "key.csv") == key
    with pytest.raises(InputError, match="not overwritten"):
        write_key(key, tmp_path / "key.csv")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("code,model\nA7,x\nA7,y\n", "line 3, field code: code 'A7' is used twice"),
        ("code,model\nA7,\n", "line 2, field model: is empty"),
        ("code,name\nA7,x\n", "has no column 'model'"),
        ("code,model\nA7\n", "line 2: the row has 1 cells"),
        ("code,model\n", "needs at least one"),
    ],
)
def test_a_bad_key_file_is_refused_in_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "key.csv").write_text(text)
    with pytest.raises(InputError, match=rf"key\.csv.*{said}"):
        read_key(tmp_path / "key.csv")
