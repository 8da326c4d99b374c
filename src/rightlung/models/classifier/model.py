"""The supervised baseline as a model: probabilities of findings, and Grad-CAM of the finding that a phrase names.

It reads no sentence beyond the name of a finding in it: sides, places and negations are ignored. That makes it the
control for models which claim to understand them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rightlung.core import Extent, Grounding, InputError, OutputError, Phrase
from rightlung.core.errors import unknown_name
from rightlung.explain import as_heatmaps, grad_cam
from rightlung.lexicon import find
from rightlung.lexicon.findings import broader_findings
from rightlung.models.classifier.network import NetworkConfig, ResidualNetwork
from rightlung.models.preprocessing import letterbox_all, standardise

CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"
KIND, VERSION = "classifier", 1
_WORD = re.compile(r"[^\W_]+(?:[-/'][^\W_]+)*")
_LONGEST_NAME = 6  # words


class Classifier:
    """A network with the names of its outputs, canonical findings or a data set's labels, and its image size."""

    def __init__(
        self,
        network: ResidualNetwork,
        findings: Sequence[str],
        *,
        size: int = 224,
        device: str | torch.device = "cpu",
        batch_size: int = 32,
    ) -> None:
        if isinstance(findings, str) or len(findings) != network.config.outputs:
            raise InputError(
                f"a network with {network.config.outputs} outputs needs as many findings; got {findings!r}"
            )
        if repeated := next((name for name in findings if list(findings).count(name) > 1), None):
            raise InputError(f"the finding {repeated!r} is given more than once")
        if type(size) is not int or size < 32:
            raise InputError(f"a classifier's image size must be a whole number of at least 32; got {size!r}")
        self.findings = tuple(findings)
        self.size = size
        self.device = torch.device(device)
        self.batch_size = batch_size
        self.network = network.to(self.device).eval()  # statistics of training, so that neighbours do not matter
        meanings = {name: find(name) for name in self.findings}
        self._columns = {name: column for column, name in enumerate(self.findings)}
        self._by_meaning = {
            meaning.name: column for column, meaning in enumerate(meanings.values()) if meaning is not None
        }

    def classify(
        self, images: Sequence[NDArray[np.float32]], findings: Sequence[str] | None = None
    ) -> NDArray[np.float32]:
        """Return the probabilities of findings (all of them by default), (images, findings)."""
        names = self.findings if findings is None else tuple(findings)
        columns = [self._column(name) for name in names]
        parts = [np.zeros((0, len(columns)), dtype=np.float32)]
        for features, _ in self._features(images):
            with torch.no_grad():
                logits = self.network.pool(self.network.position_logits(features))
            parts.append(logits[:, columns].float().sigmoid().cpu().numpy())
        return np.concatenate(parts)

    def ground(self, images: Sequence[NDArray[np.float32]], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        """Return Grad-CAM of the findings that each phrase names, added up where it names several.

        The abstention is the probability that none of them is there (one less the greatest probability). A phrase
        that names no finding the network knows, itself or by a broader one, gets an empty map and an abstention of 1.
        """
        if len(images) != len(phrases):
            raise InputError(f"{len(images)} images do not go with {len(phrases)} phrases")
        named = [self.columns_of(phrase) for phrase in phrases]
        groundings: list[Grounding] = []
        for features, extents in self._features(images):
            columns = named[len(groundings) : len(groundings) + len(features)]
            maps, shares = self._maps(features, columns)
            groundings += [Grounding(heatmap) for heatmap in as_heatmaps(maps, extents, shares)]
        return groundings

    def columns_of(self, phrase: Phrase | str) -> list[int]:
        """Return the outputs for the findings of a phrase: those it carries, else those its words name."""
        if isinstance(phrase, Phrase) and phrase.findings:
            names = list(phrase.findings)
        else:
            names = _findings_named(phrase.text if isinstance(phrase, Phrase) else phrase)
        columns = (self._nearest(name) for name in names)
        return sorted({column for column in columns if column is not None})

    def save(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``model.safetensors``."""
        from safetensors.torch import save_file

        place = Path(folder)
        network = asdict(self.network.config)
        config = {"model": KIND, "version": VERSION, "size": self.size, "findings": self.findings, "network": network}
        weights = {name: value.detach().cpu().contiguous() for name, value in self.network.state_dict().items()}
        try:
            place.mkdir(parents=True, exist_ok=True)
            save_file(weights, place / WEIGHTS_FILE, metadata={"format": "pt"})
            (place / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise OutputError(f"cannot write the model to {place}: {error}") from error

    @classmethod
    def load(cls, folder: str | Path, device: str | torch.device = "cpu") -> Classifier:
        """Read what `save` wrote; what is missing or does not fit is named."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        place = Path(folder)
        config = _read_config(place / CONFIG_FILE)
        try:
            network = ResidualNetwork(NetworkConfig(**config["network"]))
            model = cls(network, config["findings"], size=config["size"], device=device)
        except (TypeError, InputError) as error:
            raise InputError(f"{place / CONFIG_FILE}: {error}") from error
        try:
            network.load_state_dict(load_file(place / WEIGHTS_FILE))
        except (OSError, SafetensorError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"{place / WEIGHTS_FILE} does not hold the weights of this model: {reason}") from error
        return model

    def _column(self, name: str) -> int:
        if name in self._columns:
            return self._columns[name]
        meaning = find(name)
        if meaning is None or meaning.name not in self._by_meaning:
            raise unknown_name("finding of this classifier", name, self.findings)
        return self._by_meaning[meaning.name]

    def _nearest(self, name: str) -> int | None:
        """Return the output for a finding, or for the nearest broader one: what is a consolidation is an opacity."""
        if name in self._columns:
            return self._columns[name]
        meaning = find(name)
        if meaning is None:
            return None
        steps = (meaning.name, *broader_findings(meaning.name))
        return next((self._by_meaning[step] for step in steps if step in self._by_meaning), None)

    def _features(self, images: Sequence[NDArray[np.float32]]) -> Iterator[tuple[torch.Tensor, list[Extent]]]:
        for start in range(0, len(images), self.batch_size):
            squares, extents = letterbox_all(images[start : start + self.batch_size], self.size)
            with torch.no_grad():
                features = self.network.features(standardise(squares[:, None].to(self.device)))
            yield features, extents

    def _maps(self, features: torch.Tensor, named: Sequence[Sequence[int]]) -> tuple[torch.Tensor, list[float]]:
        """Grad-CAM (n, rows, cols) of the named outputs of each image, and one less their greatest probability."""
        activations = features.detach().requires_grad_()
        with torch.enable_grad():  # a caller may have switched gradients off
            logits = self.network.pool(self.network.position_logits(activations)).float()
            summed = logits.sum(dim=0)  # images do not mix, so the sum has each one's own gradient
        maps = torch.zeros(features.shape[0], *features.shape[2:], device=features.device)
        present = torch.zeros(features.shape[0], device=features.device)
        for column in sorted({column for columns in named for column in columns}):
            asked = torch.tensor([column in columns for columns in named], device=features.device)
            with torch.enable_grad():
                (gradients,) = torch.autograd.grad(summed[column], activations, retain_graph=True)
            maps += asked[:, None, None] * grad_cam(features, gradients)
            present = torch.maximum(present, asked * logits[:, column].detach().sigmoid())
        return maps, (1.0 - present).tolist()


def _findings_named(text: str) -> list[str]:
    """Return the canonical findings whose names or synonyms occur in a text, the longest name first at each place."""
    words = _WORD.findall(text)
    found: list[str] = []
    start = 0
    while start < len(words):
        for length in range(min(_LONGEST_NAME, len(words) - start), 0, -1):
            meaning = find(" ".join(words[start : start + length]))
            if meaning is not None:
                found.append(meaning.name)
                start += length
                break
        else:
            start += 1
    return found


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the model's configuration {path}: {error}") from error
    if not isinstance(config, dict):
        raise InputError(f"{path} must hold a JSON object")
    if missing := {"model", "version", "size", "findings", "network"} - config.keys():
        raise InputError(f"{path} is no classifier's configuration: {', '.join(sorted(missing))} missing")
    if config["model"] != KIND or config["version"] != VERSION:
        described = f"{config['model']!r} version {config['version']!r}"
        raise InputError(f"{path} describes {described}, not {KIND!r} version {VERSION}")
    return config
