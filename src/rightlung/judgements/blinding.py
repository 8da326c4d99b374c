"""Codes instead of models' names, the key that leads back, and the check that no name stands in a table.

The instructions of "That's the Wrong Lung!" (section A.7) promise that annotators are not told which model drew a
heatmap; a table with a name in it shows that they could know. A model keeps its code through the whole study, so that
an analysis does not need the key; what is drawn by chance for every annotator and prompt is the order.
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
"""What a code looks like: short and without meaning, so that hardly any model's name can pass for one."""

_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"  # I and O look like digits
_DIGITS = "23456789"


@dataclass(frozen=True)
class BlindingKey:
    """Which code stands for which model. Annotators must not see it."""

    models: Mapping[str, str]
    """From code to model's name, one code a model."""

    def __post_init__(self) -> None:
        if not self.models:
            raise InputError("a key needs at least one model")
        seen: dict[str, str] = {}
        for code, name in self.models.items():
            if not CODE.fullmatch(code):
                raise InputError(f"key: the code {code!r} must be a letter or two and up to three digits, such as 'A7'")
            if not name.strip():
                raise InputError(f"key: the code {code!r} stands for no model")
            if name in seen:
                raise InputError(f"key: the model {name!r} has two codes, {seen[name]!r} and {code!r}")
            if any(alike(code, other) for other in self.models.values()):
                raise InputError(f"key: {code!r} is a code and a model's name as well, so that it hides nothing")
            seen[name] = code
        object.__setattr__(self, "models", FrozenMapping(self.models))

    @property
    def codes(self) -> tuple[str, ...]:
        """All codes in their alphabetical order, which says nothing about the models."""
        return tuple(sorted(self.models))


def alike(first: str, second: str) -> bool:
    """Whether two names are the same but for case and punctuation.

    >>> alike("gloria no-attn", "GLoRIA No Attn")
    True
    """
    bare = ["".join(character for character in name.casefold() if character.isalnum()) for name in (first, second)]
    return bare[0] == bare[1]


def check_names(kind: str, names: Sequence[str]) -> None:
    """Refuse blank and doubled names."""
    for name in names:
        if not name.strip():
            raise InputError(f"the name of one {kind} is blank")
        if list(names).count(name) > 1:
            raise InputError(f"the {kind} {name!r} is named twice")


def blind(models: Sequence[str], seed: int) -> BlindingKey:
    """Draw a code for every model; the same models (in any order) and seed give the same key."""
    names = sorted(models)
    check_names("model", names)
    codes = (letter + digit for letter in _LETTERS for digit in _DIGITS)
    possible = [code for code in codes if not any(alike(code, name) for name in names)]
    if len(names) > len(possible):
        raise InputError(f"there are codes for {len(possible)} models, not for {len(names)}")
    generator = text_generator(seed, "codes")
    drawn = generator.choice(len(possible), size=len(names), replace=False)
    return BlindingKey({possible[place]: name for place, name in zip(drawn.tolist(), names, strict=True)})


def blinding_fault(model: str, key: BlindingKey | None, names: Iterable[str] = ()) -> str | None:
    """Say how a table's ``model`` gives the model away, ``None`` where it is a proper code."""
    known = {*names, *(key.models.values() if key is not None else ())}
    if any(alike(model, name) for name in known):
        return f"is a model's name, {model!r}: judgements must be blinded, with a code such as 'A7' here"
    if not CODE.fullmatch(model):
        code = "a blinded code, a letter or two and up to three digits such as 'A7'"
        return f"must be {code}; got {model!r}, which may be a model's name"
    return None


def read_key(path: str | Path) -> BlindingKey:
    """Read a key, a CSV table of the columns ``code`` and ``model``."""
    problems: list[Problem] = []
    table = CsvTable(path, ("code", "model"), problems=problems)
    models: dict[str, str] = {}
    for row in table:
        code = row.required("code")
        if code in models:
            raise row.error("code", f"the code {code!r} stands here twice")
        models[code] = row.required("model")
    if problems:
        raise InputError(str(problems[0]))
    try:
        return BlindingKey(models)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def write_key(key: BlindingKey, path: str | Path) -> None:
    """Write a key; a file that is there already is refused."""
    write_new_csv(Path(path), "key", [("code", "model"), *((code, key.models[code]) for code in key.codes)])
