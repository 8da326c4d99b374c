"""Does painting leave a seam? Small networks learn to tell painted films, and controls, from untouched ones.

    python benchmarks/painted.py --nih 'manifest:/data/nih.tar?split=train'

A network sees each film twice, as it is and changed, so that nothing but the change tells the classes apart; it is
tested on the films of other patients. A control was painted with zero strength: its discriminator should be at chance.
The discriminator of painted films sees the findings themselves; ``--findings`` limits them. Without ``--nih``, normal
phantoms take the place of the films.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from rightlung import open_source
from rightlung.core import Study
from rightlung.core.keyed import key_number
from rightlung.models.preprocessing import letterbox, standardise
from rightlung.scoring import recognition

FOLDS = 3
PHANTOMS = "phantom?count=240&seed=901&size=224"


@dataclass(frozen=True)
class Films:
    """Films as they are and changed, squares (n, 1, size, size) each, and their patients."""

    untouched: Tensor
    changed: Tensor
    patients: list[str]


def load(films: str, kind: str, arguments: argparse.Namespace) -> Films:
    """Return the films of a source, and the same films as a ``kind`` of study."""
    mark = "&" if films.startswith("manifest") and "?" in films else "?"
    chosen = f"&findings={arguments.findings.replace(' ', '%20')}" if arguments.findings else ""
    shares = {"untouched": (1, 0), "control": (0, 1), "painted": (0, 0)}
    both: list[list[Study]] = []
    for untouched, control in (shares["untouched"], shares[kind]):
        address = f"painted:{films}{mark}count={arguments.count}&seed={arguments.seed}{chosen}"
        source = open_source(f"{address}&untouched={untouched}&control={control}")
        len(source)  # finds the normal films
        began = time.process_time()
        both.append(list(source))
    speed = len(both[1]) / (time.process_time() - began)  # the outlines are known from the first pass
    print(f"{kind}: {speed:.0f} studies a second of CPU time, {len(source.problems)} films skipped", flush=True)
    squares = [torch.stack([letterbox(study.image, arguments.size)[0] for study in part])[:, None] for part in both]
    return Films(standardise(squares[0]), standardise(squares[1]), [str(study.patient) for study in both[0]])


def network() -> nn.Sequential:
    """Return a small convolutional network that begins at full resolution."""
    layers: list[nn.Module] = []
    for inputs, outputs, stride in ((1, 16, 2), (16, 24, 2), (24, 48, 2), (48, 64, 2), (64, 64, 1)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride, 1), nn.GroupNorm(4, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(64, 1))


def train(films: Films, rows: Tensor, epochs: int, seed: int) -> nn.Sequential:
    """Return a network that tells changed films from untouched ones; a batch has both versions of each film."""
    torch.manual_seed(seed)
    model = network()
    batches = max(1, len(rows) // 12)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=epochs * batches)
    for _ in range(epochs):
        for some in rows[torch.randperm(len(rows))].chunk(batches)[:batches]:
            picture = torch.cat([films.untouched[some], films.changed[some]])
            picture = picture.flip(-1) if torch.rand(()) < 0.5 else picture
            truth = torch.arange(2.0).repeat_interleave(len(some))
            loss = nn.functional.binary_cross_entropy_with_logits(model(picture)[:, 0], truth)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            schedule.step()
    return model.eval()


def discriminate(films: Films, arguments: argparse.Namespace) -> str:
    """Return the AUROC of cross-validated discriminators, with an interval over patients."""
    fold = torch.tensor([key_number("fold", patient) % FOLDS for patient in films.patients])
    scores = torch.zeros(2, len(fold))
    for number in range(FOLDS):
        model = train(films, (fold != number).nonzero()[:, 0], arguments.epochs, number)
        with torch.no_grad():
            for kind, images in enumerate((films.untouched, films.changed)):
                parts = torch.split(images[fold == number], 64)
                scores[kind, fold == number] = torch.cat([model(part)[:, 0] for part in parts])
    truth = np.repeat([0.0, 1.0], len(fold))
    found = recognition.interval(scores.flatten().numpy(), truth, clusters=films.patients * 2, resamples=1000)
    return (f"AUROC {found.estimate:.3f} ({found.low:.3f} to {found.high:.3f}); {len(fold)} films of "
            f"{len(set(films.patients))} patients, each as it is and changed")  # fmt: skip


def main(given: Sequence[str] | None = None) -> None:
    """Print how well controls and painted films are told from untouched ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nih", help="address of normal films, such as manifest:/data/nih.tar?split=train")
    parser.add_argument("--count", type=int, default=600, help="films")
    parser.add_argument("--size", type=int, default=224, help="pixels of a side that the discriminators see")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--findings", default="", help="paint only these, separated by commas")
    parser.add_argument("--kind", choices=("control", "painted"), help="measure only these")
    arguments = parser.parse_args(given)
    for kind in ("control", "painted") if arguments.kind is None else (arguments.kind,):
        began = time.perf_counter()
        films = load(arguments.nih or PHANTOMS, kind, arguments)
        print(f"{kind} or untouched: {discriminate(films, arguments)}; {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
