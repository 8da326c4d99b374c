"""A model folder comes back bit for bit, is written whole or not at all, and is refused in one sentence."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import rightlung
from rightlung.core import InputError, OutputError
from rightlung.models import folder as folders
from rightlung.models import replacing
from rightlung.models.folder import load_folder, read_card, read_config, save_model
from rightlung.models.registry import register
from tests.models.savable import Anything

pytestmark = pytest.mark.usefixtures("own_kinds")

Edit = Callable[[dict[str, Any]], None]


def bits(tensor: Tensor) -> bytes:
    plain = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor)
    return bytes(plain.reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b""


def content(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in place.iterdir()}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A good model folder."""
    save_model(Anything({"a": 1}, {"w": torch.arange(3.0)}, {"tokenizer.json": b"{}"}), tmp_path / "model", "# Card")
    return tmp_path / "model"


def edit_config(place: Path, edit: Edit) -> None:
    config = json.loads((place / "config.json").read_text())
    edit(config)
    (place / "config.json").write_text(json.dumps(config))


def rehash(place: Path, name: str = "model.safetensors") -> None:
    """Give a file's own hash, as somebody would who builds a bad folder on purpose."""
    digest = hashlib.sha256((place / name).read_bytes()).hexdigest()
    edit_config(place, lambda config: config["files"].update({name: digest}))


def refused(place: Path) -> str:
    with pytest.raises(InputError) as caught:
        load_folder(place)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


TENSORS = {
    "float32": torch.tensor([1e-45, -0.0, float("nan"), float("inf"), 1 / 3]),
    "float16": torch.tensor([65504.0, 6e-8, 0.1], dtype=torch.float16),
    "bfloat16": torch.tensor([1e38, -1e-38, 0.1], dtype=torch.bfloat16),
    "float64": torch.tensor([1 / 3], dtype=torch.float64),
    "int64": torch.tensor([2**62 + 1, -1]),
    "bool": torch.tensor([[True, False], [False, True]]),
    "uint8": torch.arange(5, dtype=torch.uint8),
    "scalar": torch.tensor(7),
    "empty": torch.zeros(0, 4),
    "transposed": torch.arange(6.0).reshape(2, 3).T,
    "strided": torch.arange(10.0)[1::3],
    "expanded": torch.tensor([[1.5]]).expand(3, 2),
    "negated": torch.tensor([1 + 2j]).conj().imag,
}


@pytest.mark.parametrize("name", TENSORS)
def test_every_number_format_and_layout_comes_back_bit_for_bit(name: str, tmp_path: Path) -> None:
    tensor = TENSORS[name]
    save_model(Anything({}, {"t": tensor}), tmp_path / "m")
    back = load_folder(tmp_path / "m").held["t"]
    assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape)
    assert bits(back) == bits(tensor)


def test_tensors_in_the_same_memory_come_back_each_in_full(tmp_path: Path) -> None:
    whole = torch.arange(6.0)
    parameter = nn.Parameter(whole)
    given = {"whole": whole, "tied": parameter, "part": whole[2:4], "view": whole.reshape(2, 3).T}
    save_model(Anything({}, given), tmp_path / "m")
    back = load_folder(tmp_path / "m").held
    assert back.keys() == given.keys()
    assert all(torch.equal(back[name], given[name]) for name in given)


def test_configuration_and_files_come_back_as_they_were(tmp_path: Path) -> None:
    config = {"float": 0.1 + 0.2, "text": "Größe \u2028", "none": None, "list": [1, [True, {"x": -0.0}]], "big": 2**70}
    files = {"tokenizer.json": b"\x00\xff\r\n", "vocab.txt": b""}
    save_model(Anything(config, {}, files), tmp_path / "deep" / "m")
    back = load_folder(str(tmp_path / "deep" / "m"))
    assert (back.config, back.files, back.held) == (config, files, {})
    assert repr(back.config["float"]) == "0.30000000000000004"


def test_the_folder_is_what_is_documented_and_two_saves_are_the_same_bytes(place: Path, tmp_path: Path) -> None:
    config = json.loads((place / "config.json").read_text())
    assert {path.name for path in place.iterdir()} == {*config["files"], "config.json", "README.md"}
    assert config == {
        "rightlung": 1, "kind": "anything", "config": {"a": 1},
        "files": {
            name: hashlib.sha256((place / name).read_bytes()).hexdigest()
            for name in ("model.safetensors", "tokenizer.json")
        },
    }  # fmt: skip
    assert load_file(place / "model.safetensors")["w"].tolist() == [0, 1, 2]
    save_model(load_folder(place), tmp_path / "again", "# Card")
    assert content(place) == content(tmp_path / "again")


def test_the_card_says_that_this_is_no_medical_device_once(tmp_path: Path) -> None:
    for number, card in enumerate(("# Mine\n", f"# Mine\n\n{rightlung.NOT_A_MEDICAL_DEVICE}\n")):
        save_model(Anything(), tmp_path / str(number), card)
        assert read_card(tmp_path / str(number)) == f"# Mine\n\n{rightlung.NOT_A_MEDICAL_DEVICE}\n"
    save_model(Anything(), tmp_path / "none")
    assert read_card(tmp_path / "none") == ""


def test_a_module_is_loaded_to_be_asked_not_trained(tmp_path: Path) -> None:
    class Layer(nn.Linear):
        kind: ClassVar[str] = "layer"

        def to_config(self) -> dict[str, Any]:
            return {}

        def tensors(self) -> dict[str, Tensor]:
            return dict(self.state_dict())

        def extra_files(self) -> dict[str, bytes]:
            return {}

        @classmethod
        def from_parts(cls, config: Any, tensors: Any, files: Any) -> Layer:
            layer = cls(2, 2)
            layer.load_state_dict(tensors)
            return layer

    register("layer", Layer)
    model = Layer(2, 2)
    save_model(model, tmp_path / "m")
    back = load_folder(tmp_path / "m")
    assert not back.training
    assert torch.equal(back.weight, model.weight)
    save_model(Anything({}, {"weight": torch.zeros(3, 2)}), tmp_path / "other")
    edit_config(tmp_path / "other", lambda config: config.update(kind="layer"))
    assert "size mismatch for weight" in refused(tmp_path / "other")


# Writing.


def test_saving_again_replaces_the_whole_folder(place: Path) -> None:
    save_model(Anything({"a": 2}), place)
    assert {path.name for path in place.iterdir()} == {"config.json", "model.safetensors"}
    assert load_folder(place).config == {"a": 2}
    assert [path.name for path in place.parent.iterdir()] == ["model"]  # nothing is left beside it


def test_without_an_exchange_in_one_step_it_is_replaced_in_two(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacing, "_exchange", lambda one, other: False)
    save_model(Anything({"a": 2}), place)
    assert load_folder(place).config == {"a": 2}
    assert [path.name for path in place.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("moment", ["save_file", "_sha256", "_with_warning"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_interruption_at_any_moment_leaves_the_old_model(
    place: Path, monkeypatch: pytest.MonkeyPatch, moment: str, error: BaseException
) -> None:
    before = content(place)

    def stop(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(folders, moment, stop)
    with pytest.raises(OutputError if isinstance(error, OSError) else KeyboardInterrupt):
        save_model(Anything({"a": 2}), place, "card")
    assert content(place) == before
    assert [path.name for path in place.parent.iterdir()] == ["model"]


def test_what_a_killed_process_left_is_cleared_away_but_not_what_another_is_writing(tmp_path: Path) -> None:
    left, others = tmp_path / ".m[1].0123abcd.unfinished", tmp_path / ".m2.0123abcd.unfinished"
    for folder in (left, others):
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"half")
    with replacing.replaced(tmp_path / "m[1]") as writing:
        save_model(Anything({"a": 1}), tmp_path / "m[1]")
        assert not left.exists()
        assert writing.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"m[1]", others.name}


def test_every_file_is_on_the_disk_before_the_folder_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    really_put = replacing._put
    monkeypatch.setattr(replacing, "bring_to_disk", lambda path: events.append(path.name))

    def put(one: Path, other: Path) -> None:
        events.append("put")
        really_put(one, other)

    monkeypatch.setattr(replacing, "_put", put)
    save_model(Anything({}, {}, {"tokenizer.json": b""}), tmp_path / "m", "card")
    done = events.index("put")
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md"} <= set(events[:done])
    assert events[done - 1].endswith(".unfinished")
    assert events[done + 1 :] == [tmp_path.name]


def test_an_empty_folder_is_written_to_and_others_can_read_it(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    mask = os.umask(0o022)
    try:
        save_model(Anything(), tmp_path / "m")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "m" / "config.json").stat().st_mode) == 0o644


def test_a_link_to_a_model_folder_stays_a_link(place: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(place)
    save_model(Anything({"a": 3}), tmp_path / "latest")
    assert (tmp_path / "latest").is_symlink()
    assert load_folder(place).config == {"a": 3}


@pytest.mark.parametrize("other", ["notes.txt", ".git", "thesis"])
def test_a_model_folder_with_something_else_in_it_is_not_overwritten(place: Path, other: str) -> None:
    (place / other).mkdir()
    before = {path.name for path in place.iterdir()}
    with pytest.raises(OutputError, match=f"holds '{other}', which is no part of a model"):
        save_model(Anything(), place)
    assert {path.name for path in place.iterdir()} == before


def test_a_folder_of_something_else_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(OutputError, match=r"something other than a model.*lacks the field 'rightlung'"):
        save_model(Anything(), tmp_path / "work")
    (tmp_path / "file").write_text("x")
    for bad in ("file", "file/below"):
        with pytest.raises(OutputError, match="file"):
            save_model(Anything(), tmp_path / bad)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(OutputError, match="working folder"):
        save_model(Anything(), ".")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "here", "work"]


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (Anything({"a": {"b": [1, float("nan")]}}), r"config\.a\.b\[1\]: nan is not a JSON value"),
        (Anything({"a": torch.float32}), r"config\.a: torch\.float32 is not"),
        (Anything({"a": {1: 2}}), r"config\.a: the name of a field must be a text; got 1"),
        (Anything({}, {"t": torch.zeros(2).to_sparse()}), "tensor 't'"),
        (Anything({}, {"t": torch.zeros(2, device="meta")}), "tensor 't'"),
        (Anything({}, {}, {"../up": b""}), r"'\.\./up' is not the plain name"),
        (Anything({}, {}, {"Config.json": b""}), "'Config.json' is a name that the folder itself uses"),
        (Anything({}, {}, {"vocab.pkl": b""}), r"'vocab\.pkl' would be taken for a pickle"),
        (nn.Linear(1, 1), "a Linear cannot be saved: it lacks kind, to_config"),
    ],
)
def test_what_could_not_come_back_is_not_saved(model: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        save_model(model, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_a_kind_that_nobody_could_load_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Anything, "kind", "nobodys")
    with pytest.raises(InputError, match="'nobodys' is not registered"):
        save_model(Anything(), tmp_path / "m")


# Reading what is wrong.


def test_a_missing_folder_and_a_file_are_told_apart(tmp_path: Path) -> None:
    assert refused(tmp_path / "none") == f"there is no folder {tmp_path / 'none'}"
    (tmp_path / "file").write_text("x")
    assert refused(tmp_path / "file") == f"{tmp_path / 'file'} is a file, not a model folder"
    assert f"{tmp_path / 'config.json'} is missing" in refused(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(place: Path, name: str) -> None:
    (place / name).unlink()
    assert f"{place / name} is missing" in refused(place)
    (place / name).mkdir()
    assert refused(place) == f"{place / name} is not a file"


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_one_changed_bit_is_found(place: Path, name: str) -> None:
    damaged = bytearray((place / name).read_bytes())
    damaged[-1] ^= 1
    (place / name).write_bytes(damaged)
    sentence = refused(place)
    assert sentence.startswith(f"{place / name} is damaged or was changed")
    assert hashlib.sha256(damaged).hexdigest()[:12] in sentence


@pytest.mark.parametrize("length", [0, 4, 8, 20, -1])
def test_weights_cut_short_are_refused_even_with_their_own_hash(place: Path, length: int) -> None:
    path = place / "model.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    assert "damaged" in refused(place)
    rehash(place)
    assert refused(place).startswith(f"{path} is not a complete safetensors file")


def test_a_header_that_promises_too_much_is_refused(place: Path) -> None:
    (place / "model.safetensors").write_bytes((2**60).to_bytes(8, "little") + b"{}")
    rehash(place)
    assert "model.safetensors is not a complete safetensors file" in refused(place)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is not JSON"),
        ("\xff", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"rightlung": NaN}', "NaN is not a JSON number"),
        ("[1]", "must hold a JSON object; got list"),
        (" " * (folders.LARGEST_CONFIG + 1), "larger than the 4 MiB"),
    ],
)
def test_a_config_that_is_no_json_object_is_refused(place: Path, text: str, reason: str) -> None:
    (place / "config.json").write_bytes(text.encode("latin-1"))
    assert reason in refused(place)
    assert str(place / "config.json") in refused(place)


@pytest.mark.parametrize("field", ["rightlung", "kind", "config", "files"])
def test_a_missing_or_wrong_field_is_named(place: Path, field: str) -> None:
    edit_config(place, lambda config: config.update({field: [1]}))
    assert f"config.json, field '{field}': must be" in refused(place)
    edit_config(place, lambda config: config.pop(field))
    assert f"config.json lacks the field '{field}'" in refused(place)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"rightlung": 2}, ["field 'rightlung'", "reads version 1", "got 2"]),
        ({"rightlung": True}, ["field 'rightlung'", "whole number"]),
        ({"kind": "anythin"}, ["field 'kind'", "'anythin'; did you mean 'anything'?"]),
        ({"kind": "glorai"}, ["did you mean 'gloria'?"]),
        ({"kind": "os:system"}, ["unknown kind of model 'os:system'"]),
        ({"files": {}}, ["field 'files': 'model.safetensors' is not listed"]),
        ({"files": {"model.safetensors": "abc"}}, ["field 'files', 'model.safetensors'", "64 hexadecimal"]),
        ({"files": {"model.safetensors": 1}}, ["64 hexadecimal"]),
        ({"files": {"weights.pt": "0" * 64}}, ["weights.pt is a pickle"]),
    ],
)
def test_a_wrong_value_is_named_with_its_field(place: Path, changes: dict[str, Any], parts: list[str]) -> None:
    edit_config(place, lambda config: config.update(changes))
    sentence = refused(place)
    assert all(part in sentence for part in parts), sentence
    assert "files" in changes or str(place / "config.json") in sentence


@pytest.mark.parametrize(
    "name",
    ["../secret.txt", "/etc/hostname", "a/b", "a\\b", "..", ".", "", "C:x", ".hidden", "a\nb", "README.md", "a\0"],
)
def test_a_file_name_that_leads_elsewhere_is_refused(place: Path, name: str) -> None:
    (place.parent / "secret.txt").write_text("secret")
    digest = hashlib.sha256(b"secret").hexdigest()
    edit_config(place, lambda config: config["files"].update({name: digest}))
    assert f"config.json, field 'files': {name!r} is" in refused(place)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_link_out_of_the_folder_is_not_followed(place: Path, name: str) -> None:
    outside = place.parent / "outside"
    (place / name).rename(outside)
    (place / name).symlink_to(outside)
    assert refused(place) == f"{place / name} is a link to outside the model folder, which is not followed"
    (place / name).unlink()
    outside.rename(place / "inside")
    (place / name).symlink_to("inside")
    assert load_folder(place).config == {"a": 1}


def test_a_pipe_is_not_waited_for(place: Path) -> None:
    (place / "config.json").unlink()
    os.mkfifo(place / "config.json")
    assert refused(place) == f"{place / 'config.json'} is not a file"


class Trap:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("suffix", ["bin", "pt", "pth", "pkl", "pickle", "ckpt", "PT"])
def test_a_pickle_in_place_of_the_weights_is_refused_unopened(place: Path, suffix: str) -> None:
    (place / "model.safetensors").unlink()
    trap = place / f"pytorch_model.{suffix}"
    trap.write_bytes(pickle.dumps(Trap(place / "sprung")))
    sentence = refused(place)
    assert sentence.startswith(f"{trap} is a pickle and was not opened")
    assert "can run any code" in sentence
    assert "convert its weights to safetensors" in sentence
    assert "is a pickle" in refused(trap)
    assert not (place / "sprung").exists()
    pickle.loads(trap.read_bytes())
    assert (place / "sprung").exists()  # the trap would have sprung


def test_a_pickle_beside_good_weights_does_not_matter(place: Path) -> None:
    (place / "optimizer.pt").write_bytes(b"anything")
    assert load_folder(place).config == {"a": 1}


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("hashed", [False, True])
def test_a_pickle_that_calls_itself_safetensors_is_refused(place: Path, legacy: bool, hashed: bool) -> None:
    torch.save({"w": torch.zeros(3)}, place / "model.safetensors", _use_new_zipfile_serialization=not legacy)
    if hashed:
        rehash(place)
    assert refused(place).startswith(f"{place / 'model.safetensors'} is a pickle and was not opened")


def test_a_header_whose_length_looks_like_a_pickle_is_still_safetensors(tmp_path: Path) -> None:
    for padding in range(0, 900, 8):  # lengths 0x0280 to 0x0580 begin with the bytes of a pickle
        save_model(Anything({}, {"w" * (padding + 1): torch.zeros(1)}), tmp_path / "m")
        head = (tmp_path / "m" / "model.safetensors").read_bytes()[:2]
        if head[0] == 0x80 and head[1] in (2, 3, 4, 5):
            assert load_folder(tmp_path / "m").held
            return
    pytest.fail("no header of that length was made")


def test_what_the_class_says_is_wrong_is_said_with_the_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for error, reason in (
        (InputError("size must be even"), "size must be even"),
        (KeyError("size"), "'size' is missing"),
    ):

        def fail(*_: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(Anything, "from_parts", fail)
        assert f"{place} does not make a model of the kind 'anything'" in refused(place)
        assert reason in refused(place)


def test_a_config_is_read_without_the_weights(place: Path) -> None:
    (place / "model.safetensors").write_bytes(b"")
    described = read_config(place)
    assert (described.kind, described.config) == ("anything", {"a": 1})
    assert list(described.files) == ["model.safetensors", "tokenizer.json"]
