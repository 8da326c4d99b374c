"""What the whole lexicon shares: texts are asked for, and what is none is refused."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from rightlung import lexicon
from rightlung.core.errors import InputError


@pytest.mark.parametrize("value", [None, 3, b"left", ["edema"]])
@pytest.mark.parametrize(
    "ask",
    [lexicon.find, lexicon.finding, lexicon.label_set, lambda name: lexicon.label_map(name, "siim"),
     lexicon.label_map("siim", "nih-14").apply, lexicon.region, lexicon.mirror_region, lexicon.ancestors,
     lexicon.descendants, lexicon.swap_sides, lexicon.sides_in, lexicon.side_of, lexicon.find_sections,
     lexicon.split_sentences],
)  # fmt: skip
def test_what_is_no_text_is_an_error_that_names_it(ask: Callable[[Any], object], value: Any) -> None:
    with pytest.raises(InputError, match=f"must be a string; got {re.escape(repr(value))}"):
        ask(value)


@pytest.mark.parametrize(
    ("ask", "name", "problem"),
    [
        (lexicon.finding, "pnuemothorax", "unknown finding 'pnuemothorax'; did you mean 'pneumothorax'?"),
        (lexicon.region, "left lugn", "unknown region 'left lugn'; did you mean 'left lung'?"),
        (lexicon.label_set, "chexpert", "unknown label set 'chexpert'; did you mean 'chexpert-14'"),
        (lexicon.label_map("nih-14", "chexpert-14").apply, "Infiltrate",
         "unknown label of nih-14 'Infiltrate'; did you mean 'Infiltration'"),
    ],
)  # fmt: skip
def test_an_unknown_name_is_an_error_that_offers_the_nearest(
    ask: Callable[[str], object], name: str, problem: str
) -> None:
    with pytest.raises(InputError, match=re.escape(problem)):
        ask(name)
