"""Kinds of heatmaps, and how a model with an image and a text encoder gives those that are not its own.

A kind is chosen by the model's name, ``starter?map=grad-cam``, or in Python by `use_map`. A model that has more than
one kind has a method ``use_map(kind)``; if it cannot give a kind, that raises an `InputError` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from rightlung.core import Extent, Grounding, Image, InputError
from rightlung.core.errors import check_known
from rightlung.explain import (
    ActivationHook,
    as_heatmaps,
    attention_relevance,
    attention_rollout,
    shifted,
    token_maps,
)  # fmt: skip
from rightlung.models.inputs import Images, Phrases, as_pairs, pairs_by_image, phrase_texts
from rightlung.models.preprocessing import letterbox_all

MAP_KINDS = {
    "own": "what the model returns by itself",
    "attention": "attention of the words, or of the sentence, over patches",
    "similarity": "cosine of each patch with the text, minus the smallest of the map",
    "grad-cam": "Grad-CAM of the similarity of image and text at the last feature maps (ViT: its last block)",
    "gradient-attention": "attention times the gradient of the similarity with respect to it, positive part",
    "rollout": "attention rollout of the image encoder; the same map for every text",
}
"""The kinds of maps by name."""
_IMAGES_AT_ONCE = 16
_TRANSFORMERS = ("vit",)
"""Image encoders whose attention covers all patches of the image; a Swin's covers windows."""
Embeddings = Any


def use_map(model: Any, kind: str, name: str = "the model") -> None:
    """Let ``model.ground`` return maps of a kind of `MAP_KINDS`; an `InputError` says why it cannot."""
    check_known("map kind", kind, MAP_KINDS)
    if callable(getattr(model, "use_map", None)):
        model.use_map(kind)
    elif kind != "own":
        raise InputError(f"{name} cannot give {kind} maps: a {type(model).__name__} has only its own")


def with_map(name: str, kind: str | None) -> str:
    """Return the name of a model with a kind of map chosen; None changes nothing.

    >>> with_map("starter", "grad-cam"), with_map("runs/clip?regions=cropped", "rollout"), with_map("starter", None)
    ('starter?map=grad-cam', 'runs/clip?regions=cropped&map=rollout', 'starter')
    """
    if kind is None:
        return name
    check_known("map kind", kind, MAP_KINDS)
    return f"{name}{'&' if '?' in name else '?'}map={kind}"


def split_map(name: str) -> tuple[str, str]:
    """Return the name of a model without its kind of map, and the kind.

    >>> split_map("runs/clip?regions=cropped&map=rollout"), split_map("starter")
    (('runs/clip?regions=cropped', 'rollout'), ('starter', 'own'))
    """
    plain, mark, query = name.rpartition("?")
    parts = query.split("&") if mark else []
    kinds = [part.removeprefix("map=") for part in parts if part.startswith("map=")]
    if not kinds:
        return name, "own"
    rest = "&".join(part for part in parts if not part.startswith("map="))
    return f"{plain}?{rest}" if rest else plain, kinds[-1]


class ChoosesMap:
    """Mixin of models with an `ImageEncoder`: ``ground`` returns maps of ``map_kind``, or the model's own.

    A model says how it embeds texts and whole images, so that their cosine is its similarity.
    """

    image_encoder: Any
    map_kind: str = "own"
    own_map: str = "own"
    """The kind of the model's own maps, if it is one of `MAP_KINDS`."""

    def text_vectors(self, texts: Sequence[str]) -> Tensor:
        """Return the embeddings (n, d) of texts."""
        raise NotImplementedError

    def image_vectors(self, embeddings: Embeddings) -> Tensor:
        """Return the embeddings (n, d) of whole images."""
        raise NotImplementedError

    def use_map(self, kind: str) -> None:
        """Return maps of this kind from now on."""
        check_known("map kind", kind, MAP_KINDS)
        if reason := self.why_not_map(kind):
            raise InputError(f"a {type(self).__name__} cannot give {kind} maps: {reason}")
        self.map_kind = "own" if kind == self.own_map else kind

    def why_not_map(self, kind: str) -> str | None:
        """Return why the model has no maps of a kind, None if it has."""
        encoder = self.image_encoder.config.kind
        if kind == "attention" and self.own_map != "attention":
            return "its texts have no attention over patches"
        cross = kind == "gradient-attention" and self.own_map == "attention"
        if kind in ("gradient-attention", "rollout") and encoder not in _TRANSFORMERS and not cross:
            return f"its image encoder, a {encoder}, has no self-attention over the whole image"
        return None

    def ground_by_kind(self, images: Images, phrases: Phrases) -> list[Grounding]:
        """Return the heatmap of each phrase in its image, of the chosen kind. It never abstains."""
        images, phrases = as_pairs(images, phrases)
        texts = phrase_texts(phrases)
        answers: dict[int, Grounding] = {}
        maps_of = {
            "similarity": self.similarity_maps,
            "grad-cam": self.grad_cam_maps,
            "gradient-attention": self.gradient_attention_maps,
            "rollout": self.rollout_maps,
        }[self.map_kind]
        model: Any = self
        with model.eval_mode():
            for pixels, extents, pairs in _batches(model, images):
                rows = [row for row, own in enumerate(pairs) for _ in own]
                places = [pair for own in pairs for pair in own]
                maps = maps_of(pixels, [texts[pair] for pair in places], rows)
                heatmaps = as_heatmaps(maps, [extents[row] for row in rows])
                answers |= dict(zip(places, map(Grounding, heatmaps), strict=True))
        return [answers[pair] for pair in range(len(texts))]

    def similarity_maps(self, pixels: Tensor, texts: Sequence[str], rows: Sequence[int]) -> Tensor:
        """Return the maps (texts, rows, cols) of texts about images, the rows of ``pixels``; so do those below."""
        patches = normalize(self.image_encoder(pixels).patch_embeddings.float(), dim=1)
        vectors = normalize(self.text_vectors(texts).float(), dim=-1)
        cosines = [torch.einsum("drc,d->rc", patches[row], text) for row, text in zip(rows, vectors, strict=True)]
        return shifted(torch.stack(cosines), "minimum")

    def grad_cam_maps(self, pixels: Tensor, texts: Sequence[str], rows: Sequence[int]) -> Tensor:
        """Return Grad-CAM of the similarity at the last feature maps; a ViT's end in the class token."""
        encoder, vit = self.image_encoder, self.image_encoder.config.kind == "vit"
        names = [name for name, _ in encoder.backbone.named_modules() if name.endswith("layernorm_before")]
        layer = f"backbone.{names[-1]}" if vit else "backbone.encoder"
        with torch.enable_grad(), ActivationHook(encoder, layer, grid=encoder.grid if vit else None) as hook:
            whole = self.image_vectors(encoder(pixels)).float()
            return _of_each(hook.grad_cam, whole, self.text_vectors(texts).float(), rows)

    def gradient_attention_maps(self, pixels: Tensor, texts: Sequence[str], rows: Sequence[int]) -> Tensor:
        """Return the relevance of patches by gradient × self-attention."""
        encoder = self.image_encoder
        with torch.enable_grad(), _attentions(encoder.backbone) as layers:
            whole = self.image_vectors(encoder(pixels)).float()

            def maps(score: Tensor) -> Tensor:
                gradients = torch.autograd.grad(score.sum(), layers, retain_graph=True)
                return self._token_maps(attention_relevance([one.detach() for one in layers], gradients))

            return _of_each(maps, whole, self.text_vectors(texts).float(), rows)

    def rollout_maps(self, pixels: Tensor, texts: Sequence[str], rows: Sequence[int]) -> Tensor:
        """Return attention rollout, the same for all texts about an image."""
        with _attentions(self.image_encoder.backbone) as layers:
            self.image_encoder(pixels)
        return self._token_maps(attention_rollout(layers))[list(rows)]

    def _token_maps(self, weights: Tensor) -> Tensor:
        encoder = self.image_encoder
        return token_maps(weights, encoder.grid, class_token=encoder.config.pooling != "mean")


def _batches(model: Any, images: Sequence[Image]) -> Iterator[tuple[Tensor, list[Extent], list[list[int]]]]:
    """Yield the pixels (n, 1, size, size) of some distinct images, their extents, and the pairs that each occurs in."""
    groups = pairs_by_image(images)
    for begin in range(0, len(groups), _IMAGES_AT_ONCE):
        some = groups[begin : begin + _IMAGES_AT_ONCE]
        squares, extents = letterbox_all([images[own[0]] for own in some], model.config.image.size)
        yield squares[:, None].to(model.device), extents, some


def _by_slot(rows: Sequence[int]) -> Iterator[list[int]]:
    """Yield pairs with at most one for each image, so that the gradients of their scores do not mix."""
    waiting = list(range(len(rows)))
    while waiting:
        first = {rows[pair]: pair for pair in reversed(waiting)}
        yield list(first.values())
        waiting = [pair for pair in waiting if first[rows[pair]] != pair]


def _of_each(maps: Callable[[Tensor], Tensor], whole: Tensor, vectors: Tensor, rows: Sequence[int]) -> Tensor:
    """Return the maps of the similarity of each text with its image, one text of every image at a time."""
    found: dict[int, Tensor] = {}
    for pairs in _by_slot(rows):
        images = [rows[pair] for pair in pairs]
        made = maps(cosine_similarity(whole[images], vectors[pairs], dim=-1))
        found |= {pair: made[image] for pair, image in zip(pairs, images, strict=True)}
    return torch.stack([found[pair] for pair in range(len(rows))])


@contextmanager
def _attentions(backbone: Any) -> Iterator[list[Tensor]]:
    """Collect the attention (n, heads, tokens, tokens) of each layer of a ViT while it runs."""
    layers: list[Tensor] = []
    before = backbone.config._attn_implementation
    backbone.set_attn_implementation("eager")  # the others do not return attention

    def ask(module: Any, inputs: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return inputs, {**options, "output_attentions": True}

    def keep(module: Any, inputs: Any, output: Any) -> None:
        layers.extend(output.attentions)

    hooks = [backbone.register_forward_pre_hook(ask, with_kwargs=True), backbone.register_forward_hook(keep)]
    try:
        yield layers
    finally:
        for hook in hooks:
            hook.remove()
        backbone.set_attn_implementation(before)
