"""Builds the compiled functions with a C compiler. Without one, the package still installs, but is slower."""

from __future__ import annotations

import os
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

FOLDER = Path("src/rightlung/scoring/localisation")


class CompiledFunctionsHook(BuildHookInterface[Any]):
    """Compiles ``_radix.c`` and ``_sums.c`` next to their source, for wheels and for editable installs."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files are collected."""
        folder = Path(self.root) / FOLDER
        target, unfinished = folder / "_compiled.so", folder / "_compiled.unfinished.so"
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
        sources = [str(folder / name) for name in ("_radix.c", "_sums.c")]
        # Without contraction, every processor gets the same digits.
        command = [*compiler, "-O3", "-ffp-contract=off", "-shared", "-fPIC", "-o", str(unfinished), *sources]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
            unfinished.replace(target)
        except (OSError, subprocess.CalledProcessError) as error:
            unfinished.unlink(missing_ok=True)
            details = getattr(error, "stderr", "") or error
            self.app.display_warning(f"no C compiler: the sums behind the scores fall back to NumPy ({details})")
            return
        build_data["artifacts"].append(str(FOLDER / "_compiled.so"))
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{next(platform_tags())}"  # loaded by ctypes, so any Python 3 will do
