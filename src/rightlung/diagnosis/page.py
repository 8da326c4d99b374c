"""Lay out the page of a diagnosis: what reproduces the number, and what each convention changes alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rightlung.pages.content import Cell, Column, MarkedSentence, Page, Section, Table
from rightlung.pages.figures import IntervalPanel, panel_figure
from rightlung.pages.numbers import number, span
from rightlung.results.estimate import Estimate

if TYPE_CHECKING:
    from rightlung.diagnosis.run import Diagnosis, Rescored

_CHANCE = (
    "Many conventions are tried, so that some may fit by chance: the fewer differences a convention has, and the "
    "better they suit what the paper and its code say, the more it can be believed."
)


def digits_of(result: dict[str, Any]) -> int:
    """Return the decimals to print: one more than were published."""
    return max(3, len(f"{2 * result['tolerance']:.10f}".rstrip("0").partition(".")[2]) + 1)


def verdict(done: Diagnosis) -> MarkedSentence:
    """Say whether a convention reproduces the number."""
    result, digits = done.result, digits_of(done.result)
    wanted = f"{number(result['published'], digits - 1)} (±{result['tolerance']:g})"
    chance = f"{result['tried']:,} conventions tried; {result['expected_by_chance']:g} expected to fit by chance."
    if not done.found:
        one = done.nearest[0]
        return MarkedSentence(
            "no", f"None does: no known convention gives {wanted}.",
            f"The nearest is {number(one.value, digits)}, with {described(one)}. {chance}",
        )  # fmt: skip
    first = done.found[0]
    if not first.says:
        return MarkedSentence("yes", f"Our convention reproduces {wanted}.", f"{number(first.value, digits)}. {chance}")
    count = len(done.found)
    several = f"{count} conventions reproduce" if count > 1 else "One convention reproduces"
    detail = f"Nearest to ours: {number(first.value, digits)}, with {described(first)}. "
    ours = f"Ours gives {span(done.ours.estimate, digits)}. "
    found = f"{several} {wanted}; ours does not"
    if count > result["expected_by_chance"]:
        return MarkedSentence("yes", f"{found}.", detail + ours + chance)
    tried = f"{result['tried']:,} conventions were tried, of which {result['expected_by_chance']:g}"
    by_chance = f"No better than chance: {tried} are expected to fit by chance."
    return MarkedSentence("unclear", f"{found}. {by_chance}", (detail + ours).strip())


def described(one: Rescored) -> str:
    """Return the differences of a convention from ours, as a phrase."""
    return "; ".join(one.says) or "our convention"


def rows_of(some: Sequence[Rescored], result: dict[str, Any]) -> list[list[str]]:
    """Return the rows of a table: value, distance, and differences from our convention."""
    digits = digits_of(result)
    return [
        [
            number(one.value, digits) if one.estimate is None else span(one.estimate, digits, brief=True),
            number(one.value - result["published"], digits + 1, signed=True), str(len(one.says)), described(one),
        ]
        for one in some
    ]  # fmt: skip


HEADER = ["value", "− published", "differences", "difference from our convention"]


def make_page(done: Diagnosis) -> Page:
    """Return the page of a diagnosis."""
    result = done.result
    said = verdict(done)
    listed, title = (done.found, "Reproduced by") if done.found else (done.nearest, "Nearest conventions")
    columns = [Column(HEADER[0]), Column(HEADER[1]), Column(HEADER[2]), Column(HEADER[3], "text")]
    rows = [[*map(Cell, row)] for row in rows_of([done.ours, *(one for one in listed if one.says)], result)]
    basis = f"{result['instances']:,} instances of {result['patients']:,} patients; 95 % intervals over patients."
    caption = f"First ours, then fewest differences first. {basis}"
    sections = [
        Section("verdict", "Verdict", verdict=[said]),
        Section("found", title, [_CHANCE], parts=[Table("found", title, caption, columns, rows)]),
    ]
    if len(done.alone) > 1:
        changed = [one for one in done.alone if abs(one.value - done.ours.value) > 1e-9]
        alone = [done.ours, *sorted(changed, key=lambda one: -one.value)]
        silent = [one.says[0] for one in done.alone if one.says and one not in changed]
        panel = IntervalPanel(
            title=result["measure"], line=result["published"], series={"value": [Estimate(one.value) for one in alone]}
        )
        labels = ["our convention", *(one.says[0] for one in alone[1:])]
        caption = "The number if only this convention differs from ours; the line is the published number."
        figure = panel_figure("alone", "One difference", caption, labels, [panel], references=labels[:1])
        without = [f"Without effect here: {'; '.join(silent)}."] if silent else []
        sections.append(Section("alone", "What each convention changes", without, parts=[figure]))
    facts = {
        name: str(result[name]) for name in ("predictions", "source", "measure", "published", "tolerance", "version")
    }
    model = result["model"] or "A model"
    lead = f"{model} on {result['source']}: which convention gives the published {result['measure']}?"
    return Page(f"Diagnosis of {result['measure']}", lead, sections, facts, " ".join(result["warnings"]))
