"""What was found, for the top of FITA's page: sentences, and one figure of all models and the rows beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rightlung.pages.content import Figure
from rightlung.pages.figures import IntervalPanel, panel_figure
from rightlung.pages.numbers import span
from rightlung.reproduce.claims import HOLDS, NOT_SHOWN, TOO_FEW
from rightlung.reproduce.fita.blind_rows import TITLES as ROWS
from rightlung.reproduce.fita.blind_rows import BlindRows
from rightlung.reproduce.fita.claims import BLEU, FREQUENT_MCC, SIDED, TITLES, TRUE_F1, TRUE_SIDED
from rightlung.reproduce.fita.measuring import CLINICAL, EXCHANGED, TRUTH, TRUTH_EXCHANGED
from rightlung.reproduce.pair_claims import Judged, Place
from rightlung.reproduce.task_files import TaskFiles
from rightlung.results.estimate import Estimate

CHANGED = {TRUTH: TRUTH_EXCHANGED, CLINICAL: EXCHANGED}
"""Tables of the same measures with another patient's image."""


def main_places(files: TaskFiles, variants: Sequence[str]) -> tuple[Place, Place, Place]:
    """Return what matters most: findings and sides of the scene or, without one, of the report; and words."""
    scene = any(files.estimate(one, *TRUE_F1) is not None for one in variants)
    return (TRUE_F1, TRUE_SIDED, BLEU) if scene else (FREQUENT_MCC, SIDED, BLEU)


def overview(files: TaskFiles, labels: Mapping[str, str], blind: BlindRows) -> Iterator[Figure]:
    """Yield the figure; ``labels`` are those of the measured variants."""
    if not labels:
        return
    panels = [
        IntervalPanel(
            title=TITLES[place], scale=100.0, fit_references=True, line=0.0,
            series={"value": [*(files.estimate(one, *place) for one in labels),
                              *(blind.estimate(one, *place) for one in blind.titles)]},
        )
        for place in main_places(files, [*labels])
    ]  # fmt: skip
    caption = (
        "In percent, means over seeds, 95 % intervals over patients. Open marks: rows that see no image (but for the "
        f"one that compares pixels), and oracles. They learn from {blind.learned_from}."
    )
    beside = [ROWS[name] for name in blind.titles]
    yield panel_figure("overview", "Findings, sides and words", caption, [*labels.values(), *beside], panels,
                       unit="percent", references=beside)  # fmt: skip


def findings(judged: Sequence[Judged], files: TaskFiles, blind: BlindRows) -> Iterator[str]:
    """Yield what was found in sentences: FITA next to the rows without an image, then each claim."""
    for place in main_places(files, ["fita"])[:2]:
        if (own := files.estimate("fita", *place)) is None:
            continue
        told = f"In percent, FITA's {TITLES[place]} is {_percent(own)}"
        if (other := files.estimate("fita", CHANGED[place[0]], place[1])) is not None:
            told += f", and {_percent(other)} with another patient's image"
        rows = {name: blind.estimate(name, *place) for name in blind.titles if name.startswith("blind-")}
        known = {name: one for name, one in rows.items() if one is not None and one.defined}
        if known:
            best = max(known, key=lambda name: known[name].value)
            told += f"; the best row that sees no image ({ROWS[best]}) has {_percent(known[best])}"
        yield f"{told}."
    for where in dict.fromkeys(one.claim.where for one in judged):
        some = [one for one in judged if one.claim.where == where]
        texts = " ".join(dict.fromkeys(one.claim.text for one in some))
        counts = {
            "holds": sum(one.verdict == HOLDS for one in some),
            "no difference shown": sum(one.verdict == NOT_SHOWN for one in some),
            TOO_FEW: sum(one.verdict == TOO_FEW for one in some),
            "too few seeds": sum(not one.enough for one in some),
        }
        counts["does not hold, or depends on the seed"] = len(some) - sum(counts.values())
        told = ", ".join(f"{what} in {count}" for what, count in counts.items() if count)
        yield f"{where[:1].upper()}{where[1:]}: {texts} Measured differences: {len(some)}; {told}."


def _percent(found: Estimate) -> str:
    return span(found, brief=True, scale=100.0, digits=1)
