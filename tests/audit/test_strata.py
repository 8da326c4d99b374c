"""Strata, curves, readers and calibration against numbers computed here one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from scipy.ndimage import distance_transform_edt
from sklearn.metrics import precision_recall_curve

from rightlung.audit import audit
from rightlung.audit.strata import FOLDS, _at_thresholds, _calibration
from rightlung.core import Box, Grounding, Heatmap, InputError, Phrase, Polarity, Query, Study
from rightlung.measuring import PhraseTargets
from rightlung.measuring.answered import Answered
from rightlung.measuring.curves import RECALLS, THRESHOLDS, TOLERANCES, curves
from rightlung.measuring.maps import AnswerMap
from rightlung.measuring.readers import agreement, readers_of
from rightlung.models.blind.prior import fold_of
from rightlung.predictions import Prediction, PredictionWriter
from rightlung.results.estimate import BootstrapSettings
from rightlung.studies import open_source
from tests.audit.cards import QUICK, Cards, audited, image_blind_map, true_map
from tests.audit.test_coordinates import Films, answers, written

SIDE = 32


def phrase(number: int, **known: Any) -> PhraseTargets:
    return PhraseTargets(
        f"s{number}", "phrase:0", f"p{number}", "Opacity.", ("lung opacity",), "positive", (), "none", 0.5, **known
    )


def one_answer(values: Any, mask: Any, **known: Any) -> dict[str, Any]:
    (found,) = curves([Answered(phrase(0), mask, AnswerMap(values.astype(np.float32), **known))]).values()
    return found


def test_curves_equal_those_of_scikit_learn_and_of_single_pixels() -> None:
    rng = np.random.default_rng(0)
    values, mask = rng.integers(0, 40, (SIDE, SIDE)).astype(np.float64), np.zeros((SIDE, SIDE), bool)
    values[5, 5] = values[20, 9] = 64
    mask[8:14, 6:16] = True
    values[mask] += 8
    found = one_answer(values, mask)
    scaled = (values - values.min()) / (values.max() - values.min())
    for place, threshold in enumerate(THRESHOLDS):
        chosen = scaled >= threshold - 1e-7
        assert found["iou"][place] == pytest.approx((chosen & mask).sum() / (chosen | mask).sum())
    precision, recall, _ = precision_recall_curve(mask.ravel(), values.ravel())
    for place, least in enumerate(RECALLS):
        reached = np.flatnonzero(recall >= least - 1e-9)[-1]  # the highest threshold with this recall
        assert found["precision"][place] == pytest.approx(precision[reached])
    distance = distance_transform_edt(~mask)[values == values.max()] / SIDE
    assert found["pointing"].tolist() == [(distance <= tolerance).mean() for tolerance in TOLERANCES]


def test_contours_and_equal_area_by_hand() -> None:
    mask, values = np.zeros((SIDE, SIDE), bool), np.zeros((SIDE, SIDE))
    mask[2:6, 2:6], mask[20:28, 20:28] = True, True  # parts of 16 and 64 pixels
    values[20:28, 20:28] = 2.0
    values[10:14, 10:14] = 1.0  # as many top pixels as the target has: one part and 16 others
    found = one_answer(values, mask)
    assert found["contours"].tolist() == [0.5]
    assert found["matched"][0] == pytest.approx(64 / 96)
    assert np.isnan(one_answer(np.ones((SIDE, SIDE)), mask)["contours"][0])


def test_the_threshold_is_chosen_on_other_patients() -> None:
    rng = np.random.default_rng(1)
    iou = rng.random((60, len(THRESHOLDS)))
    iou[:, 3] += 0.3
    people = [phrase(n) for n in range(60)]
    fixed, chosen, oracle, matched = _at_thresholds(iou, iou[:, :1], people)
    assert fixed.tolist() == iou[:, 9].tolist()
    for n, one in enumerate(people):
        others = [m for m in range(60) if fold_of(people[m].patient, FOLDS) != fold_of(one.patient, FOLDS)]
        assert chosen[n] == iou[n, iou[others].mean(axis=0).argmax()]
    assert oracle.tolist() == iou.max(axis=1).tolist()
    assert matched.tolist() == iou[:, 0].tolist()


def test_calibration_counts_hits_in_fifths_by_score() -> None:
    rng = np.random.default_rng(2)
    found = []
    for _ in range(50):
        scores = rng.random(4)
        found.append({"scores": scores, "hits": (rng.random(4) < scores).astype(float)})
    curve = _calibration(found, [f"p{n // 2}" for n in range(50)], QUICK)
    scores, hits = (np.concatenate([one[name] for one in found]) for name in ("scores", "hits"))
    order = np.argsort(scores)
    for (at, share), places in zip(curve, np.array_split(order, 5), strict=True):
        assert at == pytest.approx(scores[places].mean())
        assert share.value == pytest.approx(hits[places].mean())
        assert share.low < at < share.high + 0.1
    assert _calibration([{"scores": 9 * scores, "hits": hits}], ["p"], QUICK) == []


def test_an_oracle_beats_the_prior_in_every_stratum(tmp_path: Path) -> None:
    done = audited(tmp_path, Cards(24), true_map, ("none",)).result["strata"]
    assert done["sample"] == 72
    assert sum(int(name.split("(")[1].rstrip(")")) for name in done["names"] if name.startswith("area")) == 72
    assert {name.partition(" (")[0] for name in done["names"]} >= {"extent: largest third", "one box"}
    ours, prior = (done["groups"]["average_precision"][slug] for slug in ("model", "prior"))
    assert all(one["estimate"] == pytest.approx(1.0) for one in ours)
    assert sum(one["estimate"] for one in prior) < 0.9 * len(prior)
    assert [one["estimate"] for one in done["curves"]["iou"]["model"]] == pytest.approx([1.0] * len(THRESHOLDS))
    assert done["contours"]["model"][0]["estimate"] == 1.0
    assert done["gain"]["estimate"] == pytest.approx(0.0)
    assert done["readers"] == {}


def test_a_threshold_that_is_far_from_the_best_shows(tmp_path: Path) -> None:
    done = audited(tmp_path, Cards(24), image_blind_map, ("none",)).result["strata"]
    own = [one["estimate"] for one in done["curves"]["iou"]["model"]]
    assert done["best"] == THRESHOLDS[int(np.argmax(own))]
    fixed, best, oracle, _ = (one["estimate"] for one in done["thresholds"]["model"])
    assert fixed == pytest.approx(own[THRESHOLDS.index(0.5)])
    assert done["gain"]["estimate"] == pytest.approx(best - fixed)
    assert oracle >= best


def test_the_appendix_is_folded_below_the_rest(tmp_path: Path) -> None:
    source = Films(30)
    done = audit(
        written(tmp_path / "p", answers(source, lambda c: c, True, 0.0)),
        source,
        tmp_path / "a",
        settings=QUICK,
        cases=0,
    )
    text = done.page.read_text(encoding="utf-8")
    assert text.index('id="next"') < text.index('id="strata"') < text.index('id="definitions"')
    assert text.index("<details", text.index('id="next"')) < text.index("Appendix: strata and thresholds</h2>")
    for title in ("How much the threshold matters", "Pointing with a tolerance", "Calibration"):
        assert title in text
    calibration = done.result["strata"]["calibration"]
    assert [at for at, _ in calibration] == pytest.approx([0.8] * 5)
    assert [one["estimate"] for _, one in calibration] == [1.0] * 5


BOXES = {"a": [0.1, 0.1, 0.3, 0.5], "b": [0.1, 0.1, 0.5, 0.5], "c": [0.1, 0.1, 0.3, 0.3]}


def read_by_three(folder: Path) -> str:
    """Write a manifest of twelve images that three readers read; the third saw no nodule in half of them."""
    folder.mkdir()
    rows = []
    for number in range(12):
        noise = np.random.default_rng(number).integers(0, 255, (40, 40)).astype(np.uint8)
        PIL.Image.fromarray(noise).save(folder / f"{number}.png")
        seen = [*BOXES][: 3 if number % 2 else 2]
        readers = {name: {"boxes": [{"label": "nodule", "box": BOXES[name]}] if name in seen else []} for name in BOXES}
        readers["a"]["boxes"] += [{"label": "edema", "box": [0.6, 0.6, 0.9, 0.9]}]
        rows.append({"id": f"m{number}", "file": f"{number}.png", "patient": f"p{number}", "readers": readers,
                     "boxes": [{"label": "nodule", "box": BOXES["b"]}]})  # fmt: skip
    (folder / "manifest.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return f"manifest:{folder}"


def test_the_human_ceiling_of_a_manifest_is_the_agreement_of_its_readers(tmp_path: Path) -> None:
    address = read_by_three(tmp_path / "m")
    with PredictionWriter(tmp_path / "p", source=address, model="right") as writer:
        for study in open_source(address):
            values = np.zeros((10, 10), np.float32)
            values[1:5, 1:5] = 1.0
            writer.write(Prediction(study.id, "phrase:0", "none", Query("Nodule."), Grounding(Heatmap(values))))
    done = audit(tmp_path / "p", out=tmp_path / "a", settings=BootstrapSettings(200), cases=0)
    readers = done.result["strata"]["readers"]
    pairs = {"ab": 0.08 / 0.16, "ac": 0.04 / 0.08, "bc": 0.04 / 0.16}
    assert readers["readers with each other"]["estimate"] == pytest.approx(
        (pairs["ab"] + np.mean([*pairs.values()])) / 2
    )
    assert readers["model"]["estimate"] > 0.8
    assert readers["prior"]["phrases"] == 12
    assert "Human ceiling" in done.page.read_text(encoding="utf-8")


def test_a_second_reader_of_each_sentence_counts_and_one_reader_does_not() -> None:
    nodule = Phrase("Nodule.", (Box(0, 0, 0.5, 1),), findings={"nodule": Polarity.POSITIVE})
    image = np.zeros((8, 8), np.float32)
    study = Study("s", lambda: image, phrases=(nodule, nodule), extra={"second_reader": [[Box(0, 0, 1, 1)], []]})
    assert agreement(readers_of(study, 0)) == 0.5
    assert np.isnan(agreement(readers_of(study, 1)))
    alone = Study(
        "s",
        lambda: image,
        phrases=(nodule,),
        extra={"readers": {"a": {"boxes": [{"label": "nodule", "box": [0, 0, 1, 1]}]}}},
    )
    assert readers_of(alone, 0) == ()


@pytest.mark.parametrize(
    ("readers", "message"),
    [
        ({"a": 3}, "study 's': extra, readers, 'a': expected"),
        ({"a": {"boxes": [{"label": "nodule", "box": [0, 0, 2, 1]}]}}, "study 's': extra, readers, 'a', 'nodule': box"),
    ],
)
def test_wrong_readers_are_refused_in_a_sentence(readers: Any, message: str) -> None:
    nodule = Phrase("Nodule.", (Box(0, 0, 0.5, 1),), findings={"nodule": Polarity.POSITIVE})
    study = Study("s", lambda: np.zeros((8, 8), np.float32), phrases=(nodule,), extra={"readers": readers})
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        readers_of(study, 0)
