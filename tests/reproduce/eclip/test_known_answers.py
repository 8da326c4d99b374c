"""Models whose answers are known: the measurements must tell them apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor, nn

from rightlung import open_source
from rightlung.asking import answers
from rightlung.core import Grounding, Heatmap, Image, Phrase
from rightlung.measuring import measure
from rightlung.reproduce.claims import HOLDS, NOT_SHOWN
from rightlung.reproduce.eclip import PAPER
from rightlung.reproduce.eclip.claims import POINTING
from rightlung.reproduce.eclip.files import EclipFiles
from rightlung.reproduce.eclip.measuring import _expert_embeddings
from rightlung.reproduce.pair_claims import PairClaim, judge
from rightlung.reproduce.prepared import PreparedStudies
from rightlung.results.estimate import BootstrapSettings
from tests.models.eclip.tiny import create

SOURCE = "phantom?count=30&seed=3&size=64"


def mark(image: Image) -> bytes:
    """Return what tells an image from others, also after it was written with 8 bits."""
    return (np.asarray(image)[::7, ::7] * 255).round().astype(np.uint8).tobytes()


class ReadsTheMap:
    """Looks where the expert looked at this very image."""

    def __init__(self) -> None:
        self.gaze = {mark(one.image): one.gaze for one in open_source(SOURCE)}

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        return [Grounding(self.gaze[mark(image)]) for image in images]


class BlindToTheMap:
    """Looks everywhere."""

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        return [Grounding(Heatmap(np.ones((4, 4)))) for _ in images]


class TwoModels(EclipFiles):
    """The same table for each of three seeds."""

    def __init__(self, known: dict[str, pa.Table]) -> None:
        super().__init__(SimpleNamespace(), BootstrapSettings(resamples=200), "percentile")  # type: ignore[arg-type]
        object.__setattr__(self, "models", known)

    def tables(self, variant: str, task: str) -> list[pa.Table]:
        return [self.models[variant]] * 3  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TwoModels:
    prepared = PreparedStudies.make(SOURCE, tmp_path_factory.mktemp("known"), PAPER.protocol)

    def measured(model: object) -> pa.Table:
        asked = answers(model, prepared.source, queries=("phrases",), boxes=None)
        return measure(asked, prepared.targets, prepared.protocol)

    return TwoModels({"reads": measured(ReadsTheMap()), "blind": measured(BlindToTheMap())})


def test_a_model_that_looks_where_the_expert_looked_is_told_from_one_that_does_not(files: TwoModels) -> None:
    claims = [PairClaim("", "", "reads", "blind", POINTING, better="much higher"),
              PairClaim("", "", "blind", "blind", POINTING)]  # fmt: skip
    reads, same = judge(files, claims)
    assert reads.verdict == HOLDS
    assert same.verdict == NOT_SHOWN
    assert same.found.value == 0


class IgnoresTheMap(nn.Module):
    """Another image, but the same for every map."""

    def forward(self, images: Tensor, maps: Tensor) -> Tensor:
        return images.flip(-1) + torch.linspace(0, 2, images.shape[-1])


def moved(model: Any, maps: Sequence[Any]) -> float:
    images = [study.image for study in open_source("phantom?count=4&seed=3&size=64")]
    expert = model.encode_image(images, maps=maps)
    return float(np.abs(expert - model.encode_image(images)).max())


def test_processors_that_change_nothing_and_that_ignore_or_read_the_map_are_told_apart() -> None:
    studies = list(open_source("phantom?count=4&seed=3&size=64"))
    gaze = [one.gaze for one in studies if one.gaze is not None]
    ones = [np.ones(one.image.shape, np.float32) for one in studies]
    identity, reader, blind = (create(expert={"processor": name}) for name in ("residual", "mask", "mask"))
    blind.processor = IgnoresTheMap()
    assert moved(identity, gaze) == pytest.approx(0, abs=1e-5)
    assert moved(blind, gaze) == pytest.approx(moved(blind, ones), abs=1e-6)
    assert moved(blind, gaze) > 1e-3
    assert moved(reader, ones) == pytest.approx(0, abs=1e-5)
    assert moved(reader, gaze) > 1e-3


def test_expert_embeddings_have_the_studys_own_gaze(tmp_path: Path) -> None:
    source = open_source("phantom?count=4&seed=3&size=64")
    prepared = PreparedStudies.make(source.address, tmp_path, PAPER.protocol)
    model = create(expert={"processor": "mask"})
    found = _expert_embeddings(model, prepared.source, source.ids[1:3])
    studies = [source.study(study) for study in source.ids[1:3]]
    gaze = [one.gaze for one in studies if one.gaze is not None]
    expected = model.encode_image([one.image for one in studies], maps=gaze)
    assert list(found) == list(source.ids[1:3])
    assert np.array(list(found.values())) == pytest.approx(expected, abs=1e-6)
    assert _expert_embeddings(BlindToTheMap(), prepared.source, source.ids) == {}
