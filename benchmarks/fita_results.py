"""Copy the page of an experiment with FITA into the docs: its tables as text, its figures, and what to quote first.

    rightlung reproduce fita --out fita-paper --only none
    python benchmarks/fita_results.py fita-paper docs/results/fita/phantoms
    python benchmarks/fita_results.py fita-openi docs/results/fita/open-i

It prints the findings for docs/results/fita.md. Folders are taken out of addresses; no report is among the tables.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from pathlib import Path

ADDRESS = re.compile(r"\b(manifest|openi|mimic):(?:[^\s?'`]*/)+")
END = "Not a medical device: for research only, not for diagnosis or treatment."


def without_folders(text: str) -> str:
    """Return a text whose addresses name files without their folders.

    >>> without_folders("on manifest:/data/mine/openi.tar?split=val")
    'on manifest:openi.tar?split=val'
    """
    return ADDRESS.sub(r"\1:", text)


def main() -> None:
    """Write the files and print the findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    text = without_folders((given.experiment / "results.md").read_text(encoding="utf-8")).rstrip()
    warning = json.loads((given.experiment / "run.json").read_text(encoding="utf-8")).get("quick")
    if warning:
        parser.error(f"{given.experiment} is a test run (--quick), whose numbers mean nothing")
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "results.md").write_text(text + ("" if text.endswith(END) else f"\n\n{END}") + "\n", encoding="utf-8")
    shutil.copytree(given.experiment / "figures", given.out / "figures", dirs_exist_ok=True)
    print(text.split("\n## Finding\n", 1)[-1].split("\n## ", 1)[0].strip())


if __name__ == "__main__":
    main()
