"""The released GLoRIA (Huang et al., ICCV 2021; github.com/marshuang80/gloria): ``chexpert_resnet50.ckpt``.

It is "GLoRIA" in the tables of "That's the Wrong Lung!". With the checkpoint at hand::

    rightlung ground IMAGE PHRASE --model 'gloria:chexpert_resnet50.ckpt?text=Bio_ClinicalBERT'

The checkpoint is Lightning's: ``state_dict`` has ``gloria.img_encoder.…`` (a ResNet-50 and two embedders) and
``gloria.text_encoder.model.…`` (Bio_ClinicalBERT); settings are skipped (`checkpoints`). It has no vocabulary: ``text``
names Bio_ClinicalBERT's ``vocab.txt``, a folder with it, or a hub id.

Encoders, preprocessing and attention are those of the released code: the heatmap of a phrase is the mean attention of
``[CLS]`` and its words on 19 x 19 patches. Departures: the local similarity is that of training (a sum over words; the
released inference takes the maximum), no score depends on the other images of a batch, and a phrase of a single word is
read (the released code drops it and encodes an empty sentence).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import interpolate

from rightlung.core import Extent, Image, InputError
from rightlung.models.base import Reading
from rightlung.models.encoders import WordTokenizer
from rightlung.models.encoders.image import ImageEmbeddings, torchvision_name
from rightlung.models.encoders.pretrained import build_config
from rightlung.models.encoders.text import TextEmbeddings
from rightlung.models.encoders.tokenizer import Tokens
from rightlung.models.gloria import AttentionConfig, Gloria, GloriaConfig
from rightlung.models.published.checkpoints import bert_sizes, load_strictly, read_tensors, read_tokenizer

RESIZED, CROPPED, SEEN = 256, 224, 299
"""Pixels of the longest side, of the centre crop, and of the network's input."""
MAX_TOKENS = 97
LAYERS = 4
_IMAGES, _TEXTS = "gloria.img_encoder.", "gloria.text_encoder."


class ReleasedGloria(Gloria):
    """The released model with the methods of `Gloria`. It cannot be saved as a model folder."""

    kind: ClassVar[str] = "released-gloria"

    def __init__(self, tensors: Mapping[str, Tensor], tokenizer: str, source: str = "the checkpoint") -> None:
        nn.Module.__init__(self)
        if surplus := sorted(name for name in tensors if not name.startswith((_IMAGES, _TEXTS))):
            raise InputError(f"{source} has {surplus[0]}, which GLoRIA has not")
        sizes = bert_sizes(tensors, f"{_TEXTS}model.", source, "GLoRIA")
        self.tokenizer = WordTokenizer(tokenizer, MAX_TOKENS - 1)  # [SEP] is added by the encoder
        end = self.tokenizer.token_id("[SEP]")
        if end is None or len(self.tokenizer) != sizes["vocab_size"]:
            raise InputError(
                f"{source} was trained with {sizes['vocab_size']} word pieces, [SEP] among them, and the tokenizer has "
                f"{len(self.tokenizer)}; it needs that of emilyalsentzer/Bio_ClinicalBERT"
            )
        self.config = GloriaConfig(attention=AttentionConfig(softmax_over_words=True), dimension=sizes["hidden_size"])
        self.image_encoder = _ImageEncoder(sizes["hidden_size"])
        self.text_encoder = _TextEncoder(sizes, end)  # type: ignore[assignment]
        self.no_attention_token, self.log_temperature = None, None
        load_strictly(self.image_encoder, tensors, source, _IMAGES, name_of=torchvision_name)
        load_strictly(self.text_encoder, tensors, source, _TEXTS, unused=("model.pooler.",))
        self.eval()

    def preprocess(self, images: Sequence[Image]) -> tuple[Tensor, list[Extent]]:
        """Return images at 224 x 224 pixels as in the released code (`released_square`), and their extents."""
        squares = [released_square(image) for image in images]
        return torch.stack([square for square, _ in squares]), [extent for _, extent in squares]

    def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
        """Return the embeddings of texts, normalised as in the released code (`released_words`)."""
        return super().embed_texts([released_words(text) for text in texts])

    def reads(self, text: str) -> Reading:
        """Return how much of a text is read: at most 97 tokens."""
        found = super().reads(released_words(text) or text)
        return replace(found, text=text) if found.complete else found


def load_gloria(path: str | Path, text: str | Path) -> ReleasedGloria:
    """Load a checkpoint; ``text`` names the vocabulary of its text encoder."""
    tensors = read_tensors(path, "state_dict", settings=True)
    return ReleasedGloria(tensors, read_tokenizer(text), str(path))


def released_square(image: Image) -> tuple[Tensor, Extent]:
    """Return the 224 x 224 pixels that the model sees, in 0–1, and their extent in the image.

    The longest side is resized to 256 pixels by area averaging (OpenCV's INTER_AREA) in 8 bits, the other is padded
    with black, and the centre is cropped: a square image loses a sixteenth of its width on each side.
    """
    height, width = image.shape
    longest = max(height, width)
    rows, columns = (max(1, int(side * (RESIZED / longest))) for side in (height, width))
    small = _area_weights(height, rows) @ image.astype(np.float64) @ _area_weights(width, columns).T
    square = np.zeros((RESIZED, RESIZED), dtype=np.float32)
    top, left = (RESIZED - rows) // 2, (RESIZED - columns) // 2
    square[top : top + rows, left : left + columns] = np.rint(small * 255.0) / 255.0
    begin = (RESIZED - CROPPED) // 2
    end = begin + CROPPED
    extent = Extent((begin - left) / columns, (begin - top) / rows, (end - left) / columns, (end - top) / rows)
    return torch.from_numpy(square[begin:end, begin:end].copy()), extent


def _area_weights(before: int, after: int) -> NDArray[np.float64]:
    """Return the share of each old pixel in each new one, (after, before), by the area of their overlap."""
    edges = np.arange(after + 1) * (before / after)
    overlap = np.minimum(edges[1:, None], np.arange(1, before + 1)) - np.maximum(edges[:-1, None], np.arange(before))
    weights: NDArray[np.float64] = np.clip(overlap, 0.0, None) * (after / before)
    return weights


def released_words(text: str) -> str:
    """Return a text as in the released training: words in lower case, without punctuation and non-ASCII characters.

    Sentences of a single word are dropped, unless there is no other.

    >>> released_words("1. Small left effusion. Stable. No pneumothorax.")
    'small left effusion no pneumothorax'
    """
    sentences = [
        [word.encode("ascii", "ignore").decode() for word in re.findall(r"\w+", sentence.lower())]
        for sentence in re.split(r"[0-9]+\.|\.", text)
    ]
    chosen = [words for words in sentences if len(words) > 1] or sentences
    return " ".join(word for words in chosen for word in words if word)


class _ImageEncoder(nn.Module):
    """``gloria.img_encoder``: patches from a ResNet-50's third stage, global embedding from its pooled last stage."""

    grid = (19, 19)

    def __init__(self, dimension: int) -> None:
        from transformers import ResNetConfig, ResNetModel

        super().__init__()
        # A ResNet-50 that, like torchvision's, halves the resolution in its 3 x 3 convolutions.
        self.model = ResNetModel(ResNetConfig())  # type: ignore[no-untyped-call]
        self.global_embedder = nn.Linear(2048, dimension)
        self.local_embedder = nn.Conv2d(1024, dimension, 1, bias=False)

    def forward(self, images: Tensor) -> ImageEmbeddings:
        """Encode images (n, 1, 224, 224) in 0 to 1."""
        seen = interpolate((images - 0.5) / 0.5, (SEEN, SEEN), mode="bilinear", align_corners=True)
        *_, third, last = self.model(seen.expand(-1, 3, -1, -1), output_hidden_states=True).hidden_states
        return ImageEmbeddings(self.local_embedder(third), self.global_embedder(last.mean(dim=(2, 3))))


class _TextEncoder(nn.Module):
    """``gloria.text_encoder``: a BERT whose last four layers are summed; the tokens of a word are summed, too."""

    def __init__(self, sizes: Mapping[str, int], end: int) -> None:
        from transformers import BertModel

        super().__init__()
        self.model = BertModel(build_config("bert", sizes, "GLoRIA's text encoder"), add_pooling_layer=False)  # type: ignore[no-untyped-call]
        self.end = end

    def forward(self, tokens: Tokens) -> TextEmbeddings:
        """Encode texts. The words are ``[CLS]`` and those of the text; the global embedding includes ``[SEP]``, too.

        The global embedding is the mean over 97 positions; empty ones are zero.
        """
        count, length = tokens.ids.shape
        lengths = tokens.attention_mask.sum(1, keepdim=True)
        ids = torch.cat([tokens.ids, tokens.ids.new_zeros(count, 1)], dim=1).scatter(1, lengths, self.end)
        attention_mask = torch.arange(length + 1, device=ids.device) <= lengths
        layers = self.model(
            input_ids=ids, attention_mask=attention_mask.long(), output_hidden_states=True
        ).hidden_states
        pieces = torch.stack(layers[-LAYERS:]).sum(0) * attention_mask[..., None]
        # [CLS] is word 0, [SEP] the one after the last; padding is zero and may be added to any.
        most = int(tokens.word_count.max()) + 1
        word_index = torch.cat([tokens.word_index, tokens.word_index.new_zeros(count, 1)], dim=1)
        word_index = word_index.scatter(1, lengths, tokens.word_count[:, None] + 1)
        words = pieces.new_zeros(count, most + 1, pieces.shape[2])
        words = words.scatter_add(1, word_index[..., None].expand_as(pieces), pieces)
        mask = torch.arange(most, device=ids.device) <= tokens.word_count[:, None]
        return TextEmbeddings(words[:, :most] * mask[..., None], mask, words.sum(1) / MAX_TOKENS)
