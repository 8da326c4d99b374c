"""The modules of FITA, how they are made, frozen and trained, and how images and words are encoded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from rightlung.core.errors import InputError
from rightlung.core.settings import read_settings
from rightlung.lexicon import finding
from rightlung.lexicon.labeller import OBSERVATIONS
from rightlung.models.base import Gather, TrainingBatch
from rightlung.models.classifier import Classifier
from rightlung.models.encoders import ImageEncoder
from rightlung.models.encoders.configured import ConfiguredTextModel
from rightlung.models.encoders.tokenizer import Tokens
from rightlung.models.findings import FindingColumns
from rightlung.models.fita.config import REPORT_LOSSES, TEXT_LOSSES, FitaConfig
from rightlung.models.fita.decoder import Memory, ReportDecoder
from rightlung.models.fita.encoder import RegionEncoder
from rightlung.models.fita.interventions import changed_prior
from rightlung.models.fita.losses import (
    alignment_loss,
    classification_loss,
    generation_loss,
    output_count,
    report_labels,
)
from rightlung.models.fita.symptoms import ImageRefiner, Observer, SymptomGraph, SymptomPrior
from rightlung.models.fita.text_refiner import TextLosses, TextRefiner
from rightlung.models.fita.triplets import NAMES
from rightlung.models.fita.vocabulary import ReportVocabulary, cleaned, described, train_vocabulary


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


class FitaNetwork(ConfiguredTextModel):
    """The U-Transformer with its refiners. Called with a batch, it returns the terms of its stage."""

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
        self.intervention = ""
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
        prior = changed_prior(prior or self.observe(self.classifier, images), self.intervention, self.grid)
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
