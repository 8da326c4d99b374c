"""Two processes with half the batch each learn what one with all of it learns."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.multiprocessing.spawn import start_processes

from rightlung.lexicon import sides_in
from rightlung.models.base import Gather, TrainingBatch
from rightlung.models.clip import Clip
from rightlung.models.folder import load_folder
from rightlung.models.gloria import Gloria
from rightlung.training.augmentation import Augmentation
from rightlung.training.batches import Batches
from rightlung.training.distributed import gather
from rightlung.training.fsdp import ShardedTrainState, named_parameters
from rightlung.training.log import read_log
from rightlung.training.loop import Hardware, _Inputs, _LossModule, train
from rightlung.training.recipe import Optimizer
from rightlung.training.setup import open_datasets
from rightlung.training.weights import TrainState, build_optimizer, frozen_copy, set_learning_rate
from tests.training.recipes import quiet, same, small, written
from tests.training.tiny import Tiny

CPU = torch.device("cpu")
GLORIA = {
    "image": {
        "kind": "convnext",
        "size": 64,
        "pyramid_levels": [2],
        "options": {"hidden_sizes": [4, 8, 8, 8], "depths": [1, 1, 1, 1], "drop_path_rate": 0.0},
    },
    "text": {
        "options": {
            "hidden_size": 8,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "intermediate_size": 8,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        },
        "vocab_size": 200,
        "summed_layers": 1,
    },
    "attention": {"no_attention_token": True},
    "dimension": 8,
    "losses": ["local", "global", "mask_cross_entropy"],
}
SIDED = GLORIA | {
    "attention": {
        "softmax_over_words": False,
        "similarity": "cosine",
        "learn_temperature": True,
        "no_attention_token": True,
    },
    "losses": ["local", "global", "sentence", "hard_negative_ranking", "mask_cross_entropy"],
    "heatmap_from": "sentence",
    "contrastive_hard_negatives": True,
    "duplicate_texts": "ignore",
}
CLIP = {
    "image": GLORIA["image"] | {"pooling": "mean"},  # type: ignore[operator]
    "text": GLORIA["text"],
    "dimension": 8,
    "duplicate_texts": "ignore",
}
SEVERAL = ("data.train[0].texts_per_image=3", "data.train[0].mirror_pairs=true", "data.train[0].paired_text=abnormal")
"""Texts an image, mirror images: for a GLoRIA and a CLIP, which can learn from them."""


def _models() -> dict[str, nn.Module]:
    texts = ["left pleural effusion", "no pneumothorax", "right lung opacity, unchanged"] * 20
    return {
        "tiny": Tiny.create({}, texts, 1),
        "gloria": Gloria.create(GLORIA, texts, 1),
        "sided": Gloria.create(SIDED, texts, 1),
        "clip": Clip.create(CLIP, texts, 1),
    }


def _batches(folder: Path, size: int, rank: int, world_size: int, *changes: str) -> TrainingBatch:
    entries = open_datasets(small(folder, *changes), CPU, quiet())
    return Batches(
        entries, size, 5, CPU, Augmentation(mirror="words", mirror_probability=0.2), rank=rank, world_size=world_size
    ).batch_at(0)


def _learn(model: nn.Module, batch: TrainingBatch, joint: Gather | None) -> dict[str, torch.Tensor]:
    terms = model(batch, joint)
    torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
    found = {f"loss {name}": term.detach().clone() for name, term in terms.items()}
    named = getattr(model, "module", model).named_parameters()
    return found | {name: value.grad.clone() for name, value in named if value.grad is not None}


def _one_of_two(rank: int, folder: Path, port: int) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    batch, several = _batches(folder, 4, rank, 2), _batches(folder, 4, rank, 2, *SEVERAL)
    for name, model in _models().items():
        wrapped = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        found = _learn(wrapped, batch if name in ("tiny", "gloria") else several, gather)
        for key in [key for key in found if key.startswith("loss ")]:
            dist.all_reduce(found[key])
            found[key] /= 2
        if rank == 0:
            save_file(found, folder / f"{name}.safetensors")
    # Unequal numbers of rows and words, as when texts differ in length.
    own = torch.full((rank + 1, 3 - rank), float(rank + 1), requires_grad=True)
    joined = gather(own)
    (joined * torch.arange(9.0).reshape(3, 3) * (rank + 1)).sum().backward()  # type: ignore[no-untyped-call]
    assert own.grad is not None
    save_file({"joined": joined.detach(), "gradient": own.grad}, folder / f"ragged-{rank}.safetensors")
    _sharded(rank, folder, batch)
    dist.barrier()
    os._exit(0)  # taking gloo down under a sharded module aborts now and then, after all is said and done


def _sharded(rank: int, folder: Path, batch: TrainingBatch) -> None:
    """Train with spread weights, and again from a checkpoint in the middle."""

    def build() -> tuple[nn.Module, torch.optim.Optimizer, TrainState]:
        model = Tiny.create({}, [], 1)
        averaged = frozen_copy(model)
        wrapped = FullyShardedDataParallel(_LossModule(model), device_id=CPU, use_orig_params=True)
        optimizer = build_optimizer(dict(named_parameters(wrapped)), Optimizer(learning_rate=0.01))
        return wrapped, optimizer, ShardedTrainState(model, averaged, wrapped, optimizer, 0.5)

    def learn(wrapped: nn.Module, optimizer: torch.optim.Optimizer, state: TrainState, steps: range) -> None:
        for step in steps:
            set_learning_rate(optimizer, 0.01)
            terms = wrapped(_Inputs(batch, None))
            (terms["global"] + terms["supervised"]).backward()
            optimizer.step()
            optimizer.zero_grad()
            state.update_ema(step + 1)

    first, second = build(), build()
    learn(*first, range(2))
    middle = {name: value.clone() for name, value in first[2].state_dict().items()}
    learn(*first, range(2, 4))
    second[2].load_state_dict(middle)
    learn(*second, range(2, 4))
    save_file(first[2].state_dict(), folder / f"sharded-{rank}.safetensors")
    save_file(second[2].state_dict(), folder / f"sharded-again-{rank}.safetensors")
    average = first[2].ema_model().state_dict()
    save_file(dict(average), folder / f"sharded-average-{rank}.safetensors")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    start_processes(_one_of_two, args=(folder, _free_port()), nprocs=2)  # type: ignore[no-untyped-call]
    return folder


@pytest.mark.parametrize("name", ["tiny", "gloria", "sided", "clip"])
def test_two_processes_have_the_loss_and_the_gradients_of_one_with_the_joint_batch(together: Path, name: str) -> None:
    changes = () if name in ("tiny", "gloria") else SEVERAL
    alone = _learn(_models()[name].train(), _batches(together, 8, 0, 1, *changes), None)
    found = load_file(together / f"{name}.safetensors")
    mask_loss = "supervised" if name == "tiny" else "mask_cross_entropy"
    expected = {"loss contrastive"} if name == "clip" else {"loss global", f"loss {mask_loss}"}
    assert {key for key in alone if key.startswith("loss ")} >= expected
    assert alone.keys() == found.keys()
    for key, value in alone.items():
        largest = float(value.abs().max())
        assert float((found[key] - value).abs().max()) <= 1e-5 * max(1.0, largest), key  # rounding of single precision
    assert sum(bool(value.abs().max() > 1e-4) for value in alone.values()) > 5


def test_a_batch_of_several_texts_has_texts_of_one_side_in_both_processes(together: Path) -> None:
    """Else the losses above would agree without hard negatives."""
    for rank in (0, 1):
        batch = _batches(together, 4, rank, 2, *SEVERAL)
        assert len(batch.texts) == 3 * len(batch)
        assert any(len(sides_in(text)) == 1 for text in batch.texts)


def test_without_the_others_negatives_the_loss_would_be_another(together: Path) -> None:
    parts = [_learn(_models()["tiny"], _batches(together, 4, rank, 2), None) for rank in (0, 1)]
    apart = (parts[0]["loss global"] + parts[1]["loss global"]) / 2
    assert abs(float(apart - load_file(together / "tiny.safetensors")["loss global"])) > 0.1


def test_tensors_of_different_shapes_are_padded_and_gradients_summed(together: Path) -> None:
    for rank in (0, 1):
        found = load_file(together / f"ragged-{rank}.safetensors")
        assert found["joined"].tolist() == [[1, 1, 1], [2, 2, 0], [2, 2, 0]]
        factors = torch.arange(9.0).reshape(3, 3) * 3  # of both processes: once and twice
        assert torch.equal(found["gradient"], factors[:1] if rank == 0 else factors[1:, :2])


def test_spread_weights_are_gathered_and_spread_again_bit_for_bit(together: Path) -> None:
    for rank in (0, 1):
        found = load_file(together / f"sharded-{rank}.safetensors")
        again = load_file(together / f"sharded-again-{rank}.safetensors")
        average = load_file(together / f"sharded-average-{rank}.safetensors")
        assert same(found, again)
        shapes = {name: value.shape for name, value in Tiny().state_dict().items()}
        assert {name: value.shape for name, value in average.items()} == shapes
        for name in shapes:
            assert found[f"optimizer/{name}/exp_avg"].shape == shapes[name]
            assert torch.equal(found[f"ema/{name}"], average[name])
            assert not torch.equal(found[f"ema/{name}"], found[f"weights/{name}"])


def test_alone_gathering_changes_nothing() -> None:
    own = torch.rand(3, 2)
    assert gather(own) is own


def test_a_recipe_runs_in_two_processes_by_a_flag_alone(tmp_path: Path) -> None:
    changes = [
        "optimizer={name: sgd, learning_rate: 0.05, weight_decay: 0, betas: [0.9, 0]}",
        "schedule={steps: 9, patience: 2}",
    ]
    changes += ["model.config.dropout=0", "data.train[0].phrases_per_image=2", "log_every=1"]
    changes += [
        "data.validation={source: 'phantom?count=8&seed=12', every: 1, cached_studies: 8, phrases_per_image: 2}",
        "data.validation.grounded_phrases=0",
    ]
    train(small(tmp_path, *changes, "batch_size=8"), tmp_path / "one", hardware=Hardware("cpu"), progress=quiet())
    options = [part for change in [*changes, "batch_size=4"] for part in ("--set", change)]
    command = [sys.executable, "-m", "rightlung", "train", str(written(tmp_path)), "--out", str(tmp_path / "two")]
    ended = subprocess.run(
        [*command, "--devices", "2", "--accelerator", "cpu", *options],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert ended.returncode == 0, ended.stderr
    one, two = (load_folder(tmp_path / name / "model").state_dict() for name in ("one", "two"))
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, atol=1e-5, rtol=1e-4)
    rows = [read_log(tmp_path / name / "log.csv") for name in ("one", "two")]
    assert [row["loss"] for row in rows[1]] == pytest.approx([row["loss"] for row in rows[0]], rel=1e-4)
    done = [json.loads((tmp_path / name / "finished.json").read_text()) for name in ("one", "two")]
    assert done[0]["stopped_early"]  # only the first of the processes knows the validation loss
    assert done[1]["stopped_early"]
    assert done[0]["steps"] == done[1]["steps"] < 9
