"""The shipped anatomy model on phantoms: its boxes, the check for frontal radiographs, and sources with its regions."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from rightlung.core import FrozenMapping, Image, InputError
from rightlung.models.anatomy.finding import find_regions
from rightlung.models.anatomy.frontal import REFUSED, check, decide, shipped_model
from rightlung.phantom.config import default_config
from rightlung.phantom.study import make_studies
from rightlung.studies import open_source
from rightlung.studies.check import check_source
from rightlung.studies.checks.orientation import look
from rightlung.studies.sources import RegionSource
from tests.models.anatomy.boxes import box_iou

STUDIES = make_studies(default_config(), 77, range(8), 160)
ROWS, COLUMNS = np.mgrid[0:200, 0:160] / 160


def written(folder: Path, images: dict[str, Image]) -> str:
    """Write a manifest of images without any regions and return its address."""
    folder.mkdir()
    for name, image in images.items():
        PIL.Image.fromarray((image * 255).round().astype(np.uint8)).save(folder / f"{name}.png")
    lines = [f'{{"id": "{name}", "file": "{name}.png", "text": "Normal."}}\n' for name in images]
    (folder / "manifest.jsonl").write_text("".join(lines))
    return f"manifest:{folder}"


def test_boxes_of_phantoms_fit_and_the_file_is_small() -> None:
    found = shipped_model().regions([study.image for study in STUDIES])
    for name, least in (("left lung", 0.8), ("right lung", 0.8), ("cardiac silhouette", 0.75), ("mediastinum", 0.75)):
        overlaps = [
            box_iou(own[name].box.as_tuple(), study.regions[name].as_tuple())
            for own, study in zip(found, STUDIES, strict=True)
        ]
        assert np.mean(overlaps) > least, (name, overlaps)
    shipped = Path(__file__).parents[3] / "src/rightlung/models/shipped/anatomy/model.safetensors"
    assert shipped.stat().st_size < 2.5 * 2**20


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda image: image, "frontal"),
        (np.rot90, "rotated"),
        (lambda image: np.rot90(image, 2), "rotated"),
        (lambda image: image[::-1], "rotated"),
        (lambda image: 1 - image, "inverted"),
    ],
)
def test_turned_and_inverted_phantoms_are_told_apart(change: Callable[[Image], Image], kind: str) -> None:
    kinds = [check(np.ascontiguousarray(change(study.image))).kind for study in STUDIES]
    assert kinds.count(kind) >= len(kinds) - 1  # type: ignore[arg-type]
    assert sum(one in REFUSED for one in kinds) == (0 if kind == "frontal" else len(kinds))


def test_mirrored_phantoms_are_said_to_be_mirrored_and_not_refused() -> None:
    kinds = [check(np.ascontiguousarray(study.image[:, ::-1])).kind for study in STUDIES]
    assert kinds.count("mirrored") >= 6
    assert not set(kinds) & set(REFUSED)


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (np.random.default_rng(0).random((200, 160)), "it is noise"),
        (0.5 + 0.5 * np.sin(31 * COLUMNS) * np.cos(23 * ROWS), "does not look like a frontal chest radiograph"),
        (0.5 + 0.25 * np.sin(40 * np.hypot(ROWS, COLUMNS)) + 0.25 * np.sin(90 * ROWS), "does not look like"),
    ],
)
def test_what_is_no_radiograph_is_refused_with_a_sentence(image: Image, reason: str) -> None:
    found = check(image.astype(np.float32))
    assert (found.kind, found.refused) == ("not-a-chest", True)
    assert reason in found.sentence


def test_a_lateral_view_and_a_tiny_image_are_said_without_looking() -> None:
    assert check(STUDIES[0].image, "LL").kind == "lateral"
    assert check(STUDIES[0].image, "PA").kind == "frontal"
    tiny = check(np.ascontiguousarray(STUDIES[0].image[::4, ::4]))
    assert (tiny.kind, tiny.refused) == ("uncertain", False)
    assert "it has only 40 x 40 pixels" in tiny.sentence


def test_one_witness_alone_does_not_refuse() -> None:
    sure = {"upright": 0.99, "inverted": 0.0, "on its side": 0.0, "upside down": 0.0, "confidence": 0.75, "mirror": 0.0}
    template = {"likeness": 10.0, "resemblance": 0.7, "turn": 0.0, "sure inverted": 0.0, "sure turned": 0.0}
    assert decide(sure | template) == "frontal"
    assert decide(sure | template | {"likeness": 1.0, "resemblance": 0.0}) == "uncertain"
    assert decide(sure | template | {"upright": 0.1, "inverted": 0.9}) == "uncertain"
    assert decide(sure | template | {"upright": 0.1, "inverted": 0.9, "turn": 8.0}) == "inverted"
    assert decide(sure | template | {"mirror": 9.0}) == "mirrored"


def test_a_source_gets_regions_and_a_study_without_anatomy_is_named_and_left_out(tmp_path: Path) -> None:
    nothing = (0.5 + 0.5 * np.sin(31 * COLUMNS) * np.cos(23 * ROWS)).astype(np.float32)
    address = written(tmp_path / "mine", {"good": STUDIES[0].image, "bad": nothing, "other": STUDIES[1].image})
    assert [study.regions for study in open_source(address)] == [FrozenMapping({})] * 3
    source = open_source(f"{address}?regions=anatomy&report=findings")
    assert isinstance(source, RegionSource)
    studies = list(source)
    assert [study.id for study in studies] == ["good", "other"]
    assert ["bad" in str(problem) and "anatomy is not found" in str(problem) for problem in source.problems] == [True]
    own, truth = studies[0].regions["left lung"], STUDIES[0].regions["left lung"]
    assert box_iou(own.as_tuple(), truth.as_tuple()) > 0.8
    assert own == find_regions(studies[0].image, "anatomy", "it")["left lung"]
    assert pickle.loads(pickle.dumps(source))[0].regions == studies[0].regions
    known = open_source("phantom?count=1&seed=3&size=64&regions=anatomy")[0]
    assert known.regions == open_source("phantom?count=1&seed=3&size=64")[0].regions
    with pytest.raises(InputError, match="anatmy"):
        open_source(f"{address}?regions=anatmy")
    with pytest.raises(InputError, match="model 'starter' cannot find regions"):
        open_source(f"{address}?regions=starter")


def test_the_data_check_finds_what_its_template_alone_takes_for_a_possible_radiograph(tmp_path: Path) -> None:
    pattern = (0.5 + 0.25 * np.sin(12 * COLUMNS) + 0.25 * np.cos(4 * ROWS)).astype(np.float32)
    seen = look(pattern)
    assert seen is not None
    assert (seen.likeness > 3.5 or seen.resemblance > 0.12, seen.is_turned) == (True, False)
    phantoms = {study.id: study.image for study in make_studies(default_config(), 78, range(14), 128)}
    result = check_source(written(tmp_path / "mine", phantoms | {"pattern": pattern}))
    odd = [issue.place.study for issue in result.findings if issue.check == "odd-image"]
    assert odd == ["pattern"]
