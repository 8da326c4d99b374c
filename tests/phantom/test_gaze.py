"""The made-up reader looks everywhere, longer at what is worse, and the map is where the fixations are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rightlung.core import Study
from rightlung.core.gaze import gaze_map
from rightlung.phantom.config import default_config
from rightlung.phantom.gaze import fixations
from rightlung.phantom.scene import Lesion, Scene
from rightlung.phantom.study import make_studies, study_scene

REGIONS = dict(make_studies(default_config(), 1, [7], 64)[0].regions)
NORMAL = replace(study_scene(default_config(), 1, 7), lesions=(), devices=())
NOTHING = np.zeros((0, 64, 64), dtype=bool)
SCAN = fixations(NORMAL, REGIONS, NOTHING, [])  # of a normal chest
MASK = np.zeros((64, 64), dtype=bool)
MASK[40:48, 44:52] = True


def with_lesion(severity: float) -> Scene:
    return replace(NORMAL, lesions=(Lesion("mass", "left", "left lower lung zone", (0.5, 0.8), 4.0, severity, seed=5),))


def seconds_in(path: list[tuple[float, float, float]], mask: np.ndarray) -> float:
    height, width = mask.shape
    return sum(time for x, y, time in path if mask[min(int(y * height), height - 1), min(int(x * width), width - 1)])


def test_the_eye_dwells_in_proportion_to_severity() -> None:
    none = seconds_in(SCAN, MASK)
    times = [seconds_in(fixations(with_lesion(s), REGIONS, MASK[None], []), MASK) - none for s in (0.0, 0.5, 1.0)]
    assert times == pytest.approx([0.4, 1.7, 3.0], abs=0.02)


def test_what_is_not_in_the_picture_holds_no_eye() -> None:
    assert fixations(with_lesion(1.0), REGIONS, np.zeros((1, 64, 64), dtype=bool), []) == SCAN


def test_a_normal_chest_is_scanned_on_both_sides_from_the_top_down() -> None:
    for side in ("left", "right"):
        # When the eye first comes near the middle of each zone: from the top down.
        first = []
        for zone in ("upper", "mid", "lower"):
            x, y = REGIONS[f"{side} {zone} lung zone"].centre
            first.append(next(i for i, (left, top, _) in enumerate(SCAN) if np.hypot(left - x, top - y) < 0.13))
        assert first == sorted(first)


def test_a_tip_is_looked_at_and_a_missing_one_is_not() -> None:
    path = fixations(NORMAL, REGIONS, NOTHING, [[0.5, 0.3], [float("nan"), float("nan")]])
    assert (0.5, 0.3, 0.3) in path
    assert len(path) == len(SCAN) + 1


def test_studies_carry_their_path_and_a_map_that_peaks_on_a_grave_lesion() -> None:
    made: list[Study] = make_studies(default_config(), 6, range(16), 64)
    for study in made:
        assert study.gaze == gaze_map(study.extra["fixations"])
        assert all(0 <= x <= 1 and 0 <= y <= 1 and 0 < time < 1 for x, y, time in study.extra["fixations"])
    pulled = []
    for study in made:
        for lesion, mask in zip(study.extra["scene"]["lesions"], study.extra["lesion_masks"], strict=True):
            if lesion["severity"] > 0.5 and 0.002 < mask.area < 0.1:
                assert study.gaze is not None
                looked = study.gaze.to_size((64, 64))[mask.pixels].sum()
                pulled.append(looked / mask.area)
    assert len(pulled) >= 3
    assert np.median(pulled) > 2.0
