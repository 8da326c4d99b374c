"""CheXbert (Smit et al., EMNLP 2020): BERT with 14 linear heads that labels reports with CheXpert's observations.

For those who have its checkpoint; `rightlung.lexicon.labeller` needs none. Read are

- ``chexbert.pth`` as released with stanfordmlgroup/CheXbert: a dictionary whose ``model_state_dict`` has the keys
  ``module.bert.…`` (a BERT encoder) and ``module.linear_heads.0`` to ``.13`` (four classes each, two for the last);
- the same tensors as safetensors, with or without ``module.``. `convert` makes such a file.

A ``.pth`` file is a pickle. It is read with ``torch.load(weights_only=True)``, whose unpickler builds tensors and plain
containers and refuses everything else, code included; a file that asks for more is an error here. Converting once, and
keeping the safetensors file, leaves even that behind.

The checkpoint holds no vocabulary: it takes BERT's (``bert-base-uncased``), as its ``vocab.txt``, a folder, or a hub id
where there is a network. The released code labels impressions; so does this unless given other texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn

from rightlung.core.errors import InputError, OutputError
from rightlung.models.encoders.pretrained import build_config, load_tokenizer_file

Judgement = Literal["positive", "negative", "uncertain"]

CONDITIONS: Final = (
    "Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Opacity", "Lung Lesion", "Edema", "Consolidation", "Pneumonia",
    "Atelectasis", "Pneumothorax", "Pleural Effusion", "Pleural Other", "Fracture", "Support Devices", "No Finding",
)  # fmt: skip
"""The observations in the order of the heads (CheXbert's ``src/constants.py``); not the order of CheXpert's tables."""

CLASSES: Final[tuple[Judgement | None, ...]] = (None, "positive", "negative", "uncertain")
"""What each class of a head means; "No Finding" has the first two only."""

MOST_TOKENS = 512
_CLASS_COUNTS = [len(CLASSES)] * (len(CONDITIONS) - 1) + [2]
_HEAD_SIZE = 64  # of every BERT that was published: the number of attention heads is not in a checkpoint
_HEAD = re.compile(r"linear_heads\.(\d+)\.(weight|bias)")
_LAYER = re.compile(r"bert\.encoder\.layer\.(\d+)\.")


class CheXbert(nn.Module):
    """The labeller: ``label`` for texts, ``logits`` for what the heads say."""

    def __init__(self, tensors: Mapping[str, Tensor], tokenizer: str, source: str = "the checkpoint") -> None:
        from tokenizers import Tokenizer
        from transformers import BertModel

        super().__init__()
        sizes = _sizes(tensors, source)
        self.bert = BertModel(build_config("bert", sizes, "CheXbert's"), add_pooling_layer=False)  # type: ignore[no-untyped-call]
        self.linear_heads = nn.ModuleList(nn.Linear(sizes["hidden_size"], count) for count in _CLASS_COUNTS)
        self._load(tensors, source)
        try:
            self.tokenizer = Tokenizer.from_str(tokenizer)
        except Exception as error:  # the library raises a bare Exception
            raise InputError(f"the tokenizer of CheXbert cannot be read: {error}") from None
        if self.tokenizer.get_vocab_size() != sizes["vocab_size"]:
            raise InputError(
                f"{source} was trained with {sizes['vocab_size']} word pieces, and the tokenizer has "
                f"{self.tokenizer.get_vocab_size()}; it needs that of bert-base-uncased"
            )
        self._most = min(MOST_TOKENS, sizes["max_position_embeddings"])
        special = [self.tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]", "[PAD]")]
        self._special = [number for number in special if number is not None]
        if len(self._special) < len(special):
            raise InputError("the tokenizer of CheXbert must have [CLS], [SEP] and [PAD]")
        self.eval()

    def _load(self, tensors: Mapping[str, Tensor], source: str) -> None:
        # The pooling layer is in the checkpoint and nothing reads it; old BERTs store the numbers of their positions.
        kept = {
            name: tensor
            for name, tensor in tensors.items()
            if not name.startswith("bert.pooler.") and not name.endswith("position_ids")
        }
        own = self.state_dict()
        missing = sorted(own.keys() - kept.keys() - {"bert.embeddings.position_ids", "bert.embeddings.token_type_ids"})
        surplus = sorted(kept.keys() - own.keys())
        if missing or surplus:
            wrong = f"lacks {missing[0]}" if missing else f"has {surplus[0]}, which CheXbert has not"
            more = len(missing) + len(surplus) - 1
            raise InputError(f"{source} {wrong}" + (f" ({more} more tensors do not fit)" if more else ""))
        for name, tensor in kept.items():
            if own[name].shape != tensor.shape:
                raise InputError(
                    f"{source}: {name} must be of shape {tuple(own[name].shape)}; got {tuple(tensor.shape)}"
                )
        self.load_state_dict({name: tensor.float() for name, tensor in kept.items()}, strict=False)

    def encode(self, text: str) -> list[int]:
        """Return the numbers of the word pieces with [CLS] and [SEP], cut off at 512 as the released code does."""
        start, end, _ = self._special
        plain = " ".join(text.split())
        pieces = self.tokenizer.encode(plain, add_special_tokens=False).ids
        return [start, *pieces[: self._most - 2], end]

    def logits(self, texts: Sequence[str]) -> list[Tensor]:
        """Return 14 tensors ``(texts, classes)`` in the order of `CONDITIONS`: four classes each, two for the last."""
        if not texts:
            return [torch.empty(0, count) for count in _CLASS_COUNTS]
        device = next(self.parameters()).device
        encoded = [self.encode(text) for text in texts]
        length = max(map(len, encoded))
        ids = torch.full((len(encoded), length), self._special[2])
        attended = torch.zeros((len(encoded), length), dtype=torch.long)
        for row, pieces in enumerate(encoded):
            ids[row, : len(pieces)] = torch.tensor(pieces)
            attended[row, : len(pieces)] = 1
        with torch.inference_mode():
            hidden = self.bert(ids.to(device), attention_mask=attended.to(device)).last_hidden_state[:, 0]
            return [head(hidden).cpu() for head in self.linear_heads]

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
    return CheXbert(read_tensors(path), _read_tokenizer(Path(tokenizer)), str(path)).to(device)


def convert(path: str | Path, out: str | Path) -> None:
    """Write a checkpoint's tensors as safetensors, under the names without ``module.``."""
    from safetensors.torch import save_file

    tensors = {name: tensor.contiguous().clone() for name, tensor in read_tensors(path).items()}
    try:
        save_file(tensors, out)
    except OSError as error:
        raise OutputError(f"{out} cannot be written: {error}") from None


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """Return a checkpoint's tensors; ``module.``, which training on several devices put before their names, is cut."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    stored = _read_safetensors(path) if path.suffix == ".safetensors" else _read_pickle(path)
    tensors = {str(name).removeprefix("module."): tensor for name, tensor in stored.items()}
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise InputError(f"{path}: {name} must be a tensor; got {type(tensor).__name__}")
    return tensors


def _read_safetensors(path: Path) -> Mapping[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        loaded: Mapping[str, Any] = load_file(path)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} cannot be read as safetensors: {error}") from None
    return loaded


def _read_pickle(path: Path) -> Mapping[str, Any]:
    import pickle

    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise InputError(
            f"{path} holds more than tensors and plain containers, or is damaged; it was not loaded"
        ) from None
    except (RuntimeError, OSError, EOFError, ValueError, KeyError) as error:
        raise InputError(
            f"{path} cannot be read as a PyTorch checkpoint: {' '.join(str(error).split())[:200]}"
        ) from None
    stored = checkpoint.get("model_state_dict", checkpoint) if isinstance(checkpoint, Mapping) else None
    if not isinstance(stored, Mapping):
        raise InputError(f"{path} holds no dictionary of tensors; CheXbert's has them under model_state_dict")
    return stored


def _sizes(tensors: Mapping[str, Tensor], source: str) -> dict[str, int]:
    """Return the configuration that the tensors' shapes tell."""
    try:
        vocabulary, hidden = tensors["bert.embeddings.word_embeddings.weight"].shape
        positions = tensors["bert.embeddings.position_embeddings.weight"].shape[0]
        types = tensors["bert.embeddings.token_type_embeddings.weight"].shape[0]
        inner = tensors["bert.encoder.layer.0.intermediate.dense.weight"].shape[0]
    except KeyError as error:
        raise InputError(f"{source} lacks {error.args[0]}: it is no checkpoint of CheXbert") from None
    except ValueError as error:
        raise InputError(f"{source}: the embeddings have a wrong shape: {error}") from None
    if hidden % _HEAD_SIZE:
        raise InputError(f"{source}: BERT's hidden size must be a multiple of {_HEAD_SIZE}; got {hidden}")
    layers = {int(found[1]) for name in tensors if (found := _LAYER.match(name))}
    heads = {int(found[1]) for name in tensors if (found := _HEAD.fullmatch(name))}
    if heads != set(range(len(CONDITIONS))):
        raise InputError(f"{source} must have {len(CONDITIONS)} heads, linear_heads.0 to .13; it has {len(heads)}")
    return {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "max_position_embeddings": positions,
        "type_vocab_size": types,
        "intermediate_size": inner,
        "num_hidden_layers": max(layers) + 1,
        "num_attention_heads": hidden // _HEAD_SIZE,
    }


def _read_tokenizer(path: Path) -> str:
    """Return a BERT tokenizer as JSON, from a vocabulary with a piece a line or whatever `transformers` reads."""
    if path.suffix == ".txt" or (
        path.is_dir() and (path / "vocab.txt").is_file() and not (path / "tokenizer.json").is_file()
    ):
        return _from_vocabulary(path if path.suffix == ".txt" else path / "vocab.txt")
    if path.suffix == ".json":
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path} cannot be read: {error}") from None
    return load_tokenizer_file(str(path))


def _from_vocabulary(path: Path) -> str:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    try:
        pieces = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    tokenizer = Tokenizer(models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return str(tokenizer.to_str())
