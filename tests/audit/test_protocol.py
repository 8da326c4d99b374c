from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rightlung.audit import Protocol, Sureness, audit
from rightlung.audit.protocol import PhraseSetHash
from rightlung.core import Box, Heatmap, Mask, Phrase, Polarity, Study
from tests.audit.cards import Cards, write_answers

QUICK = Sureness(resamples=200)


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


def as_it_is(study: Study) -> Study:
    return study


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("protocol") / "p"
    return write_answers(Cards(8), folder, lambda *_: Heatmap(np.eye(3)), conditions=("none",))


def hash_of(written: Path, folder: Path, source: Cards, prior_source: Cards | None = None) -> str:
    done = audit(written, source, folder, prior_source=prior_source, sureness=QUICK, cases=0)
    return str(done.result["protocol"]["hash"])


@pytest.mark.parametrize("name", CHANGES)
def test_the_hash_covers_what_numbers_depend_on(written: Path, tmp_path: Path, name: str) -> None:
    before = hash_of(written, tmp_path / "a", Changed(as_it_is))
    assert hash_of(written, tmp_path / "b", Changed(CHANGES[name])) != before


def test_the_hash_knows_settings_but_not_where_files_lie(written: Path, tmp_path: Path) -> None:
    before = hash_of(written, tmp_path / "a", Cards(8))
    assert hash_of(written, tmp_path / "b", Cards(8, address="cards elsewhere")) == before
    assert Protocol("a", "x", ()).hash == Protocol("b", "x", ()).hash
    assert Protocol("a", "x", ()).hash != Protocol("a", "x", (), seed=1).hash
    assert len(Protocol("a", "x", ()).hash) == 10


def test_the_hash_knows_what_the_prior_was_fitted_on_and_not_its_address(written: Path, tmp_path: Path) -> None:
    hashes = {
        name: hash_of(written, tmp_path / name.replace(" ", "-"), Cards(8), fitted)
        for name, fitted in {
            "here": None,
            "other": Changed(as_it_is, "other", 12),
            "moved": Changed(as_it_is, "other, moved", 12),
            "other target": Changed(CHANGES["target"], "other", 12),
            "other patient": Changed(CHANGES["patient"], "other", 12),
        }.items()
    }
    assert hashes["other"] == hashes["moved"]
    assert len(set(hashes.values())) == 4


def test_the_phrase_sets_hash_depends_on_every_part_and_on_no_order() -> None:
    def digest(*phrases: tuple[str, str, str, bytes]) -> str:
        found = PhraseSetHash()
        for phrase in phrases:
            found.add(*phrase)
        return found.digest

    one, other = ("a", "phrase:0", "x", b"1"), ("b", "phrase:0", "y", b"2")
    assert digest(one, other) == digest(other, one)
    changed = [("c", *one[1:]), (one[0], "phrase:1", *one[2:]), (*one[:2], "z", b"1"), (*one[:3], b"3")]
    assert len({digest(one, other), *(digest(each, other) for each in changed)}) == 5
