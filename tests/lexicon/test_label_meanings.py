"""The finding that each data-set label means, pinned in ``label_meanings.toml``.

A golden table: it shows that a meaning has changed, not that either is right.
"""

import tomllib
from pathlib import Path

import pytest

from rightlung.lexicon import LABEL_SETS, label_set

MEANINGS = tomllib.loads(Path(__file__).with_name("label_meanings.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", [*MEANINGS])
def test_every_label_means_the_finding_it_was_reviewed_for(name: str) -> None:
    assert dict(label_set(name).findings) == MEANINGS[name]


def test_every_label_set_is_pinned_by_itself_or_by_its_parts() -> None:
    assert set(LABEL_SETS) - set(MEANINGS) == {"imagenome-53", "findings"}
    assert dict(label_set("imagenome-53").findings) == MEANINGS["imagenome-43"] | MEANINGS["imagenome-10"]
    assert all(label == meaning for label, meaning in label_set("findings").findings.items())


def test_labels_that_only_come_close_to_their_finding_are_known() -> None:
    close = {(name, label) for name in MEANINGS for label in label_set(name).notes}
    assert close == {
        ("chexpert-14", "No Finding"),
        ("vindr-6", "No finding"),
        ("rsna", "Normal"),
        ("imagenome-43", "enlarged cardiac silhouette"),
        ("imagenome-43", "pulmonary edema/hazy opacity"),
        ("imagenome-43", "linear/patchy atelectasis"),
        ("imagenome-10", "fluid overload/heart failure"),
        ("chestx-det-13", "Diffuse Nodule"),
    }
