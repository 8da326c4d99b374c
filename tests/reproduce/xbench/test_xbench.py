"""XBench's counterpart: a quick run end to end, the strata, the thresholds, and the drawn scenes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rightlung
from rightlung.core import InputError
from rightlung.core.files import read_json
from rightlung.predictions import open_predictions
from rightlung.reproduce.experiment import reproduce
from rightlung.reproduce.plan import Plan, recipes_of
from rightlung.reproduce.prepared import PreparedStudies
from rightlung.reproduce.xbench.claims import strata
from rightlung.reproduce.xbench.measuring import THRESHOLDS, threshold_table
from rightlung.reproduce.xbench.variants import GENERAL, OWN, UNTRAINED, VARIANTS
from rightlung.studies import open_source
from rightlung.training.loop import Hardware

QUICK = ("clip-general", "clip-general-grad-cam", "clip-vit-rollout")


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    plan = Plan(
        "xbench", tmp_path_factory.mktemp("xbench"), source="phantom?count=5&seed=13&size=64", only=QUICK, pixels=48,
        quick=True, hardware=Hardware(accelerator="cpu"),
    )  # fmt: skip
    reproduce(plan)
    return plan


def test_a_quick_run_trains_on_scenes_measures_every_kind_of_map_and_judges_the_claims(plan: Plan) -> None:
    found = read_json(plan.out / "results.json")
    measured = {one["slug"] for one in found["models"]}
    assert {*QUICK, "clip-vit", "prior"} <= measured
    assert [one["name"] for one in found["claims"]] == [
        "large", "small", "diffuse", "small-lead", "domain", "general", "correlated",
    ]  # fmt: skip
    domain = next(one for one in found["claims"] if one["name"] == "domain")
    assert domain["judgements"]["exact"]["verdict"] == "cannot be judged"  # its other model was not trained
    assert "Sensitivity to the threshold" in (plan.out / "results.md").read_text(encoding="utf-8")


def test_dice_and_iou_at_each_threshold_are_those_of_the_map_scaled_to_its_range(plan: Plan) -> None:
    prepared = PreparedStudies.open(plan.out, plan.protocol)
    folder = plan.predictions("clip-general")
    table = threshold_table(folder, prepared).to_pandas().set_index(["study", "query"])
    for one in (one for batch in open_predictions(folder).batches() for one in batch.predictions()):
        phrase = prepared.targets.phrases.get((one.study, one.query))
        if phrase is None or "exact" not in phrase.masks or one.grounding is None:
            continue
        assert one.grounding.heatmap is not None
        values = one.grounding.heatmap.to_size((48, 48), keep_mass=False).astype(np.float64)
        scaled = (values - values.min()) / (values.max() - values.min())
        mask = prepared.targets.store.read([phrase.masks["exact"].place])[0]
        for threshold in (0.3, 0.7):
            kept = scaled >= threshold
            row = table.loc[one.study, one.query]
            expected = 2 * (kept & mask).sum() / (kept.sum() + mask.sum())
            assert row[f"dice@{threshold:g}"] == pytest.approx(expected, abs=0.02)
            assert row[f"iou@{threshold:g}"] == pytest.approx(expected / (2 - expected), abs=0.02)
    assert [f"dice@{one:g}" for one in THRESHOLDS] == [name for name in table if name.startswith("dice")]


def test_there_are_seven_models_with_their_own_maps_and_every_kind_of_map() -> None:
    slugs = {variant.slug for variant in VARIANTS}
    assert len(OWN) >= 7
    assert {*OWN, GENERAL, UNTRAINED} <= slugs
    kinds = ("similarity", "grad-cam", "gradient-attention", "rollout")
    assert all(any(slug.endswith(kind) for slug in slugs) for kind in kinds)


def test_the_general_model_has_the_recipe_of_the_chest_model_but_for_its_data() -> None:
    plan = Plan("xbench", Path("out"))
    chest, general = (
        next(iter(recipes_of(plan, next(job for job in plan.jobs() if job.slug == slug)).values()))
        for slug in ("clip", GENERAL)
    )
    assert general.data.train[0].source.startswith("shapes?")
    for name in ("model", "losses", "optimizer", "schedule", "batch_size", "seed"):
        assert getattr(chest, name) == getattr(general, name)


def test_strata_are_thirds_by_area_and_diffuse_findings_by_name() -> None:
    area = np.array([0.01, 0.02, 0.03, 0.04, 0.05, 0.06])
    findings = [["edema"], ["nodule"], [], ["Pulmonary edema", "nodule"], ["mass"], ["cardiomegaly"]]
    facts: dict[str, Any] = {"target_area": area, "findings": findings}
    measured: Any = SimpleNamespace(fact=lambda name, target=None: facts[name], has=lambda _: np.ones(6, dtype=bool))
    found = strata(measured)
    assert found["small"].tolist() == [True, True] + 4 * [False]
    assert found["large"].tolist() == 4 * [False] + [True, True]
    assert found["diffuse"].tolist() == [True, False, False, True, False, False]
    assert found["focal"].tolist() == [False, True, False, False, True, True]


def test_a_scenes_captions_say_where_its_shapes_are_and_how_bright() -> None:
    source = open_source("shapes?count=40&seed=3&size=64")
    again = rightlung.open_source("shapes?count=40&seed=3&size=64")
    for study, same in zip(source, again, strict=True):
        assert np.array_equal(study.image, same.image)
        assert study.report is not None
        for phrase in study.phrases:
            assert phrase.text[1:] in study.report.text
            assert phrase.mask is not None
            box = phrase.mask.box()
            assert box is not None
            across, down = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2
            words = phrase.text.rsplit(" at the ", 1)[1].split()
            assert words == [["upper", "central", "lower"][int(3 * down)], ["left", "middle", "right"][int(3 * across)]]
            inside = study.image[phrase.mask.pixels].mean()
            assert ("bright" in phrase.text) == (inside > 0.8)
            assert ("dark" in phrase.text) == (inside < 0.2)


@pytest.mark.parametrize("address", ["shapes?seed=1", "shapes:x?count=2&seed=1", "shapes?count=0&seed=1", "shapes?n=2"])
def test_a_wrong_address_of_scenes_is_a_sentence(address: str) -> None:
    with pytest.raises(InputError, match="shapes"):
        open_source(address)
