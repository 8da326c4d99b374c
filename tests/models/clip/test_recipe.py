"""The shipped recipe, made small, trains a CLIP."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rightlung
from rightlung.models.clip import Clip
from rightlung.training.log import read_log
from rightlung.training.loop import train
from rightlung.training.recipe_file import read_recipe
from tests.training.recipes import CPU, final_weights, quiet, same

SMALL = [
    "model.config.image.size=64", "data.image_size=64", "data.mask_grid=16", "data.workers=0", "batch_size=8",
    "data.train[0].source=phantom?count=16&seed=11&size=64", "data.train[0].cached_studies=16",
    "data.validation.source=phantom?count=8&seed=12&size=64", "data.validation.cached_studies=8",
    "data.validation.every=2", "data.validation.grounded_phrases=0", "schedule={steps: 4}",
    "checkpoint_every=2", "log_every=1",
]  # fmt: skip


def test_the_recipe_trains_and_a_resumed_run_ends_with_the_same_weights(tmp_path: Path) -> None:
    recipe = read_recipe("clip", SMALL)
    train(recipe, tmp_path / "whole", hardware=CPU, progress=quiet())
    forward, calls = Clip.forward, 0

    def interrupted(self: Clip, *given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return forward(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Clip, "forward", interrupted)
        with pytest.raises(KeyboardInterrupt, match="stopped after step 2 of 4"):
            train(recipe, tmp_path / "stopped", hardware=CPU, progress=quiet())
    assert train(recipe, tmp_path / "stopped", resume=True, hardware=CPU, progress=quiet()).resumed_from == 2
    assert same(final_weights(tmp_path / "whole"), final_weights(tmp_path / "stopped"))

    rows = read_log(tmp_path / "whole" / "log.csv")
    assert np.isfinite([row["contrastive"] for row in rows]).all()
    assert np.isfinite(rows[-1]["validation contrastive"])
    model = rightlung.load(tmp_path / "whole" / "model")
    study = rightlung.open_source("phantom?count=1&seed=7&size=64")[0]
    assert model.ground(study.image, "left pleural effusion")[0].heatmap.values.max() > 0
