"""TransVG (Deng et al., ICCV 2021): one box for each phrase, learned from boxes (ChEX, Table 7 and supp. E.4).

A learned regression token, the words of the phrase and the patches of the image attend to each other in one
transformer; an MLP reads the box from the token. Departures: the patches are those of our image encoder, without the
DETR encoder that the paper puts after a ResNet, and layers are pre-norm, which needs no pretrained DETR. A phrase with
several boxes is trained on the box around them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from rightlung.core import Grounding
from rightlung.core.checks import check_limits
from rightlung.core.errors import InputError
from rightlung.core.settings import read_settings
from rightlung.explain import as_heatmaps
from rightlung.models.base import Gather, TrainingBatch
from rightlung.models.boxes import generalized_iou, scored_boxes, to_centres, to_corners
from rightlung.models.chex.layers import mlp
from rightlung.models.encoders import ImageEncoder, ImageEncoderConfig, TextEncoder, TextEncoderConfig
from rightlung.models.encoders.configured import ConfiguredTextModel, check_losses, config_of_encoders
from rightlung.models.encoders.image import smooth_positions
from rightlung.models.encoders.text import TextEmbeddings
from rightlung.models.inputs import Images, Phrases, as_pairs, pairs_by_image, phrase_texts
from rightlung.models.preprocessing import letterbox_batches
from rightlung.models.roi import gaussian_weights

LOSSES = ("box_l1", "box_giou")
PAIR_BATCH_SIZE = 128
MAP_GRID, MAP_STD = (32, 32), 0.5
"""The grid of the Gaussian that is the map of a box, and its standard deviation in widths and heights of the box."""


@dataclass(frozen=True)
class TransVgConfig:
    """Encoders, and the transformer that joins them; the defaults are the paper's.

    - ``dimension``: of patches, words and the regression token.
    - ``layers``, ``heads``, ``hidden_size``, ``dropout``: of the transformer over all of them.
    - ``losses``: ``box_l1``, the sum over centre and size, and ``box_giou``, 1 - gIoU. In training, they are those of
      the recipe; the paper's code weighs both 1.
    """

    image: ImageEncoderConfig = field(default_factory=ImageEncoderConfig)
    text: TextEncoderConfig = field(default_factory=TextEncoderConfig)
    dimension: int = 256
    layers: int = 6
    heads: int = 8
    hidden_size: int = 2048
    dropout: float = 0.1
    losses: tuple[str, ...] = LOSSES
    save_dtype: Literal["float32", "float16"] = "float32"

    def __post_init__(self) -> None:
        for name in ("dimension", "layers", "heads", "hidden_size"):
            check_limits(getattr(self, name), name, 1, 1 << 16)
        check_limits(self.dropout, "dropout", 0, 0.99)
        if self.dimension % self.heads:
            raise InputError(f"dimension {self.dimension} is not a multiple of heads, {self.heads}")
        check_losses(self.losses, LOSSES)


class TransVg(ConfiguredTextModel):
    """One box for each phrase, regressed from its words and the patches of the image."""

    kind: ClassVar[str] = "transvg"
    config_type = TransVgConfig
    loss_names = LOSSES
    config: TransVgConfig

    def __init__(self, config: TransVgConfig, tokenizer: str) -> None:
        super().__init__()
        self.tokenizer = config.text.read_tokenizer(tokenizer)
        size = config.dimension
        self.image_encoder = ImageEncoder(config.image, size, global_embedding=False)
        self.text_encoder = TextEncoder(config.text, size, len(self.tokenizer))
        self.config = replace(config, image=self.image_encoder.config, text=self.text_encoder.config)
        self.positions = nn.Parameter(smooth_positions(size, self.image_encoder.grid))
        self.regression_token, self.word_type = (nn.Parameter(torch.randn(size) / size**0.5) for _ in range(2))
        layer = nn.TransformerEncoderLayer(
            size, config.heads, config.hidden_size, config.dropout, batch_first=True, norm_first=True
        )
        self.transformer = nn.TransformerEncoder(layer, config.layers, nn.LayerNorm(size), enable_nested_tensor=False)
        self.box_head = mlp(size, size, size, 4, last_dropout=False)

    @classmethod
    def from_encoders(cls, start: Any, config: Mapping[str, Any], texts: Iterable[str], seed: int) -> Self:
        """Return a new model with the image and text encoder of a GLoRIA or CLIP, as ChEX takes BioVIL's."""
        joined = read_settings(cls.config_type, {**config, **config_of_encoders(start, config, cls.kind)})
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = cls(joined, start.tokenizer.definition)
        weights = start.image_encoder.state_dict()
        model.image_encoder.load_state_dict({name: weights[name] for name in model.image_encoder.state_dict()})
        model.text_encoder.load_state_dict(start.text_encoder.state_dict())
        return model

    def locate(self, patches: Tensor, texts: Sequence[str], rows: Sequence[int]) -> Tensor:
        """Return a box (p, 4) by centre and size for each of p texts.

        ``patches`` (n, d, rows, cols) are those of n images; ``rows`` has the image of each text.
        """
        words: TextEmbeddings = self.text_encoder(self.tokenizer.encode(list(texts)).to(patches.device))
        seen = (patches + self.positions).flatten(2).transpose(1, 2)[list(rows)]
        token = self.regression_token.expand(len(seen), 1, -1)
        tokens = torch.cat([token, words.word_embeddings + self.word_type, seen], dim=1)
        padding = torch.zeros(tokens.shape[:2], dtype=torch.bool, device=tokens.device)
        padding[:, 1 : 1 + words.attention_mask.shape[1]] = ~words.attention_mask
        boxes: Tensor = self.box_head(self.transformer(tokens, src_key_padding_mask=padding)[:, 0])
        return boxes.float().sigmoid()

    def forward(self, batch: TrainingBatch, gather: Gather | None = None) -> dict[str, Tensor]:
        """Return the configured losses by name, of the phrases with a box. ``gather`` is not used."""
        self.check_size(batch, "image.size", self.config.image.size)
        target = batch.target("phrases")
        if "boxes" not in target:
            raise InputError("a transvg learns from boxes of phrases: set data.target_options.phrases.boxes to true")
        known = target["has_box"].nonzero()[:, 0].tolist()
        if not known:
            return self.no_losses()
        rows = [target["image_indices"][one] for one in known]
        boxes = self.locate(self.image_encoder.patches(batch.images), [target["texts"][one] for one in known], rows)
        truth = target["boxes"][known].float()
        terms = {
            "box_l1": (boxes - to_centres(truth)).abs().sum(-1).mean(),
            "box_giou": (1 - generalized_iou(to_corners(boxes), truth)).mean(),
        }
        return {name: terms[name] for name in self.config.losses}

    def ground(self, images: Images, phrases: Phrases) -> list[Grounding]:
        """Return one box, with a score of 1, and its map for each phrase in its image.

        Images and phrases are paired by `as_pairs`. The model never abstains.
        """
        images, phrases = as_pairs(images, phrases)
        texts = phrase_texts(phrases)
        groups = pairs_by_image(images)
        distinct, of_image = [images[own[0]] for own in groups], iter(groups)
        answers: dict[int, Grounding] = {}
        with self.eval_mode():
            for squares, extents in letterbox_batches(distinct, self.config.image.size, self.device):
                patches = self.image_encoder.patches(squares)
                pairs = [(pair, row) for row in range(len(extents)) for pair in next(of_image)]
                for begin in range(0, len(pairs), PAIR_BATCH_SIZE):
                    asked, rows = zip(*pairs[begin : begin + PAIR_BATCH_SIZE], strict=True)
                    boxes = self.locate(patches, [texts[pair] for pair in asked], rows)
                    places = [extents[row] for row in rows]
                    heatmaps = as_heatmaps(gaussian_weights(boxes, MAP_GRID, MAP_STD), places)
                    for pair, heatmap, box, extent in zip(asked, heatmaps, boxes[:, None], places, strict=True):
                        answers[pair] = Grounding(heatmap, scored_boxes(box, torch.ones(1), extent))
        return [answers[pair] for pair in range(len(texts))]
