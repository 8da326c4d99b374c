from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rightlung.audit import audit
from rightlung.core import Box, Mask, Phrase, Polarity, Study
from rightlung.results.estimate import BootstrapSettings
from tests.audit.cards import QUICK, Cards, diagonal_map, true_map, write_answers


class Changed(Cards):
    """Cards of which the first is not as it was."""

    def __init__(self, change: Callable[[Study], Study], address: str = "cards", count: int = 8) -> None:
        super().__init__(count, address=address)
        self.change = change

    def _build(self, position: int) -> Study:
        study = super()._build(position)
        return study if position else self.change(study)


def first_phrase(**changes: object) -> Callable[[Study], Study]:
    def change(study: Study) -> Study:
        phrase: Phrase = replace(study.phrases[0], **changes)  # type: ignore[arg-type]
        return replace(study, phrases=(phrase, *study.phrases[1:]))

    return change


CHANGES: dict[str, Callable[[Study], Study]] = {
    "patient": lambda study: replace(study, patient="somebody else"),
    "polarity": first_phrase(findings={"lung opacity": Polarity.UNCERTAIN}),
    "finding": first_phrase(findings={"mass": Polarity.POSITIVE}),
    "region": first_phrase(regions=("left hilum",)),
    "midline": lambda study: replace(study, regions={**study.regions, "left lung": Box(0.65, 0.1, 0.95, 0.9)}),
    "text": first_phrase(text="Opacity."),
    "target": first_phrase(mask=Mask(np.eye(64))),
}


def hash_of(written: Path, source: Cards, **options: Any) -> str:
    done = audit(written, source, written.parent / "out", **dict[str, Any](settings=QUICK, cases=0) | options)
    return str(done.result["protocol"]["hash"])


def test_the_hash_covers_what_numbers_depend_on_and_not_where_files_lie_or_which_model_is_asked(tmp_path: Path) -> None:
    written = write_answers(Cards(8), tmp_path / "p", diagonal_map, conditions=("none",))
    other_model = write_answers(Cards(8), tmp_path / "other" / "p", true_map, ("none",), model="another")
    moved = shutil.copytree(written, tmp_path / "moved" / "p")
    same = hash_of(written, Cards(8))
    assert hash_of(moved, Cards(8, address="cards elsewhere")) == hash_of(other_model, Cards(8)) == same
    hashes = {name: hash_of(written, Changed(change)) for name, change in CHANGES.items()}
    for settings in (BootstrapSettings(300), BootstrapSettings(200, level=0.9), BootstrapSettings(200, seed=1)):
        hashes[str(settings)] = hash_of(written, Cards(8), settings=settings)
    for name in ("nothing", "target", "patient"):
        fitted = Changed(CHANGES.get(name, lambda study: study), "other", 12)
        hashes[f"prior fitted elsewhere, changed: {name}"] = hash_of(written, Cards(8), prior_source=fitted)
    elsewhere = Changed(lambda study: study, "other, moved", 12)
    assert hash_of(written, Cards(8), prior_source=elsewhere) == hashes["prior fitted elsewhere, changed: nothing"]
    assert len({same, *hashes.values()}) == len(CHANGES) + 3 + 3 + 1, hashes
    assert all(re.fullmatch("[0-9a-f]{10}", one) for one in hashes.values())
