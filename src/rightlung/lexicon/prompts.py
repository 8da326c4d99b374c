"""Prompts for findings: sentences that a radiologist would write if the finding were present, or absent.

The templates are in ``data/prompts.toml``. None of them names a side; `prompt` adds side and region.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

from rightlung.core.errors import InputError, unknown_name
from rightlung.lexicon.data_files import DataTable, check_text, read_data
from rightlung.lexicon.findings import FINDINGS, Finding, find, finding
from rightlung.lexicon.laterality import side_of
from rightlung.lexicon.regions import Region
from rightlung.lexicon.regions import region as find_region

PromptPolarity = Literal["positive", "negative"]

_FILE = "prompts.toml"
_ADJECTIVE = {"left": "left", "right": "right", "both": "bilateral"}


@cache
def _tables() -> tuple[DataTable, DataTable, DataTable, DataTable]:
    data = DataTable(_FILE, "", read_data(_FILE))
    tables = data.table("templates"), data.table("diagnosis"), data.table("instead"), data.table("also")
    data.done()
    for table in tables[2:]:
        for name in table.entries:
            if name not in FINDINGS:
                table.fail(name, "is not a finding")
            prompts = table.table(name)
            prompts.texts("positive")
            prompts.texts("negative")
            prompts.done()
    return tables


@cache
def _prompts(name: str, polarity: PromptPolarity) -> tuple[str, ...]:
    found = FINDINGS[name]
    templates, diagnosis, instead, also = _tables()
    if name in instead.entries:
        return instead.table(name).texts(polarity)
    article = "" if found.plural or not found.count else "an " if found.phrase[0] in "aeiou" else "a "
    filled = (
        template.replace("{finding}", found.phrase)
        .replace("{a finding}", article + found.phrase)
        .replace("{is}", "are" if found.plural else "is")
        for template in (*templates.texts(polarity), *(diagnosis.texts(polarity) if found.diagnosis else ()))
    )
    return tuple(dict.fromkeys((*filled, *also.table(name).texts(polarity))))


def positive_prompts(finding_name: str) -> tuple[str, ...]:
    """Return sentences that state the finding; the first is the plain phrase."""
    return _prompts(finding(finding_name).name, "positive")


def negative_prompts(finding_name: str) -> tuple[str, ...]:
    """Return sentences that negate the finding."""
    return _prompts(finding(finding_name).name, "negative")


def prompt(finding_name: str, polarity: str = "positive", side: str | None = None, region: str | None = None) -> str:
    """Return one plain phrase for a finding, with its side (``left``, ``right``, ``both``) and region if given.

    An unknown name is used unchanged, in lower case, because data sets have labels of their own. It is an error to give
    a side or region that the finding cannot have, or a side that contradicts the region.

    >>> prompt("pleural effusion", side="left"), prompt("nodule", region="right upper lung zone")
    ('left pleural effusion', 'nodule in the right upper lung zone')
    """
    if not check_text(finding_name, "a finding's name").strip():
        raise InputError("a prompt needs the name of a finding; got an empty one")
    if polarity not in ("positive", "negative"):
        raise unknown_name("polarity", check_text(polarity, "a polarity"), ("positive", "negative"))
    if side is not None and check_text(side, "a side") not in _ADJECTIVE:
        raise unknown_name("side", side, _ADJECTIVE)
    where = None if region is None else find_region(region)
    if where is not None and side is not None and where.side not in ("none", side):
        raise InputError(f"side {side!r} contradicts region {where.name!r}")
    found = find(finding_name)
    if found is None:
        return _unknown_prompt(" ".join(finding_name.lower().split()), polarity == "positive", side, where)
    return _known_prompt(found, polarity == "positive", side, where)


def _unknown_prompt(label: str, positive: bool, side: str | None, where: Region | None) -> str:
    """Return the phrase for a label that is not a finding's name; a label that names a side accepts no other."""
    named = side_of(label)
    if named is not None and side is not None:
        raise InputError(f"label {label!r} already names a side; got side {side!r}")
    if named is not None and where is not None and where.side not in ("none", named):
        raise InputError(f"label {label!r} contradicts region {where.name!r}")
    words = f"{_ADJECTIVE[side]} {label}" if side is not None and (where is None or where.side == "none") else label
    return ("" if positive else "no ") + words + _place(where, None)


def _known_prompt(found: Finding, positive: bool, side: str | None, where: Region | None) -> str:
    if side is not None and side not in found.sides:
        can = f"can be {' or '.join(found.sides)}" if found.sides else "has no side"
        raise InputError(f"finding {found.name!r} {can}; got side {side!r}")
    if where is not None:
        if not found.can_lie_in(where.name):
            raise InputError(f"finding {found.name!r} cannot be in region {where.name!r}")
        if found.implies(where.name):
            side = where.side if where.side in found.sides else side
            where = None
        elif where.side != "none":
            side = None
    place = _place(where, found.preposition)
    if not positive and found.negation:
        one_side = side if side in ("left", "right") else ""
        return " ".join(found.negation.replace("{side}", one_side).split()) + place
    if not positive and found.name == "no finding":
        return negative_prompts(found.name)[0]
    words = found.both_sides if side == "both" else found.one_side.replace("{side}", side) if side else found.phrase
    return ("" if positive else "no ") + words + place


def _place(where: Region | None, preposition: str | None) -> str:
    return "" if where is None else f" {preposition or where.preposition} the {where.spoken}"
