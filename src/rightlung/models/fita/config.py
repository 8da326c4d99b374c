"""The configuration of FITA: its pieces, and the switches of its ablations.

The rows of the paper's Table 2, and of KiUT's ablation, differ in ``rra``, ``connection`` (``u`` or ``last``),
``graph``, ``ifr`` and ``tfr``, and in whether the losses name ``image_text_contrastive`` (CA).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rightlung.core.checks import check_limits
from rightlung.core.errors import InputError, check_known
from rightlung.core.frozen import FrozenMapping
from rightlung.lexicon import finding
from rightlung.lexicon.labeller import OBSERVATIONS
from rightlung.models.classifier import ClassifierConfig
from rightlung.models.encoders.configured import check_losses
from rightlung.models.encoders.image import ImageEncoderConfig

SYMPTOMS = tuple(finding(name).name for name in OBSERVATIONS if name != "No Finding")
"""CheXpert's 13 findings by the lexicon's names: the nodes of the symptom graph, and the classes of triplets."""
TEXT_LOSSES = ("text_classification", "text_triplet")
"""Stage 1: the text refiner (TFR) learns, everything else is frozen."""
REPORT_LOSSES = ("report_generation", "image_classification", "image_text_contrastive")
"""Stage 2, the terms of Eq. 6: TFR and the classifier are frozen."""


@dataclass(frozen=True)
class TextRefinerConfig:
    """TFR: a BERT, the heads of its pre-training, and its triplets.

    - ``options``, ``pretrained``: fields of the BERT's configuration in `transformers`; a folder or a hub id to take
      configuration, WordPiece tokenizer and weights from. Without it, a BERT over whole words is trained from scratch.
    - ``causal``: a word's state depends on it and the words before it. False is the paper's description: BERT reads the
      whole report in training and its beginning in inference. It leaks the words to predict; for ablations only.
    - ``triplets``: ``clinical`` (the supplement's rule, half of the negatives negated mentions) or ``printed`` (equal
      or different labels of a class). ``sided``: the share of triplets whose negative names the other side; ours.
    - ``triplets_per_batch``, ``margin`` (β of Eq. 4), ``embedding_size`` (of f): the paper does not give them.
    - ``uncertain``: ``apart`` (13 more logits) or ``zeros`` (the literal 14 of Eq. 3, uncertain as negative).
    """

    options: Mapping[str, Any] = field(default_factory=FrozenMapping)
    pretrained: str | None = None
    pieces_per_word: int = 1
    causal: bool = True
    triplets: Literal["clinical", "printed"] = "clinical"
    sided: float = 0.25
    triplets_per_batch: int = 128
    margin: float = 0.5
    embedding_size: int = 128
    uncertain: Literal["apart", "zeros"] = "apart"

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", FrozenMapping(self.options))
        for name, low, high in (
            ("pieces_per_word", 1, 64), ("sided", 0, 1), ("triplets_per_batch", 1, 100_000), ("margin", 0, 1),
            ("embedding_size", 1, 1 << 16),
        ):  # fmt: skip
            check_limits(getattr(self, name), name, low, high)


@dataclass(frozen=True)
class WritingConfig:
    """How reports are decoded. The defaults are R2Gen's: beam search by the sum of log-probabilities.

    - ``beams``: 1 is greedy. ``length_penalty``: the sum is divided by the length to this power.
    - ``min_words``, ``max_words``: of a report, its full stops included.
    - ``blocked_ngram``: no so many words in a row are written twice; 0: no such rule.
    """

    beams: int = 3
    length_penalty: float = 0.0
    min_words: int = 1
    max_words: int = 60
    blocked_ngram: int = 0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("beams", 1, 64), ("length_penalty", -10, 10), ("min_words", 0, 2000), ("max_words", 1, 2000),
            ("blocked_ngram", 0, 100),
        ):  # fmt: skip
            check_limits(getattr(self, name), name, low, high)
        if self.min_words > self.max_words:
            raise InputError(f"min_words must not exceed max_words {self.max_words}; got {self.min_words}")


@dataclass(frozen=True)
class FitaConfig:
    """An image encoder, a U-Transformer (KiUT), and FITA's refiners.

    - ``image``: the visual extractor; with ``classifier``, which gives probabilities and saliency, it is that of the
      classifier that the model starts from (`Fita.from_encoders`).
    - ``dimension``, ``layers`` (of encoder and decoder each), ``heads``, ``hidden_size`` (of the MLPs), ``dropout``,
      ``visual_dropout`` (after the projection of the patches).
    - ``rra``: region-relationship-augmented attention in the encoder, whose relative ``positions`` are ``signed``
      (ours) or ``absolute`` (as published: blind to left and right).
    - ``connection``: which encoder layer a decoder layer reads: ``u`` (the first reads the last), ``last`` (all read
      the last) or ``parallel`` (the nth reads the nth).
    - ``graph``: the symptom graph, of ``symptoms``. ``ifr``: symptoms are refined by patches, under the prior of
      ``saliency``: the classifier's Grad-CAM, the maps of the model ``grounder``, or none. ``tfr``: the text refiner.
    - ``min_count``: how often a word of the vocabulary occurs in the training texts. ``writing``: how reports are
      decoded.
    - ``temperature``: τ of Eq. 5; the paper does not give it.
    - ``losses``: some of `TEXT_LOSSES` (stage 1) or of `REPORT_LOSSES` (stage 2). In training, those of the recipe.
    """

    image: ImageEncoderConfig = field(default_factory=lambda: ImageEncoderConfig(pyramid_levels=(-1,)))
    classifier: ClassifierConfig = field(default_factory=lambda: ClassifierConfig(SYMPTOMS))
    text: TextRefinerConfig = field(default_factory=TextRefinerConfig)
    dimension: int = 512
    layers: int = 3
    heads: int = 8
    hidden_size: int = 512
    dropout: float = 0.1
    visual_dropout: float = 0.5
    rra: bool = True
    positions: Literal["signed", "absolute"] = "signed"
    connection: Literal["u", "last", "parallel"] = "u"
    graph: bool = True
    symptoms: tuple[str, ...] = SYMPTOMS
    ifr: bool = True
    saliency: Literal["grad-cam", "grounder", "none"] = "grad-cam"
    grounder: str = "starter"
    tfr: bool = True
    temperature: float = 0.07
    min_count: int = 3
    vocab_size: int = 10_000
    writing: WritingConfig = field(default_factory=WritingConfig)
    losses: tuple[str, ...] = REPORT_LOSSES
    save_dtype: Literal["float32", "float16"] = "float32"

    def __post_init__(self) -> None:
        for name, low, high in (
            ("dimension", 1, 1 << 16), ("layers", 1, 100), ("heads", 1, 1000), ("hidden_size", 1, 1 << 20),
            ("dropout", 0, 0.99), ("visual_dropout", 0, 0.99), ("temperature", 1e-4, 100), ("min_count", 1, 1_000_000),
            ("vocab_size", 10, 1_000_000),
        ):  # fmt: skip
            check_limits(getattr(self, name), name, low, high)
        if self.dimension % self.heads:
            raise InputError(f"dimension {self.dimension} is not a multiple of heads, {self.heads}")
        for name in self.symptoms:
            check_known("symptom", name, SYMPTOMS)
        if not self.symptoms or len(set(self.symptoms)) < len(self.symptoms):
            raise InputError("symptoms must name at least one finding, and none twice")
        if self.ifr and not self.graph:
            raise InputError("ifr refines the symptoms of the graph: set graph: true, or ifr: false")
        check_losses(self.losses, (*TEXT_LOSSES, *REPORT_LOSSES))
        text = [name for name in self.losses if name in TEXT_LOSSES]
        if text and len(text) < len(self.losses):
            raise InputError(
                f"losses: {', '.join(text)} are those of the first stage; train the others in a second one"
            )
        if not self.tfr and (needing := text or [name for name in self.losses if name == "image_text_contrastive"]):
            raise InputError(f"losses: {needing[0]} needs tfr: true")

    @property
    def text_stage(self) -> bool:
        """Whether the losses are those of stage 1."""
        return self.losses[0] in TEXT_LOSSES
