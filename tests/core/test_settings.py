from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from rightlung.core import InputError
from rightlung.core.settings import plain_settings, read_settings


@dataclass(frozen=True)
class Inner:
    rate: float = 0.5
    kind: Literal["a", "b"] = "a"
    betas: tuple[float, float] = (0.9, 0.99)


@dataclass(frozen=True)
class Outer:
    steps: int
    inner: Inner = field(default_factory=Inner)
    names: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    note: str | None = None
    on: bool = False

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"steps must be at least 1; got {self.steps}")


def test_what_is_given_is_read_and_the_rest_is_the_default() -> None:
    inner = {"rate": 1, "betas": [0.1, 0.2]}
    read = read_settings(Outer, {"steps": 3, "inner": inner, "names": ["x"], "options": {"deep": [1]}, "on": True})
    assert read == Outer(3, Inner(1.0, "a", (0.1, 0.2)), ("x",), {"deep": [1]}, None, True)
    assert read_settings(Outer, plain_settings(read)) == read


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "^steps is missing"),
        ({"steps": 1, "iner": {}}, "unknown field of Outer 'iner'; did you mean 'inner'"),
        ({"steps": 1, "inner": {"rat": 1}}, "unknown field of inner 'rat'; did you mean 'rate'"),
        ({"steps": 1.5}, "steps must be a whole number; got 1.5"),
        ({"steps": True}, "steps must be a whole number; got True"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"steps": 1, "inner": {"rate": "fast"}}, "inner.rate must be a number; got 'fast'"),
        ({"steps": 1, "inner": {"rate": float("nan")}}, "inner.rate must be finite"),
        ({"steps": 1, "inner": {"kind": "c"}}, "unknown inner.kind 'c'"),
        ({"steps": 1, "inner": {"betas": [1]}}, "inner.betas must be a list of 2"),
        ({"steps": 1, "inner": 3}, "inner must be a table of settings; got 3"),
        ({"steps": 1, "names": "abc"}, "names must be a list; got 'abc'"),
        ({"steps": 1, "names": ["a", 2]}, r"names\[1\] must be a text; got 2"),
        ({"steps": 1, "options": [1]}, "options must be a table"),
        ({"steps": 1, "on": "yes"}, "on must be true or false"),
        ([1], "Outer must be a table of settings"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(given: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_settings(Outer, given)
