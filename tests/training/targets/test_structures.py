"""The target `structures`: the same from the rendering and from a study, and exchanged where the image is mirrored."""

from __future__ import annotations

from dataclasses import replace

import torch

from rightlung.core import Extent, Study
from rightlung.lexicon import STRUCTURES
from rightlung.phantom.config import default_config
from rightlung.phantom.loader import PhantomLoader
from rightlung.phantom.study import make_studies
from rightlung.training.annotations import annotate_study
from rightlung.training.recipe import DataEntry
from rightlung.training.targets.base import BatchPart, RaggedTensor, StudyFrame
from rightlung.training.targets.structures import StructureTargets

SIZE, GRID, COUNT = 96, 24, 6
FRAME = StudyFrame(SIZE, GRID, Extent(0.0, 0.0, 1.0, 1.0))
STUDIES = make_studies(default_config(), 5, range(COUNT), SIZE)


def built(study: Study) -> torch.Tensor:
    return StructureTargets().build(study, annotate_study(study)[0], FRAME)["shares"]  # type: ignore[no-any-return]


def test_the_target_of_a_rendering_equals_that_of_its_studies() -> None:
    (batch,) = PhantomLoader(default_config(), 5, SIZE).batches([range(COUNT)])
    column = StructureTargets().build_from_rendering(batch, GRID)["shares"]
    assert isinstance(column, RaggedTensor)
    assert torch.equal(column.concatenated(), torch.cat([built(study) for study in STUDIES]))
    lungs = column.concatenated()[:, :6].float().sum(1) / 255
    rendered = torch.nn.functional.avg_pool2d(batch.rendering.lungs.any(1).float(), SIZE // GRID)
    assert float((lungs - rendered).abs().mean()) < 0.01


def test_a_mirrored_image_has_its_structures_on_the_other_side_and_other_studies_have_none() -> None:
    own = built(STUDIES[0])
    unknown = replace(STUDIES[1], twins=None)
    assert [StructureTargets().available_in(study) for study in (STUDIES[0], unknown)] == [True, False]
    column = RaggedTensor.of(torch.cat([own, own, built(unknown)]), [1, 1, 0])
    flips = torch.tensor([False, True, True])
    part = BatchPart(DataEntry("phantom"), [], {"shares": column}, [], flips, flips, None, GRID)
    target = StructureTargets().collate(part)
    assert target["known"].tolist() == [True, True, False]
    assert not target["shares"][2].any()
    right, left = STRUCTURES.index("right clavicle"), STRUCTURES.index("left clavicle")
    torch.testing.assert_close(target["shares"][1, right], target["shares"][0, left].flip(-1))
    torch.testing.assert_close(target["shares"][0], own[0].float() / 255)
