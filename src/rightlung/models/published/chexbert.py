"""CheXbert (Smit et al., EMNLP 2020): BERT with 14 linear heads that labels reports with CheXpert's observations.

It needs the checkpoint (`rightlung.lexicon.labeller` needs none), in one of these formats:

- ``chexbert.pth`` as released with stanfordmlgroup/CheXbert: a dictionary whose ``model_state_dict`` has the keys
  ``module.bert.…`` (a BERT encoder) and ``module.linear_heads.0`` to ``.13`` (four classes each, two for the last);
- the same tensors as safetensors, with or without ``module.``. `convert` writes such a file.

A ``.pth`` file is a pickle: only tensors and plain containers are read, and no code is run (`checkpoints`).

The checkpoint has no vocabulary. Give that of ``bert-base-uncased``: its ``vocab.txt``, a folder, or a hub id. The
released code labels impressions; other texts work, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from rightlung.core.errors import InputError, OutputError
from rightlung.models.encoders.pretrained import build_config
from rightlung.models.published.checkpoints import bert_sizes, load_strictly, read_tensors, read_tokenizer

Judgement = Literal["positive", "negative", "uncertain"]

CONDITIONS: Final = (
    "Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Opacity", "Lung Lesion", "Edema", "Consolidation", "Pneumonia",
    "Atelectasis", "Pneumothorax", "Pleural Effusion", "Pleural Other", "Fracture", "Support Devices", "No Finding",
)  # fmt: skip
"""The observations in the order of the heads (CheXbert's ``src/constants.py``); not the order of CheXpert's tables."""

CLASSES: Final[tuple[Judgement | None, ...]] = (None, "positive", "negative", "uncertain")
"""The meaning of each class of a head; "No Finding" has only the first two."""

MAX_TOKENS = 512
_CLASS_COUNTS = [len(CLASSES)] * (len(CONDITIONS) - 1) + [2]
_HEAD = re.compile(r"linear_heads\.(\d+)\.(weight|bias)")


class CheXbert(nn.Module):
    """The labeller: ``label`` returns observations, ``logits`` the output of the heads."""

    def __init__(self, tensors: Mapping[str, Tensor], tokenizer: str, source: str = "the checkpoint") -> None:
        from tokenizers import Tokenizer
        from transformers import BertModel

        super().__init__()
        sizes = bert_sizes(tensors, "bert.", source, "CheXbert")
        heads = {int(found[1]) for name in tensors if (found := _HEAD.fullmatch(name))}
        if heads != set(range(len(CONDITIONS))):
            raise InputError(f"{source}: expected {len(CONDITIONS)} heads, linear_heads.0 to .13; got {len(heads)}")
        self.bert = BertModel(build_config("bert", sizes, "CheXbert's"), add_pooling_layer=False)  # type: ignore[no-untyped-call]
        self.linear_heads = nn.ModuleList(nn.Linear(sizes["hidden_size"], count) for count in _CLASS_COUNTS)
        load_strictly(self, tensors, source, unused=("bert.pooler.",))  # nothing reads the pooling layer
        try:
            self.tokenizer = Tokenizer.from_str(tokenizer)
        except Exception as error:  # the library raises a bare Exception
            raise InputError(f"the tokenizer of CheXbert cannot be read: {error}") from None
        if self.tokenizer.get_vocab_size() != sizes["vocab_size"]:
            raise InputError(
                f"{source} was trained with {sizes['vocab_size']} word pieces, and the tokenizer has "
                f"{self.tokenizer.get_vocab_size()}; it needs that of bert-base-uncased"
            )
        self._max_length = min(MAX_TOKENS, sizes["max_position_embeddings"])
        special = [self.tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]", "[PAD]")]
        self._special = [number for number in special if number is not None]
        if len(self._special) < len(special):
            raise InputError("the tokenizer of CheXbert must have [CLS], [SEP] and [PAD]")
        self.eval()

    def encode(self, text: str) -> list[int]:
        """Return the token ids with [CLS] and [SEP], truncated to 512 as in the released code."""
        start, end, _ = self._special
        plain = " ".join(text.split())
        pieces = self.tokenizer.encode(plain, add_special_tokens=False).ids
        return [start, *pieces[: self._max_length - 2], end]

    def logits(self, texts: Sequence[str]) -> list[Tensor]:
        """Return 14 tensors ``(texts, classes)`` in the order of `CONDITIONS`: four classes each, two for the last."""
        if not texts:
            return [torch.empty(0, count) for count in _CLASS_COUNTS]
        with torch.inference_mode():
            hidden = self._hidden(texts)
            return [head(hidden).cpu() for head in self.linear_heads]

    def embed(self, texts: Sequence[str], batch: int = 16) -> Tensor:
        """Return the embeddings of [CLS], ``(texts, dimension)``, whose cosine compares reports."""
        with torch.inference_mode():
            parts = [self._hidden(texts[begin : begin + batch]).cpu() for begin in range(0, len(texts), batch)]
        return torch.cat(parts) if parts else torch.empty(0, self.bert.config.hidden_size)

    def _hidden(self, texts: Sequence[str]) -> Tensor:
        """Return the last hidden state of [CLS] of each text."""
        device = next(self.parameters()).device
        encoded = [torch.tensor(self.encode(text)) for text in texts]
        ids = pad_sequence(encoded, batch_first=True, padding_value=self._special[2]).to(device)
        attention_mask = pad_sequence([torch.ones_like(pieces) for pieces in encoded], batch_first=True).to(device)
        hidden: Tensor = self.bert(ids, attention_mask=attention_mask).last_hidden_state[:, 0]
        return hidden

    def label(self, texts: Iterable[str], batch: int = 16) -> Iterator[dict[str, Judgement | None]]:
        """Yield each text's observations; blank is None. ``batch`` texts are read at once."""
        if batch < 1:
            raise InputError(f"batch must be at least 1; got {batch}")
        waiting = iter(texts)
        while some := list(islice(waiting, batch)):
            for text in some:
                if not isinstance(text, str):
                    raise InputError(f"a report must be a text; got {text!r}")
            chosen = [logits.argmax(dim=1).tolist() for logits in self.logits(some)]
            for row in range(len(some)):
                yield {name: CLASSES[classes[row]] for name, classes in zip(CONDITIONS, chosen, strict=True)}


def load_chexbert(path: str | Path, tokenizer: str | Path, device: str = "cpu") -> CheXbert:
    """Load a checkpoint and its vocabulary: ``vocab.txt``, a ``tokenizer.json``, a folder, or a hub id."""
    return CheXbert(_read(path), read_tokenizer(tokenizer), str(path)).to(device)


def _read(path: str | Path) -> dict[str, Tensor]:
    """Return the tensors without ``module.``, which training on several devices put before their names."""
    return read_tensors(path, "model_state_dict", cut="module.")


def convert(path: str | Path, out: str | Path) -> None:
    """Write a checkpoint's tensors as safetensors, under the names without ``module.``."""
    from safetensors.torch import save_file

    tensors = {name: tensor.contiguous().clone() for name, tensor in _read(path).items()}
    try:
        save_file(tensors, out)
    except OSError as error:
        raise OutputError(f"{out} cannot be written: {error}") from None
