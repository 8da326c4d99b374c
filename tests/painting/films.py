"""Normal phantoms stand for films: a folder of pictures as a user has them, without labels of findings."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

from rightlung.core import Study
from rightlung.phantom.config import DEVICE_ORDER, FINDING_ORDER, PhantomConfig
from rightlung.phantom.study import make_studies

SIZE = 160
HEALTHY = PhantomConfig.from_mapping(
    {"normal": 1.0, "prevalence": dict.fromkeys(FINDING_ORDER, 0.0), "devices": dict.fromkeys(DEVICE_ORDER, 0.0)}
)


@cache
def normal_phantoms() -> list[Study]:
    """Normal patients without devices."""
    return make_studies(HEALTHY, 31, range(12), SIZE)


def pixels(study: Study) -> np.ndarray:
    """Return a picture in 8 bits."""
    return np.round(study.image * 255).astype(np.uint8)


def write_films(folder: Path, rows: list[dict[str, object]], pictures: list[np.ndarray]) -> str:
    """Write a manifest of pictures and return its address."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, (row, picture) in enumerate(zip(rows, pictures, strict=True)):
        Image.fromarray(picture).save(folder / f"{number}.png")
        lines.append(json.dumps({"id": f"film-{number}", "file": f"{number}.png", **row}))
    (folder / "manifest.jsonl").write_text("\n".join(lines))
    return f"manifest:{folder}"


def films(folder: Path, count: int = 6, **fields: object) -> str:
    """Write some normal films and return their address; a patient has two."""
    chosen = normal_phantoms()[:count]
    rows = [{"patient": f"p{number // 2}", "sex": one.sex, "age": one.age, "view": one.view, **fields}
            for number, one in enumerate(chosen)]  # fmt: skip
    return write_films(folder, rows, [pixels(one) for one in chosen])
