"""Made-up studies: the same whatever surrounds them, true in all their parts, with the sides where they belong."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

from rightlung.core import InputError, Polarity, Study
from rightlung.lexicon import IMAGENOME_REGIONS, label_set, side_of
from rightlung.phantom import study as study_module
from rightlung.phantom.config import PhantomConfig, default_config
from rightlung.phantom.report import write_report
from rightlung.phantom.sampling import sample_scene
from rightlung.phantom.study import CHRONIC_FINDINGS, MASKS_IN_EXTRA, make_studies, patient_of, study_scene
from rightlung.phantom.truth import chexpert_labels, study_findings

SIZE = 64


@pytest.fixture(scope="module")
def studies() -> list[Study]:
    return make_studies(default_config(), 7, range(24), SIZE)


def fingerprint(study: Study) -> bytes:
    """Everything about a study as bytes, masks and picture included."""
    masks = [phrase.mask.pixels.tobytes() if phrase.mask is not None else b"" for phrase in study.phrases]
    masks += [mask.pixels.tobytes() for mask in study.extra["lesion_masks"]]
    masks += [mask.pixels.tobytes() for mask in study.extra["anatomy_masks"].values()]
    told = [(phrase.text, phrase.boxes, phrase.regions, dict(phrase.findings)) for phrase in study.phrases]
    extra = {name: value for name, value in study.extra.items() if name not in MASKS_IN_EXTRA}
    assert study.gaze is not None
    facts = repr((study.id, study.patient, study.view, study.age, study.sex, study.report, told, dict(study.regions)))
    labels = repr(dict(study.findings)) + json.dumps(extra)
    return b"".join([study.image.tobytes(), study.gaze.values.tobytes(), facts.encode(), labels.encode(), *masks])


def test_a_study_is_the_same_alone_in_a_batch_and_in_another_order(studies: list[Study]) -> None:
    indices = [11, 3, 17, 0]
    together = make_studies(default_config(), 7, indices, SIZE)
    for index, study in zip(indices, together, strict=True):
        assert fingerprint(study) == fingerprint(studies[index])
    alone = make_studies(default_config(), 7, [17], SIZE)[0]
    assert fingerprint(alone) == fingerprint(studies[17])


def test_a_pickled_study_keeps_picture_and_masks_and_another_seed_gives_another(studies: list[Study]) -> None:
    study = next(study for study in studies if any(phrase.mask is not None for phrase in study.phrases))
    assert fingerprint(pickle.loads(pickle.dumps(study))) == fingerprint(study)
    other = make_studies(default_config(), 8, [0], SIZE)[0]
    assert other.id != studies[0].id
    assert not np.array_equal(other.image, studies[0].image)


def test_phrases_are_the_sentences_of_the_report_in_order(studies: list[Study]) -> None:
    for study in studies:
        assert study.report is not None
        text = " ".join(study.report.text.split())
        place = 0
        for phrase in study.phrases:
            place = text.index(" ".join(phrase.text.split()), place)
        assert set(study.report.sections) <= {"findings", "impression"}


def test_boxes_hold_their_mask_and_touch_it_on_all_sides_and_what_is_only_denied_has_none(studies: list[Study]) -> None:
    checked = denied = 0
    for study in studies:
        for phrase in study.phrases:
            if set(phrase.findings.values()) == {Polarity.NEGATIVE}:
                assert phrase.mask is None
                denied += 1
            if phrase.mask is None:
                assert phrase.boxes == ()
                continue
            assert phrase.mask
            covered = np.zeros((SIZE, SIZE), dtype=bool)
            for box in phrase.boxes:
                window = box.pixel_slices((SIZE, SIZE))
                covered[window] = True
                inside = phrase.mask.pixels[window]
                assert all(edge.any() for edge in (inside[0], inside[-1], inside[:, 0], inside[:, -1]))
            lungs = study.extra["anatomy_masks"]
            both = lungs["right lung"].pixels | lungs["left lung"].pixels
            assert not (phrase.mask.pixels & ~covered & both).any()
            checked += 1
    assert checked > 20
    assert denied > 20


def test_what_a_sentence_calls_left_lies_on_the_right_of_the_picture() -> None:
    config = PhantomConfig.from_mapping(
        {"normal": 0.0, "prevalence": {"consolidation": 1.0}, "report": {"sideless": 0.0, "join": 0.0}}
    )
    seen = {"left": 0, "right": 0}
    for study in make_studies(config, 3, range(20), SIZE):
        middle = study.regions["mediastinum"].centre[0]
        for phrase in study.phrases:
            side = side_of(phrase.text)
            if side in seen and phrase.mask is not None and "consolidation" in phrase.findings:
                x = np.nonzero(phrase.mask.pixels)[1].mean() / SIZE
                assert (x > middle) == (side == "left"), phrase.text
                seen[side] += 1
    assert min(seen.values()) >= 3


def test_a_report_says_nothing_that_is_not_so() -> None:
    said = 0
    for index in range(300):
        scene = study_scene(default_config(), 5, index)
        findings = study_findings(scene)
        for statement in write_report(scene, default_config(), 5):
            one_sided = any(name.startswith(("left", "right")) for name in statement.regions)
            for name, polarity in statement.findings.items():
                if name not in findings or polarity == Polarity.UNCERTAIN:
                    continue
                said += 1
                if polarity == Polarity.POSITIVE or not one_sided:
                    assert findings[name] == polarity, (index, statement)
    assert said > 800


# By hand, from CheXpert's own hierarchy (Irvin et al. 2019, figure 1) and its definition of "No Finding".
CHEXPERT = {
    "cardiomegaly": {"Cardiomegaly", "Enlarged Cardiomediastinum"},
    "edema": {"Edema", "Lung Opacity"},
    "consolidation": {"Consolidation", "Lung Opacity"},
    "pneumonia": {"Pneumonia", "Lung Opacity"},
    "atelectasis": {"Atelectasis", "Lung Opacity"},
    "nodule": {"Lung Lesion", "Lung Opacity"},
    "mass": {"Lung Lesion", "Lung Opacity"},
    "pneumothorax": {"Pneumothorax"},
    "pleural effusion": {"Pleural Effusion"},
    "pleural thickening": {"Pleural Other"},
    "rib fracture": {"Fracture"},
    "scoliosis": set(),
    "low lung volumes": set(),
    "emphysema": set(),
}


def test_chexperts_labels_are_those_of_its_hierarchy() -> None:
    seen = set()
    for index in range(400):
        scene = sample_scene(default_config(), 2, index)
        kinds = {lesion.finding for lesion in scene.lesions}
        if not kinds <= set(CHEXPERT):
            continue
        seen |= kinds
        expected = set().union(*(CHEXPERT[kind] for kind in kinds)) if kinds else set()
        expected |= {"No Finding"} if not expected else set()
        expected |= {"Support Devices"} if scene.devices else set()
        labels = chexpert_labels(scene)
        assert tuple(labels) == label_set("chexpert-14").labels
        assert {name for name, value in labels.items() if value} == expected
    assert seen == set(CHEXPERT)


def test_studies_of_one_patient_share_body_and_lasting_findings() -> None:
    sizes: dict[int, int] = {}
    lasting = 0
    for index in range(160):
        number, first = patient_of(index)
        sizes[number] = sizes.get(number, 0) + 1
        scene, origin = study_scene(default_config(), 4, index), study_scene(default_config(), 4, first)
        assert scene.body == origin.body
        chronic = [lesion for lesion in scene.lesions if lesion.finding in CHRONIC_FINDINGS]
        assert chronic == [lesion for lesion in origin.lesions if lesion.finding in CHRONIC_FINDINGS]
        lasting += bool(chronic) and index != first
    assert set(sizes.values()) == {1, 2, 3}
    assert lasting > 0


def test_prevalence_stays_as_configured_with_several_studies_a_patient() -> None:
    scenes = [study_scene(default_config(), 1, index) for index in range(3000)]
    normal = np.mean([not scene.lesions for scene in scenes])
    scoliosis = np.mean([any(lesion.finding == "scoliosis" for lesion in scene.lesions) for scene in scenes])
    assert normal == pytest.approx(0.35, abs=0.04)
    assert scoliosis == pytest.approx(0.05, abs=0.015)


@pytest.mark.parametrize("size", [7, 0, -1, 63, 1025, 100_000, True, 64.5, 128.0])
def test_a_size_that_cannot_be_is_refused_by_value(size: int) -> None:
    with pytest.raises(InputError, match=f"size must be an integer from 64 to .*got {size}"):
        make_studies(default_config(), 1, [0], size)


def test_regions_implied_findings_and_plain_extras_are_all_there(studies: list[Study]) -> None:
    for study in studies:
        assert tuple(study.regions) == IMAGENOME_REGIONS
        plain = {name: value for name, value in study.extra.items() if name not in MASKS_IN_EXTRA}
        assert json.loads(json.dumps(plain)) == plain
        assert len(study.extra["lesion_masks"]) == len(plain["scene"]["lesions"])
        for kind, implied in (("consolidation", "lung opacity"), ("rib fracture", "fracture")):
            assert study.findings[kind] != "positive" or study.findings[implied] == "positive"
        assert (study.findings["no finding"] == "positive") == (not plain["scene"]["lesions"])
        assert "uncertain" not in study.findings.values()


def test_a_speck_that_stands_alone_does_not_blow_up_a_lesion() -> None:
    masks = np.zeros((2, 40, 40), dtype=bool)
    masks[:, 5:20, 5:20] = True
    masks[0, 35, 35] = True  # a speck
    masks[1, 30:36, 30:36] = True  # a second part of the disease
    kept = study_module._without_specks(masks)
    assert np.argwhere(kept[0]).max() == 19
    assert np.array_equal(kept[1], masks[1])
