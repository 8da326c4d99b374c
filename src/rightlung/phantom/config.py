"""Configuration of the phantom: prevalences, severities, and how reports are written.

The defaults are in ``data/defaults.toml``. An impossible configuration (a prevalence above 1, a nodule in the spine) is
rejected on construction with an error that names the field and the value.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from functools import cache, cached_property, partial
from importlib.resources import files
from typing import Any, Literal, get_args

from rightlung.core.errors import InputError, unknown_name
from rightlung.core.frozen import FrozenMapping
from rightlung.lexicon import REGIONS
from rightlung.lexicon.regions import region as find_region

FINDING_ORDER: tuple[str, ...] = (
    "low lung volumes", "emphysema", "cardiomegaly", "enlarged cardiomediastinum", "edema", "pneumothorax",
    "pleural effusion", "pneumonia", "consolidation", "lung opacity", "atelectasis", "mass", "nodule",
    "calcified granuloma", "pleural thickening", "rib fracture", "hiatal hernia", "scoliosis",
)  # fmt: skip
"""The findings a patient can have, in sampling order: causes before consequences."""

DEVICE_ORDER: tuple[str, ...] = (
    "endotracheal tube", "nasogastric tube", "central venous line", "chest tube", "pacemaker", "ECG leads",
    "sternal wires",
)  # fmt: skip
"""The devices a patient can have, in sampling order."""

Part = Literal["all", "train", "held-out"]

CIRCUMSTANCES: tuple[str, ...] = ("portable", "old", "young", "female", "normal")
"""What else findings and devices can depend on. Old is 65 and above, young below 40."""

_EVERYTHING = (*CIRCUMSTANCES, *FINDING_ORDER, *DEVICE_ORDER)
OLD_AGE, YOUNG_AGE = 65, 40
LEAST_PIXELS, MOST_PIXELS = 64, 1024  # the smallest and the largest width of an image in pixels
_MOST_LIKELY = 0.97


@cache
def read_data(name: str) -> dict[str, Any]:
    """Return one of the phantom's TOML files."""
    return tomllib.loads((files("rightlung.phantom") / "data" / name).read_text(encoding="utf-8"))


@cache
def possible_regions(finding: str) -> tuple[str, ...]:
    """Return the regions where a finding can be; a configuration may change their weights but not add regions."""
    return tuple(read_data("defaults.toml")["regions"][finding])


def check_picture_size(size: object) -> int:
    """Return ``size`` if it is a valid image width in pixels."""
    if isinstance(size, bool) or not isinstance(size, int) or not LEAST_PIXELS <= size <= MOST_PIXELS:
        raise InputError(f"size must be an integer from {LEAST_PIXELS} to {MOST_PIXELS} (pixels); got {size!r}")
    return size


@cache
def held_out_regions() -> dict[str, str]:
    """Return, for each finding that has one, the region where part "train" never has a lesion of it."""
    return dict(read_data("held_out.toml")["regions"])


def _part(field: str, value: object) -> Part:
    for part in get_args(Part):
        if value == part:
            return part  # type: ignore[no-any-return]
    raise InputError(f"{field} must be {', '.join(get_args(Part)[:-1])} or {get_args(Part)[-1]}; got {value!r}")


def _number(field: str, value: object, low: float = 0.0, high: float = 1.0) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{field} must be a number; got {value!r}")
    if not low <= value <= high:
        limits = f"at least {low:g}" if math.isinf(high) else f"between {low:g} and {high:g}"
        raise InputError(f"{field} must be {limits}; got {value!r}")
    return float(value)


def _table(
    field: str, value: object, known: Collection[str], kind: str, check: Callable[[str, Any], Any] | None = None
) -> FrozenMapping[str, Any]:
    """Return a table of known names, each value as returned by ``check`` (given the field and the value)."""
    if not isinstance(value, Mapping):
        raise InputError(f"{field} must be a table of names; got {value!r}")
    for name in value:
        if name not in known:
            raise unknown_name(f"{kind} in {field}:", str(name), known)
    return FrozenMapping({name: check(f"{field}[{name!r}]", item) if check else item for name, item in value.items()})


def _numbers(field: str, value: object, length: int | None = None, high: float = math.inf) -> tuple[float, ...]:
    """Return numbers that can be weights; with a length, that many in ascending order."""
    if not isinstance(value, list | tuple) or not value or (length is not None and len(value) != length):
        wanted = "one or more numbers" if length is None else f"{length} numbers"
        raise InputError(f"{field} must be a list of {wanted}; got {value!r}")
    numbers = tuple(_number(f"{field}[{place}]", item, 0.0, math.inf) for place, item in enumerate(value))
    if length is None and not sum(numbers) > 0.0:
        raise InputError(f"{field} must have at least one number above 0; got {numbers!r}")
    if length is not None and (list(numbers) != sorted(numbers) or numbers[-1] > high):
        raise InputError(f"{field} must be ascending and at most {high:g}; got {value!r}")
    return numbers


def _weights(field: str, value: object, known: Collection[str], kind: str) -> FrozenMapping[str, float]:
    weights = _table(field, value, known, kind, partial(_number, high=math.inf))
    if not sum(weights.values()) > 0.0:
        raise InputError(f"{field} must have at least one weight above 0; got {value!r}")
    return weights


def _weights_by_finding(field: str, value: object, kind: str) -> FrozenMapping[str, FrozenMapping[str, float]]:
    """Return the weights of the regions or forms of each finding."""
    known: dict[str, dict[str, float]] = read_data("defaults.toml")[f"{kind}s"]
    found = {}
    for finding, weights in _table(field, value, known, "finding").items():
        place = f"{field}[{finding!r}]"
        if kind == "region" and isinstance(weights, Mapping):
            weights = {_region(place, finding, str(name)): weight for name, weight in weights.items()}
        found[finding] = _weights(place, weights, known[finding], kind)
    return FrozenMapping(found)


def _region(field: str, finding: str, name: str) -> str:
    try:
        found = find_region(name).name
    except InputError:
        raise unknown_name(f"region in {field}:", name, REGIONS) from None
    possible = possible_regions(finding)
    if found not in possible:
        raise InputError(f"{field}: {finding} cannot be in {name!r}; it can be in {', '.join(possible)}")
    return found


@dataclass(frozen=True)
class ReportConfig:
    """How reports are written; every field is a share from 0 to 1, explained in ``data/defaults.toml``."""

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
            object.__setattr__(self, entry.name, _number(f"report.{entry.name}", getattr(self, entry.name)))
        total = self.only_findings + self.only_impression
        if total > 1.0:
            raise InputError(f"report.only_findings and report.only_impression must sum to at most 1; got {total:g}")


def _report(field: str, value: object) -> ReportConfig:
    if isinstance(value, ReportConfig):
        return value
    return ReportConfig(**_table(field, value, [entry.name for entry in fields(ReportConfig)], "field"))


@cache
def _checks() -> dict[str, Callable[[str, Any], Any]]:
    """Return the check of each field of `PhantomConfig` that is not a share, given its name and value."""
    defaults = read_data("defaults.toml")
    lifts = partial(_table, known=_EVERYTHING, kind="name", check=partial(_number, high=100.0))
    return {
        "part": _part,
        "size": lambda _, value: check_picture_size(value),
        "age_mean": partial(_number, low=18.0, high=100.0),
        "age_std": partial(_number, high=50.0),
        "prevalence": partial(_table, known=FINDING_ORDER, kind="finding", check=_number),
        "devices": partial(_table, known=DEVICE_ORDER, kind="device", check=_number),
        "cooccurrence": partial(_table, known=_EVERYTHING, kind="name", check=lifts),
        "severity": partial(_table, known=FINDING_ORDER, kind="finding", check=partial(_numbers, length=3, high=1.0)),
        "sizes": partial(_table, known=defaults["sizes"], kind="finding", check=partial(_numbers, length=2, high=30.0)),
        "counts": partial(_table, known=defaults["counts"], kind="finding", check=_numbers),
        "bilateral": partial(_table, known=defaults["bilateral"], kind="finding", check=_number),
        "regions": partial(_weights_by_finding, kind="region"),
        "forms": partial(_weights_by_finding, kind="form"),
        "report": _report,
    }


@dataclass(frozen=True)
class Likelihood:
    """The probability of something: ``base`` times the factor of each given thing that is present."""

    base: float
    given: tuple[tuple[str, float], ...]

    def probability(self, present: Collection[str]) -> float:
        """Return the probability if these things are present."""
        factors = (factor for name, factor in self.given if name in present)
        return min(math.prod(factors, start=self.base), _MOST_LIKELY)


def _share_above(age: float, mean: float, std: float) -> float:
    return 0.5 * math.erfc((age - mean) / (max(std, 1e-6) * math.sqrt(2.0)))


@dataclass(frozen=True)
class PhantomConfig:
    """All settings of the generator. `PhantomConfig.from_mapping({})` returns the defaults.

    ``prevalence`` and ``devices`` are shares of all studies. ``cooccurrence[a][b]`` is how many times as likely b is
    with a as without it; shares are (nearly) preserved by making b less likely without a.
    """

    part: Part
    size: int
    normal: float
    portable: float
    upright_ap: float
    female: float
    age_mean: float
    age_std: float
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
        for entry in fields(self):
            check = _checks().get(entry.name, _number)
            object.__setattr__(self, entry.name, check(entry.name, getattr(self, entry.name)))
        if self.normal < 1.0 and not any(share > 0.0 for share in self.prevalence.values()):
            raise InputError(f"normal must be 1 if no finding has a prevalence above 0; got {self.normal:g}")
        for name, share in self.prevalence.items():
            if share > 1.0 - self.normal + 1e-9:
                left = 1.0 - self.normal
                raise InputError(
                    f"prevalence[{name!r}] must be at most {left:g}, the share of studies that are not normal; got "
                    f"{share:g}. If you raise normal, lower the prevalences"
                )
        for finding, region in held_out_regions().items():
            if not any(self.region_weights(finding, first=True).values()):
                raise InputError(
                    f"regions[{finding!r}] must have another region than {region!r}, which part 'train' never uses"
                )

    def region_weights(self, finding: str, first: bool) -> Mapping[str, float]:
        """Return the weights of a finding's regions for the part, for the first or a further lesion of a study."""
        weights, held_out = self.regions[finding], held_out_regions().get(finding, "")
        if self.part == "all" or not weights.get(held_out):
            return weights
        if self.part == "held-out":
            return {held_out: 1.0} if first else weights
        return {name: weight for name, weight in weights.items() if name != held_out}

    @cached_property
    def likelihoods(self) -> FrozenMapping[str, Likelihood]:
        """Probabilities of being normal, of each finding and of each device, for sampling.

        The shares come out (nearly) as configured. With P(b | a) = f P(b | not a), preserving P(b) means a base of
        P(b) / (1 + P(a) (f - 1)). Several factors multiply as if they were independent, which they nearly are. Findings
        are sampled among studies that are not normal, and again if none came up, so their bases are lowered by that
        probability.
        """
        shares: dict[str, float] = {
            **dict.fromkeys(_EVERYTHING, 0.0),
            **self.prevalence,
            **self.devices,
            "portable": self.portable,
            "old": _share_above(OLD_AGE - 0.5, self.age_mean, self.age_std),
            "young": 1.0 - _share_above(YOUNG_AGE - 0.5, self.age_mean, self.age_std),
            "female": self.female,
            "normal": self.normal,
        }
        abnormal = max(1.0 - self.normal, 1e-9)
        within = {name: min(shares[name] / abnormal, 1.0) for name in FINDING_ORDER}
        some = 1.0
        for _ in range(50):
            some = 1.0 - math.prod(1.0 - min(share * some, _MOST_LIKELY) for share in within.values())
        drawn = _EVERYTHING[_EVERYTHING.index("normal") :]
        lifts: dict[str, dict[str, float]] = {name: {} for name in drawn}
        for given, targets in self.cooccurrence.items():
            for target, factor in targets.items():
                # The relation is mutual, so the one sampled later depends on the one sampled earlier.
                first, second = sorted((given, target), key=_EVERYTHING.index)
                if second in lifts:
                    lifts[second][first] = factor
        found = {}
        for name in drawn:
            base = within[name] * some if name in within else shares[name]
            for given, factor in lifts[name].items():
                common = within[given] if name in within and given in within else shares[given]
                base /= max(1.0 + common * (factor - 1.0), 1e-6)
            found[name] = Likelihood(base, tuple(lifts[name].items()))
        return FrozenMapping(found)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> PhantomConfig:
        """Return the defaults, overridden by the mapping.

        Tables of findings are merged name by name; a finding's regions and forms are replaced completely.

        >>> PhantomConfig.from_mapping({"prevalence": {"nodule": 0.2}}).prevalence["nodule"]
        0.2
        """
        names = [entry.name for entry in fields(cls)]
        merged = {name: read_data("defaults.toml")[name] for name in names}
        for name, value in _table("configuration", mapping, names, "field").items():
            default = merged[name]
            tables = isinstance(default, dict) and isinstance(value, Mapping)
            merged[name] = {**default, **value} if tables else value
            for given, lifts in value.items() if tables and name == "cooccurrence" else ():
                if isinstance(lifts, Mapping):
                    merged[name][given] = {**default.get(given, {}), **lifts}
        return cls(**merged)


@cache
def default_config() -> PhantomConfig:
    """Return the default configuration."""
    return PhantomConfig.from_mapping({})
