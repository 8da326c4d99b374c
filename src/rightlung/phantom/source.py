"""The `phantom` source: synthetic studies, generated on request.

``phantom?count=500&seed=7``, optionally with
``&size=256&start=0&part=train&shortcut=marker=0.9,mirrored=0.1&config=FILE.toml``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from rightlung.core import InputError, Study
from rightlung.phantom.config import Part, PhantomConfig, check_picture_size, default_config
from rightlung.phantom.faults import PAINTED, Fault, parse_faults
from rightlung.phantom.study import iterate_studies, make_studies, patient_of, study_id
from rightlung.studies.sources import Address, Source

PARAMETERS = ("count", "seed", "size", "start", "shortcut", "config", "part")
MOST_STUDIES = 100_000_000
MOST_SEED = 2**53  # integers up to this one survive every JSON reader


class StudyIds(Sequence[str]):
    """The ids of consecutive studies, computed on request."""

    def __init__(self, seed: int, indices: range, part: Part) -> None:
        self._seed, self._indices, self._part = seed, indices, part

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            return StudyIds(self._seed, self._indices[position], self._part)
        return study_id(self._seed, self._indices[position], self._part)


class PhantomSource(Source):
    """Studies ``start`` to ``start + count - 1`` of a seed.

    A loop renders in batches, and so does a PyTorch data loader; single access gives the same studies.
    """

    has_twins = True

    def __init__(
        self, address: str, config: PhantomConfig, seed: int, indices: range, size: int, faults: Sequence[Fault] = ()
    ) -> None:
        super().__init__(address)
        self.config, self.seed, self.indices, self.size = config, seed, indices, check_picture_size(size)
        self.faults = tuple(faults)
        self.signs = tuple(fault.name for fault in self.faults if fault.name in PAINTED)

    @property
    def ids(self) -> Sequence[str]:
        """The ids of all studies, in order."""
        return StudyIds(self.seed, self.indices, self.config.part)

    def patients(self) -> Iterator[str | None]:
        """Yield the patient of each study, without rendering anything."""
        return (f"phantom-{self.seed}-p{patient_of(index)[0]:06d}" for index in self.indices)

    def _position(self, study_id_given: str) -> int | None:
        tail = str(study_id_given).rpartition("-")[2]
        if not tail.isascii() or not tail.isdigit() or len(tail) > 18 or int(tail) not in self.indices:
            return None
        own = study_id(self.seed, int(tail), self.config.part)
        return self.indices.index(int(tail)) if own == study_id_given else None

    def _build(self, position: int) -> Study:
        return self.__getitems__([position])[0]

    def __getitems__(self, positions: Sequence[int]) -> list[Study]:
        """Return several studies, rendered together."""
        wanted = [self.indices[position] for position in positions]
        return make_studies(self.config, self.seed, wanted, self.size, faults=self.faults, source=self.address)

    def __iter__(self) -> Iterator[Study]:
        """Yield the studies in order, rendered in batches."""
        return iterate_studies(self.config, self.seed, self.indices, self.size, faults=self.faults, source=self.address)


def open_phantom(address: Address) -> PhantomSource:
    """Open ``phantom?count=N&seed=S``; `PARAMETERS` lists the other parameters."""
    address.check_parameters(PARAMETERS)
    if address.path:
        raise InputError(f"address {address} has a path, but a phantom has none: write phantom?count=500&seed=7")
    count, seed = address.whole_number("count", minimum=1), address.whole_number("seed")
    if count is None or seed is None:
        raise InputError(f"address {address} needs {'count' if count is None else 'seed'}: phantom?count=500&seed=7")
    start = address.whole_number("start") or 0
    check_range(count, seed, start, f"address {address}: ")
    config = open_config(address.parameters.get("config"), address.parameters.get("part"))
    size = address.whole_number("size")
    shortcuts = address.parameters.get("shortcut", "")
    return PhantomSource(
        str(address),
        config,
        seed,
        range(start, start + count),
        config.size if size is None else size,
        parse_faults(part for part in shortcuts.split(",") if part.strip()),
    )


def check_range(count: int, seed: int, start: int = 0, where: str = "") -> None:
    """Reject counts and seeds that are negative or too large."""
    if count < 1 or start < 0 or start + count > MOST_STUDIES:
        asked = f"{count:,}" + (f" from {start:,} on" if start else "")
        raise InputError(f"{where}count must be at least 1 and end within {MOST_STUDIES:,} studies; got {asked}")
    if not 0 <= seed <= MOST_SEED:
        raise InputError(f"{where}seed must be an integer from 0 to {MOST_SEED}; got {seed}")


def open_config(path: str | Path | None, part: str | None) -> PhantomConfig:
    """Return the configuration of a file or the default one, with another part if one is given."""
    config = default_config() if path is None else read_config(path)
    return config if part is None else replace(config, part=cast("Part", part))  # the configuration checks it


def read_config(path: str | Path) -> PhantomConfig:
    """Read a configuration from a TOML file; missing fields keep their defaults."""
    try:
        return PhantomConfig.from_mapping(tomllib.loads(Path(path).read_text(encoding="utf-8")))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: the configuration is not TOML: {error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: the configuration is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: the configuration cannot be read ({reason})") from None
