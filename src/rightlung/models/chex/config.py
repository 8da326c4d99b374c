"""The configuration of a ChEX. The defaults are the paper's (supp. D.1 to D.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rightlung.core.checks import check_limits
from rightlung.core.errors import InputError, unknown_name
from rightlung.lexicon import finding
from rightlung.models.chex.losses import LOSSES
from rightlung.models.encoders.configured import check_losses
from rightlung.models.encoders.image import ImageEncoderConfig
from rightlung.models.encoders.language import LanguageModelConfig
from rightlung.models.encoders.text import TextEncoderConfig

PARTS = ("image_encoder", "text_encoder", "detector", "post_decoder", "generator")
"""The parts of the model that a training stage can train or leave as they are."""


@dataclass(frozen=True)
class DecoderConfig:
    """Transformer decoder layers, which the detector and the post decoder share.

    ``layers``, ``heads``, ``hidden_size`` of the MLPs, and the regularisation: ``dropout``, ``attention_dropout``,
    ``drop_path`` (the probability that a residual branch is left out) and the initial ``layer_scale``.
    """

    layers: int = 6
    heads: int = 8
    hidden_size: int = 2048
    dropout: float = 0.3
    attention_dropout: float = 0.1
    drop_path: float = 0.2
    layer_scale: float = 0.1

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "hidden_size"):
            check_limits(getattr(self, name), name, 1, 1 << 16)
        for name in ("dropout", "attention_dropout", "drop_path"):
            check_limits(getattr(self, name), name, 0, 0.99)


@dataclass(frozen=True)
class PrefixConfig:
    """The prefix that conditions the language model on a region (P-tuning v2).

    - ``length``: tokens of the prefix; ``hidden_size``: of the MLP that makes keys and values, 0 for a linear layer.
    - ``shared``: all layers of the language model get the same keys and values.
    """

    length: int = 5
    hidden_size: int = 2048
    shared: bool = False

    def __post_init__(self) -> None:
        check_limits(self.length, "length", 1, 256)
        check_limits(self.hidden_size, "hidden_size", 0, 1 << 16)


@dataclass(frozen=True)
class ChexConfig:
    """Encoders, prompt detector, sentence generator, and how they are trained.

    - ``dimension``: of patch, prompt and ROI tokens; ``boxes_per_prompt``: how many boxes are predicted for a prompt.
    - ``box_std``: the standard deviation of Gaussian ROI pooling, in widths and heights of the box.
    - ``skip_probability``: how often the detector's token is added to the pooled features in training.
    - ``box_token_dropout``: how often the post decoder does not see the token of a box in training.
    - ``findings``: the classes of pathology tokens; ``region_findings``: those of the labels of regions.
    - ``trained``: the `PARTS` that are trained; the others are frozen. ``frozen_image_layers``: transformer layers of
      the image encoder, counted from the input, that are frozen with its embeddings.
    - ``findings_per_batch``, ``regions_per_batch``, ``negative_findings``: subsampling of tokens (D.3, Eq. 7).
    - ``box_queries``, ``both_queries``: shares of images whose regions are asked by a box, or by a name and a box.
    - ``boxes_from_labels``: in images whose boxes are not known, losses of labels and texts also move the predicted
      boxes. Otherwise boxes learn from boxes only.
    - ``max_generated``: sentences of each kind that the generator learns from in a batch.
    - ``losses``: names in `rightlung.models.chex.losses.LOSSES`. In training, they are those of the recipe.
    """

    image: ImageEncoderConfig = field(default_factory=ImageEncoderConfig)
    text: TextEncoderConfig = field(default_factory=TextEncoderConfig)
    generator: LanguageModelConfig = field(default_factory=LanguageModelConfig)
    dimension: int = 512
    boxes_per_prompt: int = 3
    detector: DecoderConfig = field(default_factory=DecoderConfig)
    post_decoder: DecoderConfig = field(default_factory=lambda: DecoderConfig(layers=3))
    prefix: PrefixConfig = field(default_factory=PrefixConfig)
    box_std: float = 1.0
    skip_probability: float = 0.25
    box_token_dropout: float = 0.3
    findings: tuple[str, ...] = ("pleural effusion", "pneumothorax")
    region_findings: tuple[str, ...] = ()
    trained: tuple[str, ...] = PARTS
    frozen_image_layers: int = 0
    findings_per_batch: int = 10
    regions_per_batch: int = 20
    negative_findings: int = 10
    box_queries: float = 0.0
    both_queries: float = 0.0
    boxes_from_labels: bool = True
    max_generated: int = 32
    losses: tuple[str, ...] = ("pathology_detection", "anatomy_detection")
    save_dtype: Literal["float32", "float16"] = "float32"

    def __post_init__(self) -> None:
        for name, low, high in (
            ("dimension", 1, 1 << 16), ("boxes_per_prompt", 1, 100), ("box_std", 0.05, 10), ("skip_probability", 0, 1),
            ("box_token_dropout", 0, 1), ("frozen_image_layers", 0, 1000), ("findings_per_batch", 1, 1000),
            ("regions_per_batch", 1, 1000), ("negative_findings", 0, 1000), ("box_queries", 0, 1),
            ("both_queries", 0, 1), ("max_generated", 1, 100_000),
        ):  # fmt: skip
            check_limits(getattr(self, name), name, low, high)
        if self.box_queries + self.both_queries > 1:
            raise InputError(
                "box_queries and both_queries are shares of the images and must not exceed 1 together; got "
                f"{self.box_queries} and {self.both_queries}"
            )
        if not self.findings:
            raise InputError("findings must name at least one finding")
        for name in (*self.findings, *self.region_findings):
            finding(name)  # raises for an unknown one
        for part in self.trained:
            if part not in PARTS:
                raise unknown_name("part in trained", part, PARTS)
        for decoder, name in ((self.detector, "detector"), (self.post_decoder, "post_decoder")):
            if self.dimension % decoder.heads:
                raise InputError(f"dimension {self.dimension} is not a multiple of {name}.heads, {decoder.heads}")
        if not self.generator.end_token:
            raise InputError("generator.end_token must be true: a sentence has an end")
        check_losses(self.losses, LOSSES)
