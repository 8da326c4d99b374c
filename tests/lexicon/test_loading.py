"""What the whole lexicon shares: texts are asked for, and what is none is refused."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from rightlung.core.errors import InputError
from rightlung.lexicon import (
    ancestors,
    descendants,
    find,
    find_sections,
    finding,
    label_map,
    label_set,
    mirror_region,
    region,
    side_of,
    sides_in,
    split_sentences,
    swap_sides,
)


@pytest.mark.parametrize("value", [None, 3, b"left", ["edema"]])
@pytest.mark.parametrize(
    "ask",
    [find, finding, label_set, lambda name: label_map(name, "siim"), label_map("siim", "nih-14").apply, region,
     mirror_region, ancestors, descendants, swap_sides, sides_in, side_of, find_sections, split_sentences],
)  # fmt: skip
def test_what_is_no_text_is_an_error_that_names_it(ask: Callable[[Any], object], value: Any) -> None:
    with pytest.raises(InputError, match=f"must be a text; got {re.escape(repr(value))}"):
        ask(value)
