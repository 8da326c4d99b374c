"""FITA: report generation with fine-grained image-text alignment (Yang et al., 2024), on KiUT's U-Transformer.

Neither paper has public code. docs/fita.md lists what is ours: the formula of the image refiner, signed positions, a
causal text refiner, sided triplets, and a map for every sentence.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from rightlung.core import Extent, Grounding, Image, Report
from rightlung.core.checks import check_text
from rightlung.core.errors import InputError, check_known
from rightlung.explain import boxes_of
from rightlung.models.base import Similarities, WordSources
from rightlung.models.encoders.tokenizer import Tokens
from rightlung.models.fita.decoder import Memory
from rightlung.models.fita.losses import CLASSES
from rightlung.models.fita.maps import BOXES, as_heatmap, attention_map, finding_words, grounded_report, word_sources
from rightlung.models.fita.network import Encoded, FitaNetwork
from rightlung.models.fita.writing import write
from rightlung.models.inputs import Images, Phrases, as_images, as_list, as_pairs, pairs_by_image, phrase_texts
from rightlung.models.preprocessing import letterbox_batches
from rightlung.probes.interventions import INTERVENTIONS

IMAGE_BATCH_SIZE, TEXT_BATCH_SIZE = 16, 64


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """The words (t) of a report, their log-probabilities (t or more), the distiller's attention, and the saliency."""

    words: list[str]
    scores: Tensor
    attention: Tensor
    saliency: Tensor | None
    extent: Extent


class Fita(FitaNetwork):
    """Reports whose sentences have a map each; phrases grounded by writing them."""

    kind: ClassVar[str] = "fita"

    def report(self, images: Images, seeds: Sequence[int] | None = None, temperature: float = 1.0) -> list[Report]:
        """Return a report for each image; with ``seeds``, one for each image and ``beams: 1``, it is sampled.

        Each sentence has a map, and boxes if it says that a finding is present. One that ``max_words`` cuts is left
        out.
        """
        return [
            grounded_report(one.words, one.scores, one.attention, one.saliency, self.grid, one.extent)
            for one in self._written(as_images(images), seeds, temperature)
        ]

    def word_sources(self, images: Images) -> list[list[WordSources]]:
        """Return what each kind of word of the reports was written from: shares of the distiller's attention."""
        patches, symptoms = self.grid[0] * self.grid[1], 0 if self.graph is None else len(self.config.symptoms)
        return [
            word_sources(one.words, one.attention[: len(one.words)], patches, symptoms)
            for one in self._written(as_images(images))
        ]

    @property
    def interventions(self) -> tuple[str, ...]:
        """The parts that can be changed in the model as it is configured."""
        kept = {
            "saliency": self.image_refiner is not None and self.config.saliency != "none",
            "symptoms": self.graph is not None,
            "text": self.text_refiner is not None,
        }
        return tuple(name for name in INTERVENTIONS if kept[name.partition("-")[0]])

    def intervened(self, name: str) -> Fita:
        """Return a copy of the model whose saliency, symptoms or text features are changed."""
        check_known("intervention", name, self.interventions)
        made = copy.deepcopy(self)
        made.intervention = name
        made.decoder.without_words = name == "text-zeros"
        return made

    def _written(
        self, arrays: Sequence[Image], seeds: Sequence[int] | None = None, temperature: float = 1.0
    ) -> Iterator[Written]:
        """Yield what is written about each image, and what it was written from."""
        if seeds is not None and len(seeds) != len(arrays):
            raise InputError(f"sampling needs one seed for each image; got {len(seeds)} for {len(arrays)} images")
        done = 0
        with self.eval_mode():
            for encoded, extents in self._encoded(arrays):
                memory, writing = self.memory(encoded), self.config.writing
                own = None if seeds is None else seeds[done : done + len(extents)]
                ids = write(self.decoder, self.text_refiner, memory, self.tokenizer, writing, own, temperature)
                scores, attention = self._followed(ids, memory)
                for row, (words, extent) in enumerate(zip(ids.tolist(), extents, strict=True)):
                    saliency = self._saliency(encoded, row)
                    yield Written(self.tokenizer.words(words), scores[row], attention[row], saliency, extent)
                done += len(extents)

    def ground(self, images: Images, phrases: Phrases) -> list[Grounding]:
        """Return the map of each phrase in its image, as if the model had written it: that of its finding words."""
        arrays, phrases = as_pairs(images, phrases)
        texts = phrase_texts(phrases)
        groups = pairs_by_image(arrays)
        answers: list[Grounding | None] = [None] * len(texts)
        with self.eval_mode():
            done = 0
            for encoded, extents in self._encoded([arrays[own[0]] for own in groups]):
                memory = self.memory(encoded)
                for row, extent in enumerate(extents):
                    for pair, found in self._forced(groups[done + row], texts, memory, encoded, row, extent):
                        answers[pair] = found
                done += len(extents)
        return [answer for answer in answers if answer is not None]

    def _forced(
        self, pairs: Sequence[int], texts: Sequence[str], memory: Memory, encoded: Encoded, row: int, extent: Extent
    ) -> Iterator[tuple[int, Grounding]]:
        """Yield the grounding of each of an image's phrases."""
        saliency, patches = self._saliency(encoded, row), self.grid[0] * self.grid[1]
        for begin in range(0, len(pairs), TEXT_BATCH_SIZE):
            some = pairs[begin : begin + TEXT_BATCH_SIZE]
            ids = self.tokenizer.encode([texts[pair] for pair in some]).ids.to(self.device)[:, 1:]
            own = Memory(memory.crossed[[row] * len(some)], memory.sources[[row] * len(some)])
            _, attention = self._followed(ids, own)
            for number, pair in enumerate(some):
                words = self.tokenizer.words(ids[number].tolist())
                found = attention_map(attention[number, finding_words(words)], patches, saliency)
                heatmap = as_heatmap(*found, self.grid, extent)
                yield pair, Grounding(heatmap, boxes_of(heatmap, BOXES))

    def _followed(self, ids: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Return the log-probabilities (n, t) of words and the distiller's attention when it writes each of them."""
        start = self.tokenizer.start(len(ids)).ids.to(ids.device)
        given = torch.cat([start, ids[:, :-1]], dim=1)
        mask = torch.ones_like(given, dtype=torch.bool)
        logits, attention = self.decoder.attention(given, memory, self.read(Tokens(given, mask, given, given[:, 0])))
        return logits.float().log_softmax(-1).take_along_dim(ids[..., None], -1)[..., 0], attention

    @property
    def compares_texts(self) -> bool:
        """Whether the model has features of texts; without a text refiner it has none."""
        return self.text_refiner is not None

    def similarity(self, images: Images, texts: str | Sequence[str]) -> Similarities:
        """Return the cosine of the mean patch and of the mean word that CA aligns (Eq. 5)."""
        listed = [check_text(text, "a text") for text in as_list(texts)]
        return Similarities(self.encode_image(images) @ self.encode_text(listed).T)

    def encode_image(self, images: Images) -> NDArray[np.float32]:
        """Return f_img of each image, (images, dimension), of unit length."""
        found = [torch.zeros(0, self.config.dimension)]
        with self.eval_mode():
            for encoded, _ in self._encoded(as_images(images)):
                found.append(encoded.patches.mean(1).float().cpu())
        return normalize(torch.cat(found), dim=-1).numpy()

    def encode_text(self, texts: str | Sequence[str]) -> NDArray[np.float32]:
        """Return f_text of each text, (texts, dimension), of unit length."""
        listed = [check_text(text, "a text") for text in as_list(texts)]
        found = [torch.zeros(0, self.config.dimension)]
        with self.eval_mode():
            for begin in range(0, len(listed), TEXT_BATCH_SIZE):
                tokens = self.tokenizer.encode(listed[begin : begin + TEXT_BATCH_SIZE]).to(self.device)
                found.append(self.mean_words(self.read(tokens), tokens).float().cpu())
        return normalize(torch.cat(found), dim=-1).numpy()

    def classify(self, images: Images, findings: str | Sequence[str]) -> NDArray[np.float32]:
        """Return the probabilities of findings, (images, findings), from the head of Eq. 3; NaN for unknown ones."""
        names = as_list(findings)
        self.columns.known_columns(names)  # raises if none is known
        found = [torch.zeros(0, len(names))]
        with self.eval_mode():
            for encoded, _ in self._encoded(as_images(images)):
                scores = self._image_logits(encoded)[:, :CLASSES].float().sigmoid()
                found.append(self.columns.scores(scores, names).cpu())
        return torch.cat(found).numpy()

    def knows(self, finding: str) -> bool:
        """Return whether the image head has the finding."""
        return self.columns.column(finding) is not None

    def _saliency(self, encoded: Encoded, row: int) -> Tensor | None:
        return None if encoded.prior is None else encoded.prior.saliency[row]

    def _encoded(self, images: Sequence[Image]) -> Iterator[tuple[Encoded, list[Extent]]]:
        """Yield some encoded images at a time, and the extents of their grids."""
        for squares, extents in letterbox_batches(images, self.config.image.size, self.device, IMAGE_BATCH_SIZE):
            yield self.encode(squares), extents
