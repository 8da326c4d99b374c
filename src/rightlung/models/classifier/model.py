"""The supervised baseline as a model: probabilities of findings, and Grad-CAM of the finding that a phrase names.

It reads no sentence beyond the name of a finding in it: sides, places and negations are ignored. That makes it the
control for models which claim to understand them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from rightlung.core import Extent, Grounding, InputError, Phrase
from rightlung.core.errors import unknown_name
from rightlung.explain import as_heatmaps, grad_cam
from rightlung.lexicon import find
from rightlung.lexicon.findings import broader_findings
from rightlung.models.classifier.network import NetworkConfig, ResidualNetwork
from rightlung.models.folder import CONFIG_FILE, WEIGHTS_FILE
from rightlung.models.hub import Pretrained
from rightlung.models.preprocessing import letterbox_all, standardise

_WORD = re.compile(r"[^\W_]+(?:[-/'][^\W_]+)*")
_LONGEST_NAME = 6  # words


class Classifier(Pretrained):
    """A network with the names of its outputs, canonical findings or a data set's labels, and its image size."""

    kind: ClassVar[str] = "classifier"

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
        self._columns = {name: column for column, name in enumerate(self.findings)}
        self._by_meaning = {
            meaning.name: column for name, column in self._columns.items() if (meaning := find(name)) is not None
        }

    def classify(
        self, images: Sequence[NDArray[np.float32]], findings: Sequence[str] | None = None
    ) -> NDArray[np.float32]:
        """Return the probabilities of findings (all of them by default), (images, findings)."""
        names = self.findings if findings is None else tuple(findings)
        columns = [self._column(name) for name in names]
        if None in columns:
            raise unknown_name("finding of this classifier", names[columns.index(None)], self.findings)
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
        columns = (self._column(name, broader=True) for name in names)
        return sorted({column for column in columns if column is not None})

    def to(self, device: str | torch.device) -> Self:
        """Move to another device."""
        self.device = torch.device(device)
        self.network.to(self.device)
        return self

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """Go through the network's parameters."""
        return self.network.parameters()

    def to_config(self) -> dict[str, Any]:
        """Return the image size, the findings and the network's configuration."""
        return {"size": self.size, "findings": list(self.findings), "network": asdict(self.network.config)}

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the network's weights and running statistics."""
        return dict(self.network.state_dict())

    def extra_files(self) -> dict[str, bytes]:
        """Return no further files."""
        return {}

    @classmethod
    def from_parts(
        cls, config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], files: Mapping[str, bytes]
    ) -> Self:
        """Make the classifier of what the methods above gave; what is missing or does not fit is named."""
        if missing := {"size", "findings", "network"} - config.keys():
            raise InputError(f"{CONFIG_FILE}, field 'config', lacks {', '.join(sorted(missing))}")
        try:
            network = ResidualNetwork(NetworkConfig(**config["network"]))
            model = cls(network, config["findings"], size=config["size"])
        except (TypeError, InputError) as error:
            raise InputError(f"{CONFIG_FILE}, field 'config': {error}") from error
        try:
            network.load_state_dict(dict(tensors))
        except RuntimeError as error:
            raise InputError(f"{WEIGHTS_FILE} does not hold the weights of this network: {error}") from error
        return model

    def _column(self, name: str, broader: bool = False) -> int | None:
        """Return the output for a finding, or for the nearest broader one: what is a consolidation is an opacity."""
        if name in self._columns:
            return self._columns[name]
        if (meaning := find(name)) is None:
            return None
        steps = (meaning.name, *(broader_findings(meaning.name) if broader else ()))
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
