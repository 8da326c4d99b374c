"""FITA: report generation with fine-grained image-text alignment (Yang et al., 2024), on KiUT's U-Transformer.

Neither paper has public code. docs/fita.md lists what is ours: the formula of the image refiner, signed positions, a
causal text refiner, sided triplets, and a map for every sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize

from rightlung.core import Extent, Grounding, Image, Report
from rightlung.core.checks import check_text
from rightlung.core.errors import InputError
from rightlung.core.settings import read_settings
from rightlung.explain import boxes_of
from rightlung.lexicon import finding
from rightlung.lexicon.labeller import OBSERVATIONS
from rightlung.models.base import Gather, Similarities, TrainingBatch
from rightlung.models.classifier import Classifier
from rightlung.models.encoders import ImageEncoder
from rightlung.models.encoders.configured import ConfiguredTextModel
from rightlung.models.encoders.tokenizer import Tokens
from rightlung.models.findings import FindingColumns
from rightlung.models.fita.config import REPORT_LOSSES, TEXT_LOSSES, FitaConfig
from rightlung.models.fita.decoder import Memory, ReportDecoder
from rightlung.models.fita.encoder import RegionEncoder
from rightlung.models.fita.losses import (
    CLASSES,
    alignment_loss,
    classification_loss,
    generation_loss,
    output_count,
    report_labels,
)
from rightlung.models.fita.maps import BOXES, as_heatmap, attention_map, finding_words, grounded_report
from rightlung.models.fita.symptoms import ImageRefiner, Observer, SymptomGraph, SymptomPrior
from rightlung.models.fita.text_refiner import TextLosses, TextRefiner
from rightlung.models.fita.triplets import NAMES
from rightlung.models.fita.vocabulary import ReportVocabulary, cleaned, described, train_vocabulary
from rightlung.models.fita.writing import write
from rightlung.models.inputs import Images, Phrases, as_images, as_list, as_pairs, pairs_by_image, phrase_texts
from rightlung.models.preprocessing import letterbox_batches

IMAGE_BATCH_SIZE, TEXT_BATCH_SIZE = 16, 64


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """What the model sees in ``n`` images: the encoder's levels (n, p, d), V the last; Ĉ (n, k, d) and its prior."""

    levels: list[Tensor]
    symptoms: Tensor | None
    prior: SymptomPrior | None

    @property
    def patches(self) -> Tensor:
        """V, (n, p, d)."""
        return self.levels[-1]


class Fita(ConfiguredTextModel):
    """Reports whose sentences have a map each; phrases grounded by writing them."""

    kind: ClassVar[str] = "fita"
    config_type = FitaConfig
    loss_names = (*TEXT_LOSSES, *REPORT_LOSSES)
    config: FitaConfig
    tokenizer: ReportVocabulary
    tokenizer_studies: ClassVar[int] = 1_000_000
    """R2Gen counts the words of all training reports."""

    def __init__(self, config: FitaConfig, vocabulary: str) -> None:
        super().__init__()
        self.tokenizer = ReportVocabulary(vocabulary, config.writing.max_words)
        self.classifier = Classifier(config.classifier)
        self.image_encoder = ImageEncoder(config.image, config.dimension, global_embedding=False)
        self.grid = self.image_encoder.grid
        self.encoder = RegionEncoder(config, self.grid)
        self.graph = SymptomGraph(config) if config.graph else None
        self.image_refiner = ImageRefiner(config) if config.ifr else None
        self.text_refiner = TextRefiner(config.text, self.tokenizer) if config.tfr else None
        text_size = None if self.text_refiner is None else self.text_refiner.size
        self.decoder = ReportDecoder(config, len(self.tokenizer), text_size)
        self.classify_image = nn.Linear(config.dimension, output_count(config.text.uncertain))
        text = config.text
        if self.text_refiner is not None:
            pieces = self.text_refiner.pieces.shape[1]
            text = replace(text, options=self.text_refiner.options, pretrained=None, pieces_per_word=pieces)
        self.config = replace(config, image=self.image_encoder.config, classifier=self.classifier.config, text=text)
        self.text_losses = TextLosses(text, self.tokenizer)
        self.columns = FindingColumns([finding(name).name for name in OBSERVATIONS])
        self.observe = Observer(self.config, self.grid)
        self._freeze()

    @classmethod
    def create(cls, config: Mapping[str, Any], texts: Iterable[str], seed: int) -> Self:
        """Return an untrained model without a symptom graph; one with a graph starts from a trained classifier."""
        if read_settings(FitaConfig, config).graph:
            raise InputError(
                "graph: the probabilities and the saliency of symptoms are those of a trained classifier: start from "
                "one (a first stage of the kind classifier, as in the recipe fita-small, or model.start), or set "
                "graph: false"
            )
        return super().create(config, texts, seed)

    @classmethod
    def from_encoders(cls, start: Any, config: Mapping[str, Any], texts: Iterable[str], seed: int) -> Self:
        """Return a new model with a classifier and a copy of its backbone as the visual extractor."""
        if not isinstance(start, Classifier):
            raise InputError(f"a fita starts from a classifier; got a {type(start).__name__}")
        for name in ("image", "classifier"):
            if name in config:
                raise InputError(f"{name}: remove it; it is that of the classifier to start from")
        described = start.to_config()
        read = read_settings(FitaConfig, {**config, "image": described["image"], "classifier": described})
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = cls(read, *cls._trained_parts(read, texts))
        model.classifier.load_state_dict(start.state_dict())
        model.image_encoder.backbone.load_state_dict(start.image_encoder.backbone.state_dict())
        return model

    @classmethod
    def _trained_parts(cls, config: FitaConfig, texts: Iterable[str]) -> tuple[str, ...]:
        return (train_vocabulary(texts, config.min_count, config.vocab_size),)

    # ---------------------------------------------------------------- training

    def _freeze(self) -> None:
        """Freeze the classifier always, and everything but the text refiner in stage 1, the text refiner in stage 2."""
        self.requires_grad_(not self.config.text_stage)
        self.classifier.requires_grad_(False)
        if self.text_refiner is not None:
            self.text_refiner.requires_grad_(self.config.text_stage)

    def train(self, mode: bool = True) -> Self:
        """Switch to training mode, but for the frozen parts: no dropout, no statistics of batches."""
        super().train(mode)
        self.classifier.eval()
        if self.config.text_stage:
            self.image_encoder.eval()
        elif self.text_refiner is not None:
            self.text_refiner.eval()
        return self

    def forward(self, batch: TrainingBatch, gather: Gather | None = None) -> dict[str, Tensor]:
        """Return the terms of the stage: TFR's losses, or those of Eq. 6. Images without a report teach nothing."""
        texts = [described(text) for text in batch.target("report")["texts"]]
        if self.config.text_stage:
            return self._text_terms([text for text in texts if text.strip()], batch)
        self.check_size(batch, "image.size", self.config.image.size)
        if gather is None:  # with other processes, all gather rows of the same number
            rows = [row for row, text in enumerate(texts) if text.strip()]
            if not rows:
                return self.no_losses()
            batch, texts = replace(batch, images=batch.images[rows]), [texts[row] for row in rows]
        return self._report_terms(texts, replace(batch, texts=texts, image_of_text=range(len(texts))), gather)

    def _text_terms(self, reports: Sequence[str], batch: TrainingBatch) -> dict[str, Tensor]:
        assert self.text_refiner is not None
        device, losses = batch.images.device, {}
        self._count(reports, device)
        if "text_classification" in self.config.losses:
            losses["text_classification"] = self.text_losses.classification(self.text_refiner, reports, device)
        if "text_triplet" in self.config.losses:
            losses["text_triplet"] = self.text_losses.triplet(self.text_refiner, reports, batch.seed, device)
        return losses

    def _count(self, reports: Sequence[str], device: torch.device) -> None:
        """Count in training which symptoms reports mention together, for the edges of the graph."""
        if self.training and self.graph is not None and reports:
            names = [OBSERVATIONS.index(NAMES[name]) for name in self.config.symptoms]
            self.graph.count((report_labels(reports)[:, names] == 1).float().to(device))

    def _report_terms(self, reports: Sequence[str], batch: TrainingBatch, gather: Gather | None) -> dict[str, Tensor]:
        if self.text_refiner is None:  # there was no stage 1
            self._count(reports, batch.images.device)
        tokens = self.tokenizer.encode(reports).to(batch.images.device)
        encoded, words = self.encode(batch.images), self.read(tokens)
        known = torch.tensor([bool(text.strip()) for text in reports], device=batch.images.device)
        losses = {}
        if "report_generation" in self.config.losses:
            logits = self.decoder(tokens.ids, self.memory(encoded), words)
            learned = self.tokenizer.learned(tokens) & known[:, None]
            losses["report_generation"] = generation_loss(logits, tokens.ids, learned)
        if "image_classification" in self.config.losses:
            labels = report_labels(reports).to(batch.images.device)
            losses["image_classification"] = classification_loss(self._image_logits(encoded), labels, known)
        if "image_text_contrastive" in self.config.losses:
            features = encoded.patches.mean(1), self.mean_words(words, tokens)
            equal = [cleaned(text) for text in reports]
            losses["image_text_contrastive"] = alignment_loss(*features, batch, equal, self.config.temperature, gather)
        return losses

    # ---------------------------------------------------------------- encoding

    def encode(self, images: Tensor, prior: SymptomPrior | None = None) -> Encoded:
        """Encode images (n, 1, size, size) in 0 to 1. A ``prior`` replaces what the classifier sees in them."""
        levels = self.encoder(self.image_encoder.patches(images).flatten(2).transpose(1, 2))
        if self.graph is None:
            return Encoded(levels, None, None)
        prior = prior or self.observe(self.classifier, images)
        symptoms = self.graph(prior.probabilities)
        if self.image_refiner is not None:
            symptoms = self.image_refiner(symptoms, levels[-1], prior.saliency)
        return Encoded(levels, symptoms, prior)

    def memory(self, encoded: Encoded) -> Memory:
        """Return what the decoder reads of encoded images."""
        return self.decoder.memory(encoded.levels, encoded.symptoms)

    def read(self, tokens: Tokens) -> Tensor | None:
        """Return W (n, t, d) of whole reports; None without a text refiner."""
        if self.text_refiner is None:
            return None
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.config.text_stage):
            states = self.text_refiner(tokens.ids, tokens.attention_mask)
        return self.decoder.refined(states)

    def mean_words(self, words: Tensor | None, tokens: Tokens) -> Tensor:
        """Return f_text (n, d): the mean of W over the words of a report."""
        if words is None:
            raise InputError("comparing images with texts needs a model with tfr: true")
        counted = (tokens.word_index > 0)[..., None]
        return (words * counted).sum(1) / counted.sum(1).clamp_min(1)

    def _image_logits(self, encoded: Encoded) -> Tensor:
        """Return the logits (n, 14 or 27) of Eq. 3, from the mean of V."""
        logits: Tensor = self.classify_image(encoded.patches.mean(1))
        return logits

    # ------------------------------------------------------------------ asking

    def report(self, images: Images, seeds: Sequence[int] | None = None, temperature: float = 1.0) -> list[Report]:
        """Return a report for each image; with ``seeds``, one for each image and ``beams: 1``, it is sampled.

        Each sentence has a map, and boxes if it says that a finding is present. One that ``max_words`` cuts is left
        out.
        """
        arrays = as_images(images)
        if seeds is not None and len(seeds) != len(arrays):
            raise InputError(f"sampling needs one seed for each image; got {len(seeds)} for {len(arrays)} images")
        reports: list[Report] = []
        with self.eval_mode():
            for encoded, extents in self._encoded(arrays):
                memory, done = self.memory(encoded), len(reports)
                own = None if seeds is None else seeds[done : done + len(extents)]
                writing = self.config.writing
                ids = write(self.decoder, self.text_refiner, memory, self.tokenizer, writing, own, temperature)
                written = [self.tokenizer.words(row) for row in ids.tolist()]
                scores, attention = self._followed(ids, memory)
                for row, (words, extent) in enumerate(zip(written, extents, strict=True)):
                    saliency = self._saliency(encoded, row)
                    reports.append(grounded_report(words, scores[row], attention[row], saliency, self.grid, extent))
        return reports

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
