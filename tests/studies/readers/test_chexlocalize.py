"""Format as at https://github.com/rajpurkarlab/cheXlocalize (README, and the sample in ``sample/``): ten findings an
image, a mask of zeros where there is none; the first release calls Lung Opacity "Airspace Opacity".
"""

from typing import Any

import numpy as np
import pytest

from rightlung.core import InputError, Mask
from rightlung.studies.index import IndexedSource
from rightlung.studies.readers.chexlocalize import FINDINGS
from tests.studies.conftest import there
from tests.studies.readers.published import CHEXPERT, NEGATIVE, POSITIVE, Files

ONE, TWO = (f"patient{patient}_study1_view1_frontal" for patient in (64541, 64542))
SIDE = "patient64542_study1_view2_lateral"


def masks(size: tuple[int, int] = (6, 4), **drawn: np.ndarray) -> dict[str, Any]:
    zeros = Mask(np.zeros(size)).to_rle()
    names = {name.replace("_", " "): Mask(pixels).to_rle() for name, pixels in drawn.items()}
    return {name: names.get(name, zeros) for name in dict.fromkeys([*FINDINGS, *names])}


def heart() -> np.ndarray:
    pixels = np.zeros((6, 4), dtype=bool)
    pixels[3:5, 1:3] = True
    return pixels


MARKED = masks(Cardiomegaly=heart(), Airspace_Opacity=~heart())
SEGMENTATIONS = {ONE: MARKED, TWO: masks(), SIDE: masks(Cardiomegaly=heart())}


def write(files: Files, segmentations: Any = SEGMENTATIONS, labels: bool = True) -> IndexedSource:
    files.json("CheXlocalize/gt_segmentations_val.json", segmentations)
    positive = {"64541": ("Cardiomegaly", "Lung Opacity", "Pneumonia"), "64542": (), "64543": ("Edema",)}
    rows = [
        f"CheXpert-v1.0/valid/patient{patient}/study1/view1_frontal.jpg,Male,73,Frontal,AP,"
        + ",".join("1.0" if label in names else "0.0" for label in CHEXPERT.split(","))
        for patient, names in positive.items()
    ]
    if labels:
        files.table("CheXpert/val_labels.csv", f"Path,Sex,Age,Frontal/Lateral,AP/PA,{CHEXPERT}", rows)
    for patient in positive:
        files.image(f"CheXpert/val/patient{patient}/study1/view1_frontal.jpg")
    return files.open("chexlocalize")


def test_a_mask_with_anything_in_it_is_a_phrase(files: Files) -> None:
    source = write(files)
    assert source.problems == []
    phrases = {phrase.text: phrase for phrase in source.study(ONE).phrases}
    assert set(phrases) == {"cardiomegaly", "lung opacity"}
    np.testing.assert_array_equal(there(phrases["cardiomegaly"].mask).pixels, heart())
    assert phrases["lung opacity"].findings == {"lung opacity": POSITIVE}
    assert source.study(TWO).phrases == ()


def test_images_with_labels_only_are_there_too_and_laterals_are_not(files: Files) -> None:
    source = write(files)
    assert list(source.ids) == [ONE, TWO, "patient64543_study1_view1_frontal"]
    assert dict(source.left_out) == {"lateral view": 1}
    study = source.study(ONE)
    assert (study.patient, study.exam, study.split) == ("patient64541", "patient64541_study1", "val")
    assert (study.age, study.sex, study.view) == (73.0, "M", "AP")
    assert study.findings.items() >= {"pneumonia": POSITIVE, "edema": NEGATIVE}.items()
    assert study.image.shape == (6, 4)


def test_without_labels_what_is_outlined_is_positive_and_the_rest_unknown(files: Files) -> None:
    source = write(files, labels=False)
    assert list(source.ids) == [ONE, TWO]
    assert source[0].findings == {"cardiomegaly": POSITIVE, "lung opacity": POSITIVE}
    assert source[1].findings == {}


def test_the_first_release_and_the_common_names_of_splits_are_read(files: Files) -> None:
    files.json("gt_segmentations_val.json", SEGMENTATIONS)
    files.image("CheXpert-v1.0/valid/patient64541/study1/view1_frontal.jpg")
    source = files.open("chexlocalize", "?split=valid&limit=1")
    assert source[0].image.shape == (6, 4)


def test_the_released_sample_decodes_to_an_empty_mask_of_its_size(files: Files) -> None:
    """Two values of ``sample/gt_segmentations_val.json``: images of 2320 x 2828 and 2022 x 2021 without the finding."""
    entries = {
        ONE: {"Lung Lesion": {"size": [2320, 2828], "counts": "PVWX6"}},
        TWO: {"Edema": {"size": [2022, 2021], "counts": "nefl3"}},
    }
    assert [study.phrases for study in write(files, entries)] == [(), (), ()]


@pytest.mark.parametrize(
    ("name", "entry", "message"),
    [
        ("../../etc", masks(), "an image's name must be like patient64541_study1"),
        (ONE, {"Wart": {"size": [6, 4], "counts": "PVWX6"}}, "'Wart' is not one of the ten"),
        (ONE, {"Edema": {"size": [6, 4]}}, "must have 'size' and 'counts', a string"),
        (ONE, {"Edema": {"size": [6], "counts": "00"}}, "two positive integers"),
        (ONE, [], "an image's entry must be an object"),
    ],
)
def test_a_bad_entry_is_named_and_left_out(files: Files, name: str, entry: Any, message: str) -> None:
    source = write(files, {name: entry, TWO: masks(Edema=heart())}, labels=False)
    assert list(source.ids) == [TWO]
    (problem,) = source.problems
    assert (problem.file, problem.field) == ("CheXlocalize/gt_segmentations_val.json", name)
    assert message in problem.message


def test_a_mask_that_does_not_decode_names_its_study(files: Files) -> None:
    study = write(files, {ONE: {"Edema": {"size": [6, 4], "counts": "11"}}})[0]
    mask = there(study.phrases[0].mask)
    with pytest.raises(InputError, match=f"study '{ONE}': mask of Edema: run lengths add up to 2"):
        _ = mask.pixels


def test_what_is_missing_altogether_is_an_error(files: Files) -> None:
    files.refuses("chexlocalize", r"has neither CheXlocalize/gt_segmentations_val\.json")
    (files.root / "gt_segmentations_test.json").write_text("{}")
    files.refuses("chexlocalize", "no folder with images")
