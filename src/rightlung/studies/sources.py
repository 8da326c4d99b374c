"""Sources: data sets with an address, opened by the reader of the address's scheme.

An address is ``scheme``, then ``:path`` and ``?name=value&name=value`` if the scheme takes them:
``manifest:/data/mine.tar?split=val&limit=100``. The path is literal up to the *last* question mark; names and values of
parameters may be percent-encoded.
"""

from __future__ import annotations

import difflib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, unquote

from rightlung.core import FrozenMapping, InputError, Report, Study
from rightlung.core.errors import unknown_name
from rightlung.core.keyed import key_uniform
from rightlung.core.problem import Problem, ProblemError
from rightlung.core.progress import Progress, no_progress

_SCHEME = re.compile(r"[a-z][a-z0-9-]*")
_BUILT_AT_ONCE = 16
PATH_PARAMETERS = ("annotation", "config", "images", "reports", "tables", "views")
"""Parameters of addresses that are paths."""
SECTION, SECTIONS = "report", ("findings", "impression")
"""The parameter of every address that cuts reports to one section, and its values."""
REGIONS = "regions"
"""The parameter of every address that names a model to find the regions of studies without any."""
PATIENTS = "patients"
"""The parameter of every address that keeps a share of the patients: ``0-80`` is the first 80 %."""


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of an address: ``scheme:path?parameters``."""

    scheme: str
    path: str = ""
    parameters: Mapping[str, str] = field(default_factory=FrozenMapping)
    text: str = field(default="", compare=False)
    """The address as written."""

    def __str__(self) -> str:
        return self.text or self.scheme

    def check_parameters(self, known: Iterable[str]) -> None:
        """Reject unknown parameters, suggesting the closest known one."""
        names = list(known)
        for name in self.parameters:
            if name not in names:
                raise unknown_name(f"parameter of source {self.scheme!r}:", name, names)

    def whole_number(self, name: str, minimum: int = 0) -> int | None:
        """Return a parameter as an integer of at least ``minimum``, None if it is not given."""
        text = self.parameters.get(name)
        if text is None:
            return None
        if not re.fullmatch(r"-?[0-9]{1,18}", text) or int(text) < minimum:
            raise InputError(f"address {self}: {name} must be an integer of at least {minimum}; got {text!r}")
        return int(text)


class Source(ABC):
    """Studies in a fixed order, by position and by id.

    A source can be pickled (for data-loader workers) and used from several threads and processes. Studies are built on
    request; their images are loaded on first use of ``study.image``.
    """

    has_twins = False
    """Whether its studies have exact twins (`Study.twin`)."""
    signs: tuple[str, ...] = ()
    """Planted signs that its twins can be rendered without, or with."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.problems: list[Problem] = []
        """Skipped rows with the reason. Rows that fail during iteration are added once each."""
        self._failed: set[int] = set()

    @property
    @abstractmethod
    def ids(self) -> Sequence[str]:
        """The ids of all studies, in order."""

    @abstractmethod
    def _build(self, position: int) -> Study:
        """Return the study at a position from 0 to ``len(self) - 1``.

        A bad row raises `ProblemError`, or any `InputError` if its place is unknown.
        """

    @cached_property
    def _places(self) -> dict[str, int]:
        return {study_id: position for position, study_id in enumerate(self.ids)}

    def patients(self) -> Iterator[str | None]:
        """Yield the patient of each study, None where unknown."""
        return (study.patient for study in self)

    def _position(self, study_id: str) -> int | None:
        """Return the position of a study, None if there is none with this id."""
        return self._places.get(study_id)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_places"}

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, position: int) -> Study:
        if isinstance(position, bool) or not isinstance(position, int):
            raise TypeError(f"a source is indexed by position (an integer); use study(id) for an id; got {position!r}")
        if not -len(self) <= position < len(self):
            raise IndexError(f"source {self.address} has {len(self)} studies; there is none at position {position}")
        return self._build(position % len(self))

    def study(self, study_id: str) -> Study:
        """Return the study with this id; if there is none, the error suggests a similar one."""
        position = self._position(study_id)
        if position is None:
            # Comparing with hundreds of thousands of ids would take seconds.
            near = difflib.get_close_matches(str(study_id), self.ids[:10_000], n=1)
            suggestion = f"; did you mean {near[0]!r}?" if near else ""
            raise InputError(f"source {self.address} has no study {study_id!r}{suggestion}")
        return self._build(position)

    def __iter__(self) -> Iterator[Study]:
        """Yield the studies in order. A row that fails only now is added to `problems` and skipped."""
        for position in range(len(self)):
            try:
                study = self._build(position)
            except InputError as error:
                if position not in self._failed:
                    self._failed.add(position)
                    own = error.problem if isinstance(error, ProblemError) else None
                    self.problems.append(own or Problem(f"study {self.ids[position]!r}", str(error)))
                continue
            yield study

    def place(self, study_id: str) -> tuple[str, int | None] | None:
        """Return the file and line of a study, None if the source does not know."""
        return None

    def image_identity(self, position: int) -> str | None:
        """Return a text that changes whenever the image file of a study does; None if unknown or not from a file."""
        return None

    def __repr__(self) -> str:
        return f"<source {self.address}: {len(self)} studies, {len(self.problems)} problems>"


class InMemorySource(Source):
    """All studies of a source in memory, under its address, if they are expensive to make and read more than once."""

    def __init__(self, source: Source, progress: Progress = no_progress) -> None:
        super().__init__(source.address)
        self._studies: list[Study] = []
        for study in source:
            self._studies.append(study)
            progress("making studies", len(self._studies), len(source))
        self.problems = list(source.problems)

    @property
    def ids(self) -> Sequence[str]:
        """The ids of all studies, in order."""
        return [study.id for study in self._studies]

    def _build(self, position: int) -> Study:
        return self._studies[position]


class ChangedSource(Source):
    """A source with the studies of another one, each changed by `change`."""

    def __init__(self, source: Source, address: str) -> None:
        super().__init__(address)
        self._source, self.problems, self.has_twins = source, source.problems, source.has_twins

    @property
    def ids(self) -> Sequence[str]:
        """The ids of all studies, in order."""
        return self._source.ids

    @abstractmethod
    def change(self, study: Study) -> Study:
        """Return the study that stands for one of the other source."""

    def _build(self, position: int) -> Study:
        return self.change(self._source._build(position))

    def patients(self) -> Iterator[str | None]:
        """Yield the patient of each study, None where unknown."""
        return self._source.patients()

    def place(self, study_id: str) -> tuple[str, int | None] | None:
        """Return the file and line of a study, None if the source does not know."""
        return self._source.place(study_id)

    def image_identity(self, position: int) -> str | None:
        """Return a text that changes whenever the image file of a study does."""
        return self._source.image_identity(position)


class SectionSource(ChangedSource):
    """A source whose reports are cut to one section: ``report=findings`` in any address.

    A report without this section, or with nothing in it, is left out; everything else stays.
    """

    def __init__(self, source: Source, section: str, address: str) -> None:
        super().__init__(source, address)
        self._section = section

    def change(self, study: Study) -> Study:
        """Return the study with one section of its report."""
        text = "" if study.report is None else study.report.sections.get(self._section, "").strip()
        return replace(study, report=Report(text, {self._section: text}) if text else None)


class RegionSource(ChangedSource):
    """A source whose studies without regions get those that a model finds: ``regions=anatomy`` in any address.

    The image of a study without regions is read when the study is built. A study whose anatomy is not found is left
    out and listed among the problems.
    """

    def __init__(self, source: Source, model: str, address: str) -> None:
        super().__init__(source, address)
        self._model = model
        self._finding().finder(model)  # refuses a model that cannot be loaded

    @staticmethod
    def _finding() -> Any:
        return import_module("rightlung.models.anatomy.finding")  # by name, because models read studies, too

    def change(self, study: Study) -> Study:
        """Return the study with the regions that the model is sure of."""
        if study.regions:
            return study
        return replace(study, regions=self._finding().find_regions(study.image, self._model, f"study {study.id!r}"))


class PatientsSource(Source):
    """Studies of a share of another source's patients: ``patients=0-80`` in any address.

    A hash of the name decides, so ``patients=80-100`` has the other patients, in every run. A study without a patient
    counts as a patient of its own.
    """

    def __init__(self, source: Source, share: str, address: str) -> None:
        super().__init__(address)
        found = re.fullmatch(r"([0-9]{1,3})-([0-9]{1,3})", share)
        first, end = map(int, found.groups()) if found else (0, 0)
        if not first < end <= 100:
            raise InputError(f"address {address!r}: patients must be two percentages, such as 0-80; got {share!r}")
        self._source, self.problems, self.has_twins = source, source.problems, source.has_twins
        named = zip(source.ids, source.patients(), strict=True)
        self._kept = [place for place, (study, patient) in enumerate(named)
                      if first <= 100 * key_uniform("patients", patient or study) < end]  # fmt: skip

    @cached_property
    def ids(self) -> Sequence[str]:
        """The ids of the studies, in order."""
        every = self._source.ids
        return [every[place] for place in self._kept]

    def _build(self, position: int) -> Study:
        return self._source._build(self._kept[position])

    def patients(self) -> Iterator[str | None]:
        """Yield the patient of each study, None where unknown."""
        every = list(self._source.patients())
        return (every[place] for place in self._kept)

    def place(self, study_id: str) -> tuple[str, int | None] | None:
        """Return the file and line of a study, None if the source does not know."""
        return self._source.place(study_id)

    def image_identity(self, position: int) -> str | None:
        """Return a text that changes whenever the image file of a study does."""
        return self._source.image_identity(self._kept[position])


def build_studies(source: Source, positions: Sequence[int], problems: dict[str, str]) -> dict[int, Study]:
    """Return studies by position, built together if the source can; errors go to ``problems`` by id."""
    at_once: Callable[[Sequence[int]], list[Study]] | None = getattr(source, "__getitems__", None)
    built: dict[int, Study] = {}
    for begin in range(0, len(positions), _BUILT_AT_ONCE):
        some = list(positions[begin : begin + _BUILT_AT_ONCE])
        if at_once is not None:
            try:
                built.update(zip(some, at_once(some), strict=True))
                continue
            except InputError:
                pass  # found out one by one below
        for position in some:
            try:
                built[position] = source[position]
            except InputError as error:
                study = source.ids[position]
                problems[study] = f"study {study!r}: {error}"
    return built


Opener = Callable[[Address], Source]


_openers: dict[str, str | Opener] = {
    "manifest": "rightlung.studies.manifest:ManifestSource",
    "painted": "rightlung.painting.source:open_painted",
    "phantom": "rightlung.phantom.source:open_phantom",
    "shapes": "rightlung.phantom.shapes:ShapesSource",
    **{
        scheme: f"rightlung.studies.readers.{scheme.replace('-', '_')}:{name}Source"
        for scheme, name in {
            "chestx-det": "ChestXDet", "chexlocalize": "CheXlocalize", "chexpert": "CheXpert", "egd": "Egd",
            "imagenome": "Imagenome", "mimic": "Mimic", "mscxr": "Mscxr", "nih": "Nih", "openi": "OpenI",
            "padchest-gr": "PadChestGr", "reflacx": "Reflacx", "rsna": "Rsna", "siim": "Siim", "vindr": "VinDr",
        }.items()
    },
}  # fmt: skip
"""The opener of each scheme, or its location: readers are imported on first use."""


def register_source(scheme: str, opener: Opener) -> None:
    """Open addresses of ``scheme`` with ``opener``, which receives the parsed `Address`."""
    if not _SCHEME.fullmatch(scheme):
        raise InputError(
            f"a scheme must consist of lower-case letters, digits and '-' and begin with a letter; got {scheme!r}"
        )
    if scheme in _openers:
        raise InputError(f"source {scheme!r} is already registered")
    _openers[scheme] = opener


def source_schemes() -> list[str]:
    """Return the known schemes."""
    return sorted(_openers)


def parse_address(address: str) -> Address:
    """Parse an address, without checking whether anything is there.

    >>> parse_address("manifest:/data/mine.tar?limit=100").path
    '/data/mine.tar'
    """
    if not isinstance(address, str) or not address.strip():
        raise InputError(f"an address must be a string such as manifest:/data/mine; got {address!r}")
    place, _, query = address.rpartition("?") if "?" in address else (address, "", "")
    scheme, _, path = place.partition(":")
    if not _SCHEME.fullmatch(scheme):
        raise InputError(
            f"address {address!r} does not begin with a kind of source; did you mean 'manifest:{address}'? "
            f"Known: {', '.join(source_schemes())}"
        )
    return Address(scheme, path, FrozenMapping(parse_parameters(query, address)), address)


def parse_parameters(query: str, address: str) -> dict[str, str]:
    """Return the parameters ``name=value&…`` of an address, decoded."""
    parameters: dict[str, str] = {}
    for part in query.split("&") if query else ():
        name, equals, value = part.partition("=")
        if not name or not equals:
            raise InputError(f"address {address!r}: a parameter is name=value; got {part!r}")
        try:
            name, value = unquote(name, errors="strict"), unquote(value, errors="strict")
        except UnicodeDecodeError:
            raise InputError(f"address {address!r}: parameter {part!r} is not UTF-8 when decoded") from None
        if name in parameters:
            raise InputError(f"address {address!r}: parameter {name!r} is given twice")
        parameters[name] = value
    return parameters


def absolute_address(address: str, folder: Path | None = None) -> str:
    """Return an address with its path and the paths among its parameters made absolute, if they exist.

    Relative paths are looked for in ``folder`` first, then in the working folder.

    >>> absolute_address("phantom?count=5&seed=3")
    'phantom?count=5&seed=3'
    """
    place, mark, query = address.rpartition("?") if "?" in address else (address, "", "")
    scheme, colon, path = place.partition(":")
    if scheme == "painted":  # the path is the address of another source
        return f"{scheme}:{absolute_address(path, folder)}{mark}{query}"
    parts = query.split("&")
    for number, part in enumerate(parts):
        name, _, value = part.partition("=")
        given = unquote(value)
        if name in PATH_PARAMETERS and (found := _absolute(given, folder)) != given:
            parts[number] = f"{name}={quote(found)}"
    return f"{scheme}{colon}{_absolute(path, folder)}{mark}{'&'.join(parts)}"


def _absolute(path: str, folder: Path | None) -> str:
    if not path or Path(path).is_absolute():
        return path
    places = [os.path.abspath(base / path) for base in (folder, Path()) if base is not None]  # noqa: PTH100  (no "..")
    return next(filter(_exists, places), path)


def open_source(address: str) -> Source:
    """Open the data set at an address; iterating over it yields `Study` values."""
    if isinstance(address, str) and address.partition("?")[0].partition(":")[0] not in _openers:
        for path in (address, address.rpartition("?")[0]):
            if _exists(path):
                raise InputError(
                    f"{path} is a path, but a source must say how to read it; did you mean 'manifest:{address}'?"
                )
    parsed = parse_address(address)
    opener = _openers.get(parsed.scheme)
    if opener is None:
        raise unknown_name("kind of source", parsed.scheme, source_schemes())
    if isinstance(opener, str):
        module, _, name = opener.partition(":")
        opener = cast(Opener, getattr(import_module(module), name))
    section, model, share = (parsed.parameters.get(name) for name in (SECTION, REGIONS, PATIENTS))
    if section is None and model is None and share is None:
        return opener(parsed)
    if section not in (None, *SECTIONS):
        raise unknown_name(f"address {address!r}: section of a report", section, SECTIONS)
    parts = address.rpartition("?")[2].split("&")
    kept = "&".join(part for part in parts if part.partition("=")[0] not in (SECTION, REGIONS, PATIENTS))
    source = opener(parse_address(address.rpartition("?")[0] + (f"?{kept}" if kept else "")))
    source = source if share is None else PatientsSource(source, share, address)
    source = source if section is None else SectionSource(source, section, address)
    return source if model is None else RegionSource(source, model, address)


def _exists(path: str) -> bool:
    try:
        return bool(path) and os.path.exists(path)  # noqa: PTH110  (Path would drop a trailing slash of the user's)
    except ValueError:
        return False
