"""Models by name: what is found, in which order, and what is said of a name that stands for nothing."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import rightlung
from rightlung.core import InputError
from rightlung.models import hub, kinds, registry
from rightlung.models.classifier import Classifier
from rightlung.models.folder import save_model
from rightlung.models.registry import abilities, first_line, list_models, load, register
from tests.models.classifier.tiny import tiny_classifier
from tests.models.savable import Anything

pytestmark = pytest.mark.usefixtures("own_kinds")


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shelf of shipped models with two on it."""
    shelf = tmp_path / "shipped"
    monkeypatch.setattr(registry, "SHIPPED", shelf)
    save_model(tiny_classifier("nodule"), shelf / "labels", "# A small classifier\n\nOf nodules.")
    save_model(Anything({"a": 1}, {"w": torch.zeros(100)}), shelf / "starter")
    (shelf / "__pycache__").mkdir()
    return shelf


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder with ``lookout.py`` in it, outside the path of modules."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "lookout.py").write_text(
        "from tests.models.savable import Anything\n"
        "class Lookout(Anything):\n    '''Looks out.\n\n    And more.'''\n    kind = 'lookout'\n"
        "def factory():\n    return Lookout({'made': True})\n"
        "instance = Lookout({'made': False})\n"
        "def blind():\n    return object()\n"
        "def needy(size, *, colour='red'):\n    return Lookout()\n"
        "class Room:\n    Inner = Lookout\n"
    )
    (folder / "torn.py").write_text("def (")
    (folder / "lacking.py").write_text("import not_installed_anywhere")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(folder))])
    for name in ("lookout", "torn", "lacking"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def refused(name: str | Path, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        load(name, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_shipped_models_the_list_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SHIPPED", tmp_path / "none")
    monkeypatch.setattr(kinds, "_registered", {})
    monkeypatch.setattr(kinds, "entry_points", lambda group: [])
    assert list_models() == []
    assert "unknown model 'starter': none is shipped here" in refused("starter")


def test_shipped_models_are_listed_with_what_they_can_do_and_loaded_by_name(shipped: Path) -> None:
    labels, starter, own = list_models()
    assert (labels.name, labels.kind, labels.can) == ("labels", "classifier", ("ground", "classify", "detect"))
    assert labels.description == "A small classifier"
    assert labels.size == sum(path.stat().st_size for path in (shipped / "labels").iterdir())
    assert (starter.name, starter.kind, starter.can, starter.description) == ("starter", "anything", ("ground",), "")
    assert (own.name, own.size, own.description) == ("anything", 0, "Points everywhere, and holds what it is given.")
    assert all(model.problem is None for model in (labels, starter, own))
    assert isinstance(rightlung.load("labels"), Classifier)
    assert rightlung.load("starter").config == {"a": 1}
    assert [model.name for model in rightlung.list_models()] == ["labels", "starter", "anything"]


def test_one_broken_model_does_not_hide_the_others(shipped: Path) -> None:
    (shipped / "labels" / "config.json").write_text("{")
    register("gone", "no_such_module:Gone")
    problems = {model.name: model.problem for model in list_models()}
    assert "labels/config.json is not JSON" in (problems["labels"] or "")
    assert "'no_such_module' cannot be imported" in (problems["gone"] or "")
    assert problems["starter"] is None


def test_a_shipped_name_comes_before_a_folder_of_that_name(
    shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(Anything({"a": 2}), tmp_path / "starter")
    monkeypatch.chdir(tmp_path)
    assert load("starter").config == {"a": 1}
    for path in ("./starter", Path("starter"), str(tmp_path / "starter")):
        assert load(path).config == {"a": 2}


def test_fields_of_a_configuration_are_changed_by_the_name(
    shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load("labels?pooling=mean&sharpness=5.5")
    assert (model.config.pooling, model.config.sharpness) == ("mean", 5.5)
    assert torch.equal(
        model.image_encoder.patch_projections[0].weight, load("labels").image_encoder.patch_projections[0].weight
    )
    assert "'poling'; did you mean 'pooling'?" in refused("labels?poling=mean")
    assert "a parameter is name=value; got 'mean'" in refused("labels?mean")
    assert "'labels?pooling=%5B'" in refused("labels?pooling=%5B")  # [, which is no YAML
    assert "is not a model folder, so it has no configuration to change" in refused("anything?a=1")
    assert refused("labes?pooling=mean").startswith("unknown model 'labes'; did you mean 'labels'?")
    save_model(Anything({"a": 3}), tmp_path / "what?a=1")
    monkeypatch.chdir(tmp_path)
    assert load("what?a=1").config == {"a": 3}  # a folder of that name


def test_every_built_in_kind_has_its_class() -> None:
    assert set(kinds.BUILT_IN) <= set(registry.kinds())
    assert registry.class_of("classifier") is Classifier
    assert abilities(Classifier) == ("ground", "classify", "detect")


def test_a_registered_kind_can_be_loaded_from_a_folder_and_by_its_name(tmp_path: Path, own_module: None) -> None:
    register("lookout", "lookout:Lookout")
    assert "lookout" not in sys.modules  # imported when it is needed
    assert registry.kinds()["lookout"] == "lookout:Lookout"
    assert load("lookout").config == {}
    save_model(load("lookout:factory"), tmp_path / "m")
    assert load(tmp_path / "m").config == {"made": True}
    assert type(load(tmp_path / "m")).__name__ == "Lookout"


@pytest.mark.parametrize(
    ("kind", "target", "sentence"),
    [
        ("", "a:B", "kind of model must be"),
        ("a/b", "a:B", "kind of model must be"),
        ("mine", "no colon", "needs a class or 'package.module:Class'"),
        ("mine", 3, "needs a class"),
        ("gloria", "a:B", "is built in"),
    ],
)
def test_a_wrong_registration_is_refused(kind: str, target: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        register(kind, target)


def test_entry_points_of_installed_packages_are_kinds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_module: None
) -> None:
    installed = tmp_path / "site" / "lookout-1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: lookout\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(
        "[rightlung.models]\nlookout = lookout:Lookout [extra]\ngloria = lookout:Lookout\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert "lookout" in entry_points(group="rightlung.models").names
    assert registry.kinds()["lookout"] == "lookout:Lookout"
    assert registry.kinds()["gloria"] == "rightlung.models.gloria:Gloria"  # what is built in stays
    assert type(load("lookout")).__name__ == "Lookout"
    assert {model.name: model.description for model in list_models()}["lookout"] == "Looks out."
    save_model(load("lookout"), tmp_path / "m")
    assert type(load(tmp_path / "m")).__name__ == "Lookout"


@pytest.mark.parametrize(
    ("address", "config"),
    [
        ("lookout:Lookout", {}),
        ("lookout:factory", {"made": True}),
        ("lookout:instance", {"made": False}),
        ("lookout:Room.Inner", {}),
    ],
)
def test_a_class_a_factory_and_an_instance_in_the_working_folder_are_loaded(
    own_module: None, address: str, config: dict[str, bool]
) -> None:
    assert load(address).config == config


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("lookout:Lookuot", "'Lookuot'; did you mean 'Lookout'?"),
        ("lookuot:Lookout", "the module 'lookuot' cannot be imported"),
        ("torn:Lookout", "the module 'torn' cannot be imported: invalid syntax"),
        ("lacking:Lookout", "No module named 'not_installed_anywhere'"),
        ("lookout:needy", "cannot be called without arguments (missing a required argument: 'size')"),
        (
            "lookout:blind",
            "object implements none of the model protocols: similarity, ground, ground_regions, classify, detect, ",
        ),
        ("lookout:__name__", "str implements none of the model protocols"),
    ],
)
def test_what_cannot_be_loaded_from_a_module_is_named(own_module: None, address: str, sentence: str) -> None:
    assert sentence in refused(address)


def test_an_installed_module_comes_before_one_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "colorsys.py").write_text("raise RuntimeError('the wrong one')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    assert "float" in refused("colorsys:ONE_THIRD")


def test_a_callable_instance_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    class Module(nn.Module):
        def ground(self, images: object, phrases: object) -> list[Any]:
            return []

    own = ModuleType("own")
    own.network = Module()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own", own)
    assert load("own:network") is own.network


def test_unknown_names_and_paths_are_told_apart(shipped: Path, tmp_path: Path) -> None:
    assert refused("startr") == "unknown model 'startr'; did you mean 'starter'? Known: anything, labels, starter"
    for path in ("./starter", "~/no/such/folder", "/no/such", "a/b/c", Path("nowhere"), tmp_path / "none"):
        assert refused(path) == f"there is no model folder {path}"
    assert "cannot be a model's name" in refused("x" * 10_000)
    assert "cannot be a model's name" in refused("~nobody-of-that-name/x")
    assert "empty" in refused(" ")
    (tmp_path / "model.pt").write_bytes(b"")
    assert "is a pickle and was not opened" in refused(str(tmp_path / "model.pt"))
    (tmp_path / "notes").write_text("")
    assert "is a file, not a model folder" in refused(str(tmp_path / "notes"))


def test_a_built_in_kind_by_itself_needs_weights(shipped: Path) -> None:
    assert "'classifier' is a kind of model, which needs weights" in refused("classifier")


@pytest.mark.parametrize("device", ["cuba", "cuda:99", 7.5])
def test_a_device_that_is_not_there_is_named(device: Any) -> None:
    assert f"the device {str(device)!r} is not available" in refused("anything", device=device)


def test_a_model_is_moved_to_the_device_if_it_can_be(shipped: Path) -> None:
    assert load("labels", device="meta").device == torch.device("meta")
    assert load("labels", torch.device("cpu")).device == torch.device("cpu")
    assert "runs on the CPU only" in refused("starter", device="meta")


# The Hub, of which there is none here.


def test_a_hub_id_that_cannot_be_reached_is_refused_in_a_sentence_and_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    sentence = refused("no-such-organisation/no-such-model")
    assert "there is no folder 'no-such-organisation/no-such-model'" in sentence
    assert "HF_HUB_OFFLINE" in sentence


def test_an_error_of_the_hub_is_one_sentence_and_its_patience_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked: list[float] = []

    class Api:
        def model_info(self, model_id: str, timeout: float) -> None:
            asked.append(timeout)
            raise ConnectionError("Name or service not known\nmore of it")

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    sentence = refused("no-such-organisation/no-such-model")
    assert sentence.endswith("the Hugging Face Hub did not provide it: Name or service not known")
    assert asked == [hub.SECONDS]


def test_without_huggingface_hub_the_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "install the package huggingface_hub to download" in refused("organisation/name")


def test_a_model_fetched_before_is_loaded_from_the_hubs_cache_and_links_stay_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    cache = tmp_path / "models--organisation--name"
    snapshot = cache / "snapshots" / ("0" * 40)
    save_model(Anything({"a": 5}), snapshot, "# Far away")
    (cache / "blobs").mkdir()
    for path in list(snapshot.iterdir()):
        path.rename(cache / "blobs" / path.name)
        path.symlink_to(Path("../../blobs") / path.name)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda model_id, **options: str(snapshot))
    assert load("organisation/name").config == {"a": 5}
    (snapshot / "config.json").unlink()
    (cache / "blobs" / "config.json").rename(tmp_path / "config.json")
    (snapshot / "config.json").symlink_to(tmp_path / "config.json")
    assert "is a link to outside" in refused("organisation/name")


def test_a_path_under_a_folder_that_exists_is_not_looked_for_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "fetch", lambda name: pytest.fail("asked the Hub"))
    assert refused("runs/mine") == "there is no model folder runs/mine"


@pytest.mark.parametrize(
    ("card", "line"),
    [
        ("", ""),
        ("\n\n#  Title here \n\nText", "Title here"),
        ("---\nlicense: mit\n---\n\n# Title\n", "Title"),
        ("---\nno end", "no end"),
        ("##\nText", "Text"),
        ("\ufeffPlain", "Plain"),
    ],
)
def test_the_description_is_the_cards_first_line(card: str, line: str) -> None:
    assert first_line(card) == line


def test_importing_rightlung_alone_imports_no_model() -> None:
    import subprocess

    code = "import sys, rightlung; assert 'torch' not in sys.modules; rightlung.load; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
