"""The `siim` reader: SIIM-ACR Pneumothorax Segmentation, frontal radiographs with masks of the pneumothorax.

The images are NIH ChestX-ray14's, annotated by members of the Society for Imaging Informatics in Medicine and the
Society of Thoracic Radiology; non-commercial and academic use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from rightlung.core import InputError, Mask, Study
from rightlung.studies.index import BuildLog
from rightlung.studies.readers.dataset import NIH_SIZE, DatasetSource, columns, grouped
from rightlung.studies.readers.labelled import finding_phrase, presence
from rightlung.studies.rle import NO_MASK, decode_relative, relative_runs
from rightlung.studies.tables import TableRow
from rightlung.studies.trees import IMAGE_SUFFIXES, walk_files

TABLES = ("stage_2_train.csv", "train-rle.csv")
_FOLDERS = ("dicom-images-train", "dicom-images-test", "stage_2_images", "train", "images")


class SiimSource(DatasetSource):
    """The annotated images, in the table's order; parameter ``limit``."""

    columns: ClassVar[Mapping[str, Any]] = columns("masks")

    def _inputs(self) -> Sequence[Path]:
        self._table = self.needed(*TABLES, what="table of masks")
        self._folders = self.image_folders(*_FOLDERS)
        return [self._table, *(self.root / name for name in self._folders)]

    def _records(self, log: BuildLog) -> Iterator[Mapping[str, Any]]:
        images: dict[str, str] = {}
        for folder in self._folders:
            for path in walk_files(self.root / folder, IMAGE_SUFFIXES, log.problems):
                images.setdefault(path.stem, path.relative_to(self.root).as_posix())
                log.step()

        def parse(row: TableRow) -> tuple[str, tuple[int, str]]:
            name = row.identifier("ImageId")
            if name not in images:
                message = f"there is no image {name}.dcm in {' or '.join(self._folders)}"
                raise row.error("ImageId", message, "missing-image")
            text = row.required("EncodedPixels")
            if text != NO_MASK:
                try:
                    relative_runs(text, NIH_SIZE)
                except InputError as error:
                    raise row.error("EncodedPixels", str(error), "unreadable-mask") from None
            return name, (row.line, text)

        # The first release has a blank before the second column's name, which the table strips.
        found = grouped(self.read(log, self._table, ("ImageId", "EncodedPixels"), parse))
        for name, rows in found.items():
            masks = "\n".join(text for _, text in rows if text != NO_MASK)
            yield {"id": name, "file": self._table.name, "line": rows[0][0], "image": images[name], "masks": masks}

    def _build_study(self, record: dict[str, Any]) -> Study:
        texts = tuple(record["masks"].splitlines())
        mask = Mask.deferred(partial(decode_relative, f"study {record['id']!r}: mask", texts, NIH_SIZE))
        return self.as_study(
            record,
            self.header(record, "ImageId"),
            phrases=(finding_phrase("pneumothorax", mask=mask),) if texts else (),
            findings={"pneumothorax": presence(texts)},
            extra={"masks": len(texts)},
        )
