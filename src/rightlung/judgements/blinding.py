"""Blinding: codes in place of model names, the key from codes to names, and the check that a table has no names.

In "That's the Wrong Lung!" (section A.7), annotators do not know which model made a heatmap. A model keeps its code for
the whole study, so that the table can be analysed without the key; the order of models is randomised instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rightlung.core import InputError
from rightlung.core.frozen import FrozenMapping
from rightlung.core.keyed import text_generator
from rightlung.core.problem import Problem
from rightlung.judgements.judgement import write_new_csv
from rightlung.studies.tables import CsvTable

CODE = re.compile(r"[A-Z]{1,2}[0-9]{1,3}")
"""Format of a code, chosen so that hardly any model name matches it."""

CODE_FORMAT = "a code of one or two capital letters and up to three digits, such as 'A7'"
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"  # I and O look like digits
_DIGITS = "23456789"


@dataclass(frozen=True)
class BlindingKey:
    """The mapping from codes to models. Annotators must not see it."""

    models: Mapping[str, str]
    """Model name by code; each model has one code."""

    def __post_init__(self) -> None:
        if not self.models:
            raise InputError("the key has no model; it needs at least one")
        seen: dict[str, str] = {}
        for code, name in self.models.items():
            if not CODE.fullmatch(code):
                raise InputError(f"key: expected {CODE_FORMAT}; got {code!r}")
            if not name.strip():
                raise InputError(f"key: code {code!r} has no model")
            if name in seen:
                raise InputError(f"key: model {name!r} has two codes, {seen[name]!r} and {code!r}")
            if any(same_name(code, other) for other in self.models.values()):
                raise InputError(f"key: code {code!r} is also the name of a model; choose another code")
            seen[name] = code
        object.__setattr__(self, "models", FrozenMapping(self.models))

    @property
    def codes(self) -> tuple[str, ...]:
        """All codes in alphabetical order, which is unrelated to the models."""
        return tuple(sorted(self.models))


def same_name(first: str, second: str) -> bool:
    """Return whether two names are equal, ignoring case and punctuation.

    >>> same_name("gloria no-attn", "GLoRIA No Attn")
    True
    """
    bare = ["".join(character for character in name.casefold() if character.isalnum()) for name in (first, second)]
    return bare[0] == bare[1]


def check_names(kind: str, names: Sequence[str]) -> None:
    """Raise an error for blank or duplicate names."""
    for name in names:
        if not name.strip():
            raise InputError(f"one {kind} has a blank name")
        if list(names).count(name) > 1:
            raise InputError(f"{kind} {name!r} is given twice")


def blind(models: Sequence[str], seed: int) -> BlindingKey:
    """Return a key with a random code for each model; the order of the models does not matter."""
    names = sorted(models)
    check_names("model", names)
    codes = (letter + digit for letter in _LETTERS for digit in _DIGITS)
    possible = [code for code in codes if not any(same_name(code, name) for name in names)]
    if len(names) > len(possible):
        raise InputError(f"at most {len(possible)} models can have a code; got {len(names)}")
    generator = text_generator(seed, "codes")
    drawn = generator.choice(len(possible), size=len(names), replace=False)
    return BlindingKey({possible[place]: name for place, name in zip(drawn.tolist(), names, strict=True)})


def blinding_fault(model: str, key: BlindingKey | None, names: Iterable[str] = ()) -> str | None:
    """Return why the ``model`` of a row is not blinded, ``None`` if it is a valid code."""
    known = {*names, *(key.models.values() if key is not None else ())}
    if any(same_name(model, name) for name in known):
        return f"expected a code such as 'A7'; got the model name {model!r}, so the table is not blinded"
    if not CODE.fullmatch(model):
        return f"expected {CODE_FORMAT}; got {model!r}, which may be a model name"
    return None


def read_key(path: str | Path) -> BlindingKey:
    """Read a key from a CSV file with the columns ``code`` and ``model``."""
    problems: list[Problem] = []
    table = CsvTable(path, ("code", "model"), problems=problems)
    models: dict[str, str] = {}
    for row in table:
        code = row.required("code")
        if code in models:
            raise row.error("code", f"code {code!r} is used twice")
        models[code] = row.required("model")
    if problems:
        raise InputError(str(problems[0]))
    try:
        return BlindingKey(models)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def write_key(key: BlindingKey, path: str | Path) -> None:
    """Write a key to a new file; raise an error if the file exists."""
    write_new_csv(Path(path), "key", [("code", "model"), *((code, key.models[code]) for code in key.codes)])
