"""A chat model of random weights, an embedder of known angles, and an index that the tests share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rightlung.core import Image, Report, Study
from rightlung.generation import ChatModel
from rightlung.studies import Source

TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}> {{ message['content'] }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)
NORMAL = "The heart is normal in size and the lungs are clear on both sides today."
FLUID = "There is a moderate left pleural effusion with adjacent atelectasis at the left base."
LARGE = "The heart is enlarged but the lungs remain clear and no pneumothorax is present."
TEXTS = [NORMAL, FLUID, LARGE, NORMAL, FLUID + " No pneumothorax."]


class Angles:
    """Embeds an image by its mean brightness, and a text by its place in a list, both as angles."""

    kind = "angles"

    def __init__(self, texts: Sequence[str] = TEXTS, turn: float = 0.0) -> None:
        self.texts, self.turn = list(dict.fromkeys(texts)), np.array(turn)

    def encode_image(self, images: Sequence[Image]) -> NDArray[np.float32]:
        return self._vectors([(float(image.mean()) - 0.3) / 0.4 for image in images])

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        known = [self.texts.index(text) if text in self.texts else 0 for text in texts]
        return self._vectors([place / len(self.texts) for place in known])

    def _vectors(self, shares: Sequence[float]) -> NDArray[np.float32]:
        angles = 1.5 * np.array(shares) + self.turn
        return 3 * np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


class Wide(Angles):
    def _vectors(self, shares: Sequence[float]) -> NDArray[np.float32]:
        return np.repeat(super()._vectors(shares), 2, axis=1)


def grey(level: float) -> Image:
    """Return an image of smooth noise, whose mean stands for a level from 0 to 1."""
    noise = np.kron(np.random.default_rng(0).uniform(-0.3, 0.3, (8, 8)), np.ones((8, 8)))
    image: Image = (0.3 + 0.4 * level + noise - noise.mean()).astype(np.float32)
    return image


class Texts(Source):
    """One study of a patient of its own for each text; the image of a text is embedded like the text."""

    def __init__(self, texts: Sequence[str] = TEXTS, name: str = "train") -> None:
        super().__init__(f"texts:{name}")
        self.texts, self.name = list(texts), name
        self.known = list(dict.fromkeys(TEXTS))

    @property
    def ids(self) -> Sequence[str]:
        return [f"{self.name}-{place}" for place in range(len(self.texts))]

    def _build(self, position: int) -> Study:
        text = self.texts[position]
        level = self.known.index(text) / len(self.known) if text in self.known else 0.5
        report = Report(text) if text else None
        return Study(self.ids[position], lambda: grey(level), f"{self.name}-p{position}", report=report)


def chat(words: str = " ".join(TEXTS), **changed: Any) -> ChatModel:
    """Return a Llama with two layers and a tokenizer of whole words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    special = ["<unk>", "<end>", "<system>", "<user>", "<assistant>"]
    vocabulary = {word: place for place, word in enumerate(dict.fromkeys([*special, *words.split(), "a", "b"]))}
    words_only = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words_only.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=words_only, unk_token="<unk>", eos_token="<end>", chat_template=TEMPLATE,
        additional_special_tokens=special[2:],
    )  # fmt: skip
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=1024, initializer_range=0.5, bos_token_id=None, eos_token_id=1, pad_token_id=1,
    )  # fmt: skip
    return ChatModel(LlamaForCausalLM(config), tokenizer, "tiny", **changed)  # type: ignore[no-untyped-call]
