"""Studies of any source as squares: where their targets and the boxes of their regions come to lie."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from rightlung.core import Box, Mask, Phrase, Polarity, Study
from rightlung.core.keyed import RandomStream
from rightlung.lexicon import IMAGENOME_REGIONS
from rightlung.phantom.config import default_config
from rightlung.phantom.study import make_studies
from rightlung.studies.sources import Source
from rightlung.training.annotations import MaskKind, annotate_study
from rightlung.training.batches import Batches
from rightlung.training.datasets import CachedDataset, LoadedStudies, LoadOptions, SourceDataset
from rightlung.training.recipe import DataEntry
from rightlung.training.targets.base import DrawContext, RaggedTensor
from rightlung.training.targets.phrases import PhraseTargets, draw_phrases, union_masks
from rightlung.training.targets.regions import RegionTargets
from tests.training.test_batches import opened

CPU = torch.device("cpu")
THERE, GONE = {"mass": Polarity.POSITIVE}, {"mass": Polarity.NEGATIVE}
MASK = np.zeros((40, 80), dtype=np.bool_)
MASK[20:30, 40:50] = True
STUDY = Study(
    id="wide",
    # Twice as wide as high: a quarter of the square is empty above, and a quarter below.
    load=lambda: np.full((40, 80), 0.5, dtype=np.float32),
    regions={"left lung": Box(0.5, 0.0, 0.9, 1.0), "left lower lung zone": Box(0.5, 0.5, 0.9, 1.0)},
    phrases=(
        Phrase("mass in the left lower zone", regions=("left lower lung zone",), mask=Mask(MASK), findings=THERE),
        Phrase("no mass in the left lung", regions=("left lung",), findings=GONE),
        Phrase("mass of the heart", regions=("cardiac silhouette",), boxes=(Box(0.0, 0.0, 0.25, 0.5),), findings=THERE),
        Phrase("about the left lung", regions=("left lung",)),
    ),
)


class One(Source):
    """A source of one study made by hand."""

    def __init__(self, study: Study) -> None:
        super().__init__("made-by-hand")
        self.select = study

    @property
    def ids(self) -> list[str]:
        return [self.select.id]

    def _build(self, position: int) -> Study:
        return self.select

    def _position(self, study_id: str) -> int | None:
        return 0 if study_id == self.select.id else None


def read(masks: MaskKind, size: int = 16, grid: int = 8, study: Study = STUDY) -> tuple[SourceDataset, LoadedStudies]:
    entry = DataEntry(source="x", phrases_per_image=1, phrase_masks=masks)
    data = SourceDataset(One(study), LoadOptions(entry, size, grid, [PhraseTargets(), RegionTargets()], CPU, 0))
    return data, next(iter(data.load([[0]])))


def boxes_of(samples: LoadedStudies) -> torch.Tensor:
    column = samples.columns["regions/boxes"]
    assert isinstance(column, RaggedTensor)
    return column.concatenated()


def united(samples: LoadedStudies, *targets: tuple[int, ...]) -> torch.Tensor:
    return union_masks(samples.columns["phrases/masks"], [(0, numbers) for numbers in targets], samples.grid, CPU)


def squares(rows: slice, columns: slice) -> np.ndarray:
    grid = np.zeros((8, 8))
    grid[rows, columns] = 1.0
    return grid


def test_the_boxes_of_regions_are_those_of_the_square() -> None:
    _, samples = read("none")
    found = boxes_of(samples)
    assert found.shape == (1, len(IMAGENOME_REGIONS), 4)
    boxes = dict(zip(IMAGENOME_REGIONS, found[0].tolist(), strict=True))
    assert boxes["left lung"] == pytest.approx([0.5, 0.25, 0.9, 0.75])
    assert boxes["left lower lung zone"] == pytest.approx([0.5, 0.5, 0.9, 0.75])
    assert np.isnan(boxes["right lung"]).all()
    picture = samples.images[0]
    assert picture[4:12].float().mean() == pytest.approx(128, abs=1)  # and the image is where the boxes say
    assert not picture[:4].any()
    assert not picture[12:].any()


def test_the_boxes_of_a_high_image_are_moved_across() -> None:
    high = replace(STUDY, load=lambda: np.full((80, 20), 0.5, dtype=np.float32), phrases=())
    boxes = boxes_of(read("none", study=high)[1])[0]
    number = IMAGENOME_REGIONS.index("left lung")
    assert boxes[number].tolist() == pytest.approx([0.5, 0.0, 0.375 + 0.25 * 0.9, 1.0])


def test_exact_targets_are_masks_and_else_boxes() -> None:
    data, samples = read("exact", size=80)
    told = data.annotations(0).sentences
    assert [len(one.locations) for one in told] == [1, 0, 1, 0]
    found = united(samples, told[0].locations, told[2].locations)
    # Cells are ten pixels a side, and there are twenty empty rows above the image.
    np.testing.assert_array_equal(found[0], squares(slice(4, 5), slice(4, 5)))
    np.testing.assert_array_equal(found[1], squares(slice(2, 4), slice(0, 2)))


def test_region_targets_are_the_boxes_of_the_regions_and_of_the_lungs_that_contain_them() -> None:
    data, samples = read("regions", size=80, grid=8)
    told = data.annotations(0).sentences
    assert [len(one.locations) for one in told] == [1, 1, 0, 1]  # this study has no box of the heart
    lung = united(samples, told[0].locations, told[1].locations, told[3].locations)
    wanted = squares(slice(2, 6), slice(4, 7))
    wanted[2:6, 7] = 0.2  # 0.875 to 0.9 of a cell that is 0.125 wide
    for found in lung:
        np.testing.assert_allclose(found, wanted, atol=0.02)


def test_no_targets_are_none() -> None:
    data, samples = read("none")
    assert all(not one.locations for one in data.annotations(0).sentences)
    assert not data.annotations(0).finding_locations
    assert "phrases/masks" not in samples.columns


def test_the_regions_of_a_negation_are_not_where_something_is() -> None:
    facts, _ = annotate_study(STUDY, "regions")
    assert [told.visible for told in facts.sentences] == [True, False, True, True]
    entry = DataEntry(source="x", phrases_per_image=8)
    drawn = {one.text: one for one in draw_phrases(facts, DrawContext(entry, RandomStream(1), lambda: facts))}
    assert not drawn["no mass in the left lung"].present
    assert not drawn["no mass in the left lung"].locations
    # An example has a place whether something is there or not: what the sentence is about.
    examples = replace(entry, few_shot_studies=1, positive_share=1.0)
    shown = draw_phrases(facts, DrawContext(examples, RandomStream(1), lambda: facts))
    assert sorted((one.text, one.present, bool(one.locations)) for one in shown) == [
        ("about the left lung", True, True),
        ("mass in the left lower zone", True, True),
        ("no mass in the left lung", False, True),
    ]


def test_phantoms_with_region_targets_have_the_pictures_of_those_with_exact_ones() -> None:
    entry = DataEntry(source="phantom?count=6&seed=11", cached_studies=6, phrases_per_image=3)
    exact, regions = (opened(replace(entry, phrase_masks=kind))[1] for kind in ("exact", "regions"))
    assert isinstance(exact, CachedDataset)
    assert isinstance(regions, CachedDataset)
    assert int((exact.loaded.images.int() - regions.loaded.images.int()).abs().max()) <= 1
    batch = Batches([(replace(entry, phrase_masks="regions"), regions)], 6, 1, CPU).batch_at(0)
    studies = {study.id: study for study in make_studies(default_config(), 11, range(6), 64)}
    checked = 0
    for number, text in enumerate(batch.targets["phrases"]["texts"]):
        if batch.targets["phrases"]["has_mask"][number]:
            study = studies[batch.ids[int(batch.targets["phrases"]["image_indices"][number])]]
            phrase = next(one for one in study.phrases if one.text == text)
            pixels = np.zeros((64, 64), dtype=np.bool_)
            for name in {*phrase.regions, *(f"{side} lung" for side in ("left", "right") for region in phrase.regions
                                            if region.startswith(side) and region != f"{side} clavicle")}:  # fmt: skip
                if name in study.regions:
                    x0, y0, x1, y1 = (round(64 * corner) for corner in study.regions[name].as_tuple())
                    pixels[y0:y1, x0:x1] = True
            cells = pixels.reshape(16, 4, 16, 4).mean((1, 3))
            assert np.abs(batch.targets["phrases"]["masks"][number].numpy() - cells).mean() < 0.05, text
            checked += 1
    assert checked > 3


def test_phantoms_may_hide_where_things_are() -> None:
    entry = DataEntry(source="phantom?count=6&seed=11", cached_studies=6, phrases_per_image=3, phrase_masks="none")
    batch = Batches([opened(entry)], 6, 1, CPU).batch_at(0)
    assert not batch.targets["phrases"]["has_mask"].any()
    assert not batch.targets["phrases"]["masks"].any()
    flow = Batches([opened(replace(entry, cached_studies=None))], 6, 1, CPU).batch_at(0)
    assert list(flow.targets["phrases"]["texts"]) == list(batch.targets["phrases"]["texts"])
    assert not flow.targets["phrases"]["has_mask"].any()
