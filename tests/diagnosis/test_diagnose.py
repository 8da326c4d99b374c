"""Numbers computed here under odd conventions are found again, each with the name of its convention."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score, matthews_corrcoef, roc_auc_score

from rightlung.cli.diagnose import say_diagnosis
from rightlung.core import InputError, Polarity
from rightlung.diagnosis import Diagnosis, diagnose
from rightlung.diagnosis.conventions import FAMILIES
from rightlung.diagnosis.page import verdict
from rightlung.diagnosis.run import _scorer, parse_published
from rightlung.lexicon.labeller import OBSERVATIONS, observations
from rightlung.measuring import BoxSettings, find_measure, gather_targets, measure
from rightlung.measuring.box_settings import processed
from rightlung.measuring.protocols import Protocol
from rightlung.predictions import open_predictions
from rightlung.results.estimate import BootstrapSettings
from tests.diagnosis.made_up import COUNT, NAMES, Clinic, boxes_of, build, map_of, scores_of, text_of, write

FEW = BootstrapSettings(50)
PHRASES = [(position, index) for position in range(COUNT) for index in range(2)]


@pytest.fixture(scope="module")
def predictions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("clinic") / "p")


@pytest.fixture
def asked(predictions: Path, tmp_path: Path) -> Callable[[str, float], Diagnosis]:
    def ask(name: str, value: float, digits: int = 5) -> Diagnosis:
        return diagnose(predictions, Clinic(), name, f"{value:.{digits}f}", tmp_path / "d", settings=FEW)

    return ask


def mask_of(position: int, index: int, cells: int = 8) -> Any:
    mask = np.zeros((cells, cells), bool)
    for one in build(position).phrases[index].boxes:
        x0, y0, x1, y1 = (round(cells * edge) for edge in one.as_tuple())
        mask[y0:y1, x0:x1] = True
    return mask


def found_by(done: Diagnosis, **differences: str) -> bool:
    wanted = {name.replace("_", " "): choice for name, choice in differences.items()}
    return any(dict(one.differences) == wanted for one in done.found)


def test_pooled_strict_nearest_iou_at_one_threshold(asked: Any) -> None:
    areas = np.zeros(2)
    for one in PHRASES:
        chosen, mask = map_of(*one) / 16 > 0.5, mask_of(*one)  # 8 is a level of these maps: > and >= differ
        areas += (chosen & mask).sum(), (chosen | mask).sum()
    done = asked("miou", areas[0] / areas[1])
    # Cells are whole pixels: the nearest cell is the map itself. Thresholds differ from ours in three ways.
    assert not found_by(done)
    with_four = {"pixels": "0.5", "ties": "strict", "upsampling": "nearest", "averaging": "pooled"}
    assert all(dict(one.differences) != with_four for one in done.found)  # at most three differences are tried
    done = asked("miou", float(np.mean([_iou(map_of(*one) / 16 > 0.5, mask_of(*one)) for one in PHRASES])))
    assert found_by(done, pixels="0.5", ties="strict", upsampling="nearest")


def _iou(chosen: Any, mask: Any) -> float:
    return float((chosen & mask).sum() / (chosen | mask).sum())


def test_pooled_inclusive_dice_of_nearest_maps(asked: Any) -> None:
    above, below = np.zeros(5), np.zeros(5)
    for one in PHRASES:
        for place, threshold in enumerate((0.1, 0.2, 0.3, 0.4, 0.5)):
            chosen, mask = map_of(*one) / 16 >= threshold, mask_of(*one)
            above[place] += 2 * (chosen & mask).sum()
            below[place] += chosen.sum() + mask.sum()
    assert found_by(
        asked("miou", float((above / below).mean())), overlap="dice", upsampling="nearest", averaging="pooled"
    )


def test_pixels_at_or_above_a_percentile_of_nearest_maps_by_finding(asked: Any) -> None:
    values: dict[str, list[float]] = {}
    for one in PHRASES:
        # The pixels are 32 x 32 copies of each cell, so that the percentile of cells is that of pixels.
        pixels = np.kron(map_of(*one), np.ones((32, 32)))
        cut = np.sort(pixels, axis=None)[::-1][math.ceil(0.1 * pixels.size) - 1]
        name = next(iter(build(one[0]).phrases[one[1]].findings))
        values.setdefault(name, []).append(_iou(pixels >= cut, mask_of(*one, 256)))
    wanted = float(np.mean([np.mean(some) for some in values.values()]))
    assert found_by(asked("iou@10", wanted), ties="all", upsampling="nearest", averaging="findings")


def test_a_tied_peak_that_hits_counts_in_full(asked: Any) -> None:
    hits = [bool((mask_of(*one) & (map_of(*one) == map_of(*one).max())).any()) for one in PHRASES]
    assert found_by(asked("pointing", float(np.mean(hits))), ties="any", upsampling="nearest")


def test_absolute_contrast_with_sample_variances(asked: Any) -> None:
    import torch

    values = []
    for one in PHRASES:
        pixels, mask = np.kron(map_of(*one), np.ones((32, 32))), mask_of(*one, 256)
        inside, outside = (torch.tensor(pixels[where]) for where in (mask, ~mask))
        values.append(abs(inside.mean() - outside.mean()) / (inside.var() + outside.var()) ** 0.5)
    wanted = float(np.mean([float(value) for value in values]))
    # Each of 65,536 pixels: n − 1 changes the fifth decimal and beyond.
    done = asked("cnr", wanted, 9)
    assert found_by(done, sign="absolute", variance="sample", upsampling="nearest") or found_by(
        done, variance="sample", upsampling="nearest"
    )


def test_mean_iou_of_all_pairs_of_boxes(asked: Any) -> None:
    values = []
    for one in PHRASES:
        targets, boxes = build(one[0]).phrases[one[1]].boxes, boxes_of(*one)
        pairs = [given.box.iou(target) for given in boxes for target in targets]
        values.append(float(np.mean(pairs)) if pairs else 0.0)
    done = asked("box_miou", float(np.mean(values)))
    assert found_by(done, overlap="pairs", chosen="all", boxes="all") or found_by(done, overlap="pairs", chosen="all")


def _matches(threshold: float) -> tuple[list[tuple[str, float, bool]], Counter[str]]:
    """Match boxes to targets greedily; return finding, score and match of each box, and targets by finding."""
    rows, targets = [], Counter[str]()
    for position in range(COUNT):
        for name in NAMES:
            own = {one for phrase in build(position).phrases if name in phrase.findings for one in phrase.boxes}
            given = [box for n in range(2) for box in boxes_of(position, n) if box.label == name]
            targets[name] += len(own)
            for one in sorted(given, key=lambda box: -box.score):
                best = max(own, key=lambda target: target.iou(one.box), default=None)
                hit = best is not None and best.iou(one.box) >= threshold
                if hit:
                    own = own - {best}
                rows.append((name, one.score, hit))
    return rows, targets


def _eleven(rows: list[tuple[str, float, bool]], targets: int) -> float:
    hits = np.cumsum([hit for _, _, hit in sorted(rows, key=lambda row: -row[1])])
    recall, precision = hits / targets, hits / np.arange(1, len(rows) + 1)
    return sum(max(precision[recall >= level - 1e-12], default=0.0) for level in np.linspace(0, 1, 11)) / 11


def test_eleven_points_without_nms(asked: Any) -> None:
    rows, targets = _matches(0.5)
    wanted = float(np.mean([_eleven([row for row in rows if row[0] == name], targets[name]) for name in NAMES]))
    assert found_by(asked("map@50", wanted), curve="11 points", boxes="all")
    assert found_by(asked("map", wanted), iou="0.5", curve="11 points", boxes="all")


def _labels(uncertain: float, unnamed: float = np.nan) -> tuple[Any, Any]:
    meaning = {Polarity.POSITIVE: 1.0, Polarity.NEGATIVE: 0.0, Polarity.UNCERTAIN: uncertain}
    known = [[meaning.get(build(n).findings.get(name), unnamed) for name in NAMES] for n in range(COUNT)]  # type: ignore[arg-type]
    return np.array(known), np.array([[scores_of(n)[name] for name in NAMES] for n in range(COUNT)])


def test_micro_auroc_with_uncertain_as_positive(asked: Any) -> None:
    known, scores = _labels(1.0)
    there = ~np.isnan(known)
    wanted = float(roc_auc_score(known[there], scores[there]))
    assert found_by(asked("finding_auroc", wanted), averaging="micro", uncertain="positive")


def test_weighted_f1_and_best_mcc_of_scores(asked: Any) -> None:
    known, scores = _labels(0.0, 0.0)
    wanted = float(f1_score(known, scores >= 0.5, average="weighted"))
    done = asked("f1", wanted)
    assert found_by(done, averaging="weighted", uncertain="negative", unnamed="negative")
    best = [
        max(matthews_corrcoef(known[:, n], scores[:, n] >= cut) for cut in np.unique(scores[:, n])) for n in range(4)
    ]
    assert found_by(
        asked("finding_mcc", float(np.mean(best))), uncertain="negative", unnamed="negative", threshold="best"
    )


def test_weighted_f1_of_labels_against_findings_alone(asked: Any) -> None:
    def labels(texts: list[str]) -> Any:
        said = [observations(text) for text in texts]
        return np.array([[one.get(name) in ("positive", "uncertain") for name in OBSERVATIONS] for one in said])

    references = [build(n).report.sections["findings"] for n in range(COUNT)]  # type: ignore[union-attr]
    called, true = labels([text_of(n) for n in range(COUNT)]), labels(references)
    done = asked("micro_f1_14", float(f1_score(true, called, average="weighted", zero_division=0)))
    assert found_by(done, averaging="weighted", section="findings")  # no findings section has an uncertain finding


def test_mean_bleu_of_texts_against_the_impression_with_case(asked: Any) -> None:
    def bleu_1(answer: list[str], reference: list[str]) -> float:
        hits = (Counter(answer) & Counter(reference)).total()
        return hits / len(answer) * min(1.0, math.exp(1 - len(reference) / len(answer)))

    def words(text: str) -> list[str]:
        return text.lower().replace(".", " .").split()

    pairs = [(words(text_of(n)), words(build(n).report.text)) for n in range(COUNT)]  # type: ignore[union-attr]
    wanted = float(np.mean([bleu_1(*pair) for pair in pairs]))
    done = asked("bleu", wanted)
    assert any(dict(one.differences).items() >= {"score": "bleu_1", "averaging": "texts"}.items() for one in done.found)


MEASURED = ("miou", "mdice", "iou@5", "dice@10", "precision@30", "pointing", "cnr", "average_precision", "mass_inside")
OF_IMAGES = (
    "finding_auroc", "finding_auroc_weighted", "finding_average_precision", "finding_mcc", "micro_f1_14", "macro_f1_14",
    "example_f1_14", "macro_mcc_13", "micro_f1_5", "bleu_4", "bleu_1", "rouge_l", "cider",
)  # fmt: skip


def test_our_convention_is_what_an_audit_measures(predictions: Path) -> None:
    targets, opened = gather_targets(Clinic()), open_predictions(predictions)
    tables = {
        "maps": measure(opened.batches(), targets, Protocol("maps", ("own",), MEASURED)),
        "images": measure(opened.batches(), targets, Protocol("images", (), OF_IMAGES, text="whole")),
    }
    for family in (one for one in FAMILIES.values() if "box" not in one.name and "detection" not in one.name):
        scorer = _scorer(family, opened, targets, Clinic())
        for name in (one for one in family.measures if one in (*MEASURED, *OF_IMAGES)):
            ours = float(scorer.statistic(family.ours(name))(np.ones((1, len(scorer.patients))))[0])
            table, one = tables["maps" if name in MEASURED else "images"], find_measure(name)
            rows = table if name in MEASURED else table.filter(_of_kind(table, name.startswith("finding")))
            columns = {column: rows[column].to_numpy(zero_copy_only=False) for column in one.columns}
            assert ours == pytest.approx(one.value(columns), abs=1e-6), name


def test_our_boxes_are_those_of_an_audit_of_tasks(predictions: Path) -> None:
    targets, opened = gather_targets(Clinic()), open_predictions(predictions)
    for rules, names in ((("own",), ("box_miou", "box_miou_pooled", "sentence_map")), ((), ("map", "map@30"))):
        batches = processed(opened.batches(), lambda _: BoxSettings(nms=0.25))
        table = measure(batches, targets, Protocol("boxes", rules, names))
        for name in names:
            family = next(one for one in FAMILIES.values() if name in one.measures)
            scorer, one = _scorer(family, opened, targets, Clinic()), find_measure(name)
            ours = float(scorer.statistic(family.ours(name))(np.ones((1, len(scorer.patients))))[0])
            columns = {column: table[column].to_numpy(zero_copy_only=False) for column in one.columns}
            assert ours == pytest.approx(one.value(columns), abs=1e-9), name


def _of_kind(table: Any, labels: bool) -> Any:
    import pyarrow as pa

    return pa.array([(kind == "image label") == labels for kind in table["target_kind"].to_pylist()])


def test_none_reproduces_an_impossible_number_and_the_nearest_is_named(asked: Any) -> None:
    done = asked("pointing", 0.01234)
    assert not done.found
    assert verdict(done).text == "None does: no known convention gives 0.01234 (±5e-06)."
    nearest = min(abs(one.value - 0.01234) for one in (*done.nearest, done.ours, *done.alone))
    assert abs(done.nearest[0].value - 0.01234) == nearest
    written = json.loads((done.folder / "diagnosis.json").read_text())
    assert written["reproduced_by"] == []
    assert "The nearest is" in done.page.read_text(encoding="utf-8")
    assert (done.folder / "diagnosis.md").exists()


def test_a_fit_that_chance_explains_has_a_question_mark_on_the_page_and_on_the_terminal(
    asked: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    done = asked("pointing", asked("pointing", 0.01234).alone[-1].value)
    assert done.found[0].says
    few = replace(done, result={**done.result, "tried": 1652, "expected_by_chance": len(done.found) + 0.2})
    said = verdict(few)
    assert said.mark == "unclear"
    assert (
        f"1,652 conventions were tried, of which {len(done.found) + 0.2:g} are expected to fit by chance" in said.text
    )
    say_diagnosis(few)
    assert capsys.readouterr().err.startswith(f"? {said.text}")
    assert verdict(replace(done, result={**done.result, "expected_by_chance": 0.1})).mark == "yes"


def test_our_own_number_needs_no_difference_and_has_an_interval(asked: Any) -> None:
    value = asked("pointing", 0.5).ours.value
    done = asked("pointing", value)
    assert [one.says for one in done.found] == [[]]
    assert done.ours.estimate is not None
    assert done.ours.estimate.low < value < done.ours.estimate.high


def test_the_rounding_of_the_printed_number_decides() -> None:
    assert parse_published("0.475") == (0.475, 0.0005)
    assert parse_published("47.52") == pytest.approx((0.4752, 0.00005))
    assert parse_published("3.10", bounded=False) == pytest.approx((3.1, 0.005))
    with pytest.raises(InputError, match="--published must be a number as printed"):
        parse_published("about a half")


def test_an_unknown_measure_and_missing_answers_are_said_in_a_sentence(predictions: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown measure 'miu'; did you mean 'miou'"):
        diagnose(predictions, Clinic(), "miu", "0.5", tmp_path / "d")
    from tests.audit.test_coordinates import Films, answers, written

    written(tmp_path / "p", answers(Films(), lambda c: c, boxes=False, noise=0.0))
    with pytest.raises(InputError, match="has no answers under the condition 'none' with a target for 'bleu'"):
        diagnose(tmp_path / "p", Films(), "bleu", "0.5", tmp_path / "d")


def test_every_choice_has_a_meaning_and_ours_comes_first() -> None:
    for family in FAMILIES.values():
        for name in family.measures:
            first = next(family.conventions(name))
            assert first == {}
        assert all(says for choices in family.axes.values() for says in choices.values())
