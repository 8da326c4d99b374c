"""Names and columns as at https://www.kaggle.com/c/siim-acr-pneumothorax-segmentation/data; the first release's header
has a blank before its second name, the second stage's has none.
"""

import csv
import gzip

import numpy as np

from rightlung.studies.check import check_source
from rightlung.studies.index import IndexedSource
from tests.studies.conftest import there
from tests.studies.readers.published import NEGATIVE, POSITIVE, Files, places, real_table

ONE, TWO, THREE = (f"1.2.276.0.7230010.3.1.4.8323329.{number}.1517875201.850819" for number in (1000, 2000, 3000))
ROWS = [f"{ONE},-1", f"{TWO}, 0 10 1014 10", f"{TWO},2048 5", f"{THREE},1024 1024"]


def write(
    files: Files, rows: list[str] = ROWS, table: str = "train-rle.csv", header: str = "ImageId, EncodedPixels"
) -> IndexedSource:
    files.table(table, header, rows)
    for name in (f"train/a/b/{ONE}", f"train/c/d/{TWO}", f"test/e/f/{THREE}"):
        path = f"dicom-images-{name}.dcm"
        files.dicom(path, PatientID="p-7", PatientAge="024Y", PatientSex="M", ViewPosition="PA")
    return files.open("siim")


def test_masks_go_down_the_columns_and_are_united(files: Files) -> None:
    source = write(files)
    assert (list(source.ids), source.problems) == ([ONE, TWO, THREE], [])
    (phrase,) = source.study(TWO).phrases
    assert (phrase.text, phrase.findings) == ("pneumothorax", {"pneumothorax": POSITIVE})
    mask, third = there(phrase.mask), there(source.study(THREE).phrases[0].mask)
    assert mask.size == (1024, 1024)
    expected = np.zeros((1024, 1024), dtype=bool)
    expected[:10, 0] = expected[:10, 1] = expected[:5, 2] = True
    np.testing.assert_array_equal(mask.pixels, expected)
    assert np.flatnonzero(third.pixels.any(axis=0)).tolist() == [1]  # one whole column


def test_minus_one_is_no_pneumothorax(files: Files) -> None:
    study = write(files)[0]
    assert (study.findings, study.phrases) == ({"pneumothorax": NEGATIVE}, ())
    # From the header, which names the patient, too; that is not read.
    assert (study.age, study.sex, study.view, study.patient) == (24.0, "M", "PA", None)
    assert study.image.shape == (6, 4)


def test_the_second_stage_is_read(files: Files) -> None:
    assert len(write(files, table="stage_2_train.csv", header="ImageId,EncodedPixels")) == 3


def test_a_check_names_the_table_and_its_line(files: Files) -> None:
    write(files, [*ROWS, f"{ONE}9,-1"])
    for path in files.root.rglob(f"{THREE}.dcm"):
        files.dicom(str(path), ViewPosition="LL")
    findings = check_source(f"siim:{files.root}").findings
    views = {(f.place.file, f.place.row) for f in findings if f.place.study == THREE and f.field == "view"}
    assert views == {("train-rle.csv", 5)}
    rows = [(f.check, f.place.row, f.field) for f in findings if f.place.study is None and f.place.row]
    assert rows == [("missing-image", 6, "ImageId")]
    assert all(f.place.file == "train-rle.csv" and f.place.row for f in findings if f.place.study is not None)


def test_bad_rows_are_named(files: Files) -> None:
    source = write(files, [*ROWS, f"{ONE}9,-1", f"{ONE},1 2 3", f"{ONE},", f"{ONE},1048576 1", "../x,-1"])
    assert places(source) == [(6, "ImageId"), *((line, "EncodedPixels") for line in (7, 8, 9)), (10, "ImageId")]
    assert "add up to 1,048,577" in source.problems[3].message


def test_what_is_missing_altogether_is_an_error(files: Files) -> None:
    files.refuses("siim", "has no table of masks")
    files.table("train-rle.csv", "ImageId, Pixels", ROWS)
    files.refuses("siim", "no folder with images")
    (files.root / "dicom-images-train").mkdir()
    files.refuses("siim", "no column 'EncodedPixels'")


def test_the_real_table_reads(files: Files) -> None:
    """All 12,047 images of the real table's rows are named; 600 of them, given one file, are compared mask by mask."""
    path = real_table("siim-pneumothorax-train-rle.csv.gz")
    (files.root / "train-rle.csv.gz").write_bytes(path.read_bytes())
    with gzip.open(path, "rt", newline="") as file:
        rows = list(csv.reader(file))[1:]
    names = list(dict.fromkeys(name for name, _ in rows))
    assert len(names) == 12_047
    kept = names[:600]
    files.images(f"dicom-images-train/{name}.png" for name in kept)
    source = files.open("siim")
    assert list(source.ids) == kept
    areas: dict[str, set[int]] = {name: set() for name in kept}
    for name, text in rows:
        if name in areas and text.strip() != "-1":
            position = 0
            numbers = [int(word) for word in text.split()]
            for gap, length in zip(numbers[0::2], numbers[1::2], strict=True):
                position += gap
                areas[name] |= set(range(position, position + length))
                position += length
    positive = 0
    for study in source:
        mask = study.phrases[0].mask if study.phrases else None
        assert (mask is None) == (not areas[study.id])
        if mask is not None and positive < 40:
            positive += 1
            assert set(np.flatnonzero(mask.pixels.T.ravel()).tolist()) == areas[study.id]
            # A pneumothorax lies in the chest: not at the image's very top left, where a wrong origin would put it.
            assert mask.area < 0.3
    assert positive == 40
