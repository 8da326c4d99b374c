"""What made-up patients are like: how frequent, how bad and how well told everything is.

The defaults stand in ``data/defaults.toml``. A configuration that cannot be (a prevalence above 1, a nodule in the
spine) is refused when it is made, in a sentence that names the field and the value.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

from rightlung.core.errors import InputError, unknown_name
from rightlung.core.frozen import FrozenMapping
from rightlung.lexicon import REGIONS
from rightlung.lexicon.regions import region as find_region

FINDING_ORDER: tuple[str, ...] = (
    "low lung volumes", "emphysema", "cardiomegaly", "enlarged cardiomediastinum", "edema", "pneumothorax",
    "pleural effusion", "pneumonia", "consolidation", "lung opacity", "atelectasis", "mass", "nodule",
    "calcified granuloma", "pleural thickening", "rib fracture", "hiatal hernia", "scoliosis",
)  # fmt: skip
"""The findings a patient can have, in the order in which they are drawn: causes before consequences."""

DEVICE_ORDER: tuple[str, ...] = (
    "endotracheal tube", "nasogastric tube", "central venous line", "chest tube", "pacemaker", "ECG leads",
    "sternal wires",
)  # fmt: skip
"""The devices a patient can have, in the order in which they are drawn."""

CIRCUMSTANCES: tuple[str, ...] = ("portable", "old", "young", "female", "normal")
"""What else findings and devices can depend on. Old is 65 and more, young under 40."""

OLD_AGE, YOUNG_AGE = 65, 40
LEAST_PIXELS, MOST_PIXELS = 64, 1024
"""The smallest and the largest side of a picture that can be rendered."""

_MOST_LIKELY = 0.97


@cache
def _defaults() -> dict[str, Any]:
    return tomllib.loads((files("rightlung.phantom") / "data" / "defaults.toml").read_text(encoding="utf-8"))


@cache
def possible_regions(finding: str) -> tuple[str, ...]:
    """Return the regions in which a finding can lie; a configuration may weigh them otherwise but not add to them."""
    return tuple(_defaults()["regions"][finding])


def _number(field: str, value: object, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{field} must be a number; got {value!r}")
    if not low <= value <= high:
        limits = f"at least {low:g}" if math.isinf(high) else f"between {low:g} and {high:g}"
        raise InputError(f"{field} must be {limits}; got {value!r}")
    return float(value)


def _table(field: str, value: object, known: Iterable[str], kind: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{field} must be a table of names; got {value!r}")
    names = tuple(known)
    for name in value:
        if name not in names:
            raise unknown_name(f"{kind} in {field}:", str(name), names)
    return value


def _numbers(field: str, value: object, length: int | None) -> tuple[float, ...]:
    if not isinstance(value, list | tuple) or not value or (length is not None and len(value) != length):
        wanted = "one or more numbers" if length is None else f"{length} numbers"
        raise InputError(f"{field} must be a list of {wanted}; got {value!r}")
    return tuple(_number(f"{field}[{place}]", item, 0.0, math.inf) for place, item in enumerate(value))


def _ascending(field: str, value: object, length: int, high: float) -> tuple[float, ...]:
    numbers = _numbers(field, value, length)
    if list(numbers) != sorted(numbers) or numbers[-1] > high:
        limit = "" if math.isinf(high) else f" and at most {high:g}"
        raise InputError(f"{field} must be ascending{limit}; got {value!r}")
    return numbers


def _weights(field: str, weights: Mapping[str, Any]) -> FrozenMapping[str, float]:
    checked = {name: _number(f"{field}[{name!r}]", weight, 0.0, math.inf) for name, weight in weights.items()}
    if not sum(checked.values()) > 0.0:
        raise InputError(f"{field} must have at least one weight above 0; got {dict(weights)!r}")
    return FrozenMapping(checked)


def _region_weights(finding: str, value: object) -> FrozenMapping[str, float]:
    field, possible = f"regions[{finding!r}]", possible_regions(finding)
    if not isinstance(value, Mapping):
        raise InputError(f"{field} must map regions to weights; got {value!r}")
    named: dict[str, Any] = {}
    for name, weight in value.items():
        try:
            found = find_region(str(name)).name
        except InputError:
            raise unknown_name(f"region in {field}:", str(name), REGIONS) from None
        if found not in possible:
            raise InputError(f"{field}: {finding} cannot lie in {name!r}; it can in {', '.join(possible)}")
        named[found] = weight
    return _weights(field, named)


@dataclass(frozen=True)
class ReportConfig:
    """How reports are written; every field is a share between 0 and 1, explained in ``data/defaults.toml``."""

    omission: float
    hedge: float
    sideless: float
    comparison: float
    join: float
    typo: float
    masked: float
    unstopped: float
    capitals: float
    only_findings: float
    only_impression: float

    def __post_init__(self) -> None:
        for entry in fields(self):
            share = _number(f"report.{entry.name}", getattr(self, entry.name), 0.0, 1.0)
            object.__setattr__(self, entry.name, share)
        if self.only_findings + self.only_impression > 1.0:
            total = self.only_findings + self.only_impression
            raise InputError(f"report.only_findings and report.only_impression must sum to at most 1; got {total:g}")


@dataclass(frozen=True)
class Likelihood:
    """How probable something is: ``base`` times the factor of each thing given that is there."""

    base: float
    given: tuple[tuple[str, float], ...]

    def probability(self, present: Iterable[str]) -> float:
        """Return the probability where these things are present."""
        there, value = set(present), self.base
        for name, factor in self.given:
            if name in there:
                value *= factor
        return min(value, _MOST_LIKELY)


@dataclass(frozen=True)
class PhantomConfig:
    """All that the making of patients can be told. `PhantomConfig.from_mapping({})` gives the defaults.

    ``prevalence`` and ``devices`` are shares of all studies. ``cooccurrence[a][b]`` is how many times as likely b
    is where a is than where it is not; shares are kept (nearly) as configured by lowering b where a is not.
    """

    size: int
    normal: float
    portable: float
    upright_ap: float
    female: float
    age_mean: float
    age_spread: float
    prior: float
    prevalence: Mapping[str, float]
    devices: Mapping[str, float]
    cooccurrence: Mapping[str, Mapping[str, float]]
    severity: Mapping[str, tuple[float, ...]]
    sizes: Mapping[str, tuple[float, ...]]
    counts: Mapping[str, tuple[float, ...]]
    bilateral: Mapping[str, float]
    regions: Mapping[str, Mapping[str, float]]
    forms: Mapping[str, Mapping[str, float]]
    report: ReportConfig

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int):
            raise InputError(f"size must be a whole number of pixels; got {self.size!r}")
        if not LEAST_PIXELS <= self.size <= MOST_PIXELS:
            raise InputError(f"size must be {LEAST_PIXELS} to {MOST_PIXELS} pixels; got {self.size}")
        checked: dict[str, Any] = {}
        for name in ("normal", "portable", "upright_ap", "female", "prior"):
            checked[name] = _number(name, getattr(self, name), 0.0, 1.0)
        checked["age_mean"] = _number("age_mean", self.age_mean, 18.0, 100.0)
        checked["age_spread"] = _number("age_spread", self.age_spread, 0.0, 50.0)
        for name, known, kind in (
            ("prevalence", FINDING_ORDER, "finding"),
            ("devices", DEVICE_ORDER, "device"),
            ("bilateral", tuple(_defaults()["bilateral"]), "finding"),
        ):
            table = _table(name, getattr(self, name), known, kind)
            checked[name] = FrozenMapping(
                {entry: _number(f"{name}[{entry!r}]", value, 0.0, 1.0) for entry, value in table.items()}
            )
        self._check_cooccurrence(checked)
        self._check_kinds(checked)
        if not isinstance(self.report, ReportConfig):
            raise InputError(f"report must be a ReportConfig; got {self.report!r}")
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.normal < 1.0 and not any(self.prevalence.get(name, 0.0) > 0.0 for name in FINDING_ORDER):
            raise InputError(f"normal must be 1 where no finding has a prevalence above 0; got {self.normal:g}")
        for name, share in self.prevalence.items():
            if share > 1.0 - self.normal + 1e-9:
                left = 1.0 - self.normal
                raise InputError(
                    f"prevalence[{name!r}] must be at most {left:g}, the share that is not normal; got {share:g}. "
                    "Where normal is raised, prevalences must be lowered"
                )
        object.__setattr__(self, "likelihoods", _likelihoods(self))

    likelihoods = FrozenMapping[str, Likelihood]({})  # replaced on each instance: derived, so no field

    def _check_cooccurrence(self, checked: dict[str, Any]) -> None:
        known = (*CIRCUMSTANCES, *FINDING_ORDER, *DEVICE_ORDER)
        table = _table("cooccurrence", self.cooccurrence, known, "name")
        lifts = {}
        for given, targets in table.items():
            field = f"cooccurrence[{given!r}]"
            lifts[given] = FrozenMapping(
                {
                    target: _number(f"{field}[{target!r}]", factor, 0.0, 100.0)
                    for target, factor in _table(field, targets, known, "name").items()
                }
            )
        checked["cooccurrence"] = FrozenMapping(lifts)

    def _check_kinds(self, checked: dict[str, Any]) -> None:
        defaults = _defaults()
        severity = _table("severity", self.severity, FINDING_ORDER, "finding")
        sizes = _table("sizes", self.sizes, tuple(defaults["sizes"]), "finding")
        counts = _table("counts", self.counts, tuple(defaults["counts"]), "finding")
        regions = _table("regions", self.regions, FINDING_ORDER, "finding")
        forms = _table("forms", self.forms, tuple(defaults["forms"]), "finding")
        checked["severity"] = FrozenMapping(
            {name: _ascending(f"severity[{name!r}]", value, 3, 1.0) for name, value in severity.items()}
        )
        checked["sizes"] = FrozenMapping(
            {name: _ascending(f"sizes[{name!r}]", value, 2, 30.0) for name, value in sizes.items()}
        )
        checked["counts"] = FrozenMapping(
            {name: _numbers(f"counts[{name!r}]", value, None) for name, value in counts.items()}
        )
        for name, numbers in checked["counts"].items():
            if not sum(numbers) > 0.0:
                raise InputError(f"counts[{name!r}] must have at least one number above 0; got {numbers!r}")
        checked["regions"] = FrozenMapping({name: _region_weights(name, value) for name, value in regions.items()})
        checked["forms"] = FrozenMapping(
            {
                name: _weights(
                    f"forms[{name!r}]", _table(f"forms[{name!r}]", value, tuple(defaults["forms"][name]), "form")
                )
                for name, value in forms.items()
            }
        )

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> PhantomConfig:
        """Return the defaults with what the mapping says put in their place.

        Tables of findings are merged name by name; a finding's regions and forms are replaced as a whole.

        >>> PhantomConfig.from_mapping({"prevalence": {"nodule": 0.2}}).prevalence["nodule"]
        0.2
        """
        known = [entry.name for entry in fields(cls)]
        given = _table("configuration", mapping, known, "field")
        merged: dict[str, Any] = {}
        for name in known:
            default = _defaults()[name]
            if name not in given:
                merged[name] = default
            elif isinstance(default, dict):
                value = given[name]
                if isinstance(value, ReportConfig):
                    merged[name] = value
                    continue
                if not isinstance(value, Mapping):
                    raise InputError(f"{name} must be a table of names; got {value!r}")
                if name == "cooccurrence":
                    value = {
                        given_name: {**default.get(given_name, {}), **lifts} if isinstance(lifts, Mapping) else lifts
                        for given_name, lifts in value.items()
                    }
                merged[name] = {**default, **value}
            else:
                merged[name] = given[name]
        if isinstance(merged["report"], dict):
            names = [entry.name for entry in fields(ReportConfig)]
            merged["report"] = ReportConfig(**_table("report", merged["report"], names, "field"))
        return cls(**merged)


def _share_above(age: float, mean: float, spread: float) -> float:
    return 0.5 * math.erfc((age - mean) / (max(spread, 1e-6) * math.sqrt(2.0)))


def _likelihoods(config: PhantomConfig) -> FrozenMapping[str, Likelihood]:
    """Turn shares and factors into what sampling needs, so that the shares come out (nearly) as configured.

    With P(b | a) = f P(b | not a), keeping P(b) means a base of P(b) / (1 + P(a) (f - 1)). Several factors multiply
    as if they were independent, which they nearly are. Findings are drawn among studies that are not normal, again
    where none came up, so their bases are lowered by the chance of that.
    """
    shares: dict[str, float] = {
        "portable": config.portable,
        "old": _share_above(OLD_AGE - 0.5, config.age_mean, config.age_spread),
        "young": 1.0 - _share_above(YOUNG_AGE - 0.5, config.age_mean, config.age_spread),
        "female": config.female,
        "normal": config.normal,
    }
    abnormal = max(1.0 - config.normal, 1e-9)
    within = {name: min(config.prevalence.get(name, 0.0) / abnormal, 1.0) for name in FINDING_ORDER}
    some = 1.0
    for _ in range(50):
        some = 1.0 - math.prod(1.0 - min(share * some, _MOST_LIKELY) for share in within.values())
    order = ("portable", "old", "young", "female", "normal", *FINDING_ORDER, *DEVICE_ORDER)
    rank = {name: place for place, name in enumerate(order)}
    lifts: dict[str, dict[str, float]] = {}
    for given, targets in config.cooccurrence.items():
        for target, factor in targets.items():
            # The relation is mutual, so the one drawn later depends on the one drawn earlier.
            first, second = sorted((given, target), key=rank.__getitem__)
            if second not in CIRCUMSTANCES or second == "normal":
                lifts.setdefault(second, {})[first] = factor
    found = {}
    for name in order[4:]:
        if name == "normal":
            share = config.normal
        elif name in within:
            share = within[name] * some
        else:
            share = config.devices.get(name, 0.0)
        base = share
        for given, factor in lifts.get(name, {}).items():
            common = (
                (within[given] if name in within else config.prevalence.get(given, 0.0))
                if given in within
                else (shares.get(given, config.devices.get(given, 0.0)))
            )
            base /= max(1.0 + common * (factor - 1.0), 1e-6)
        found[name] = Likelihood(base, tuple(lifts.get(name, {}).items()))
    return FrozenMapping(found)


@cache
def default_config() -> PhantomConfig:
    """Return the configuration that is used where none is given."""
    return PhantomConfig.from_mapping({})
