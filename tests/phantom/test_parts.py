"""The parts `train` and `held-out`: wordings and regions that training never contains."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from rightlung import open_source
from rightlung.core import InputError
from rightlung.core.keyed import text_digest
from rightlung.lexicon import swap_sides
from rightlung.phantom.config import (
    FINDING_ORDER,
    Part,
    PhantomConfig,
    default_config,
    held_out_regions,
    possible_regions,
    read_data,
)
from rightlung.phantom.loader import PhantomLoader
from rightlung.phantom.report import Statement, plain_style, write_report
from rightlung.phantom.scene import Scene
from rightlung.phantom.study import study_scene
from rightlung.phantom.words.bank import finding_words, held_out_wordings, in_part, negatives, words
from rightlung.phantom.write import PhantomJob, write_phantom

COUNT = 300
Made = list[tuple[Scene, list[Statement]]]


def make(part: Part) -> Made:
    config = replace(plain_style(default_config()), part=part)
    scenes = [study_scene(config, 7, index) for index in range(COUNT)]
    return [(scene, write_report(scene, config, 7)) for scene in scenes]


@pytest.fixture(scope="module")
def made() -> dict[Part, Made]:
    parts: tuple[Part, ...] = ("all", "train", "held-out")
    return {part: make(part) for part in parts}


def pattern(template: str) -> str:
    """Return a regular expression for the texts of a template."""
    text = re.sub(r"\{[a-z_]+\}", "SLOT", template).replace("(", "(?:")
    return re.sub(r"\s+", r"\\s*", text).replace("SLOT", r"(?:[\w-]+(?: [\w-]+)?)?")


HELD_OUT_TEXT = re.compile("|".join(rf"\b{pattern(wording)}" for wording in held_out_wordings()), re.IGNORECASE)


def has_wording(statements: list[Statement]) -> bool:
    return any(HELD_OUT_TEXT.search(statement.text) for statement in statements)


def has_region(scene: Scene) -> bool:
    return any(held_out_regions().get(lesion.finding) == lesion.region for lesion in scene.lesions)


def test_train_never_has_a_held_out_region_or_wording(made: dict[Part, Made]) -> None:
    assert not [scene.index for scene, _ in made["train"] if has_region(scene)]
    texts = [statement.text for _, statements in made["train"] for statement in statements]
    assert not [text for text in texts if HELD_OUT_TEXT.search(text)]


def test_nearly_every_abnormal_held_out_study_has_one(made: dict[Part, Made]) -> None:
    abnormal = [(scene, statements) for scene, statements in made["held-out"] if scene.lesions]
    shares = [sum(map(bool, kind)) / len(abnormal) for kind in (
        [has_region(scene) for scene, _ in abnormal],
        [has_wording(statements) for _, statements in abnormal],
        [has_region(scene) or has_wording(statements) for scene, statements in abnormal],
    )]  # fmt: skip
    assert shares[0] > 0.5
    assert shares[1] > 0.8
    assert shares[2] > 0.95
    usual = [has_region(scene) or has_wording(statements) for scene, statements in made["all"] if scene.lesions]
    assert 0.3 < sum(usual) / len(usual) < 0.8


def test_a_lesion_is_in_the_held_out_region_of_its_finding(made: dict[Part, Made]) -> None:
    for scene, _ in made["held-out"]:
        for finding, region in held_out_regions().items():
            found = [lesion for lesion in scene.lesions if lesion.finding == finding]
            assert not found or any(one.region == region or one.form == "tension" for one in found)


def test_the_default_is_unchanged(made: dict[Part, Made]) -> None:
    # Digests of studies made before there were parts.
    scenes = [scene for scene, _ in made["all"]]
    facts = [fact for scene in scenes for fact in (scene.body, scene.exposure, *scene.lesions, *scene.devices)]
    assert text_digest(*facts).hex() == "434962b17a17724e"
    texts = [said.text for scene in scenes for said in write_report(scene, default_config(), 7)]
    assert text_digest(*texts).hex() == "3022e24ce60edaaf"


def test_the_parts_have_the_same_patients_findings_and_numbers_of_lesions(made: dict[Part, Made]) -> None:
    for part in ("train", "held-out"):
        for (scene, _), (usual, _) in zip(made[part], made["all"], strict=True):
            assert (scene.body, scene.devices and len(scene.devices)) == (
                usual.body,
                usual.devices and len(usual.devices),
            )
            assert {one.finding for one in scene.lesions} == {one.finding for one in usual.lesions}
        assert {lesion.finding for scene, _ in made[part] for lesion in scene.lesions} == set(FINDING_ORDER)
        counts = [sum(len(scene.lesions) for scene, _ in made[name]) for name in (part, "all")]
        assert counts[0] == pytest.approx(counts[1], rel=0.03)


def test_every_zone_of_every_other_finding_stays_in_training() -> None:
    train = replace(default_config(), part="train")
    left = {finding: set(train.region_weights(finding, first=True)) for finding in FINDING_ORDER}
    for finding in FINDING_ORDER:
        mirrored = swap_sides(held_out_regions().get(finding, ""))
        assert left[finding] == set(possible_regions(finding)) - {held_out_regions().get(finding)}
        assert finding not in held_out_regions() or mirrored in left[finding]
    for region in held_out_regions().values():
        assert sum(region in regions for regions in left.values()) >= (2 if "lung" in region else 1)


def test_about_one_wording_in_five_is_held_out() -> None:
    lists = [
        (finding, name, value)
        for finding in FINDING_ORDER
        for name, value in words()["findings"][finding].items()
        if name.startswith(("nouns", "sentences", "hedges"))
    ]
    held = total = 0
    for finding, name, value in lists:
        train, other = (finding_words(finding, part)[name] for part in ("train", "held-out"))
        assert train
        assert len(train) in (len(value), len(value) - len(other))
        held, total = held + len(value) - len(train), total + len(value)
    assert 0.1 < held / total < 0.25
    assert all(in_part(negative.texts, "train") for negative in negatives())
    for finding, wordings in read_data("held_out.toml")["wordings"].items():
        texts = [str(text) for one, _, value in lists if one == finding for text in value]
        texts += [text for negative in negatives() for text in negative.texts] if finding == "absent" else []
        assert [one for one in wordings if not any(one in text for text in texts)] == []


def test_parts_have_their_own_ids_in_the_source_the_loader_and_the_folder(tmp_path: Path) -> None:
    address = "phantom?count=2&seed=7&size=64"
    usual, train = open_source(address), open_source(f"{address}&part=train")
    assert list(train.ids) == ["phantom-7-train-000000", "phantom-7-train-000001"]
    assert not set(usual.ids) & set(train.ids)
    study = train.study("phantom-7-train-000001")
    assert study.id == "phantom-7-train-000001"
    config = replace(default_config(), part="train")
    batch = next(PhantomLoader(config, seed=7, size=64).batches([[0, 1]]))
    assert [said.text for said in batch.statements[1]] == [phrase.text for phrase in study.phrases]
    write_phantom(PhantomJob(tmp_path, config, 2, 7, 64))
    assert [phrase.text for phrase in open_source(f"manifest:{tmp_path}").study(study.id).phrases] == [
        phrase.text for phrase in study.phrases
    ]
    with pytest.raises(InputError, match="another part 'train', not 'held-out'"):
        write_phantom(PhantomJob(tmp_path, replace(config, part="held-out"), 2, 7, 64))


def test_an_unknown_part_and_a_configuration_without_another_region_are_refused() -> None:
    with pytest.raises(InputError, match="part must be all, train or held-out; got 'test'"):
        open_source("phantom?count=2&seed=7&part=test")
    only = {"part": "train", "regions": {"nodule": {"left mid lung zone": 1.0}}}
    with pytest.raises(InputError, match=r"regions\['nodule'\] must have another region"):
        PhantomConfig.from_mapping(only)
