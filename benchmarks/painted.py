"""Does painting leave a seam? Small networks learn to tell painted films, and controls, from untouched ones.

    python benchmarks/painted.py --nih 'manifest:/data/nih.tar?split=train'

Each patient's films are in one class, drawn at random, and the folds are made by patient. A control was painted with
zero strength: its discriminator should be at chance. The discriminator of painted films may see the findings
themselves; ``--findings`` limits them. Without ``--nih``, normal phantoms take the place of the films.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rightlung import open_source
from rightlung.core import InputError
from rightlung.core.keyed import key_number, key_uniform
from rightlung.models.preprocessing import letterbox, standardise
from rightlung.scoring import recognition

FOLDS = 3
PHANTOMS = "phantom?count=240&seed=901&size=224"


@dataclass(frozen=True)
class Films:
    """Films of two classes: squares (n, size, size), whether each was changed, and its patient."""

    images: Tensor
    changed: NDArray[np.bool_]
    patients: list[str]


def load(films: str, kind: str, arguments: argparse.Namespace) -> Films:
    """Return the films of a source: those of half the patients as they are, the others as a ``kind`` of study."""
    mark = "?" if "?" in films.partition(":")[2] and not films.startswith("manifest") else "&" if "?" in films else "?"
    shares = {"untouched": (1, 0), "control": (0, 1), "painted": (0, 0)}
    chosen = f"&findings={arguments.findings.replace(' ', '%20')}" if arguments.findings else ""
    sources = {
        name: open_source(f"painted:{films}{mark}count={arguments.count}&seed={arguments.seed}&untouched={untouched}"
                          f"&control={control}{chosen}")
        for name, (untouched, control) in shares.items() if name in ("untouched", kind)
    }  # fmt: skip
    images, changed, patients = [], [], []
    for name, source in sources.items():
        whose = [str(patient) for patient in source.patients()]
        wanted = [n for n, own in enumerate(whose) if (key_uniform("class", own) < 0.5) == (name == kind)]
        for position in wanted:
            try:
                study = source[position]
            except InputError:
                continue  # its anatomy is not found, in either class
            images.append(letterbox(study.image, arguments.size)[0])
            changed.append(name == kind)
            patients.append(str(study.patient))
    return Films(torch.stack(images), np.array(changed), patients)


def network() -> nn.Sequential:
    """Return a small convolutional network that begins at full resolution."""
    layers: list[nn.Module] = []
    for inputs, outputs, stride in ((1, 12, 2), (12, 24, 2), (24, 48, 2), (48, 64, 2)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride, 1), nn.GroupNorm(4, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(64, 1))


def train(images: Tensor, truth: Tensor, epochs: int, seed: int) -> nn.Sequential:
    """Return a network that tells the classes of images (n, 1, size, size) apart."""
    torch.manual_seed(seed)
    model = network()
    batches = max(1, len(images) // 24)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=epochs * batches)
    for _ in range(epochs):
        for rows in torch.randperm(len(images)).chunk(batches)[:batches]:
            picture = images[rows]
            picture = picture.flip(-1) if torch.rand(()) < 0.5 else picture
            loss = nn.functional.binary_cross_entropy_with_logits(model(picture)[:, 0], truth[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def discriminate(films: Films, arguments: argparse.Namespace) -> str:
    """Return the AUROC of cross-validated discriminators, with an interval over patients."""
    fold = np.array([key_number("fold", patient) % FOLDS for patient in films.patients])
    scores = np.zeros(len(films.changed))
    images = standardise(films.images[:, None])
    for number in range(FOLDS):
        learn = torch.from_numpy(fold != number)
        model = train(images[learn], torch.from_numpy(films.changed[fold != number]).float(), arguments.epochs, number)
        with torch.no_grad():
            scores[fold == number] = torch.cat([model(part)[:, 0] for part in images[~learn].split(64)]).numpy()
    found = recognition.interval(scores, films.changed.astype(float), clusters=films.patients, resamples=1000)
    return (f"AUROC {found.estimate:.3f} ({found.low:.3f} to {found.high:.3f}); {int(films.changed.sum())} against "
            f"{int((~films.changed).sum())} films of {len(set(films.patients))} patients")  # fmt: skip


def main(given: Sequence[str] | None = None) -> None:
    """Print how well controls and painted films are told from untouched ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nih", help="address of normal films, such as manifest:/data/nih.tar?split=train")
    parser.add_argument("--count", type=int, default=900, help="films")
    parser.add_argument("--size", type=int, default=224, help="pixels of a side that the discriminators see")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--findings", default="", help="paint only these, separated by commas")
    arguments = parser.parse_args(given)
    for kind in ("control", "painted"):
        began = time.perf_counter()
        films = load(arguments.nih or PHANTOMS, kind, arguments)
        print(f"{kind} or untouched: {discriminate(films, arguments)}; {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
