"""What `pip install` brings: DICOM among the standard packages, and nothing that is not used."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODULES = {"pillow": "PIL", "pyyaml": "yaml", "scikit-learn": "sklearn", "pylibjpeg-openjpeg": "openjpeg"}
MODULES |= {"argon2-cffi": "argon2", "faiss-cpu": "faiss", "umap-learn": "umap"}
TOOLS = {"mypy", "ruff", "pytest-xdist", "pydicom-data", "types-PyYAML"}
"""Used by the Makefile, or as data or types."""


def name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9-]+", requirement)
    assert found is not None
    return found[0]


def test_reading_dicom_is_part_of_the_standard_installation() -> None:
    assert {"pydicom", "pylibjpeg", "pylibjpeg-openjpeg"} <= set(map(name_of, PROJECT["dependencies"]))
    assert set(PROJECT["optional-dependencies"]) == {"dev", "generation", "language", "ray", "retrieval", "serve"}


@pytest.mark.parametrize("extra", ["", "dev", "generation", "language", "ray", "retrieval", "serve"])
def test_every_requirement_is_used(extra: str) -> None:
    listed = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    folders = ("src", "tests", "benchmarks") if extra else ("src",)
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    source = "\n".join(file.read_text(encoding="utf-8") for file in files)
    for name in set(map(name_of, listed)) - TOOLS:
        module = MODULES.get(name, name.replace("-", "_"))
        assert re.search(rf"\b{module}\b", source), name


def test_every_requirement_has_a_pinned_version() -> None:
    pinned = {name_of(line).lower() for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    every = [*PROJECT["dependencies"], *(one for extra in PROJECT["optional-dependencies"].values() for one in extra)]
    assert {name_of(one).lower() for one in every} <= {name.replace("_", "-") for name in pinned}


def test_the_source_distribution_holds_what_the_makefile_needs() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
    named = re.findall(r"[\w./]+\.(?:txt|py)\b", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert "constraints.txt" in named
    included = build["sdist"]["include"]
    assert all(any(Path(name).is_relative_to(one) for one in included) for name in named)


def test_your_own_torch_may_stay_and_the_makefile_passes_the_pins() -> None:
    ranges = {name_of(one): one.removeprefix(name_of(one)) for one in PROJECT["dependencies"]}
    assert ranges["torch"] == ">=2.6,<3"
    assert not [name for name, versions in ranges.items() if "==" in versions or "~=" in versions]
    assert "--constraint constraints.txt" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_pydicom_is_imported_only_to_read_dicom() -> None:
    code = "import sys, rightlung.asking, rightlung.cli.ground; assert 'pydicom' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_clone_stays_small() -> None:
    """Documentation must not outgrow the weights: pictures are palettes, audits are published as text."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    paths = [ROOT / name for name in listed.split("\0") if name]
    assert sum(path.stat().st_size for path in paths if path.exists()) < 36_000_000
