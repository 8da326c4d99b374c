"""Image and text encoders: `transformers` backbones from a configuration, a folder or a hub id, and our tokenizer."""

from rightlung.models.encoders.image import ImageEncoder, ImageEncoderConfig
from rightlung.models.encoders.text import TextEncoder, TextEncoderConfig
from rightlung.models.encoders.tokenizer import Tokens, WordTokenizer, train_tokenizer

__all__ = [
    "ImageEncoder", "ImageEncoderConfig", "TextEncoder", "TextEncoderConfig", "Tokens", "WordTokenizer",
    "train_tokenizer",
]  # fmt: skip
