"""Boxes and findings of rendered phantoms equal those of the same studies, read one by one."""

from __future__ import annotations

from typing import Any

import torch

from rightlung.core import Extent
from rightlung.lexicon import IMAGENOME_REGIONS
from rightlung.phantom.config import default_config
from rightlung.phantom.loader import PhantomLoader
from rightlung.phantom.study import make_studies
from rightlung.training.annotations import annotate_study
from rightlung.training.targets.base import RaggedTensor, StudyFrame
from rightlung.training.targets.boxes import BoxTargets
from rightlung.training.targets.regions import RegionTargets

COUNT, SIZE = 12, 96
FINDINGS = ("pleural effusion", "consolidation", "lung opacity", "cardiomegaly", "tortuous aorta", "goiter")


def test_rendered_boxes_and_region_findings_equal_those_of_the_studies() -> None:
    studies = make_studies(default_config(), 5, range(COUNT), SIZE)
    (batch,) = PhantomLoader(default_config(), 5, SIZE).batches([range(COUNT)])
    boxes, regions = BoxTargets(), RegionTargets(FINDINGS)
    rendered: dict[str, Any] = {
        **boxes.build_from_rendering(batch, 24),
        "regions": regions.build_from_rendering(batch, 24)["findings"],
    }
    frame = StudyFrame(SIZE, 24, Extent(0.0, 0.0, 1.0, 1.0))
    seen = set()
    for number, study in enumerate(studies):
        annotations = annotate_study(study)[0]
        expected = boxes.build(study, annotations, frame)
        column = rendered["boxes"]
        assert isinstance(column, RaggedTensor)
        found = column.select([number]).concatenated()
        pairs = sorted(zip(found.tolist(), rendered["labels"][number], strict=True))
        assert [labels for _, labels in pairs] == [
            labels for _, labels in sorted(zip(expected["boxes"].tolist(), expected["labels"], strict=True))
        ]
        torch.testing.assert_close(
            torch.tensor([box for box, _ in pairs]).reshape(-1, 4),
            expected["boxes"][
                torch.tensor(
                    sorted(range(len(found)), key=lambda one: expected["boxes"][one].tolist()), dtype=torch.long
                )
            ],
        )
        own = rendered["regions"].select([number]).concatenated()
        torch.testing.assert_close(own, regions.build(study, annotations, frame)["findings"], equal_nan=True)
        seen |= {(name, float(value)) for name, value in zip(IMAGENOME_REGIONS, own[0, :, 1], strict=True)}
    assert {value for _, value in seen if value == value} == {0.0, 1.0}  # some regions have a consolidation
