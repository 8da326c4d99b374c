"""The `siim` reader: SIIM-ACR Pneumothorax Segmentation, frontal radiographs with masks of the pneumothorax.

::

    siim:/data/siim
        train-rle.csv                     or stage_2_train.csv: ImageId, EncodedPixels
        dicom-images-train/…/…/ID.dcm     and dicom-images-test/…, in any depth (or png, jpg)

From https://www.kaggle.com/c/siim-acr-pneumothorax-segmentation/data (also
https://www.kaggle.com/datasets/jesperdramsch/siim-acr-pneumothorax-segmentation-data). The images are NIH
ChestX-ray14's, annotated by members of the Society for Imaging Informatics in Medicine and the Society of Thoracic
Radiology; the competition's rules allow non-commercial and academic use.

- Masks are *relative* run lengths over 1024 x 1024 pixels, column by column (`rightlung.studies.rle`); an image's
  masks are united. ``-1`` stands for no pneumothorax, which is then negative.
- One phrase, "pneumothorax", with the mask, where there is one.
- Rows whose image is not below the folder are problems; images without a row are not read.
- Age, sex and view are in the DICOM header, read when a study is built. Which images are of one patient is unknown, and
  no split is published. Where both tables are there, the second stage's is read, which takes in the first's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from rightlung.core import InputError, Mask, Phrase, Polarity, Study
from rightlung.studies.building import Building
from rightlung.studies.headers import image_kind, tree_header
from rightlung.studies.index import IndexedSource
from rightlung.studies.readers.labelled import IMAGE_SUFFIXES, finding_phrase, first_folders
from rightlung.studies.rle import NO_MASK, RelativeRle, relative_runs
from rightlung.studies.sources import Address
from rightlung.studies.tables import CsvTable, TableRow
from rightlung.studies.trees import FileImage, find_file, walk_files

SIZE = (1024, 1024)
"""Height and width of the masks, and of all images of the competition."""
TABLES = ("stage_2_train.csv", "train-rle.csv")
_FOLDERS = ("dicom-images-train", "dicom-images-test", "stage_2_images", "train", "images")


class SiimSource(IndexedSource):
    """The annotated images of the competition, in the order in which the table names them first."""

    reader: ClassVar[str] = "siim"
    columns: ClassVar[Mapping[str, Any]] = {"image": "string", "masks": "string"}

    def inputs(self) -> Sequence[Path]:
        """Return the table and the folders with images."""
        return [find_file(self.root, *TABLES, what="table of masks"), *(self.root / name for name in self._folders())]

    def _folders(self) -> list[str]:
        folders = first_folders(self.root, *_FOLDERS)
        if not folders:
            raise InputError(f"{self.root} has no folder with images ({' or '.join(_FOLDERS)})")
        return folders

    def records(self, building: Building) -> Iterator[Mapping[str, Any]]:
        """Yield a record for each image that the table names."""
        images: dict[str, str] = {}
        for folder in self._folders():
            for path in walk_files(self.root / folder, IMAGE_SUFFIXES, building.problems):
                images.setdefault(path.stem, path.relative_to(self.root).as_posix())
                building.step()
        path = find_file(self.root, *TABLES)
        # The first release writes a blank before the second column's name, which the table takes off.
        table = CsvTable(path, ("ImageId", "EncodedPixels"), problems=building.problems, root=self.root)

        def parse(row: TableRow) -> tuple[str, int, str]:
            name = row.identifier("ImageId")
            if name not in images:
                message = f"there is no image {name}.dcm in {' or '.join(self._folders())}"
                raise row.error("ImageId", message, "missing-image")
            text = row.required("EncodedPixels")
            if text != NO_MASK:
                try:
                    relative_runs(text, SIZE)
                except InputError as error:
                    raise row.error("EncodedPixels", str(error), "unreadable-mask") from None
            return name, row.line, text

        found: dict[str, tuple[int, list[str]]] = {}
        for name, line, text in table.read(parse):
            masks = found.setdefault(name, (line, []))[1]
            if text != NO_MASK:
                masks.append(text)
        for name, (line, masks) in found.items():
            yield {"id": name, "file": table.name, "line": line, "image": images[name], "masks": "\n".join(masks)}

    def build_study(self, record: dict[str, Any]) -> Study:
        """Make a study of its record and of its image's header."""
        what = f"study {record['id']!r}: image {self.root / record['image']}"
        try:
            header = tree_header(self.root, record["image"], what)
        except InputError as error:
            raise self.problem(record, "ImageId", str(error), image_kind(error)) from error
        texts = tuple(record["masks"].splitlines())
        phrases: tuple[Phrase, ...] = ()
        if texts:
            mask = Mask.deferred(RelativeRle(f"study {record['id']!r}: mask", texts, SIZE))
            phrases = (finding_phrase("pneumothorax", mask=mask),)
        return Study(
            id=record["id"],
            load=FileImage(record["id"], str(self.root), record["image"]),
            view=header.view,
            age=header.age,
            sex=header.sex,
            phrases=phrases,
            findings={"pneumothorax": Polarity.POSITIVE if texts else Polarity.NEGATIVE},
            source=self.address,
            extra={"masks": len(texts)},
        )


def open_siim(address: Address) -> SiimSource:
    """Open ``siim:PATH``; parameter ``limit``."""
    return SiimSource(address)
