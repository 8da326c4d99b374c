"""``rightlung models``: list the models, or describe one."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from typing import Any

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.cli.output import finish, say, say_problems, say_table
from rightlung.models.folder import CONFIG_FILE, Savable, read_card, read_config
from rightlung.models.registry import (
    abilities,
    find_folder,
    kinds,
    list_models,
    listed_kind,
    load,
    own_docstring,
    split_changes,
)


def list_all(json: bool) -> None:
    """List the models that can be loaded by name, and the kinds of model folders."""
    models = [asdict(model) | {"folder": model.folder and str(model.folder)} for model in list_models()]
    known: list[dict[str, Any]] = [
        {"name": name, "class": address, "can": kind.can, "description": kind.description, "problem": kind.problem}
        for name, address, kind in ((name, address, listed_kind(name)) for name, address in kinds().items())
    ]
    problems = sorted({f"{entry['name']}: {entry['problem']}" for entry in (*models, *known) if entry["problem"]})
    words = ("kind", "can", "description")

    def tell() -> None:
        if models:
            rows = [
                (one["name"], one["kind"], " ".join(one["can"]), f"{one['size'] / 2**20:.1f}", one["description"])
                for one in models
            ]
            say_table(("model", "kind", "can", "MiB", "description"), rows, words)
        else:
            say("no model is shipped with this installation; load one from a model folder")
        say()
        say_table(words, [(kind["name"], " ".join(kind["can"]), kind["description"]) for kind in known], words)
        say_problems(problems, "models cannot be used")

    finish(json, {"models": models, "kinds": known, "problems": problems}, tell, problems)


def describe(name: str, json: bool) -> None:
    """Load a model, which checks its files, and print its configuration and card."""
    model = load(name)
    summary: dict[str, Any] = {
        "name": name,
        "kind": getattr(model, "kind", None),
        "class": f"{type(model).__module__}:{type(model).__qualname__}",
        "can": abilities(model),
        "parameters": count_parameters(model),
        "size": 0,
        "folder": None,
        "files": {},
        "config": model.to_config() if isinstance(model, Savable) else None,
        "card": own_docstring(type(model)),
    }
    if folder := find_folder(split_changes(name)[0]):
        described = read_config(folder.path, links_within=folder.links_within)
        sizes = {file: (folder.path / file).stat().st_size for file in (CONFIG_FILE, *described.files)}
        card = read_card(folder.path, links_within=folder.links_within)
        summary |= {"folder": str(folder.path), "files": sizes, "size": sum(sizes.values())}
        summary |= {"config": summary["config"] or described.config, "card": card or summary["card"]}
    finish(json, summary, lambda: _say(summary))


def count_parameters(model: Any) -> int:
    """Count the model's parameters or, if it has none, the values of the tensors that it saves."""
    if callable(getattr(model, "parameters", None)):
        return sum(parameter.numel() for parameter in model.parameters())
    if isinstance(model, Savable):
        return sum(tensor.numel() for tensor in model.tensors().values() if tensor.is_floating_point())
    return 0


def _say(summary: dict[str, Any]) -> None:
    say(f"{summary['name']}: {summary['kind'] or 'a model'} ({summary['class']})")
    say(f"  can: {' '.join(summary['can'])}")
    say(f"  {summary['parameters']:,} parameters")
    if summary["folder"] is not None:
        say(f"  {summary['folder']}: {summary['size'] / 2**20:.1f} MiB, checksums verified")
        for file, size in summary["files"].items():
            say(f"    {file}  {size:,} bytes")
    if summary["config"] is not None:
        say("  configuration:")
        for field, value in summary["config"].items():
            say(f"    {field}: {dumps(value, ensure_ascii=False)}")
    say()
    say(summary["card"].strip())
    if NOT_A_MEDICAL_DEVICE not in summary["card"]:
        say(NOT_A_MEDICAL_DEVICE)
