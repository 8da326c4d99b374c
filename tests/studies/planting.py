"""A sound folder, copies of it to plant faults into, and the faults: where each must be found."""

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image

from rightlung.phantom.config import default_config
from rightlung.phantom.write import PhantomJob, write_phantom
from rightlung.studies.check import CheckResult, check_source
from tests.studies.conftest import encode

COUNT, SIZE = 36, 96
Rows = list[dict[str, Any]]


def write_sound(folder: Path) -> None:
    """Write a folder as ``rightlung phantom`` does, with a split for each patient."""
    write_phantom(PhantomJob(folder, default_config(), COUNT, 3, SIZE, (), False))
    rows = [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]
    patients = sorted({row["patient"] for row in rows})
    for row in rows:
        row["split"] = "train" if patients.index(row["patient"]) < len(patients) // 2 else "val"
        row.pop("gaze")
    for row in rows[6:]:  # masks take time, and a few tell all
        row["masks"] = []
        for phrase in row["phrases"]:
            phrase["mask"] = None
    write_rows(folder, rows)


def write_rows(folder: Path, rows: Rows) -> None:
    path = folder / "manifest.jsonl"
    path.unlink(missing_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


class Planting:
    """A copy of the sound folder to plant faults into; files are links until they are written to."""

    def __init__(self, sound: Path, folder: Path) -> None:
        self.folder = folder
        for path in sound.rglob("*"):
            if path.is_file() and path.name != "manifest.jsonl":
                copied = folder / path.relative_to(sound)
                copied.parent.mkdir(parents=True, exist_ok=True)
                os.link(path, copied)
        self.rows: Rows = [json.loads(line) for line in (sound / "manifest.jsonl").read_text().splitlines()]

    right_lung: str = ""
    """The file of row 5's mask of the right lung."""

    def save(self, name: str, content: bytes) -> None:
        path = self.folder / name
        path.unlink(missing_ok=True)
        path.write_bytes(content)

    def pixels(self, name: str) -> Any:
        return np.asarray(PIL.Image.open(self.folder / name))

    def save_pixels(self, name: str, pixels: Any) -> None:
        self.save(name, encode(pixels))

    def check(self, query: str = "", **options: Any) -> CheckResult:
        write_rows(self.folder, self.rows)
        return check_source(f"manifest:{self.folder}{query}", **options)

    def row_where(self, fits: Callable[[dict[str, Any]], bool]) -> int:
        """Return the index of the first row that fits."""
        return next(index for index, row in enumerate(self.rows) if fits(row))


Plant = Callable[[Planting], object]
MASK = "masks/planted.png"


def set_fields(**fields: object) -> Plant:
    """Give row 5 other fields."""
    return lambda planting: planting.rows[4].update(copy.deepcopy(fields))


def add_to(field: str, key: str, value: object) -> Plant:
    """Give a field of row 5, an object, one more entry."""
    return lambda planting: planting.rows[4][field].update({key: value})


def set_box(box: object) -> Plant:
    """Give row 5 one more box."""

    def plant(planting: Planting) -> None:
        planting.rows[4]["boxes"] = [{"label": "atelectasis", "box": box}]
        planting.rows[4]["findings"].pop("atelectasis", None)

    return plant


def damage(name: str, content: bytes | None) -> Plant:
    def plant(planting: Planting) -> None:
        path = planting.rows[4][name]
        if content is None:
            (planting.folder / path).unlink()
        else:
            planting.save(path, content)

    return plant


def cut_image(planting: Planting) -> None:
    path = planting.rows[4]["file"]
    planting.save(path, (planting.folder / path).read_bytes()[:-900])


def change_image(change: Callable[[Any], Any]) -> Plant:
    """Change the pixels of row 5's image."""

    def plant(planting: Planting) -> None:
        path = planting.rows[4]["file"]
        planting.save_pixels(path, change(planting.pixels(path).copy()))

    return plant


def filled(value: int, rows: slice = slice(None), columns: slice = slice(None)) -> Plant:
    """Fill a part of row 5's image with one grey."""

    def change(pixels: Any) -> Any:
        pixels[rows, columns] = value
        return pixels

    return change_image(change)


blank_image = filled(90)
noise_image = change_image(lambda pixels: np.random.default_rng(0).integers(0, 256, (SIZE, SIZE), dtype=np.uint8))


def half_an_image(planting: Planting) -> None:
    for phrase in planting.rows[4]["phrases"]:
        phrase["mask"] = None
    change_image(lambda pixels: pixels[: SIZE // 2])(planting)


def set_mask(pixels: Any, label: str = "atelectasis") -> Plant:
    """Give row 5 this mask only; a function makes it from the mask of its right lung."""

    def plant(planting: Planting) -> None:
        planting.save_pixels(MASK, pixels(planting.pixels(planting.right_lung)) if callable(pixels) else pixels)
        planting.rows[4]["masks"] = [{"label": label, "file": MASK}]
        planting.rows[4]["findings"].pop(label, None)

    return plant


def rectangle(top: int, bottom: int, left: int, right: int) -> Any:
    pixels = np.zeros((SIZE, SIZE), bool)
    pixels[top:bottom, left:right] = True
    return pixels


def broken_mask(planting: Planting) -> None:
    planting.save(MASK, b"no image")
    planting.rows[4]["masks"] = [{"label": "right lung", "file": MASK}]


def say(planting: Planting, *phrases: dict[str, Any]) -> None:
    """Let row 5 say something else, in its phrases and in its report."""
    planting.rows[4]["phrases"] = list(phrases)
    planting.rows[4]["text"] = " ".join(phrase["text"] for phrase in phrases)


def saying(*phrases: dict[str, Any], mask: Any = None) -> Plant:
    """Let row 5 say something else; ``mask`` is the planted mask of the phrases that name it."""

    def plant(planting: Planting) -> None:
        if mask is not None:
            planting.save_pixels(MASK, mask)
        say(planting, *copy.deepcopy(phrases))

    return plant


def mask_elsewhere(planting: Planting) -> None:
    x, y = (round(SIZE * value) for value in planting.rows[4]["regions"]["right lung"][2:])
    set_mask(rectangle(y - 8, y, x - 8, x), "right lung")(planting)  # a corner of it


def jpeg_of_another(planting: Planting) -> None:
    planting.save("images/again.jpg", encode(planting.pixels(planting.rows[2]["file"]), "JPEG", quality=80))
    planting.rows[4]["file"] = "images/again.jpg"


def whole_boxes(planting: Planting) -> None:
    planting.rows[4]["boxes"] = []
    say(planting, *({"text": text, "boxes": [[0, 0, 1, 1]]} for text in ("An opacity.", "A haze.")))


def id_like_the_third(change: Callable[[str], str]) -> Plant:
    return lambda planting: planting.rows[4].update(id=change(planting.rows[2]["id"]))


def double_blank(planting: Planting) -> None:
    findings = planting.rows[4]["findings"]
    findings["hiatal  hernia"] = findings.pop("hiatal hernia")


def no_finding_besides_many(planting: Planting) -> None:
    both = {"no finding": "positive", "mass": "positive"}
    set_fields(findings=both, boxes=[{"label": "pleural effusion", "box": [0.6, 0.6, 0.9, 0.9]}] * 3)(planting)
    say(planting, {"text": "A mass.", "findings": both})


wrong_side_phrase = saying({"text": "Left lower lobe opacity.", "boxes": [[0.15, 0.6, 0.35, 0.8]]})


def two_splits(planting: Planting) -> None:
    first = planting.rows[0]
    planting.rows[4]["patient"] = first["patient"]
    planting.rows[4]["split"] = "val" if first["split"] == "train" else "train"
    for row in planting.rows[5:]:
        assert row["patient"] != first["patient"]


def twice_the_image(planting: Planting) -> None:
    planting.save(planting.rows[4]["file"], (planting.folder / planting.rows[2]["file"]).read_bytes())


def two_patients_of_an_exam(planting: Planting) -> None:
    planting.rows[0]["study"] = planting.rows[4]["study"] = "e1"


LOCATED = {"findings": {"pleural effusion": "negative"}, "phrases": [],
           "boxes": [{"label": "pleural effusion", "box": [0.6, 0.6, 0.9, 0.9]}]}  # fmt: skip
YES_AND_NO = {"findings": {"Pulmonary Oedema": "positive", "edema": "negative"}, "boxes": [], "phrases": []}
EMPTIED = {"text": "", "sections": {"findings": "", "impression": " ", "comparison": ""}}
BAND = {"text": "A band.", "boxes": [[30 / SIZE, 50 / SIZE, 80 / SIZE, 58 / SIZE]], "mask": MASK}
AT_TOP = add_to("regions", "left costophrenic angle", [0.75, 0.05, 0.85, 0.15])
SPLEEN = {"text": "The spleen is enlarged."}
WRONG_SIDE = add_to("regions", "left apical zone", [0.2, 0.1, 0.35, 0.2])
RIGHT_AND_LEFT = {"text": "Right basal opacity.", "regions": ["left lower lung zone"]}
NODULE = {"text": "A nodule.", "boxes": [[0.6, 0.7, 0.7, 0.8]], "mask": MASK}
SECTIONS = {"findings": "The lungs are clear.", "impression": "   "}
PLANTED: dict[str, tuple[Plant, str, str | None]] = {
    "no image": (damage("file", None), "missing-image", "file"),
    "no image's name": (set_fields(file=None), "missing-image", "file"),
    "a text as image": (damage("file", b"<html>404</html>"), "unreadable-image", "file"),
    "an empty image file": (damage("file", b""), "unreadable-image", "file"),
    "a truncated image": (cut_image, "unreadable-image", "file"),
    "a blank image": (blank_image, "blank-image", "file"),
    "an image that was cut off": (filled(128, slice(60, None)), "blank-image", "file"),
    "the same image twice": (twice_the_image, "duplicate-image", "file"),
    "the same id twice": (id_like_the_third(str), "duplicate-id", "id"),
    "a patient in two splits": (two_splits, "patient-splits", "patient"),
    "an exam of two patients": (two_patients_of_an_exam, "exam-patients", "study"),
    "a row without patient": (set_fields(patient=None), "patient-missing", "patient"),
    "nan as patient": (set_fields(patient="nan"), "placeholder", "patient"),
    "a split in capitals": (set_fields(split="Train"), "split-name", "split"),
    "a box in pixels": (set_box([10, 20, 60, 80]), "box-scale", "boxes[0].box"),
    "a box in pixels of 1024": (set_box([512, 300, 700, 900]), "box-scale", "boxes[0].box"),
    "a box beyond the edge": (set_box([0.5, 0.6, 1.01, 0.8]), "box-range", "boxes[0].box"),
    "a box before the edge": (set_box([-0.2, 0.6, 0.4, 0.8]), "box-range", "boxes[0].box"),
    "a box of no width": (set_box([0.5, 0.6, 0.5, 0.8]), "box-size", "boxes[0].box"),
    "a box of no height": (set_box([0.5, 0.6, 0.6, 0.6]), "box-size", "boxes[0].box"),
    "a box of half a pixel": (set_box([0.5, 0.5, 0.5001, 0.6]), "box-size", "boxes[0].box"),
    "x exchanged": (set_box([0.8, 0.2, 0.6, 0.4]), "box-order", "boxes[0].box"),
    "y exchanged": (set_box([0.6, 0.9, 0.8, 0.4]), "box-order", "boxes[0].box"),
    "width and height": (set_box([0.6, 0.5, 0.2, 0.3]), "box-order", "boxes[0].box"),
    "three numbers": (set_box([0.6, 0.5, 0.2]), "box-form", "boxes[0].box"),
    "numbers as texts": (set_box(["0.1", "0.2", "0.3", "0.4"]), "box-form", "boxes[0].box"),
    "not a number": (set_box([0.1, 0.2, float("nan"), 0.4]), "box-form", "boxes[0].box"),
    "an object as box": (set_box({"x": 1, "y": 2, "w": 3, "h": 4}), "box-form", "boxes[0].box"),
    "two corners": (set_box([[0.1, 0.2], [0.3, 0.4]]), "box-form", "boxes[0].box"),
    "a phrase on the other side": (wrong_side_phrase, "box-side", "phrases[0].boxes[0]"),
    "a region on the other side": (WRONG_SIDE, "box-side", "regions.left apical zone"),
    "words against regions": (saying(RIGHT_AND_LEFT), "box-side", "phrases[0].regions"),
    "a region at the top": (AT_TOP, "box-level", "regions.left costophrenic angle"),
    "no mask": (set_fields(masks=[{"label": "right lung", "file": "none.png"}]), "missing-mask", "masks[0].file"),
    "a broken mask": (broken_mask, "unreadable-mask", "masks[0].file"),
    "a mask of another shape": (set_mask(np.eye(50, 40) > 0), "mask-size", "masks[0].file"),
    "a mask of half the size": (set_mask(np.eye(48, 48) > 0), "mask-size", "masks[0].file"),
    "an empty mask": (set_mask(np.zeros((SIZE, SIZE), bool)), "mask-empty", "masks[0].file"),
    "a full mask": (set_mask(np.ones((SIZE, SIZE), bool)), "mask-full", "masks[0].file"),
    "a mask beside its box": (saying(NODULE, mask=rectangle(10, 20, 60, 70)), "mask-box", "phrases[0].mask"),
    "an inverted mask": (set_mask(np.logical_not, "right lung"), "mask-full", "masks[0].file"),
    "a mask that does not fit its region": (mask_elsewhere, "mask-box", "masks[0].file"),
    "a transposed mask": (saying(BAND, mask=rectangle(30, 80, 50, 58)), "mask-box", "phrases[0].mask"),
    "the same image encoded anew": (jpeg_of_another, "duplicate-image", "file"),
    "boxes of the whole image": (whole_boxes, "box-size", "phrases[0].boxes[0]"),
    "an image of noise": (noise_image, "odd-image", "file"),
    "an image half black": (filled(0, columns=slice(SIZE // 2, None)), "odd-image", "file"),
    "half an image": (half_an_image, "odd-image", "file"),
    "a row without split": (set_fields(split=None), "split-missing", "split"),
    "an id in capitals": (id_like_the_third(str.upper), "duplicate-id", "id"),
    "an id with a blank": (id_like_the_third(lambda name: name + " "), "duplicate-id", "id"),
    "exam instead of study": (lambda p: p.rows[4].update(exam=p.rows[4].pop("study", "e1")), "field-name", "exam"),
    "a phrase of another report": (lambda p: p.rows[4]["phrases"].append(SPLEEN), "phrase-text", "phrases[4].text"),
    "two blanks in a label": (double_blank, "label-name", "findings"),
    "no finding, and many": (no_finding_besides_many, "label-contradiction", "findings"),
    "an emptied report": (set_fields(**EMPTIED), "empty-report", "text"),
    "an empty report": (set_fields(text="  "), "empty-report", "text"),
    "an empty section": (set_fields(sections=SECTIONS), "empty-section", "sections.impression"),
    "an empty heading": (set_fields(text="FINDINGS:\n\nIMPRESSION: No change."), "empty-section", "text"),
    "a number as polarity": (set_fields(findings={"edema": 1}), "label-value", "findings.edema"),
    "a word as polarity": (set_fields(findings={"edema": "present"}), "label-value", "findings.edema"),
    "a lateral view": (set_fields(view="LATERAL"), "label-value", "view"),
    "an unknown view": (set_fields(view="PX"), "label-value", "view"),
    "an unknown sex": (set_fields(sex="Y"), "label-value", "sex"),
    "an age in days": (set_fields(age=20000), "label-value", "age"),
    "DICOM's age": (set_fields(age="058Y"), "label-value", "age"),
    "a patient's number": (set_fields(patient=17), "label-value", "patient"),
    "labels in one text": (set_fields(findings="Effusion|Mass"), "label-value", "findings"),
    "labels in one entry": (set_fields(findings=["Effusion|Mass"]), "label-name", "findings"),
    "a misspelt label": (add_to("findings", "plural efusion", "negative"), "label-name", "findings"),
    "a misspelt region": (add_to("regions", "lft lung", [0.6, 0.2, 0.9, 0.8]), "label-name", "regions.lft lung"),
    "a misspelt field": (lambda p: p.rows[4].update(bboxes=p.rows[4].pop("boxes")), "field-name", "bboxes"),
    "no finding, and one": (set_fields(findings=["no finding", "pleural effusion"]), "label-contradiction", "findings"),
    "the same label yes and no": (set_fields(**YES_AND_NO), "label-contradiction", "findings"),
    "a box of what is not there": (set_fields(**LOCATED), "label-contradiction", "boxes[0].label"),
    "a list as row": (lambda planting: planting.rows.insert(4, [1]), "row", None),  # type: ignore[arg-type]
    "no id": (set_fields(id=None), "row", "id"),
    "a path out of the folder": (set_fields(file="../secret.png"), "row", "file"),
}
