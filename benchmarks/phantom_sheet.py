"""The phantom's findings side by side: every finding at two severities in the same patient, with its outline.

    python benchmarks/phantom_sheet.py docs/images/phantom.png

With ``--quiz FOLDER`` it draws 60 pictures of one finding each, numbered and without any mark, and writes the answers
beside them, for somebody who has not seen the program to name finding and side.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

from rightlung.core import Mask
from rightlung.pages.overlays import Tile, save_sheet
from rightlung.phantom.config import DEVICE_ORDER, FINDING_ORDER, PhantomConfig
from rightlung.phantom.render import render
from rightlung.phantom.sampling import sample_scene
from rightlung.phantom.scene import Scene

SEVERITIES = (0.4, 0.9)
OPACITIES = {"pneumonia", "consolidation", "lung opacity"}


def config_of(finding: str | None, severity: float | None, **more: Any) -> PhantomConfig:
    """Return a configuration in which every patient has just this finding, as bad as asked; None for normal ones."""
    changes: dict[str, Any] = {
        "normal": 1.0 if finding is None else 0.0,
        "prevalence": {name: 1.0 if name == finding else 0.0 for name in FINDING_ORDER},
        "devices": dict.fromkeys(DEVICE_ORDER, 0.0),
        "portable": 0.0,
        **more,
    }
    if finding is not None and severity is not None:
        changes["severity"] = {finding: (severity, severity, severity)}
    return PhantomConfig.from_mapping(changes)


def tile(scene: Scene, caption: str, size: int, outlined: bool) -> Tile:
    """Render one scene as a tile, with the outline of what it shows if ``outlined``."""
    rendering = render([scene], size)
    masks = rendering.lesion_masks[0]
    mask = Mask(masks.any(dim=0).numpy()) if outlined and len(masks) and masks.any() else None
    return Tile(rendering.images[0].numpy(), caption, mask=mask)


def sheet(path: Path, size: int, seed: int) -> None:
    """Draw normals, then every finding without and with its outline at two severities."""
    tiles = [tile(sample_scene(config_of(None, None), seed, index), "normal", size, False) for index in range(8)]
    for number, finding in enumerate(FINDING_ORDER):
        for severity in SEVERITIES:
            scene = sample_scene(config_of(finding, severity), seed, number)
            for outlined in (False, True):
                tiles.append(tile(scene, f"{finding}, severity {severity}", size, outlined))
    save_sheet(tiles, path, columns=8, side=size)


def quiz(folder: Path, size: int, seed: int, count: int = 60) -> None:
    """Draw numbered pictures of one finding each, at its usual severities, and write the answers to another file."""
    chance = random.Random(seed)
    kinds = [FINDING_ORDER[index % len(FINDING_ORDER)] for index in range(count - 6)] + [None] * 6
    chance.shuffle(kinds)
    answers = []
    for first in range(0, count, 12):
        tiles = []
        for number, finding in enumerate(kinds[first : first + 12], start=first + 1):
            scene = sample_scene(config_of(finding, None, portable=0.3), seed, number)
            tiles.append(tile(scene, str(number), size, False))
            sides = sorted({lesion.side for lesion in scene.lesions})
            answers.append({"number": number, "finding": finding or "normal", "sides": sides})
        save_sheet(tiles, folder / f"quiz-{first // 12 + 1}.png", columns=4, side=size)
    (folder / "answers.json").write_text(json.dumps(answers, indent=1), encoding="utf-8")


def score(folder: Path, reading: Path) -> None:
    """Compare a reading, a list of number, finding and side, with the quiz's answers."""
    given = {entry["number"]: entry for entry in json.loads(reading.read_text(encoding="utf-8"))}
    exact = merged = sided = right = missed = abnormal = 0
    for answer in json.loads((folder / "answers.json").read_text(encoding="utf-8")):
        said, true = given[answer["number"]], answer["finding"]
        alike = said["finding"] == true or {said["finding"], true} <= OPACITIES
        exact, merged = exact + (said["finding"] == true), merged + alike
        abnormal, missed = abnormal + (true != "normal"), missed + (true != "normal" == said["finding"])
        sides = [side for side in answer["sides"] if side in ("left", "right")]
        if alike and sides:
            sided, right = sided + 1, right + (said["side"] == (sides[0] if len(sides) == 1 else "both"))
    print(f"{exact} of {len(given)} exactly, {merged} with the opacities merged; side right in {right} of {sided}")
    print(f"{missed} of {abnormal} abnormal ones called normal")


def main() -> None:
    """Draw the sheet, or the quiz."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="PNG to write, or with --quiz the folder")
    parser.add_argument("--quiz", action="store_true")
    parser.add_argument("--score", type=Path, metavar="READING", help="score a reading of the quiz in this folder")
    parser.add_argument("--size", type=int, default=0, help="pixels a picture")
    parser.add_argument("--seed", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.score:
        score(arguments.path, arguments.score)
    elif arguments.quiz:
        quiz(arguments.path, arguments.size or 320, arguments.seed)
    else:
        sheet(arguments.path, arguments.size or 160, arguments.seed)


if __name__ == "__main__":
    main()
