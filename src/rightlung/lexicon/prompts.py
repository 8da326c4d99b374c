"""Prompts for findings: what a radiologist would write if it were there, and if it were not.

The templates stand in ``data/prompts.toml``. None of them names a side; ``prompt`` adds the side and the place.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

from rightlung.lexicon.findings import FINDINGS, Finding, find, finding
from rightlung.lexicon.loading import Table, not_known, read_data
from rightlung.lexicon.regions import region as find_region

PromptPolarity = Literal["positive", "negative"]

_FILE = "prompts.toml"
_ADJECTIVE = {"left": "left", "right": "right", "both": "bilateral"}


@cache
def _tables() -> tuple[Table, Table, Table]:
    data = Table(_FILE, "", read_data(_FILE))
    tables = data.table("templates"), data.table("instead"), data.table("also")
    data.done()
    for table in tables[1:]:
        for name, entry in table.entries.items():
            if name not in FINDINGS:
                table.fail(name, "is not a finding")
            prompts = Table(_FILE, f"{table.name}.{name}", entry)
            prompts.texts("positive")
            prompts.texts("negative")
            prompts.done()
    return tables


def _with_article(found: Finding) -> str:
    if not found.count:
        return found.phrase
    return f"{'an' if found.phrase[0] in 'aeiou' else 'a'} {found.phrase}"


@cache
def _prompts(name: str, polarity: PromptPolarity) -> tuple[str, ...]:
    found = finding(name)
    templates, instead, also = _tables()
    if found.name in instead.entries:
        return instead.table(found.name).texts(polarity)
    filled = (
        template.replace("{finding}", found.phrase).replace("{a finding}", _with_article(found))
        for template in templates.texts(polarity)
    )
    return tuple(dict.fromkeys((*filled, *also.table(found.name).texts(polarity))))


def positive_prompts(finding_name: str) -> tuple[str, ...]:
    """Return sentences that say the finding is there; the first is the plain phrase."""
    return _prompts(finding_name, "positive")


def negative_prompts(finding_name: str) -> tuple[str, ...]:
    """Return sentences that say the finding is not there."""
    return _prompts(finding_name, "negative")


def prompt(
    finding_name: str,
    polarity: str = "positive",
    side: str | None = None,
    region: str | None = None,
) -> str:
    """Return one plain phrase for a finding, with its side (``left``, ``right``, ``both``) and place where given.

    A name that the lexicon does not know is used as it stands, in lower case: data sets carry labels of their own. A
    side for a finding that has none (cardiomegaly), or one that contradicts the region's, is an error.

    >>> prompt("pleural effusion", side="left"), prompt("nodule", region="right upper lung zone")
    ('left pleural effusion', 'nodule in the right upper lung zone')
    """
    if polarity not in ("positive", "negative"):
        not_known("polarity", polarity, ("positive", "negative"))
    if side is not None and side not in _ADJECTIVE:
        not_known("side", side, _ADJECTIVE)
    found = find(finding_name)
    words = finding_name.strip().lower() if found is None else found.phrase
    if found is not None and side is not None and not found.sided:
        from rightlung.core.errors import InputError

        raise InputError(f"finding {found.name!r} has no side; got side {side!r}")
    place = ""
    if region is not None:
        where = find_region(region)
        place = f" {where.preposition} the {where.spoken}"
        if side is not None and where.side != "none":
            if side != where.side:
                from rightlung.core.errors import InputError

                raise InputError(f"side {side!r} contradicts region {where.name!r}")
            side = None
    if side == "both" and found is not None:
        words = found.plural
    if side is not None:
        words = f"{_ADJECTIVE[side]} {words}"
    if polarity == "positive":
        return words + place
    if found is not None and found.name == "no finding":
        return negative_prompts(found.name)[0] + place
    return f"no {words}{place}"
