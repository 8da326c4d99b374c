"""Painted studies: what is painted, what is known, the controls, and that the same seed gives the same pixels."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import binary_dilation

from rightlung.core import InputError, Polarity, Study
from rightlung.core.keyed import text_digest
from rightlung.models.anatomy.frontal import shipped_model
from rightlung.painting.source import PaintedSource
from rightlung.studies.sources import absolute_address, open_source
from tests.painting.films import films, normal_phantoms, pixels, write_films

PAINTED = "&untouched=0&control=0"


def digest(study: Study) -> str:
    masks = [one.mask.pixels.tobytes() for one in study.located_findings if one.mask is not None]
    return text_digest(study.id, study.image.tobytes(), *masks, [one.text for one in study.phrases]).hex()


def film_of(study: Study, address: str) -> np.ndarray:
    image: np.ndarray = open_source(address).study(str(study.extra["painted"]["film"])).image
    return image


def mask_of(study: Study) -> np.ndarray:
    mask: np.ndarray = np.logical_or.reduce([one.mask.pixels for one in study.located_findings if one.mask is not None])
    return mask


def test_the_same_seed_gives_the_same_pixels_alone_in_a_batch_copied_and_in_another_process(address: str) -> None:
    painted = f"painted:{address}?count=9&seed=3{PAINTED}"
    source = open_source(painted)
    wanted = [digest(study) for study in source]
    assert len(set(wanted)) == 9
    assert [digest(source[position]) for position in (7, 2)] == [wanted[7], wanted[2]]
    assert digest(pickle.loads(pickle.dumps(source))[4]) == wanted[4]
    program = (
        "import sys, torch; torch.set_num_threads(2); from tests.painting.test_source import digest; "
        "from rightlung.studies.sources import open_source; print(digest(open_source(sys.argv[1])[8]))"
    )
    other = subprocess.run([sys.executable, "-c", program, painted], check=True, capture_output=True, text=True)
    assert other.stdout.strip() == wanted[8]
    assert digest(open_source(painted.replace("seed=3", "seed=4"))[0]) != wanted[0]


def test_a_nodule_changes_pixels_at_its_mask_only_and_is_brighter(address: str) -> None:
    for study in open_source(f"painted:{address}?seed=1&findings=nodule{PAINTED}"):
        film, mask = film_of(study, address), mask_of(study)
        assert np.array_equal(study.image[~binary_dilation(mask, iterations=6)],
                              film[~binary_dilation(mask, iterations=6)])  # fmt: skip
        assert (study.image - film)[mask].mean() > 0.02
        boxes = [box for one in study.located_findings for box in one.boxes]
        assert len(boxes) == len(study.extra["scene"]["lesions"])


@pytest.mark.parametrize(("finding", "sign"), [("pleural effusion", 1), ("pneumothorax", -1), ("emphysema", -1)])
def test_fluid_is_brighter_and_air_is_darker_than_the_film(address: str, finding: str, sign: int) -> None:
    changes = []
    for study in open_source(f"painted:{address}?seed=5&findings={finding.replace(' ', '%20')}{PAINTED}"):
        # What lies beside the heart is also moved when the lung is overinflated: look at the difference of the means.
        changes.append(float((study.image - film_of(study, address))[mask_of(study)].mean()))
    assert sign * np.median(changes) > 0.01


def test_an_enlarged_heart_is_wider_in_the_eyes_of_the_anatomy_model(address: str) -> None:
    studies = list(open_source(f"painted:{address}?seed=2&findings=cardiomegaly{PAINTED}"))
    for study in studies:
        before, after = (shipped_model().regions([image])[0]["cardiac silhouette"].box
                         for image in (film_of(study, address), study.image))  # fmt: skip
        ratio = (after.x1 - after.x0) / (before.x1 - before.x0)
        assert ratio > 1.05, study.id
        drawn = study.located_findings[0].boxes[0]
        assert abs((drawn.x1 - drawn.x0) - (after.x1 - after.x0)) < 0.12


def test_controls_are_the_film_to_the_bit_and_show_no_finding(address: str) -> None:
    for role in ("untouched", "control"):
        shares = {"untouched": 0, "control": 0} | {role: 1}
        options = "&".join(f"{name}={share}" for name, share in shares.items())
        for study in open_source(f"painted:{address}?seed=1&{options}"):
            assert study.extra["painted"]["role"] == role
            assert np.array_equal(study.image, film_of(study, address))
            assert not study.located_findings
            assert not any(one.boxes for one in study.phrases)
            assert not any(kind is Polarity.POSITIVE for kind in study.findings.values())
            assert study.twins is not None
            assert study.twins.findings("removed") == ()


def test_the_shares_of_the_controls_are_those_of_the_address(address: str) -> None:
    roles = [one.extra["painted"]["role"] for one in open_source(f"painted:{address}?count=60&seed=1&untouched=0.5")]
    assert 18 <= roles.count("untouched") <= 42
    assert 1 <= roles.count("control") <= 15
    assert "painted" in roles


def test_what_a_film_is_not_known_to_lack_stays_unknown(address: str, tmp_path: Path) -> None:
    options = f"?count=12&seed=3&findings=nodule,pleural%20effusion{PAINTED}"
    for study in open_source(f"painted:{address}{options}"):
        lesions = {lesion["finding"] for lesion in study.extra["scene"]["lesions"]}
        negative = {name for name, kind in study.findings.items() if kind is Polarity.NEGATIVE}
        assert negative == {"no finding"}
        assert lesions <= {name for name, kind in study.findings.items() if kind is Polarity.POSITIVE}
        said = {kind for phrase in study.phrases for kind in phrase.findings.values()}
        assert Polarity.NEGATIVE not in said
        texts = " ".join(phrase.text.lower() for phrase in study.phrases)
        assert "acute" not in texts
        assert all(kind is Polarity.POSITIVE for known in study.region_findings.values() for kind in known.values())
    labelled = films(tmp_path / "a", findings=["No Finding"])
    told = films(tmp_path / "b", findings={"Nodule": "negative", "Pneumonia": "negative"})
    for place, expected in (
        (f"painted:{labelled}{options}", {"nodule", "pleural effusion"}),
        (f"painted:{address}{options}&absent=nih-14", {"nodule", "pleural effusion"}),
        (f"painted:{told}{options}", {"nodule"}),  # a pneumonia is never painted here, so it stays unknown
    ):
        for study in open_source(place):
            lesions = {lesion["finding"] for lesion in study.extra["scene"]["lesions"]}
            negative = {name for name, kind in study.findings.items() if kind is Polarity.NEGATIVE}
            assert negative == (expected - lesions) | {"no finding"}, place


def test_only_films_without_a_labelled_outlined_or_reported_abnormality_are_painted(tmp_path: Path) -> None:
    shown = [pixels(one) for one in normal_phantoms()[:6]]
    box = [{"label": "Mass", "box": [0.2, 0.2, 0.3, 0.3]}]
    rows: list[dict[str, object]] = [
        {"findings": ["No Finding"]}, {"findings": ["Mass"]}, {"boxes": box}, {"text": "Small left pleural effusion."},
        {"text": "The lungs are clear. No pneumothorax."}, {"findings": {"Edema": "uncertain"}},
    ]  # fmt: skip
    source = open_source(f"painted:{write_films(tmp_path, rows, shown)}?seed=1")
    assert [study.extra["painted"]["film"] for study in source] == ["film-0", "film-4"]
    assert isinstance(source, PaintedSource)
    assert dict(source.abnormal) == {"mass": 2, "pleural effusion": 1, "edema": 1}
    assert "4 films have a labelled abnormality (mass 2" in repr(source)
    only = write_films(tmp_path / "b", [{"findings": ["Mass"]}], shown[:1])
    with pytest.raises(InputError, match="there is no normal film; 1 films have a labelled abnormality"):
        list(open_source(f"painted:{only}?seed=1"))


def test_ids_patients_and_copies_follow_the_films(address: str) -> None:
    source = open_source(f"painted:{address}?count=8&seed=2")
    assert list(source.ids)[:2] == ["film-0-painted-2-0", "film-1-painted-2-0"]
    assert list(source.ids)[6:] == ["film-0-painted-2-1", "film-1-painted-2-1"]
    assert list(source.patients()) == ["p0", "p0", "p1", "p1", "p2", "p2", "p0", "p0"]
    assert [study.patient for study in source] == list(source.patients())
    first, again = source[0], source[6]
    assert (first.extra["painted"]["copy"], again.extra["painted"]["copy"]) == (0, 1)


def test_an_address_may_hold_the_parameters_of_both_sources(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nested = open_source("painted:phantom?count=8&seed=5&size=128?count=4&seed=7&untouched=1&control=0")
    assert nested[0].id.startswith("phantom-5-")
    assert nested[0].image.shape == (128, 128)
    assert len(open_source(f"painted:{address}?limit=2&seed=7")) == 2
    folder = Path(address.partition(":")[2])
    monkeypatch.chdir(folder.parent)
    assert absolute_address(f"painted:manifest:{folder.name}?seed=7") == f"painted:{address}?seed=7"
    for wrong, message in (
        ("seed=1&untouched=0.8&control=0.4", "must sum to at most 1; got 1.2"),
        ("seed=1&control=2", "control must be a number from 0 to 1; got '2'"),
        ("seed=1&findings=scoliosis", "'scoliosis'"),
        ("seed=1&absent=nih-15", "nih-15"),
        ("count=4", "needs seed"),
        ("seed=1&sede=2", "'sede'"),
    ):
        with pytest.raises(InputError, match=message):
            open_source(f"painted:{address}?{wrong}")
