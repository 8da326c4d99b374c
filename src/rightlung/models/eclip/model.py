"""eCLIP on its two hosts.

An expert step adds annotated images to the batch: the processor makes an image of each and its map, mixup joins it with
the plain one, and the host learns from it as from any other image of the batch.

Maps are for training. A trained eCLIP answers as its host does, from images alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import interpolate, normalize

from rightlung.core import Heatmap, Image, InputError
from rightlung.core.keyed import text_generator
from rightlung.core.settings import read_settings
from rightlung.models.base import Gather, TrainingBatch
from rightlung.models.clip.model import Clip
from rightlung.models.dual_encoder import IMAGE_BATCH_SIZE, DualEncoder
from rightlung.models.eclip.config import EclipConfig, EclipGloriaConfig
from rightlung.models.eclip.losses import ExpertStep
from rightlung.models.eclip.processor import build_processor
from rightlung.models.encoders.image import ImageEmbeddings
from rightlung.models.encoders.text import TextEmbeddings
from rightlung.models.gloria.model import Gloria
from rightlung.models.inputs import Images, as_images
from rightlung.models.preprocessing import letterbox_all, standardise


def mixing_weight(seed: int, alpha: float, what: str) -> float:
    """Return λ ~ Beta(α, α), which follows from a batch's seed and what it is for; 0 if α is 0."""
    return float(text_generator(seed, what).beta(alpha, alpha)) if alpha > 0 else 0.0


class _WithExperts(DualEncoder):
    """What both hosts add: the processor, and expert images in a batch."""

    host: ClassVar[type[DualEncoder]]

    def __init__(self, config: Any, tokenizer: str) -> None:
        super().__init__(config, tokenizer)  # first: host and eCLIP of one seed then start from the same weights
        self.processor: nn.Module = build_processor(config.expert, self.image_encoder.channels, config.image.size)

    @classmethod
    def from_encoders(cls, start: Any, config: Mapping[str, Any], texts: Iterable[str], seed: int) -> Self:
        """Return an eCLIP with all weights of a trained host, or of an eCLIP whose processor fits."""
        if not isinstance(start, cls.host):
            raise InputError(f"a model of kind {cls.kind} starts from a {cls.host.kind}, not from a {start.kind}")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            read = read_settings(cls.config_type, {**start.to_config(), **config})
            model = cls(read, start.tokenizer.definition)
        new, old = model.state_dict(), start.state_dict()
        fits = {name: old[name] for name, weight in new.items() if name in old and old[name].shape == weight.shape}
        model.load_state_dict(new | fits)
        return model

    # ---------------------------------------------------------------- training

    def forward(self, batch: TrainingBatch, gather: Gather | None = None) -> dict[str, Tensor]:
        """Return the configured losses by name."""
        losses: dict[str, Tensor] = super().forward(self.with_expert_images(batch), gather)
        return losses

    def with_expert_images(self, batch: TrainingBatch) -> TrainingBatch:
        """Return a batch whose annotated images are expert images: λ·x + (1 - λ)·processor(x, map).

        All images are standardised, but expert images not again: the gradients of one that hardly varies would drown
        all others.
        With ``same_images``, the annotated images stay, and the expert images with their texts follow at the end.
        """
        expert = batch.target("expert")
        rows, settings = list(expert["image_indices"]), self.config.expert
        place = {image: number for number, image in enumerate(rows)}
        main = [image for image in range(len(batch)) if image not in place]
        told = [(text, place[image]) for text, image in enumerate(batch.image_of_text) if image in place]
        images, texts, image_of_text = self.standardised(batch.images), list(batch.texts), list(batch.image_of_text)
        plain = images[rows]
        if rows:
            made = self.expert_images(plain, expert["maps"])
            share = mixing_weight(batch.seed, settings.mixup_alpha, "expert mixup")
            mixed = (share * plain + (1 - share) * made).to(images.dtype)
            if settings.same_images:
                texts += [batch.texts[text] for text, _ in told]
                image_of_text += [len(batch) + own for _, own in told]
                rows = list(range(len(batch), len(batch) + len(rows)))
                images = torch.cat([images, mixed])
            else:
                images = images.index_copy(0, torch.tensor(rows, device=images.device), mixed)
        step = ExpertStep(
            self, main, rows, plain, expert["maps"], expert["matches_text"],  # type: ignore[arg-type]
            [text for text, _ in told], [own for _, own in told],
        )  # fmt: skip
        targets = {**batch.targets, "expert": {**expert, "step": step}}
        return replace(batch, images=images, texts=texts, image_of_text=image_of_text, targets=targets)

    def embed_images(self, batch: TrainingBatch) -> ImageEmbeddings:
        """Return the embeddings of the images of a batch `with_expert_images`."""
        embeddings: ImageEmbeddings = self.image_encoder(batch.images, standardised=True)
        return embeddings

    def standardised(self, images: Tensor) -> Tensor:
        """Return images (n, 1, size, size) as the encoder sees them, with its number of channels."""
        return standardise(images).expand(-1, self.image_encoder.channels, -1, -1)

    def expert_images(self, images: Tensor, maps: Tensor) -> Tensor:
        """Return the expert images of standardised images (n, channels, size, size) and maps (n, rows, cols)."""
        if len(maps) != len(images):
            raise InputError(f"{len(images)} images need as many expert maps; got {len(maps)}")
        size = (images.shape[-2], images.shape[-1])
        spread = interpolate(maps[:, None].float(), size, mode="bilinear", align_corners=False)
        made: Tensor = self.processor(images, spread)
        return made

    def log_patch_attention(
        self, images: ImageEmbeddings, texts: TextEmbeddings, image_indices: Sequence[int]
    ) -> Tensor:
        """Return the logarithm of each text's map on the patches of its image, (t, p)."""
        raise NotImplementedError

    # --------------------------------------------------------------- inference

    def encode_image(self, images: Images, maps: Sequence[Heatmap | Image] | None = None) -> NDArray[np.float32]:
        """Return the global embedding of each image, (images, dimension), of unit length.

        With ``maps``, one for each image, it is the embedding of the expert image, without mixup: for figures, not for
        scores. A map is a `Heatmap`, or an array of the image's size.
        """
        if maps is None:
            return super().encode_image(images)
        arrays = as_images(images)
        if len(maps) != len(arrays):
            raise InputError(f"{len(arrays)} images need as many expert maps; got {len(maps)}")
        looked = [expert_map(given, image.shape) for given, image in zip(maps, arrays, strict=True)]
        embeddings = [torch.zeros(0, self.config.dimension)]
        with self.eval_mode():
            for begin in range(0, len(arrays), IMAGE_BATCH_SIZE):
                part = slice(begin, begin + IMAGE_BATCH_SIZE)
                squares, _ = self.preprocess(arrays[part])
                spread, _ = letterbox_all(looked[part], self.config.image.size)
                plain = self.standardised(squares[:, None].to(self.device))
                made = self.expert_images(plain, spread.to(self.device))
                encoded = self.image_encoder(made, standardised=True)
                embeddings.append(encoded.global_embedding.float().cpu())
        return normalize(torch.cat(embeddings), dim=-1).numpy()


def expert_map(given: Heatmap | Image, size: Sequence[int]) -> NDArray[np.float32]:
    """Return an expert's map of an image as pixels with a maximum of 1; refuse one that is no map of this image."""
    height, width = int(size[0]), int(size[1])
    if not isinstance(given, Heatmap):
        if np.shape(given) != (height, width):
            raise InputError(
                f"an expert map must have the size of its image, {height} x {width} pixels; got {np.shape(given)}; "
                "for a coarser one, give a rightlung.core.Heatmap"
            )
        given = Heatmap(given)  # refuses NaN, infinite and negative values
    pixels = given.to_size((height, width), keep_mass=False)
    if not (highest := float(pixels.max())) > 0:
        raise InputError("an expert map must be above 0 somewhere; got one that is 0 everywhere")
    return pixels / np.float32(highest)


class Eclip(_WithExperts, Clip):
    """eCLIP with CLIP as its host."""

    kind: ClassVar[str] = "eclip"
    host = Clip
    config_type = EclipConfig
    loss_names = tuple(EclipConfig.loss_types)
    config: EclipConfig

    def log_patch_attention(
        self, images: ImageEmbeddings, texts: TextEmbeddings, image_indices: Sequence[int]
    ) -> Tensor:
        """Return the log softmax over the patches of the scaled cosines."""
        patches = normalize(images.patch_embeddings.flatten(2).transpose(1, 2).float(), dim=-1)
        own = patches[torch.tensor(image_indices, device=patches.device)]
        cosines = torch.einsum("td,tpd->tp", normalize(texts.global_embedding.float(), dim=-1), own)
        return (self.scale * cosines).log_softmax(dim=-1)


class EclipGloria(_WithExperts, Gloria):
    """eCLIP with GLoRIA as its host: the global and local features of expert images join all of GLoRIA's losses."""

    kind: ClassVar[str] = "eclip-gloria"
    host = Gloria
    config_type = EclipGloriaConfig
    loss_names = tuple(EclipGloriaConfig.loss_types)
    config: EclipGloriaConfig

    def log_patch_attention(
        self, images: ImageEmbeddings, texts: TextEmbeddings, image_indices: Sequence[int]
    ) -> Tensor:
        """Return the log attention on the patches."""
        attention = self.log_attention(texts, self.attention_keys(images.patch_embeddings), image_indices)
        return attention if self.no_attention_token is None else attention[:, 1:]
