"""A plain report generator: a language model that attends to the patches of the image, and nothing else.

It has the layout of R2Gen and its successors without their memories (Chen et al., EMNLP 2020). No sentence of its
reports has a place in the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from torch import Tensor

from rightlung.core import Report
from rightlung.core.checks import check_limits
from rightlung.core.errors import InputError
from rightlung.models.base import Gather, TrainingBatch
from rightlung.models.encoders import ImageEncoder, ImageEncoderConfig, LanguageModel, LanguageModelConfig
from rightlung.models.encoders.configured import ConfiguredTextModel, check_losses
from rightlung.models.encoders.language import DecoderCondition, GenerationConfig, next_token_loss
from rightlung.models.inputs import Images, as_images
from rightlung.models.preprocessing import letterbox_batches

LOSSES = ("report_generation",)
NOTHING_WRITTEN = "No report was generated."


@dataclass(frozen=True)
class ReporterConfig:
    """An image encoder and a language model, which gets cross-attention. A text ends after ``max_length`` tokens.

    ``beams``: of beam search; 1 is greedy.
    """

    image: ImageEncoderConfig = field(default_factory=lambda: ImageEncoderConfig(position_embeddings=True))
    text: LanguageModelConfig = field(default_factory=LanguageModelConfig)
    beams: int = 1
    losses: tuple[str, ...] = LOSSES
    save_dtype: Literal["float32", "float16"] = "float32"

    def __post_init__(self) -> None:
        check_limits(self.beams, "beams", 1, 64)
        check_losses(self.losses, LOSSES)
        if not self.text.end_token:
            raise InputError("text.end_token must be true: a report has an end")


class PlainReporter(ConfiguredTextModel):
    """Reports without boxes, generated from the patches of the image."""

    kind: ClassVar[str] = "reporter"
    config_type = ReporterConfig
    loss_names = LOSSES
    config: ReporterConfig

    def __init__(self, config: ReporterConfig, tokenizer: str) -> None:
        super().__init__()
        self.tokenizer = config.text.read_tokenizer(tokenizer)
        attending = replace(config.text, options={**config.text.options, "add_cross_attention": True})
        self.language_model = LanguageModel(attending, self.tokenizer)
        self.image_encoder = ImageEncoder(
            config.image, int(self.language_model.model.config.hidden_size), global_embedding=False
        )
        self.config = replace(config, image=self.image_encoder.config, text=self.language_model.config)

    def forward(self, batch: TrainingBatch, gather: Gather | None = None) -> dict[str, Tensor]:
        """Return the loss of the reports' tokens, each predicted from those before it. ``gather`` is not used."""
        self.check_size(batch, "image.size", self.config.image.size)
        texts: Sequence[str] = batch.target("report")["texts"]
        rows = [row for row, text in enumerate(texts) if text.strip()]
        condition = self._condition(batch.images[rows or [0]])
        tokens = self.tokenizer.encode([texts[row] for row in rows] or ["nothing"]).to(batch.images.device)
        loss = next_token_loss(self.language_model(tokens, condition), tokens)
        return {"report_generation": loss if rows else 0.0 * loss}

    def report(self, images: Images) -> list[Report]:
        """Return a report for each image, of at most ``max_length`` tokens."""
        arrays, texts = as_images(images), []
        settings = GenerationConfig(max_new_tokens=self.config.text.max_length - 1, beams=self.config.beams)
        with self.eval_mode():
            for squares, _ in letterbox_batches(arrays, self.config.image.size, self.device):
                start = self.tokenizer.start(len(squares)).to(self.device)
                condition = self._condition(squares)
                texts += self.tokenizer.decode(self.language_model.generate(start, condition, settings))
        return [Report(text if text.strip() else NOTHING_WRITTEN) for text in texts]

    def _condition(self, images: Tensor) -> DecoderCondition:
        patches: Tensor = self.image_encoder.patches(images)
        return DecoderCondition(memory=patches.flatten(2).transpose(1, 2).contiguous())
