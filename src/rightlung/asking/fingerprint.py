"""Fingerprint the code of a model, so that answers of edited code are not taken for its own."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

from rightlung import __version__
from rightlung.models.kinds import IMPORT_PATH


def code_fingerprint(model: object, name: str = "") -> str | None:
    """Return a text that changes with the code of a model: of your own, a hash; of rightlung's models, the version.

    The hash covers the module of the model's class, the module that ``name`` (``module:Class``) names, and the modules
    of the same package or folder that they import. None if there is no source file, as in a notebook.
    """
    modules = {base.__module__ for base in type(model).__mro__}
    shipped = any(module.split(".")[0] == "rightlung" for module in modules)
    own = {type(model).__module__, *([name.partition(":")[0]] if IMPORT_PATH.fullmatch(name) else [])}
    files: dict[str, Path] = {}
    for module in own:
        if module.split(".")[0] != "rightlung":
            _add_sources(module, files)
    digest = hashlib.sha256()
    for module, path in sorted(files.items()):
        digest.update(f"{module}\n".encode() + hashlib.sha256(path.read_bytes()).digest())
    parts = [*([f"rightlung {__version__}"] if shipped else []), *([digest.hexdigest()[:16]] if files else [])]
    return ", ".join(parts) or None


def _add_sources(module: str, files: dict[str, Path]) -> None:
    """Add the source file of an imported module, and those that it imports from the same package or folder."""
    written = getattr(sys.modules.get(module), "__file__", None)
    if written is None or not written.endswith(".py") or not Path(written).is_file():
        return
    path = Path(written)
    root = path.parents[module.count(".") + (path.name == "__init__.py")]
    # Next to a module in the working folder lie its own modules; next to an installed one lies everything.
    alone = "." not in module and path.name != "__init__.py" and root.name not in ("site-packages", "dist-packages")
    waiting = [(module, path)]
    while waiting:
        name, file = waiting.pop()
        if name in files:
            continue
        files[name] = file
        for imported in _imports(name, file):
            top = imported.split(".")[0]
            if top != "rightlung" and (alone or top == module.split(".")[0]):
                place = root.joinpath(*imported.split("."))
                found = (one for one in (place.with_suffix(".py"), place / "__init__.py") if one.is_file())
                waiting += [(imported, one) for one in found]


def _imports(module: str, file: Path) -> Iterator[str]:
    """Yield the names of everything that a source file imports, also inside functions."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # the import has failed before, or the file has just changed
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (base, *(f"{base}.{alias.name}" for alias in node.names))
