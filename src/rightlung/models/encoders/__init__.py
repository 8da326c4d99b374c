"""Image and text encoders and language models of `transformers`, and their tokenizers."""

from rightlung.models.encoders.image import ImageEncoder, ImageEncoderConfig
from rightlung.models.encoders.language import DecoderCondition, LanguageModel, LanguageModelConfig
from rightlung.models.encoders.text import TextEncoder, TextEncoderConfig
from rightlung.models.encoders.tokenizer import Tokens, WordTokenizer, train_tokenizer

__all__ = [
    "DecoderCondition", "ImageEncoder", "ImageEncoderConfig", "LanguageModel", "LanguageModelConfig", "TextEncoder",
    "TextEncoderConfig", "Tokens", "WordTokenizer", "train_tokenizer",
]  # fmt: skip
