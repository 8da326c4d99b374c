"""Batteries: changes of the words or the image with a known right effect, and how often the answers behave so.

The conditions are probes; what is expected of each is data (`BATTERIES`). A map *stays* if its change (total variation)
is at most half the mean change with another patient's sentence, the yardstick of the model's own sensitivity.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rightlung.core.errors import check_known
from rightlung.core.files import plain_fields
from rightlung.pages.content import Mark, MarkedSentence
from rightlung.pages.numbers import percent, span
from rightlung.probes.turns import TURNS, UNMARKED
from rightlung.results.estimate import BootstrapSettings, Comparison, Estimate
from rightlung.results.estimator import Deferred, Flags, Floats
from rightlung.results.gates import fewest_patients
from rightlung.results.measured import Measured

YARDSTICK = "random-sentence"
SHOWN = ("none", "swap-sides", YARDSTICK)
"""Conditions that the rest of the page shows, too."""
SHARE, LEAST = 0.5, 0.05
"""A map stays up to this share of the mean change under `YARDSTICK`, and up to `LEAST` in any case."""
LOSS = 0.05
"""A hint may lower average precision by this much."""
DECLINES = 0.5
"""From this abstention on, a model declines to point."""
MOST = 0.5
"""A battery holds if the whole interval of the share of answers as expected is above this, and fails if below."""

EXPECTED: Mapping[str, str] = {
    "move": "should move",
    "stay": "should stay",
    "mirror": "should mirror",
    "turn": "should turn with the image",
    "gain": "should not score lower",
}
"""What is expected of a map."""


@dataclass(frozen=True)
class Battery:
    """Conditions with what is expected of the answers, and how to say that it holds or fails."""

    title: str
    maps: tuple[str, str]
    """What to say of the map if it behaves as expected, and if not."""
    trials: Mapping[str, str]
    """What is expected of maps under each condition."""
    texts: tuple[str, str] = ("", "")
    """The same of descriptions and reports (`rightlung.audit.battery_texts`)."""
    text_trials: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


_ORIENTATION = {f"{turn}{end}": "turn" for turn in TURNS for end in ("", f"-{UNMARKED}")} | {UNMARKED: "stay"}
BATTERIES: Mapping[str, Battery] = {
    "negation": Battery("Negation", ("reacts to negation", "ignores negation"), {"opposite": "move"}),
    "laterality": Battery(
        "Laterality", ("follows the side in the words, and finds it without them", "does not handle sides"),
        {"swap-sides": "move", "drop-side": "stay"},
    ),
    "severity": Battery(
        "Severity", ("stays whatever severity is named", "moves with words for the severity"),
        {"other-severity": "stay"},
    ),
    "synonyms": Battery("Synonyms", ("stays under synonyms", "moves under synonyms"), {"synonym": "stay"}),
    "region-hints": Battery(
        "Region hints", ("does not suffer from a true hint", "suffers from a true hint"), {"region-hint": "gain"}
    ),
    "mirror": Battery(
        "Mirrored image and words", ("mirrors with image and words", "does not mirror with image and words"),
        {"mirror-both": "mirror"},
        ("exchange sides with the mirrored image", "do not exchange sides with the mirrored image"),
        {"report": {"mirror-both": "mirror"}},
    ),
    "orientation": Battery(
        "Orientation", ("follows the image, not the textbook", "follows the textbook, not the image"), _ORIENTATION
    ),
    "contradiction": Battery(
        "Contradictory context", ("", ""), {}, ("keep to the image", "follow words that contradict the image"),
        {"description": {"opposite": "keep", "contradicting-note": "keep"}, "report": {"contradicting-note": "keep"}},
    ),
}  # fmt: skip
"""All batteries by name."""


@dataclass(frozen=True)
class TrialResult:
    """How answers behave under one condition."""

    battery: str
    condition: str
    kind: str
    """``map``, ``description`` or ``report``."""
    expected: str
    share: Estimate
    """Share of answers that behave as expected."""
    prior: Estimate | None = None
    """The same of the image-blind prior."""
    change: Estimate | None = None
    """Map change (total variation), after turning it back where the image was turned."""
    displacement: Estimate | None = None
    echoes: Estimate | None = None
    """Share of descriptions that repeat the contradicting words."""

    @property
    def state(self) -> Mark:
        """Whether most answers behave as expected."""
        if not self.share.defined:
            return "not tested"
        if not self.share.has_interval or self.share.patients < fewest_patients(BootstrapSettings().level):
            return "unclear"
        return "yes" if self.share.low > MOST else "no" if self.share.high < MOST else "unclear"

    def as_json(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return plain_fields(self, state=self.state)


@dataclass(frozen=True)
class BatteryResults:
    """The trials of all batteries that were asked for; ``markers`` are differences with minus without side markers."""

    names: Sequence[str]
    trials: Sequence[TrialResult]
    tolerance: float
    """Up to this map change, a map stays."""
    markers: Mapping[str, Comparison]

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        found = plain_fields(self, verdict=[vars(one) for one in self.verdicts()])
        return {"batteries": found.pop("names"), "tolerance": self.tolerance, **found}

    def sentences(self) -> list[str]:
        """Return the verdicts in plain text."""
        return [f"{one.text} {one.detail}" for one in self.verdicts()]

    def verdicts(self) -> list[MarkedSentence]:
        """Return a sentence for each battery, or one about maps and one about texts."""
        return [one for name in self.names for one in self._verdicts(name)]

    def _verdicts(self, name: str) -> Iterator[MarkedSentence]:
        battery, own = BATTERIES[name], [one for one in self.trials if one.battery == name and one.share.defined]
        maps, texts = ([one for one in own if (one.kind == "map") == is_map] for is_map in (True, False))
        if not own:
            yield MarkedSentence("not tested", f"{battery.title}: not tested.", "No answer has these conditions.")
        if maps:
            gains = "; ".join(f"{turn} {span(one, signed=True)}" for turn, one in self.markers.items())
            about = name == "orientation" and gains
            yield _verdict("the map", battery.maps, maps, f" With minus without marks: {gains}." if about else "")
        if texts:
            echoes = [f"{percent(one.echoes)} repeat the contradicting words" for one in texts if one.echoes]
            yield _verdict("texts", battery.texts, texts, f" {echoes[0]}." if echoes else "")


def _verdict(subject: str, words: tuple[str, str], trials: Sequence[TrialResult], more: str) -> MarkedSentence:
    """Return what holds or fails: all conditions must behave as expected, and none may fail."""
    states = {one.state for one in trials}
    mark: Mark = "no" if "no" in states else "unclear" if "unclear" in states else "yes"
    said = words[mark == "no"]
    text = f"Not shown: {subject} {said}." if mark == "unclear" else f"{subject[0].upper()}{subject[1:]} {said}."
    listed = "; ".join(
        f"{one.condition}{'' if one.kind == 'map' else f' ({one.kind}s)'} {percent(one.share)}" for one in trials
    )
    return MarkedSentence(mark, text, f"As expected: {listed}.{more}")


def conditions_of(names: Collection[str]) -> list[str]:
    """Return the conditions of batteries, ``none`` and the yardstick first."""
    for name in names:
        check_known("battery", name, BATTERIES)
    chosen = [BATTERIES[name] for name in names]
    trials = (one for battery in chosen for some in (battery.trials, *battery.text_trials.values()) for one in some)
    return [*dict.fromkeys(["none", YARDSTICK, *trials])]


def battery_report_conditions(names: Collection[str]) -> list[str]:
    """Return the conditions under which reports are asked for; none if no battery is about reports."""
    found = [one for name in names for one in BATTERIES[name].text_trials.get("report", ())]
    return ["none", *dict.fromkeys(found)] if found else []


def battery_conditions(names: Collection[str]) -> list[str]:
    """Return the conditions that only batteries need, which the rest of the page does not show."""
    return [one for one in conditions_of(names) if one not in SHOWN] if names else []


def judge_maps(
    names: Sequence[str],
    measured: Measured,
    text_trials: Sequence[TrialResult],
    settings: BootstrapSettings | None = None,
) -> BatteryResults:
    """Return the results of batteries from what was measured of ``model`` and, optionally, ``prior``."""
    judges = {model.slug: _Judge(measured, model.slug) for model in measured.models}
    own, deferred = judges["model"], Deferred(measured.estimator(settings))
    requests: list[tuple[str, str, str, dict[str, Callable[[], Estimate]]]] = []
    behaves: dict[str, Floats] = {}
    for name in names:
        for condition, expected in BATTERIES[name].trials.items():
            behaves[condition] = own.behaves(condition, expected)
            back = "turned" if expected in ("mirror", "turn") else "moved"
            asked = {
                "share": behaves[condition],
                "change": own.value(f"{back}_mass", condition),
                "displacement": own.value(f"{back}_peak", condition),
            }
            if "prior" in judges:
                blind = judges["prior"].behaves(condition, expected)
                asked["prior"] = np.where(np.isnan(behaves[condition]), np.nan, blind)
            columns = {key: deferred.mean(np.where(own.asserted, one, np.nan)) for key, one in asked.items()}
            requests.append((name, condition, expected, columns))
    pairs = {
        turn: deferred.difference(behaves[turn], behaves[f"{turn}-{UNMARKED}"])
        for turn in TURNS
        if turn in behaves and not np.isnan(behaves[turn] - behaves[f"{turn}-{UNMARKED}"]).all()
    }
    trials = [
        TrialResult(name, condition, "map", expected, **{key: one() for key, one in columns.items()})
        for name, condition, expected, columns in requests
    ]
    order = {name: place for place, name in enumerate(names)}
    every = sorted([*trials, *text_trials], key=lambda one: order[one.battery])
    return BatteryResults(names, every, own.tolerance, {turn: one() for turn, one in pairs.items()})


class _Judge:
    """Judges the maps of one model, in arrays over phrases; NaN where a phrase was not asked."""

    def __init__(self, measured: Measured, slug: str) -> None:
        self.measured, self.slug = measured, slug
        self.asserted: Flags = np.isin(measured.fact("polarity").astype(str), ("positive", "uncertain"))
        yardstick = np.where(self.asserted, self.value("moved_mass", YARDSTICK), np.nan)
        mean = float(np.nanmean(yardstick)) if (~np.isnan(yardstick)).any() else 0.0
        self.tolerance = max(LEAST, SHARE * mean)

    def value(self, measure: str, condition: str = "none") -> Floats:
        """Return a column under a condition."""
        return self.measured.value(self.slug, measure, self.measured.targets[0], condition)

    def behaves(self, condition: str, expected: str) -> Floats:
        """Return 1 for asserted phrases whose map behaves as expected, 0 for the others."""
        moved, after, before = (
            self.value("moved_mass", condition), self.value("abstention", condition), self.value("abstention"),
        )  # fmt: skip
        declines = (after >= DECLINES) & (before < DECLINES)
        known = ~np.isnan(moved) | declines
        if expected == "gain":
            change = self.value("average_precision", condition) - self.value("average_precision")
            found, known = change >= -LOSS, ~np.isnan(change)
        elif expected == "move":
            found = (moved > self.tolerance) | declines
        elif expected == "stay":
            found = (moved <= self.tolerance) & ~declines
        else:
            turned = self.value("turned_mass", condition)
            found = turned <= self.tolerance if expected == "mirror" else turned < moved
            known = ~np.isnan(turned)
        return np.where(known & self.asserted, found.astype(np.float64), np.nan)
