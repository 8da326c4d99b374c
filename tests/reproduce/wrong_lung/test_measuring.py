"""Measuring: the same numbers as the audit's path, rows for what fails, files whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from scipy import stats

from rightlung.audit.pixels import painted, upsampled
from rightlung.core import Box, Extent, Grounding, Heatmap, Image, InputError, Phrase, ScoredBox
from rightlung.models.base import Similarities
from rightlung.reproduce.wrong_lung.instances import Instances
from rightlung.reproduce.wrong_lung.measuring import METRICS, is_measured, measure
from rightlung.reproduce.wrong_lung.pixels import (
    distribution,
    entropy,
    peaks,
    symmetric_divergence,
    to_pixels,
    unpacked,
)
from rightlung.scoring.localisation import score

ABOUT = {"slug": "x", "variant": "x", "name": "X", "group": "ours", "order": 1}
CPU = torch.device("cpu")


class Hashed:
    """Maps that follow from image and words, on a grid that does not fill the image; notes what it is asked."""

    def __init__(self) -> None:
        self.calls: list[list[tuple[int, str]]] = []
        self.compared: list[tuple[int, int]] = []

    def heatmap(self, image: Image, text: str) -> Heatmap:
        chance = np.random.default_rng([len(text), sum(map(ord, text)), int(image.sum() * 1000)])
        return Heatmap(chance.random((5, 7)), Extent(-0.1, 0.05, 1.1, 0.9), abstention=0.25)

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        self.calls.append([(id(image), str(phrase)) for image, phrase in zip(images, phrases, strict=True)])
        return [Grounding(self.heatmap(image, str(phrase))) for image, phrase in zip(images, phrases, strict=True)]

    def similarity(self, images: Sequence[Image], texts: Sequence[str]) -> Similarities:
        self.compared.append((len(images), len(texts)))
        whole = np.array([[len(text) / 1e7 + image.mean() for text in texts] for image in images], np.float32)
        return Similarities(whole)


@pytest.fixture(scope="module")
def model() -> Hashed:
    return Hashed()


@pytest.fixture(scope="module")
def folder(prepared: Instances, model: Hashed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("measured")
    measure(model, prepared, out, about=ABOUT, batch_size=60)
    return out


def table(folder: Path, name: str) -> list[dict[str, Any]]:
    return list(pq.read_table(folder / f"{name}.parquet").to_pylist())


def test_scores_are_those_of_every_map_against_every_target_one_by_one(
    prepared: Instances, model: Hashed, folder: Path
) -> None:
    size = (prepared.size, prepared.size)
    for row in table(folder, "scores")[::23]:
        instance = prepared.rows[row["instance"]]
        asked = instance.asked[row["condition"]]
        heatmap = model.heatmap(prepared.image(asked.image), asked.text)
        pixels = upsampled(heatmap.values, heatmap.extent.as_tuple(), size)
        expected = score(pixels[None], prepared.mask(instance.targets[row["target"]])[None])
        for metric in METRICS:
            assert row[metric] == pytest.approx(float(expected[metric][0]), abs=6e-6, nan_ok=True), (row, metric)


def test_answers_have_entropy_divergence_peak_and_similarity(prepared: Instances, model: Hashed, folder: Path) -> None:
    for row in table(folder, "answers")[::11]:
        instance = prepared.rows[row["instance"]]
        asked = instance.asked[row["condition"]]
        image = prepared.image(asked.image)
        values = model.heatmap(image, asked.text).values.astype(np.float64).ravel()
        assert row["entropy"] == pytest.approx(stats.entropy(values), abs=6e-6)
        assert row["abstention"] == 0.25
        assert row["similarity_global"] == np.float32(len(asked.text) / 1e7 + image.mean())
        assert row["similarity_local"] is None
        assert row["error"] is None
        pixels = upsampled(values.reshape(5, 7).astype(np.float32), (-0.1, 0.05, 1.1, 0.9), (prepared.size,) * 2)
        at = [(tied.mean() + 0.5) / prepared.size for tied in np.nonzero(pixels == pixels.max())]
        assert (row["peak_y"], row["peak_x"]) == pytest.approx(at, abs=6e-6)
        assert row["peak_side"] == ("left" if row["peak_x"] > prepared.shown[asked.image].midline else "right")
        if row["condition"] == "none":
            other = model.heatmap(image, instance.asked["random-sentence"].text).values.astype(np.float64).ravel()
            both = (stats.entropy(values, other) + stats.entropy(other, values)) / 2
            assert row["kl_random"] == pytest.approx(both, abs=6e-6)
        else:
            assert row["kl_random"] is None


def test_each_image_is_handed_over_once_and_each_question_asked_once(
    prepared: Instances, model: Hashed, folder: Path
) -> None:
    assert len(model.calls) > 3
    for call in model.calls:
        assert len(set(call)) == len(call)
    asked = {(asked.image, asked.text) for instance in prepared for asked in instance.asked.values()}
    assert sum(map(len, model.calls)) == len(asked)
    assert len(model.compared) == len(prepared.shown)
    assert {images for images, _ in model.compared} == {1}


def test_the_batch_size_changes_nothing(prepared: Instances, folder: Path, tmp_path: Path) -> None:
    about = measure(Hashed(), prepared, tmp_path, about=ABOUT, batch_size=1)
    for name in ("answers", "scores"):
        key = ["instance", "condition", "target"][: 2 if name == "answers" else 3]
        one, other = (pq.read_table(where / f"{name}.parquet").to_pandas() for where in (folder, tmp_path))
        assert one.sort_values(key).reset_index(drop=True).equals(other.sort_values(key).reset_index(drop=True))
    assert about["measured"]["errors"] == 0
    assert about["weights"] is None


def test_tensors_are_scored_as_arrays_are(prepared: Instances) -> None:
    groundings = [Grounding(Hashed().heatmap(np.ones((2, 2), np.float32), "x" * number)) for number in range(1, 6)]
    maps = to_pixels(groundings, prepared.size, CPU)
    masks = unpacked(prepared.packed([0, 1, 2, 3, 4]), prepared.size, CPU)
    arrays, tensors = score(maps.numpy(), masks.numpy(), metrics=METRICS), score(maps, masks, metrics=METRICS)
    for metric in METRICS:
        assert tensors[metric].numpy() == pytest.approx(arrays[metric], abs=1e-6)


@pytest.mark.parametrize(
    "extent",
    [Extent(), Extent(-0.25, 0.0, 1.25, 1.0), Extent(0.2, 0.3, 0.7, 0.6), Extent(0.5011, 0.5011, 0.5014, 0.502)],
)
@pytest.mark.parametrize("grid", [(1, 1), (7, 7), (19, 12), (96, 96)])
def test_pixels_are_the_audits_and_the_heatmaps(extent: Extent, grid: tuple[int, int]) -> None:
    chance = np.random.default_rng(4)
    heatmaps = [Heatmap(chance.random(grid) * scale, extent) for scale in (1.0, 1e-6, 300.0)]
    found = to_pixels([Grounding(heatmap) for heatmap in heatmaps], 96, CPU).numpy()
    for pixels, heatmap in zip(found, heatmaps, strict=True):
        audits = upsampled(heatmap.values, extent.as_tuple(), (96, 96))
        assert np.allclose(pixels, audits, rtol=0, atol=1e-6)
        own = heatmap.to_size((96, 96))
        assert np.allclose(pixels / pixels.sum(), own / own.sum(), rtol=0, atol=1e-6)


def test_boxes_are_painted_and_a_zero_map_has_no_peak() -> None:
    scored = [ScoredBox(Box(0.5, 0.25, 1.0, 0.75), 0.25, "left lung"), ScoredBox(Box(0.0, 0.0, 0.25, 0.25), 0.75)]
    maps = to_pixels([Grounding(None, scored), Grounding(Heatmap(np.zeros((3, 3)))), Grounding(None, [])], 8, CPU)
    corners = [dict(zip(("x0", "y0", "x1", "y1"), one.box.as_tuple(), strict=True)) for one in scored]
    expected = painted([{**box, "score": one.score} for box, one in zip(corners, scored, strict=True)], (8, 8))
    assert np.array_equal(maps[0].numpy(), expected)
    assert not maps[1:].any()
    x, y, sides = peaks(maps, [0.5, 0.5, 0.5])
    assert (x[0], y[0], sides) == (0.125, 0.125, ["right", None, None])
    assert np.isnan(x[1:]).all()
    assert np.isnan(y[1:]).all()
    shares = distribution(Grounding(None, scored))[1]
    assert shares is not None
    assert entropy(shares) == pytest.approx(stats.entropy([1, 3]))
    assert distribution(Grounding(None, scored[::-1]))[0] == distribution(Grounding(None, scored))[0]
    assert distribution(Grounding(Heatmap(np.zeros((3, 3)))))[1] is None


def test_tied_peaks_on_both_sides_are_in_the_middle() -> None:
    x, y, sides = peaks(torch.ones(2, 4, 4), [0.5, 0.2])
    assert (x.tolist(), y.tolist(), sides) == ([0.5, 0.5], [0.5, 0.5], ["middle", "left"])


def test_the_divergence_of_maps_that_nowhere_overlap_is_finite() -> None:
    one, other = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    assert symmetric_divergence(one, other) == pytest.approx(np.log(1e12))
    assert symmetric_divergence(one, one) == 0


class Choosy(Hashed):
    """Fails at some words, and at one image's similarities."""

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        if any("left" in str(phrase) for phrase in phrases):
            raise KeyError("left")
        return super().ground(images, phrases)


def test_a_question_that_fails_is_a_row_with_the_reason_and_no_score(
    prepared: Instances, folder: Path, tmp_path: Path
) -> None:
    about = measure(Choosy(), prepared, tmp_path, about=ABOUT, batch_size=60)
    whole = {(row["instance"], row["condition"]): row for row in table(folder, "answers")}
    failed = set()
    for row in table(tmp_path, "answers"):
        key = row["instance"], row["condition"]
        if "left" in prepared.rows[row["instance"]].asked[row["condition"]].text:
            assert row["error"] == "KeyError: 'left'"
            assert row["entropy"] is None
            failed.add(key)
        elif row["condition"] != "none":
            assert row == whole[key]
    assert len(failed) == about["measured"]["errors"] > 5
    assert not failed & {(row["instance"], row["condition"]) for row in table(tmp_path, "scores")}
    assert len(table(tmp_path, "answers")) == len(whole)


class Broken(Hashed):
    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        raise RuntimeError("no weights")


def test_a_model_that_answers_nothing_is_refused_and_leaves_nothing(prepared: Instances, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="answered none of the first 100 questions; the first failed with: RuntimeError"
    ):
        measure(Broken(), prepared, tmp_path / "m", about=ABOUT)
    assert not (tmp_path / "m").exists()
    with pytest.raises(InputError, match="str cannot ground phrases"):
        measure("nothing", prepared, tmp_path / "m", about=ABOUT)


class Regional:
    """Points at the regions it is shown, those on the left more; knows nothing of an image without regions."""

    def ground_regions(
        self, images: Sequence[Image], phrases: Sequence[Phrase | str], regions: Sequence[Mapping[str, Box]]
    ) -> list[Grounding]:
        return [
            Grounding(None, [ScoredBox(box, 2.0 if "left" in name else 1.0, name) for name, box in shown.items()])
            for shown in regions
        ]

    def similarity_regions(
        self, images: Sequence[Image], texts: Sequence[str], regions: Sequence[Mapping[str, Box]]
    ) -> Any:
        return np.array(
            [len(shown) if "nodule" in text else np.nan for text, shown in zip(texts, regions, strict=True)]
        )


def test_a_region_grounder_is_told_the_regions_of_the_image_shown(prepared: Instances, tmp_path: Path) -> None:
    measure(Regional(), prepared, tmp_path, about=ABOUT)
    for row in table(tmp_path, "answers"):
        asked = prepared.rows[row["instance"]].asked[row["condition"]]
        scores = [2.0 if "left" in name else 1.0 for name in prepared.shown[asked.image].regions]
        assert row["entropy"] == pytest.approx(stats.entropy(scores), abs=6e-6)
        assert row["similarity_global"] == (29 if "nodule" in asked.text else None)
        if row["condition"] == "none":
            assert row["kl_random"] == 0


def shares_of(shown: Mapping[str, Box], text: str) -> list[float]:
    return [1.0 + (3 * len(name) + len(text)) % 7 for name in shown]


class Painted(Regional):
    """Spreads attention over the regions by their names and the words, and gives a map of it, too."""

    def ground_regions(
        self, images: Sequence[Image], phrases: Sequence[Phrase | str], regions: Sequence[Mapping[str, Box]]
    ) -> list[Grounding]:
        return [
            Grounding(
                Heatmap(np.ones((4, 4))),
                [ScoredBox(box, share, name)
                 for (name, box), share in zip(shown.items(), shares_of(shown, str(phrase)), strict=True)],
            )
            for phrase, shown in zip(phrases, regions, strict=True)
        ]  # fmt: skip


def test_the_entropy_and_divergence_of_a_region_grounder_are_over_its_regions(
    prepared: Instances, tmp_path: Path
) -> None:
    measure(Painted(), prepared, tmp_path, about=ABOUT)
    divergences = []
    for row in table(tmp_path, "answers"):
        instance = prepared.rows[row["instance"]]
        asked = instance.asked[row["condition"]]
        shown = prepared.shown[asked.image].regions
        own = shares_of(shown, asked.text)
        assert row["entropy"] == pytest.approx(stats.entropy(own), abs=6e-6)
        assert row["peak_x"] == 0.5  # the map is still what is scored
        if row["condition"] == "none":
            other = shares_of(shown, instance.asked["random-sentence"].text)
            divergences.append((stats.entropy(own, other) + stats.entropy(other, own)) / 2)
            assert row["kl_random"] == pytest.approx(divergences[-1], abs=6e-6)
    assert max(divergences) > 0.1


class Boxed(Hashed):
    """Has boxes beside its map."""

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        return [
            Grounding(grounding.heatmap, [ScoredBox(Box(0.0, 0.0, 0.5, 0.5), 1.0)])
            for grounding in super().ground(images, phrases)
        ]


def test_boxes_beside_the_map_of_another_grounder_change_nothing(
    prepared: Instances, folder: Path, tmp_path: Path
) -> None:
    measure(Boxed(), prepared, tmp_path, about=ABOUT, batch_size=60)
    assert table(tmp_path, "answers") == table(folder, "answers")


def test_a_folder_is_whole_only_with_its_about(prepared: Instances, tmp_path: Path, monkeypatch: Any) -> None:
    measure(Hashed(), prepared, tmp_path, about=ABOUT)
    assert is_measured(tmp_path, prepared)
    monkeypatch.setattr(
        "rightlung.reproduce.wrong_lung.measuring.write_table", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt):
        measure(Hashed(), prepared, tmp_path, about=ABOUT)
    assert not is_measured(tmp_path, prepared)


def test_no_more_threads_score_than_the_process_may_use(
    prepared: Instances, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()

    def noted(*given: Any, workers: int | None = None, **rest: Any) -> Any:
        seen.add(workers)
        return score(*given, workers=workers, **rest)

    monkeypatch.setattr("rightlung.reproduce.wrong_lung.measuring.score", noted)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    measure(Hashed(), prepared, tmp_path, about=ABOUT)
    assert seen == {3}
