"""Read recipes from YAML files: shipped ones by name, derived ones (``base``), stages, and changes by ``--set``."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeGuard

import yaml

from rightlung.core.errors import InputError, shortened, unknown_name
from rightlung.core.settings import read_settings
from rightlung.training.recipe import Recipe

PACKAGE = Path(__file__).parents[1]
STAGE = "stage:"
"""Before the name of the stage that a model starts from."""
MAX_VALUES = 100_000
"""The most values of a recipe, with aliases expanded: a few lines of nested aliases can stand for billions."""


def shipped_recipes() -> dict[str, Path]:
    """Return the recipes that come with the package: the general ones, and those of each reproduced paper."""
    found = (path for place in ("training", "reproduce/*") for path in PACKAGE.glob(f"{place}/recipes/*.yaml"))
    return {path.stem: path for path in sorted(found, key=lambda path: path.stem)}


def read_recipe(name_or_path: str | Path, changes: Sequence[str] = ()) -> Recipe:
    """Read a recipe from a YAML file, or by the name of a shipped one, with fields changed by ``field=value``."""
    stages = read_stages(name_or_path, changes)
    if list(stages) != [""]:
        raise InputError(f"{name_or_path} has the stages {', '.join(stages)}; it is trained by rightlung train")
    return stages[""]


def read_stages(name_or_path: str | Path, changes: Sequence[str] = ()) -> dict[str, Recipe]:
    """Read the stages of a recipe by name, in order; a recipe without ``stages`` has one, named "".

    A stage is the recipe with the stage's own fields and ``changes``: tables are merged (``losses`` and other values,
    replaced). Each but the first starts from the model of the one before. A change ``stage:field=value`` is for one
    stage only. One of an entry of a list, such as ``data.train[1].source``, is for the stages that have this entry.
    """
    path, given = _read_table(str(name_or_path))
    if "base" in given:
        given = _derived(path, given)
    stages = _stage_changes(path, given.pop("stages", None))
    recipes: dict[str, Recipe] = {}
    without_entry: dict[str, list[InputError]] = {}
    try:
        for change in changes:
            if (name := _stage_of(change)) is not None and name not in stages:
                raise unknown_name("stage in --set", name, stages)
        for stage, own in stages.items():
            table = copy.deepcopy(given)
            if recipes:
                table["model"] = {"start": STAGE + list(recipes)[-1]}
            general, special = ([one for one in changes if _stage_of(one) == name] for name in (None, stage))
            _merge(table, own.fields)
            _set_all(table, own.changes, f"stages, {stage}:")
            for change in general:
                try:
                    _set(table, change, "--set")
                except _NoEntryError as error:
                    without_entry.setdefault(change, []).append(error)
            _set_all(table, [change.partition(":")[2] for change in special])
            recipes[stage] = read_settings(Recipe, table)
        for errors in without_entry.values():
            if len(errors) == len(stages):
                raise errors[0]
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return recipes


class _NoEntryError(InputError):
    """A change names an entry that a list does not have."""


def _stage_of(change: str) -> str | None:
    name, colon, _ = change.partition("=")[0].partition(":")
    return name.strip() if colon else None


@dataclass(frozen=True, slots=True)
class _Stage:
    fields: Mapping[str, Any] = field(default_factory=dict)
    changes: Sequence[str] = ()


def _merge(table: dict[str, Any], fields: Mapping[str, Any]) -> None:
    """Replace values of a table. Those that are tables on both sides are merged, but for ``losses``."""
    for name, value in fields.items():
        if isinstance(value, Mapping) and isinstance(table.get(name), dict) and name != "losses":
            _merge(table[name], value)
        else:
            table[name] = copy.deepcopy(value)


def _stage_changes(path: Path, stages: Any) -> dict[str, _Stage]:
    if stages is None:
        return {"": _Stage()}
    found: dict[str, _Stage] = {}
    for number, stage in enumerate(stages if isinstance(stages, list) else [None]):
        name, changes = (stage.get("name"), stage.get("changes", [])) if isinstance(stage, dict) else (None, None)
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-]+", name) or name in found:
            raise InputError(f"{path}: stages[{number}] needs a name of its own, of letters, digits, - and _")
        if not _are_texts(changes):
            raise InputError(f"{path}: stages[{number}].changes must be a list of field=value")
        found[name] = _Stage({key: value for key, value in stage.items() if key not in ("name", "changes")}, changes)
    if not found:
        raise InputError(f"{path}: stages must name at least one stage")
    return found


def _derived(path: Path, given: Mapping[str, Any], above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return the recipe that a file describes as another one (``base``) with ``changes``, a list of field=value.

    Changes of a recipe with stages are for all of them or, ``stage:field=value``, for one; ``without`` lists stages to
    leave out. The base may be derived, too; ``above`` are those that are derived from this one.
    """
    for name in given:
        if name not in ("base", "changes", "without"):
            raise InputError(
                f"{path}: a recipe with base may only have changes, a list of field=value, and without, a list of "
                f"stages; got {name!r}"
            )
    base, changes, without = given["base"], given.get("changes") or [], given.get("without") or []
    if not isinstance(base, str) or not _are_texts(changes) or not _are_texts(without):
        raise InputError(
            f"{path}: base must name a recipe, changes be a list of field=value, and without one of stages"
        )
    beside = path.parent / base
    try:
        of, table = _read_table(str(beside) if _is_file(beside) else base)
        if of.resolve() in (path.resolve(), *above):
            raise InputError(f"base {base} leads back to {of.name}, which is derived from this one")
        if "base" in table:
            table = _derived(of, table, (path.resolve(), *above))
        if "stages" in table or without:
            table["stages"] = _changed_stages(of, table.get("stages"), changes, without)
        else:
            _set_all(table, changes, "changes:")
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return table


def _changed_stages(path: Path, stages: Any, changes: list[str], without: list[str]) -> list[dict[str, Any]]:
    """Return the stages of a recipe but for some, each with its part of the changes after its own."""
    known = _stage_changes(path, stages)
    for name in without:
        if name not in known:
            raise unknown_name("stage in without", name, known)
    for change in changes:
        if (of := _stage_of(change)) is not None and of not in known:
            raise unknown_name("stage in changes", of, known)
    return [
        {**stage.fields, "name": name, "changes": [
            *stage.changes,
            *(change for change in changes if _stage_of(change) is None),
            *(change.partition(":")[2] for change in changes if _stage_of(change) == name),
        ]}
        for name, stage in known.items()
        if name not in without
    ]  # fmt: skip


def _are_texts(values: object) -> TypeGuard[list[str]]:
    return isinstance(values, list) and all(isinstance(one, str) for one in values)


def _read_table(name: str) -> tuple[Path, dict[str, Any]]:
    path = _find(name)
    try:
        given = _parse(path.read_text(encoding="utf-8"), f"{path}: the recipe")
    except UnicodeDecodeError:
        raise InputError(f"{path}: the recipe is not UTF-8 text") from None
    except OSError as error:
        raise InputError(f"{path}: the recipe cannot be read ({error.strerror or error})") from None
    if not isinstance(given, dict):
        raise InputError(f"{path}: a recipe must be a table of fields; got {type(given).__name__}")
    return path, given


def _find(name: str) -> Path:
    if (shipped := shipped_recipes().get(name)) is not None:
        return shipped
    path = Path(name)
    if _is_file(path):
        return path
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        raise InputError(f"recipe {name} is not there")
    raise unknown_name("recipe", name, shipped_recipes())


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _set_all(given: dict[str, Any], changes: Sequence[str], by: str = "--set") -> None:
    """Change fields of a recipe: ``optimizer.learning_rate=1e-3``, ``data.train[0].share=0.5``."""
    for change in changes:
        _set(given, change, by)


def _set(given: dict[str, Any], change: str, by: str) -> None:
    path, equals, text = change.partition("=")
    steps = [part for part in re.split(r"[.\[\]]+", path.strip()) if part]
    if not equals or not steps:
        raise InputError(f"{by} takes field=value, such as optimizer.learning_rate=1e-3; got {shortened(change)}")
    value = _parse(text, f"{by} {path}: the value {shortened(text)}")
    table: Any = given
    for depth, step in enumerate(steps):
        key: Any = step
        if isinstance(table, list):
            key = int(step) if re.fullmatch("[0-9]{1,9}", step) else len(table)
            if key >= len(table):
                raise _NoEntryError(
                    f"{by} {path}: there are {len(table)} entries, numbered from 0; got {shortened(step)}"
                )
        elif not isinstance(table, dict):
            raise InputError(f"{by} {path}: {'.'.join(steps[:depth])} has no fields")
        if depth == len(steps) - 1:
            table[key] = value
        else:
            table = table[key] if isinstance(table, list) else table.setdefault(key, {})


def _parse(text: str, what: str) -> Any:
    """Return the value of a YAML text; ``what`` begins the error."""
    return copy.deepcopy(_parsed(text, what))


@lru_cache(maxsize=2048)  # the runs of a reproduction have the same recipes, and reading YAML takes milliseconds
def _parsed(text: str, what: str) -> Any:
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _count_values(node, {}) > MAX_VALUES:
            raise InputError(f"{what} has more than {MAX_VALUES:,} values once its aliases are expanded")
        return loader.construct_document(node)
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"{what} is not YAML: {' '.join(str(error).split())[:300]}") from None
    except InputError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:  # `!!int abc`, `2001-13-45`
        raise InputError(f"{what} has a value that YAML cannot read: {str(error)[:300]}") from None
    finally:
        loader.dispose()


def _count_values(node: yaml.Node, known: dict[int, int]) -> int:
    """Return the number of values of a node with aliases expanded; one that contains itself has too many."""
    if id(node) not in known:
        known[id(node)] = MAX_VALUES + 1  # while its parts are counted
        parts = node.value if isinstance(node, yaml.CollectionNode) else []
        nodes = [one for part in parts for one in (part if isinstance(part, tuple) else (part,))]
        known[id(node)] = min(MAX_VALUES + 1, 1 + sum(_count_values(one, known) for one in nodes))
    return known[id(node)]


class _Loader(yaml.SafeLoader):
    """YAML as people write it: 1e-3 is a number (YAML 1.1 wants 1.0e-3), and a field given twice is an error."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            if not isinstance(node, yaml.ScalarNode):
                raise
            kind = str(node.tag).rpartition(":")[2]
            raise ValueError(f"line {node.start_mark.line + 1}: {shortened(node.value)} is no {kind}") from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for index, key in enumerate(keys):
            if any(key.value == other.value for other in keys[:index]):
                reason = f"field {key.value!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, reason, key.start_mark)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$"), list("-+0123456789.")
)
