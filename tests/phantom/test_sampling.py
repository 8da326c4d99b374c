"""Claims about the made-up patients and about configurations that cannot be."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rightlung.core.errors import InputError
from rightlung.lexicon import FINDINGS, REGIONS
from rightlung.phantom.config import DEVICE_ORDER, FINDING_ORDER, PhantomConfig, default_config, possible_regions
from rightlung.phantom.sampling import sample_scene
from rightlung.phantom.scene import Lesion, Scene

COUNT = 4000


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    return [sample_scene(default_config(), 11, index) for index in range(COUNT)]


def lesions_of(scenes: list[Scene]) -> list[Lesion]:
    return [lesion for scene in scenes for lesion in scene.lesions]


def test_a_scene_depends_on_seed_and_index_only(scenes: list[Scene]) -> None:
    backwards = [sample_scene(PhantomConfig.from_mapping({}), 11, index) for index in (40, 7, 3)]
    assert backwards == [scenes[40], scenes[7], scenes[3]]
    assert sample_scene(default_config(), 12, 7) != scenes[7]


def test_another_prevalence_of_one_finding_leaves_the_body_and_other_lesions_alone(scenes: list[Scene]) -> None:
    config = PhantomConfig.from_mapping({"prevalence": {"scoliosis": 0.3}})
    for index in range(300):
        changed = sample_scene(config, 11, index)
        assert changed.body == scenes[index].body
        if scenes[index].lesions and changed.lesions:
            kept = {lesion for lesion in scenes[index].lesions if lesion.finding != "scoliosis"}
            if {lesion.finding for lesion in kept} <= {lesion.finding for lesion in changed.lesions}:
                assert kept <= set(changed.lesions)


def test_shares_come_out_as_configured(scenes: list[Scene]) -> None:
    config = default_config()
    found = Counter(kind for scene in scenes for kind in {lesion.finding for lesion in scene.lesions})
    found.update(device.kind for scene in scenes for device in scene.devices)
    assert set(found) == {*FINDING_ORDER, *DEVICE_ORDER}
    for name, share in {**config.prevalence, **config.devices}.items():
        # Three standard errors, and a fifth for the factors being treated as independent.
        error = 3.0 * (share * (1.0 - share) / COUNT) ** 0.5
        assert abs(found[name] / COUNT - share) < error + 0.3 * share, name
    assert sum(not scene.lesions for scene in scenes) / COUNT == pytest.approx(config.normal, abs=0.03)


def test_edema_goes_with_cardiomegaly_and_tubes_with_the_bedside(scenes: list[Scene]) -> None:
    def share(name: str, among: list[Scene]) -> float:
        return sum(any(lesion.finding == name for lesion in scene.lesions) for scene in among) / len(among)

    large = [scene for scene in scenes if any(lesion.finding == "cardiomegaly" for lesion in scene.lesions)]
    assert share("edema", large) > 2.0 * share("edema", scenes)
    upright = [scene for scene in scenes if not scene.exposure.portable]
    tubes = sum(any(device.kind == "endotracheal tube" for device in scene.devices) for scene in upright)
    assert tubes / len(upright) < 0.03
    old = [scene for scene in scenes if scene.body.age >= 65]
    young = [scene for scene in scenes if scene.body.age < 40]
    assert share("emphysema", old) > 4.0 * share("emphysema", young)


def test_every_lesion_lies_where_it_can_at_a_place_that_agrees_with_its_zone(scenes: list[Scene]) -> None:
    limits = {"upper": (0.0, 1 / 3), "mid": (1 / 3, 2 / 3), "lower": (2 / 3, 1.0), "apical": (0.0, 0.15)}
    for lesion in lesions_of(scenes):
        assert lesion.finding in FINDINGS
        assert all(0.0 <= part <= 1.0 for part in lesion.place)
        words = lesion.region.split()
        if words[0] in ("left", "right") and words[1] in limits:
            low, high = limits[words[1]]
            assert low <= lesion.place[1] <= high, lesion
        region = REGIONS[lesion.region]
        assert lesion.side == region.side
        assert 0.0 <= lesion.severity <= 1.0
        large_effusion = lesion.finding == "pleural effusion" and lesion.severity >= 0.5
        if large_effusion:
            assert lesion.region == f"{lesion.side} lower lung zone"
        elif lesion.form != "tension":
            assert lesion.region in possible_regions(lesion.finding)


def test_sides_forms_and_breath_do_not_contradict_each_other(scenes: list[Scene]) -> None:
    for scene in scenes:
        for kind in ("pleural effusion", "pneumothorax", "pleural thickening"):
            sides = [lesion.side for lesion in scene.lesions if lesion.finding == kind]
            assert len(sides) == len(set(sides)), scene
        air = {lesion.side for lesion in scene.lesions if lesion.finding == "pneumothorax"}
        for lesion in scene.lesions:
            if lesion.finding == "pleural effusion" and lesion.side in air:
                assert lesion.severity <= 0.45
            if lesion.form == "lobar":
                assert lesion.region != "left mid lung zone"
            if lesion.form == "plate-like":
                assert "upper" not in lesion.region
        low = any(lesion.finding == "low lung volumes" for lesion in scene.lesions)
        assert (scene.exposure.inspiration < 0.45) == low
        ribs = [lesion for lesion in scene.lesions if lesion.finding == "rib fracture"]
        assert len({lesion.side for lesion in ribs}) <= 1
        assert len({lesion.form for lesion in ribs}) == len(ribs)
        drained = [lesion.side for lesion in scene.lesions if lesion.finding in ("pneumothorax", "pleural effusion")]
        for device in scene.devices:
            if device.kind == "chest tube" and drained:
                assert device.side in drained


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"prevalence": {"nodule": 1.2}}, r"prevalence\['nodule'\] must be between 0 and 1; got 1.2"),
        ({"prevalence": {"nodul": 0.2}}, "finding in prevalence: 'nodul'; did you mean 'nodule'"),
        ({"prevalence": {"nodule": 0.8}}, r"prevalence\['nodule'\] must be at most 0.65"),
        ({"prevalence": {"nodule": float("nan")}}, r"prevalence\['nodule'\] must be a number; got nan"),
        ({"prevalence": [1]}, "prevalence must be a table"),
        ({"devices": {"chest tub": 0.1}}, "did you mean 'chest tube'"),
        ({"devices": {"chest tube": -0.1}}, r"devices\['chest tube'\] must be between 0 and 1; got -0.1"),
        ({"counts": {"nodule": [-1, 2]}}, r"counts\['nodule'\]\[0\] must be at least 0; got -1"),
        ({"counts": {"nodule": [0, 0]}}, r"counts\['nodule'\] must have at least one number above 0"),
        ({"regions": {"nodule": {"spine": 1.0}}}, "nodule cannot be in 'spine'; it can be in right upper lung zone"),
        ({"regions": {"nodule": {"left lowr zone": 1.0}}}, "unknown region in regions"),
        ({"regions": {"nodule": {"left lower lobe": 0.0}}}, "at least one weight above 0"),
        ({"forms": {"mass": {"hairy": 1.0}}}, r"unknown form in forms\['mass'\]: 'hairy'"),
        ({"severity": {"edema": [0.5, 0.2, 0.9]}}, r"severity\['edema'\] must be ascending and at most 1"),
        ({"severity": {"edema": [0.5, 0.9]}}, r"severity\['edema'\] must be a list of 3 numbers"),
        ({"cooccurrence": {"portabel": {}}}, "did you mean 'portable'"),
        ({"cooccurrence": {"edema": {"nodule": -1}}}, r"cooccurrence\['edema'\]\['nodule'\] must be between 0 and 100"),
        ({"size": 7}, r"size must be an integer from 64 to 1024 \(pixels\); got 7"),
        ({"size": 256.5}, "size must be an integer"),
        ({"normal": 1.5}, "normal must be between 0 and 1; got 1.5"),
        ({"normal": "half"}, "normal must be a number; got 'half'"),
        ({"age_mean": 3}, "age_mean must be between 18 and 100; got 3"),
        ({"report": {"typo": 2}}, "report.typo must be between 0 and 1; got 2"),
        ({"report": {"typos": 0.2}}, "did you mean 'typo'"),
        ({"colour": 1}, "unknown field in configuration: 'colour'"),
        ({"normal": 0.5, "prevalence": dict.fromkeys(FINDING_ORDER, 0.0)}, "normal must be 1 if no finding"),
    ],
)
def test_an_impossible_configuration_is_refused_in_a_sentence(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        PhantomConfig.from_mapping(wrong)


@pytest.mark.parametrize(("seed", "index"), [(-1, 0), (0, -1), (0, True), (1.5, 0)])
def test_a_seed_or_index_that_is_no_count_is_refused(seed: Any, index: Any) -> None:
    with pytest.raises(InputError, match=r"must be an integer of at least 0"):
        sample_scene(default_config(), seed, index)


def test_a_lobe_is_understood_as_its_zone_and_a_finding_stays_there() -> None:
    config = PhantomConfig.from_mapping({"regions": {"mass": {"left upper lobe": 1.0}}, "prevalence": {"mass": 0.6}})
    lesions = [lesion for index in range(100) for lesion in sample_scene(config, 0, index).lesions]
    assert {lesion.region for lesion in lesions if lesion.finding == "mass"} == {"left upper lung zone"}
