"""`from_pretrained`, `save_pretrained` and `push_to_hub`, as users of Hugging Face know them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

import huggingface_hub
import numpy as np
import pytest

import rightlung
from rightlung.core import InputError, OutputError
from rightlung.models.classifier import Classifier
from rightlung.models.folder import read_card
from rightlung.models.gloria import Gloria
from rightlung.models.uniter import Uniter
from tests.models.gloria.test_model import create, picture


class Hub:
    """Takes what `HfApi` would send, and sends nothing."""

    asked: ClassVar[list[dict[str, Any]]]
    files: ClassVar[dict[str, bytes]]

    def create_repo(self, repo_id: str, **options: Any) -> str:
        self.asked.append({"repo_id": repo_id} | options)
        return f"https://huggingface.co/{repo_id}"

    def upload_folder(self, *, repo_id: str, folder_path: Path, **options: Any) -> None:
        self.asked.append({"repo_id": repo_id} | options)
        self.files.update({path.name: path.read_bytes() for path in folder_path.iterdir()})


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> type[Hub]:
    monkeypatch.setattr(Hub, "asked", [], raising=False)
    monkeypatch.setattr(Hub, "files", {}, raising=False)
    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    return Hub


def test_a_saved_model_comes_back_and_answers_the_same(tmp_path: Path) -> None:
    model, image = create(), picture(0)
    model.save_pretrained(tmp_path / "mine")
    for same in (Gloria.from_pretrained(tmp_path / "mine"), rightlung.load(tmp_path / "mine")):
        assert same.ground([image], ["left effusion"]) == model.ground([image], ["left effusion"])
    card = read_card(tmp_path / "mine")
    assert card.startswith("# Gloria\n")
    assert rightlung.NOT_A_MEDICAL_DEVICE in card


def test_a_shipped_model_keeps_its_card_unless_another_is_given(tmp_path: Path) -> None:
    model = Gloria.from_pretrained("starter")
    model.save_pretrained(tmp_path / "same")
    shipped = read_card(Path(rightlung.__file__).parent / "models" / "shipped" / "starter")
    assert read_card(tmp_path / "same").rstrip() == shipped.rstrip()
    model.save_pretrained(tmp_path / "other", card="# Fine-tuned")
    assert read_card(tmp_path / "other").startswith("# Fine-tuned\n")


@pytest.mark.parametrize("wrong", [Uniter, Classifier])
def test_a_model_of_another_class_is_refused_by_both_names(wrong: Any) -> None:
    with pytest.raises(InputError, match=f"starter: expected a {wrong.__name__}; got a Gloria"):
        wrong.from_pretrained("starter")


def test_the_hub_is_handed_the_saved_folder_and_the_repository_is_private(hub: type[Hub], tmp_path: Path) -> None:
    model = create()
    assert model.push_to_hub("lab/mine", card="# Mine") == "https://huggingface.co/lab/mine"
    made, sent = hub.asked
    assert made == {"repo_id": "lab/mine", "private": True, "exist_ok": True}
    assert sent["repo_id"] == "lab/mine"
    assert sorted(hub.files) == ["README.md", "config.json", "model.safetensors", "tokenizer.json"]
    for name, content in hub.files.items():
        (tmp_path / name).write_bytes(content)
    image = picture(1)
    loaded = Gloria.from_pretrained(tmp_path)
    assert loaded.card.startswith("# Mine\n")
    assert np.array_equal(loaded.encode_image([image]), model.encode_image([image]))
    model.push_to_hub("lab/open", private=False)
    assert hub.asked[2]["private"] is False


@pytest.mark.parametrize("name", ["mine", "a/b/c", "../mine", ""])
def test_what_is_no_hub_id_is_refused(name: str, hub: type[Hub]) -> None:
    with pytest.raises(InputError, match="expected a Hub id such as 'organisation/name'"):
        create().push_to_hub(name)
    assert hub.asked == []


def test_without_the_hub_the_error_is_one_sentence(hub: type[Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ConnectionError("401 Unauthorized\nmore lines")

    monkeypatch.setattr(Hub, "upload_folder", fail)
    with pytest.raises(OutputError, match=r"^cannot upload to lab/mine: 401 Unauthorized$"):
        create().push_to_hub("lab/mine")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(OutputError, match=r"^cannot upload to lab/mine: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set"):
        create().push_to_hub("lab/mine")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(OutputError, match=r"^cannot upload to lab/mine: install the package huggingface_hub$"):
        create().push_to_hub("lab/mine")
