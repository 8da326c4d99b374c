"""Builds the compiled sort with the machine's C compiler; without one the package installs all the same, slower."""

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


class RadixSortHook(BuildHookInterface[Any]):
    """Compiles ``_radix.c`` next to its source, for wheels and for editable installs."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files are collected."""
        folder = Path(self.root) / FOLDER
        target, unfinished = folder / "_radix.so", folder / "_radix.unfinished.so"
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
        command = [*compiler, "-O3", "-shared", "-fPIC", "-o", str(unfinished), str(folder / "_radix.c")]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
            unfinished.replace(target)
        except (OSError, subprocess.CalledProcessError) as error:
            unfinished.unlink(missing_ok=True)
            details = getattr(error, "stderr", "") or error
            self.app.display_warning(f"no C compiler: the sort behind the scores falls back to NumPy ({details})")
            return
        build_data["artifacts"].append(str(FOLDER / "_radix.so"))
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{next(platform_tags())}"  # loaded by ctypes, so any Python 3 will do
