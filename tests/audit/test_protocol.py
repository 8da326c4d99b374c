from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_answers(Cards(8), tmp_path_factory.mktemp("protocol") / "p", diagonal_map, conditions=("none",))


def hash_of(written: Path, source: Cards, **options: Any) -> str:
    done = audit(written, source, written.parent / "out", **dict[str, Any](settings=QUICK, cases=0) | options)
    return str(done.result["protocol"]["hash"])


def test_the_hash_covers_what_numbers_depend_on(written: Path) -> None:
    hashes = {name: hash_of(written, Changed(change)) for name, change in CHANGES.items()}
    hashes["nothing"] = hash_of(written, Changed(lambda study: study))
    assert len(set(hashes.values())) == len(CHANGES) + 1, hashes
    assert all(re.fullmatch("[0-9a-f]{10}", one) for one in hashes.values())


def test_the_hash_knows_settings_but_not_where_files_lie(written: Path, tmp_path: Path) -> None:
    before = hash_of(written, Cards(8))
    moved = shutil.copytree(written, tmp_path / "moved" / "p")
    assert hash_of(moved, Cards(8, address="cards elsewhere")) == before
    changed = [BootstrapSettings(300), BootstrapSettings(200, level=0.9), BootstrapSettings(200, seed=1)]
    assert len({before, *(hash_of(written, Cards(8), settings=one) for one in changed)}) == 4


def test_the_hash_knows_what_the_prior_was_fitted_on_and_not_its_address(written: Path) -> None:
    hashes = {
        name: hash_of(written, Cards(8), prior_source=fitted)
        for name, fitted in {
            "here": None,
            "other": Changed(lambda study: study, "other", 12),
            "moved": Changed(lambda study: study, "other, moved", 12),
            "other target": Changed(CHANGES["target"], "other", 12),
            "other patient": Changed(CHANGES["patient"], "other", 12),
        }.items()
    }
    assert hashes["other"] == hashes["moved"]
    assert len(set(hashes.values())) == 4


def test_the_hash_does_not_know_the_model(written: Path, tmp_path: Path) -> None:
    other = write_answers(Cards(8), tmp_path / "p", true_map, ("none",), model="another")
    assert hash_of(other, Cards(8)) == hash_of(written, Cards(8))
