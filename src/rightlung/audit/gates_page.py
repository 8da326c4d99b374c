"""The part of any page about gates: the verdicts with their numbers, figures, exact causal effects, and one case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rightlung.audit.gates import CENTRE_PRIOR, LOCATION_PRIOR, PRIORS, RESPONSE, TWINS, Gates
from rightlung.audit.signs import sign_sentences
from rightlung.measuring import find_measure
from rightlung.pages.content import Cell, Column, Figure, Gallery, Mark, MarkedSentence, Section, Table
from rightlung.pages.figures import IntervalPanel, panel_figure
from rightlung.pages.numbers import estimate_cell, span
from rightlung.results.gates import (
    ALL,
    ELSEWHERE,
    IGNORES,
    NOT_ASKED,
    NOT_TOLD,
    SELECTIVE,
    TWO_READINGS,
    UNSTABLE,
    GateResult,
)
from rightlung.results.groups import FEW_PATIENTS

GATE_TITLES: Mapping[str, str] = {
    "none": "unchanged",
    "twin-removed": "finding removed (exact twin)",
    "occlude-target": "finding covered",
    "twin-moved": "finding in the other lung (twin)",
    "twin-worse": "finding made worse (twin)",
    "occlude-elsewhere": "equal area elsewhere covered",
    "exchange-image": "another patient's image",
    "exchange-same-finding": "another patient, same finding",
    "noise-image": "noise as the image",
    "mean-image": "average image",
    "nonsense-prompt": "random letters as the words",
    "empty-prompt": "no words",
    "random-sentence": "another patient's sentence",
    "swap-sides": "left and right swapped (words)",
    "untrained": "random weights",
    LOCATION_PRIOR: "image-blind location prior",
    CENTRE_PRIOR: "image-blind centre prior",
}
_NARROWER = (
    "Any change of the map counts here; the verdict about the side at the top of the page counts only how often the "
    "peak is on the finding's side."
)
_MARKS: Mapping[str, Mark] = {
    SELECTIVE: "yes", UNSTABLE: "no", IGNORES: "no", "yes": "yes", "no": "no", NOT_ASKED: "not tested",
}  # fmt: skip


def gate_sections(
    gates: Gates | None, case: Sequence[Gallery] = (), slug: str = "gates", of: str = ""
) -> list[Section]:
    """Return the sections about gates, none if no gate was asked.

    ``slug`` begins the names of their parts; ``of`` names the task, on a page with several.
    """
    if gates is None:
        return []
    titles = ("does the model use the finding?", "what changes the answer")
    first, second = (f"{of}: {title}" if of else _upper(title) for title in titles)
    words = " and with other words" if gates.results[0].words != NOT_ASKED else ""
    introduction = (
        "Gates ask the same questions again with the finding taken away, with an equal area elsewhere covered, with "
        f"other images{words}. A model that looks at the finding responds less when it is gone, and answers as before "
        f"when something else changes. Response: {gates.response}. Change: {gates.change}."
    )
    return [
        Section(
            slug, first, [introduction], parts=case, verdict=gate_verdict(gates, _NARROWER if slug == "gates" else "")
        ),
        Section(f"{slug}-results", second, parts=[*gate_parts(gates, slug)]),
    ]


def gate_verdict(gates: Gates, on_side: str = "") -> list[MarkedSentence]:
    """Return the answers about all findings together, with what they rest on; ``on_side`` is added to the last."""
    one = gates.results[0]
    use = {SELECTIVE: "The model uses the image selectively.", UNSTABLE: "The model uses the image, but unstably.",
           IGNORES: "The model ignores the image.",
           NOT_TOLD: "Covering the finding does not tell whether the model uses it."}  # fmt: skip
    found = [MarkedSentence(_MARKS.get(one.use, "unclear"), use.get(one.use, f"The image: {one.use}."), _basis(one))]
    words = ("the words", one.words, ("nonsense-prompt", "random-sentence"))
    for named, answer, names in (words, ("the side that the words name", one.side, ("swap-sides",))):
        said = {"yes": f"The answer depends on {named}.", "no": f"The answer does not depend on {named}."}
        some = [f"{GATE_TITLES[name]}: change {span(one.changes[name])}" for name in names if name in one.changes]
        text, detail = said.get(answer, f"{_upper(named)}: {answer}."), f"{_upper('; '.join(some))}."
        detail += f" {on_side}" if on_side and "swap-sides" in names else ""
        if answer != NOT_ASKED:
            found.append(MarkedSentence(_MARKS.get(answer, "unclear"), text, detail if some else ""))
    priors = [(GATE_TITLES[name], one.effects[name]) for name in PRIORS if name in one.effects]
    if priors:
        detail = "; ".join(f"{title} − model: {span(effect, signed=True)}" for title, effect in priors)
        beaten = all(effect.shown and effect.value < 0 for _, effect in priors)
        text = f"The response is {'' if beaten else 'not shown to be '}stronger than that of image-blind priors."
        found.append(MarkedSentence("yes" if beaten else "unclear", text, f"{_upper(detail)}."))
    return [*found, *sign_sentences(gates.signs)]


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _basis(one: GateResult) -> str:
    """Return the comparisons behind the verdict about the image."""
    said = [f"{_upper(one.reason)}."] if one.reason else []
    for name in (one.removal, ELSEWHERE):
        if name in one.effects:
            said.append(f"{_upper(GATE_TITLES[name])}: {span(one.effects[name], signed=True)}.")
    if one.removal in one.contrasts:
        said.append(f"Half the first fall minus the second: {span(one.contrasts[one.removal], signed=True)}.")
    return " ".join(said)


def gate_parts(gates: Gates, slug: str = "gates") -> Iterator[Table | Figure]:
    """Yield the figures and tables about gates; ``slug`` begins their names."""
    enough = [one for one in gates.results if one.name == ALL or one.patients >= FEW_PATIENTS]
    yield _overview(gates.results[0], slug)
    yield _verdicts(gates, enough, slug)
    if len(enough) > 1:
        yield _by_finding(enough, slug)
    for name, some in (("twins", [ALL]), ("twins-findings", [name for name in gates.twins if name != ALL])):
        if any(finding in gates.twins for finding in some):
            yield _twin_table(gates, f"{slug}-{name}", some)


def _overview(one: GateResult, slug: str) -> Figure:
    """Return a figure of every gate: how much answers change, and the response under it."""
    names = [name for name in GATE_TITLES if name in {**one.changes, **one.effects} and name not in PRIORS]
    changes, effects = ({"model": [some.get(name) for name in names]} for some in (one.changes, one.effects))
    panels = [
        IntervalPanel(title="change of the answer", subtitle="0: the same, 1: nothing in common", limits=(0.0, 1.0),
                      series=changes),
        IntervalPanel(title="change of the response", subtitle="left of the line: weaker", line=0.0, signed=True,
                      series=effects),
    ]  # fmt: skip
    caption = (
        f"All findings together: {one.patients:,} patients, 95 % intervals. Unchanged response: {span(one.response)}."
    )
    return panel_figure(f"{slug}-all", "All findings", caption, [GATE_TITLES[name] for name in names], panels)


def _verdicts(gates: Gates, shown: Sequence[GateResult], slug: str) -> Table:
    columns = [
        Column("finding", "text"), Column("patients"), Column("use of the image", "text", "See docs/gates.md."),
        Column("response", help=gates.response),
        Column("finding taken away", help="Change of the response in the twin without it, else with it covered."),
        Column("elsewhere covered", help="Change of the response with an equal area elsewhere covered as strongly."),
        Column("half the fall − elsewhere", help="Above zero: it falls more than twice as much as elsewhere."),
    ]  # fmt: skip
    with_words = any(one.words != NOT_ASKED for one in shown)
    columns += [Column("depends on words", "text"), Column("on side", "text")] if with_words else []
    rows = []
    for one in shown:
        away = None if one.removal is None else one.effects.get(one.removal)
        cells = [Cell(one.name, strong=one.name == ALL), Cell(f"{one.patients:,}")]
        cells.append(Cell(one.use, strong=True, help=one.reason))
        numbers = (away, one.effects.get(ELSEWHERE), one.contrasts.get(one.removal or ""))
        cells += [estimate_cell(one.response), *(estimate_cell(value, signed=True) for value in numbers)]
        rows.append([*cells, *((Cell(one.words), Cell(one.side)) if with_words else ())])
    notes = []
    if few := [one.name for one in gates.results if one not in shown]:
        notes.append(f"Fewer than {FEW_PATIENTS} patients, too few to tell: {', '.join(few)}.")
    for reason in dict.fromkeys(gates.not_asked.values()):
        names = [name for name, why in gates.not_asked.items() if why == reason]
        notes.append(f"Gates not applied ({reason}): {', '.join(names)}.")
    if any(one.use == NOT_TOLD for one in shown):
        notes.append(f"“{_upper(NOT_TOLD)}”: {TWO_READINGS}.")
    caption = (
        "Means with 95 % intervals (bootstrap over patients). Tests of several findings have Holm's correction: an "
        "interval that excludes zero may not decide. “Too few patients to tell”: the intervals allow several verdicts, "
        f"or there are fewer than {gates.fewest} patients, with whom no result could be significant."
    )
    return Table(f"{slug}-verdicts", "Verdict by finding", caption, columns, rows, notes)


def _by_finding(shown: Sequence[GateResult], slug: str) -> Figure:
    """Return a figure of the findings: taken away against elsewhere, and other images and words."""
    away = [None if one.removal is None else one.effects.get(one.removal) for one in shown]
    elsewhere = [one.effects.get(ELSEWHERE) for one in shown]
    panels = [
        IntervalPanel(title="change of the response", line=0.0, signed=True,
                      series={"finding taken away": away, "equal area elsewhere covered": elsewhere}),
    ]  # fmt: skip
    for name in ("exchange-same-finding", "noise-image", "nonsense-prompt", "swap-sides"):
        found = [one.changes.get(name) for one in shown]
        if any(found) and len(panels) < 4:
            title = f"change: {GATE_TITLES[name]}"
            panels.append(IntervalPanel(title=title, limits=(0.0, 1.0), series={"finding taken away": found}))
    caption = (
        "A model that uses a finding has the filled mark far to the left of the line and the open one on it. The other "
        "panels show how much the answer changes with another image or other words."
    )
    return panel_figure(f"{slug}-findings", "By finding", caption, [one.name for one in shown], panels)


def _twin_table(gates: Gates, name: str, findings: Sequence[str]) -> Table:
    """Return the exact causal effect of each finding on everything that was measured."""
    measures = [*dict.fromkeys(name for by_twin in gates.twins.values() for one in by_twin.values() for name in one)]
    columns = [Column("finding", "text"), Column("in the twin it is", "text"), Column("patients")]
    known = [find_measure(name) for name in measures if name != RESPONSE]
    columns += [Column(RESPONSE, help=gates.response), *(Column(one.title, help=one.meaning) for one in known)]
    rows = []
    for finding, twin in ((finding, twin) for finding in findings for twin in TWINS):
        if found := gates.twins.get(finding, {}).get(twin):
            how = {"removed": "removed", "moved": "in the other lung", "worse": "worse"}[twin.removeprefix("twin-")]
            patients = Cell(f"{max(one.patients for one in found.values()):,}")
            values = [estimate_cell(found.get(name), signed=True) for name in measures]
            rows.append([Cell(finding, strong=finding == ALL), Cell(how), patients, *values])
    caption = (
        "The twin is the same patient with this finding changed and every other pixel equal, so these differences "
        "(twin − original) are the exact causal effect of the finding. The target stays at the original place."
    )
    title = "Causal effect of a finding" + ("" if findings == [ALL] else ", by finding")
    return Table(name, title, caption, columns, rows, folded=findings != [ALL])
