from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rightlung.core import InputError, OutputError, Phrase
from rightlung.measuring import Protocol, Targets, find_protocol, gather_targets, prepare_studies
from rightlung.measuring.phrases import PhraseTargets
from rightlung.studies import open_source
from rightlung.studies.study_cache import CachedSource, reduced
from tests.measuring.made_up import REGIONS, SIZE, Damaged, Spots, disc, every_phrase

PROTOCOL = find_protocol("wrong-lung")


def test_own_targets_are_masks_else_boxes_and_phrases_without_either_stay() -> None:
    seen: list[tuple[Phrase, PhraseTargets]] = []
    source = Spots()
    found = gather_targets(source, every_phrase(source), seen=lambda phrase, one, _: seen.append((phrase, one)))
    nodule, opacity, negated, nothing = (found.phrases["s0", f"phrase:{index}"] for index in range(4))
    assert np.array_equal(found.store.read([nodule.masks["own"].place])[0], disc(30, 8, 3))
    assert found.store.read([opacity.masks["own"].place]).shape == (1, 256, 256)
    assert (found.kinds, found.studies_without_patient) == (("exact mask", "finding boxes"), 1)
    assert (nodule.masks["own"].kind, nodule.masks["own"].side, nodule.side_named) == ("exact mask", "left", "left")
    assert nodule.masks["own"].area == disc(30, 8, 3).mean()
    assert opacity.masks["own"].area == 0.125
    assert (negated.masks, nothing.masks) == ({}, {})
    assert [one.polarity for one in (nodule, negated, nothing)] == ["positive", "negative", "none"]
    assert found.phrases["s5", "phrase:0"].patient == "study s5"
    assert len(seen) == 12


def test_what_is_wrong_is_listed_and_costs_no_more_than_itself() -> None:
    wanted = every_phrase(Spots()) | {"s4": [0, 9], "stranger": [0]}
    found = gather_targets(Damaged(), wanted)
    assert found.problems == [
        "source spots has no study 'stranger'",
        "study 's1': row 1 is broken",
        "study 's2', phrase:0: the file is gone",
        "study 's4' has 4 phrases and no phrase:9",
    ]
    asked = {("s2", "phrase:0"), ("s2", "phrase:1"), ("s3", "phrase:0")}  # nobody looked at the image of s3
    assert asked - set(found.phrases) == {("s2", "phrase:0")}


def test_prepared_studies_are_kept_with_their_targets_and_found_again(tmp_path: Path) -> None:
    kept, targets = prepare_studies(Damaged(), tmp_path / "kept", PROTOCOL, seed=3, pixels=20)
    assert kept.ids == ["s0", "s2", "s4", "s5"]
    assert dict(targets.left_out) == {
        "phrases without a region": 5,  # also that of the study whose image cannot be read
        "studies that cannot be read": 1,
        "studies whose image or words cannot be read": 1,
    }
    assert any("'s3': the file is gone" in problem for problem in targets.problems)
    again, found = prepare_studies(Spots(0), tmp_path / "kept", PROTOCOL, seed=3, pixels=20)  # the source is not read
    assert found.phrases == targets.phrases
    assert (found.phrase_set, found.problems, found.labels) == (targets.phrase_set, targets.problems, targets.labels)
    one = CachedSource(tmp_path / "kept").study("s4")
    assert np.array_equal(one.image, np.full(SIZE, 5 / 255, np.float32))
    assert (one.patient, dict(one.regions), again.address) == ("p2", REGIONS, "spots")
    assert one.phrases[0].findings == {"nodule": "positive"}
    assert all(phrase.mask is None and not phrase.boxes for phrase in one.phrases)
    with pytest.raises(InputError, match="prepared with seed 3, not 4"):
        prepare_studies(Spots(), tmp_path / "kept", PROTOCOL, seed=4, pixels=20)
    with pytest.raises(OutputError, match="this one is not empty"):
        gather_targets(Spots(), None, tmp_path)


def test_a_walk_that_is_stopped_leaves_nothing_behind(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_studies(Spots(), tmp_path / "kept", PROTOCOL, progress=stop)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="no such file"):
        Targets.open(tmp_path / "kept")


def test_region_targets_come_with_their_lungs_and_exact_ones_where_there_are_any(tmp_path: Path) -> None:
    _, targets = prepare_studies(Spots(), tmp_path / "kept", PROTOCOL, pixels=20)
    masks = targets.phrases["s0", "phrase:0"].masks
    read = {rule: targets.store.read([mask.place])[0] for rule, mask in masks.items()}
    assert read["regions"].sum() == 16 * 8  # the left lung: x from 11 to 19, y from 2 to 18
    assert read["trimmed"].sum() == 6 * 8  # its lower zone alone
    assert read["exact"].any()
    assert set(targets.phrases["s0", "phrase:2"].masks) == {"regions", "trimmed", "regions-shuffled", "regions-random"}
    assert targets.phrases["s1", "phrase:1"].masks["exact"].kind == "finding boxes"


def test_moved_targets_are_of_the_same_report_or_of_another_patient(tmp_path: Path) -> None:
    _, targets = prepare_studies(Spots(), tmp_path / "kept", PROTOCOL, pixels=20)
    owner_of: dict[int, set[str]] = {}
    for phrase in targets.phrases.values():
        for rule in ("regions", "exact"):
            if rule in phrase.masks:
                owner_of.setdefault(phrase.masks[rule].place.offset, set()).add(phrase.study)
    for phrase in targets.phrases.values():
        for rule in ("regions", "exact"):
            if rule not in phrase.masks:
                continue
            shuffled, drawn = phrase.masks[f"{rule}-shuffled"], phrase.masks[f"{rule}-random"]
            assert owner_of[shuffled.place.offset] == {phrase.study}
            differs = phrase.columns[f"{rule}_shuffled_differs"]
            assert differs == (shuffled.place != phrase.masks[rule].place)
            (other,) = owner_of[drawn.place.offset]
            assert targets.phrases[other, "phrase:0"].patient != phrase.patient
    assert {name for phrase in targets.phrases.values() for name in phrase.columns} == {
        "abnormal", "one_lung", "mdrb", "regions_shuffled_differs", "exact_shuffled_differs",
    }  # fmt: skip


def test_the_hash_of_the_phrases_depends_on_what_they_are_and_not_on_their_order() -> None:
    source, everything = Spots(), every_phrase(Spots())
    wanted = [everything, dict(reversed(everything.items())), everything | {"s0": [0]}]
    hashes = [gather_targets(source, one).phrase_set for one in wanted]
    assert hashes[0] == hashes[1] != hashes[2]


def test_rules_and_subsets_are_checked_before_the_walk_and_large_images_are_reduced() -> None:
    assert reduced(np.ones((10, 2048), np.float32)).shape == (5, 1024)
    for settings, message in (
        ({"rules": ["owns"]}, "did you mean 'own'"),
        ({"subsets": ["abnormals"]}, "did you mean 'abnormal'"),
        ({"rules": ["regions"]}, "at least 8 pixels"),
        ({"rules": ["own-random"]}, "first target rule"),
    ):
        with pytest.raises(InputError, match=message):
            gather_targets(Spots(), **settings)  # type: ignore[arg-type]


def test_studies_without_a_phrase_are_kept_where_regions_are_measured(tmp_path: Path) -> None:
    source = open_source("phantom?count=8&seed=17&size=64")
    rules: dict[str, Any] = {"rules": ("exact",), "measures": ("auroc",), "pixels": 24}
    with_regions = Protocol("with", **rules, queries=("image", "region"))
    all_studies, targets = prepare_studies(source, tmp_path / "all", with_regions)
    some, others = prepare_studies(source, tmp_path / "some", Protocol("without", **rules))
    assert list(all_studies.ids) == list(source.ids)
    assert len(some.ids) < 8
    assert others.left_out["studies without a phrase to measure"] == 8 - len(some.ids)
    assert "studies without a phrase to measure" not in targets.left_out
    assert (targets.phrases.keys(), targets.phrase_set) == (others.phrases.keys(), others.phrase_set)
