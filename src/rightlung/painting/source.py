"""The `painted` source: findings painted into the normal films of another source.

``painted:manifest:/data/normals.tar?count=500&seed=7``, optionally with ``&split=train`` and whatever else the other
source knows, ``&untouched=0.25&control=0.1&findings=nodule,mass&absent=nih-14&size=512&config=FILE.toml``. The other
source may also have its own parameters: ``painted:phantom?count=9&seed=1?count=50&seed=7``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

from rightlung.core import Image, InputError, Polarity, Study
from rightlung.core.errors import check_known
from rightlung.core.problem import Problem
from rightlung.lexicon.findings import canonical_finding
from rightlung.lexicon.labeller import read_sentence
from rightlung.lexicon.labels import LABEL_SETS
from rightlung.painting.chest import fit_chest
from rightlung.painting.outlines import Outlines, find_outlines
from rightlung.painting.study import DEVICES, NO_FINDING, NOT_PAINTED, Plan, Recipe, make_studies, painting_config, plan
from rightlung.phantom.config import DEVICE_ORDER, FINDING_ORDER, LEAST_PIXELS, MOST_PIXELS, check_picture_size
from rightlung.phantom.source import open_config
from rightlung.studies.cache import cache_folder
from rightlung.studies.sources import Address, Source, open_source
from rightlung.studies.study_cache import reduced

PARAMETERS = ("count", "seed", "untouched", "control", "findings", "absent", "size", "config")
UNTOUCHED, CONTROL = 0.25, 0.1
"""The default shares of untouched films and of films painted with zero strength."""
_AT_ONCE = 8  # fits into the cache of a core


class PaintedSource(Source):
    """Painted studies in the order of the films; after the last film, they begin again with other findings.

    ``abnormal`` counts the films that are not painted, by what they are labelled with.
    """

    has_twins = True

    def __init__(self, address: str, films: Source, recipe: Recipe, count: int | None, size: int) -> None:
        super().__init__(address)
        self.films, self.recipe, self._size, self._count = films, recipe, size, count
        self.problems = list(films.problems)
        self.abnormal: Counter[str] = Counter()
        self._outlines: dict[int, Outlines] = {}

    @cached_property
    def _normal(self) -> list[tuple[int, str, str | None]]:
        """The normal films: position, id and patient of each."""
        normal, abnormal, problems = [], Counter[str](), []
        for position, name in enumerate(self.films.ids):
            try:
                study = self.films[position]
            except InputError as error:
                problems.append(Problem(f"study {name!r}", str(error)))
                continue
            if (finding := abnormality(study)) is not None:
                abnormal[finding] += 1
                continue
            normal.append((position, study.id, study.patient))
        if not normal:
            raise InputError(f"{self.address}: there is no normal film; {_skipped(abnormal)}")
        self.abnormal = abnormal
        self.problems += problems
        return normal

    def __len__(self) -> int:
        return len(self._normal) if self._count is None else self._count

    def _film(self, position: int) -> tuple[int, int]:
        """Return which of the normal films a study shows, and the number of its copy."""
        copy, place = divmod(position, len(self._normal))
        return place, copy

    @cached_property
    def ids(self) -> Sequence[str]:
        """The ids of all studies, in order."""
        places = map(self._film, range(len(self)))
        return [f"{self._normal[place][1]}-painted-{self.recipe.seed}-{copy}" for place, copy in places]

    def patients(self) -> Iterator[str | None]:
        """Yield the patient of each study."""
        return (self._normal[self._film(position)[0]][2] for position in range(len(self)))

    def _plan(self, position: int) -> Plan:
        place, copy = self._film(position)
        inner = self._normal[place][0]
        film = self.films[inner]
        film = replace(film, load=partial(_reduced, film, self._size))
        what = f"film {film.id!r}"
        if min(film.image.shape) < LEAST_PIXELS:
            raise InputError(f"{what}: it has fewer than {LEAST_PIXELS} pixels a side, too few to paint findings")
        if inner not in self._outlines:
            self._outlines[inner] = find_outlines(film.image, what, cache_folder() / "outlines")
        return plan(self.recipe, film, fit_chest(self._outlines[inner], film.image.shape, film.sex, what), copy)

    def _build(self, position: int) -> Study:
        return make_studies([self._plan(position)])[0]

    def __getitems__(self, positions: Sequence[int]) -> list[Study]:
        """Return several studies, painted together."""
        return make_studies([self._plan(position) for position in positions])

    def __iter__(self) -> Iterator[Study]:
        """Yield the studies in order, painted in batches; films without a visible anatomy become `problems`."""
        plans: list[Plan] = []
        for position in range(len(self)):
            try:
                plans.append(self._plan(position))
            except InputError as error:
                if position not in self._failed:
                    self._failed.add(position)
                    self.problems.append(Problem(f"study {self.ids[position]!r}", str(error)))
            if len(plans) == _AT_ONCE or position == len(self) - 1:
                yield from make_studies(plans)
                plans = []

    def image_identity(self, position: int) -> str | None:
        """Return a text that changes whenever the image file of the film does."""
        return self.films.image_identity(self._normal[self._film(position)[0]][0])

    def __repr__(self) -> str:
        films = f"{len(self)} studies of {len(self._normal)} normal films"
        return f"<source {self.address}: {films}; {_skipped(self.abnormal)}>"


def _skipped(abnormal: Counter[str]) -> str:
    some = ", ".join(f"{name} {count}" for name, count in abnormal.most_common(3))
    return f"{abnormal.total():,} films have a labelled abnormality" + (f" ({some}…)" if some else "")


def _reduced(film: Study, size: int) -> Image:
    return reduced(film.image, size)


def abnormality(study: Study) -> str | None:
    """Return a finding that a study is labelled with, outlined with or reported with; None for a normal film."""
    labelled = _present(study.findings)
    for phrase in (*study.phrases, *study.located_findings):
        labelled += _present(phrase.findings)
        if phrase.target_boxes and not phrase.findings:
            labelled.append(phrase.text)
        if not study.findings and not phrase.coded:
            labelled += _present({name: Polarity(kind) for name, kind in read_sentence(phrase.text).findings.items()})
    return next(iter(labelled), None)


def _present(findings: Mapping[str, Polarity]) -> list[str]:
    names = [canonical_finding(name) for name, kind in findings.items() if kind is not Polarity.NEGATIVE]
    return [name for name in names if name not in (NO_FINDING, DEVICES)]


def open_painted(address: Address) -> PaintedSource:
    """Open ``painted:ADDRESS?count=N&seed=S``; `PARAMETERS` lists its own parameters, others go to the inner source."""
    inner, own = address.path, dict(address.parameters)
    if not inner:
        raise InputError(f"address {address}: write painted:manifest:/data/normals.tar?count=500&seed=7")
    if "?" in inner:
        address.check_parameters(PARAMETERS)
    else:
        rest = "&".join(part for part in address.text.rpartition("?")[2].split("&")
                        if own and part.partition("=")[0] not in PARAMETERS)  # fmt: skip
        inner += f"?{rest}" if rest else ""
    seed = address.whole_number("seed")
    if seed is None:
        raise InputError(f"address {address} needs seed: painted:manifest:/data/normals.tar?seed=7")
    names = [name for name in own.get("findings", "").split(",") if name]
    for name in names:
        check_known(f"address {address}: finding", name, [n for n in FINDING_ORDER if n not in NOT_PAINTED] +
                    list(DEVICE_ORDER))  # fmt: skip
    absent = own.get("absent")
    if absent is not None:
        check_known(f"address {address}: label set in absent", absent, LABEL_SETS)
    config = painting_config(open_config(own.get("config"), None), names)
    untouched, control = _share(address, "untouched", UNTOUCHED), _share(address, "control", CONTROL)
    if untouched + control > 1.0:
        raise InputError(f"address {address}: untouched and control must sum to at most 1; got {untouched + control:g}")
    size = address.whole_number("size")
    recipe = Recipe(config, seed, untouched, control, absent, str(address))
    side = MOST_PIXELS if size is None else check_picture_size(size)
    return PaintedSource(str(address), open_source(inner), recipe, address.whole_number("count", minimum=1), side)


def _share(address: Address, name: str, default: float) -> float:
    text = address.parameters.get(name)
    try:
        value = default if text is None else float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise InputError(f"address {address}: {name} must be a number from 0 to 1; got {text!r}")
    return value
