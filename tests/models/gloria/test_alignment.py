"""Deep CORAL against NumPy's covariances, and as a loss of a recipe."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from rightlung.core import InputError
from rightlung.models.gloria.losses.alignment import coral
from rightlung.training.loop import train
from rightlung.training.recipe_file import read_recipe
from tests.models.gloria.test_model import batch, create
from tests.training.recipes import CPU, quiet, written

ENTRY = "{source: 'phantom?count=8&seed=%d', cached_studies: 8, domain: %s}"
TINY = (
    "{image: {size: 64, pyramid_levels: [1], options: {embedding_size: 8, hidden_sizes: [8, 16], depths: [1, 1], "
    "layer_type: basic}}, text: {vocab_size: 300, options: {hidden_size: 16, num_hidden_layers: 1, "
    "num_attention_heads: 2, intermediate_size: 16}}, dimension: 16}"
)


def test_coral_is_the_distance_of_the_covariances_of_numpy() -> None:
    features = torch.randn(20, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    real = torch.tensor([0.0] * 8 + [1.0] * 9 + [float("nan")] * 3)
    loss = coral(features, real == 0, real == 1)
    plain = features.detach().numpy()
    difference = np.cov(plain[:8], rowvar=False) - np.cov(plain[8:17], rowvar=False)
    assert loss.item() == pytest.approx((difference**2).sum() / (4 * 5**2), rel=1e-5)
    loss.backward()  # type: ignore[no-untyped-call]
    assert features.grad is not None
    assert [bool(row.any()) for row in features.grad] == [True] * 17 + [False] * 3


def test_without_two_images_of_each_domain_there_is_no_loss() -> None:
    features = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    real = torch.tensor([0.0, 0.0, 0.0, 1.0])
    loss = coral(features, real == 0, real == 1)
    loss.backward()  # type: ignore[no-untyped-call]
    assert features.grad is not None
    assert (loss.item(), features.grad.abs().sum().item()) == (0.0, 0.0)


def test_gloria_computes_it_on_its_global_embeddings() -> None:
    model = create(losses=("coral",))
    given = batch(targets={"domain": {"real": torch.tensor([0.0, 1.0, 1.0, 0.0])}})
    features = model.image_encoder(given.images).global_embedding.detach().numpy()
    difference = np.cov(features[[0, 3]], rowvar=False) - np.cov(features[[1, 2]], rowvar=False)
    expected = (difference**2).sum() / (4 * features.shape[1] ** 2)
    assert model(given)["coral"].item() == pytest.approx(expected, rel=1e-3)


def test_a_recipe_says_which_entries_are_real(tmp_path: Path) -> None:
    entries = [ENTRY % (3, "synthetic"), ENTRY % (4, "real")]
    changes = [f"data.train=[{', '.join(entries)}]", f"model={{kind: gloria, config: {TINY}}}", "data.targets=[domain]",
               "losses={global: 1.0, coral: 1.0}", "schedule.steps=2", "schedule.warmup_steps=0"]  # fmt: skip
    outcome = train(read_recipe(written(tmp_path), changes), tmp_path / "run", hardware=CPU, progress=quiet())
    assert outcome.steps == 2
    assert "coral" in (tmp_path / "run" / "log.csv").read_text(encoding="utf-8").splitlines()[0]
    with pytest.raises(InputError, match="domain needs an entry with domain: synthetic, and one with domain: real"):
        read_recipe(written(tmp_path), [f"data.train=[{entries[0]}]", "data.targets=[domain]"])
