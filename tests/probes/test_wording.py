from __future__ import annotations

from dataclasses import replace

import pytest

from rightlung.core import Box, Phrase, Polarity, Study
from rightlung.probes.wording import opposite, other_severity, side_dropped, synonymous, with_region

POSITIVE, NEGATIVE = Polarity.POSITIVE, Polarity.NEGATIVE


def effusion(text: str, polarity: Polarity = POSITIVE, name: str = "pleural effusion") -> Phrase:
    return Phrase(text, findings={name: polarity})


@pytest.mark.parametrize(
    ("said", "changed"),
    [
        (effusion("There is a small left pleural effusion."), "There is no small left pleural effusion."),
        (effusion("A layering effusion on the right."), "No layering effusion on the right."),
        (effusion("No effusion.", NEGATIVE), "Pleural effusion."),
        (effusion("Heart is mildy enlarged.", name="cardiomegaly"), "No cardiomegaly."),  # not readable: a prompt
    ],
)
def test_the_opposite_statement_is_what_the_labeller_reads(said: Phrase, changed: str) -> None:
    found = opposite(said)
    assert found is not None
    assert found.text == changed
    assert set(found.findings.values()) == {NEGATIVE if POSITIVE in said.findings.values() else POSITIVE}


def test_a_phrase_without_findings_or_with_unknown_ones_has_no_opposite() -> None:
    assert opposite(Phrase("Compared with yesterday.")) is None
    assert opposite(Phrase("Left shoe.", findings={"shoe": POSITIVE})) is None


def test_severities_are_exchanged_in_their_case_and_with_their_article() -> None:
    said = {
        "A mild, slightly worse opacity.": "A severe, markedly worse opacity.",
        "SMALL EFFUSION.": "LARGE EFFUSION.",
        "A minimal effusion.": "An extensive effusion.",
        "AN LLL BAND, SMALL.": "AN LLL BAND, LARGE.",
    }
    for before, after in said.items():
        found = other_severity(Phrase(before))
        assert found is not None
        assert found.text == after
    assert other_severity(Phrase("A 3 mm nodule.")) is None


def test_a_synonym_names_the_same_finding_otherwise() -> None:
    found = synonymous(effusion("Small left pleural effusion."))
    assert found is not None
    assert found.text in {"Small left pleural fluid.", "Small left hydrothorax."}  # "effusion" is part of the old name
    assert synonymous(effusion("Blunting.")) is None


def test_the_true_region_is_added_if_the_words_name_none() -> None:
    places = ("right lung", "right lower lung zone")
    nodule = Phrase("A nodule, as before.", regions=places, findings={"nodule": POSITIVE})
    found = with_region(nodule)
    assert found is not None
    assert found.text == "A nodule in the right lower lung zone, as before."
    for text in ("Basilar nodule.", "Nodule of the left lung."):  # a zone, the other side
        assert with_region(replace(nodule, text=text)) is None
    assert with_region(replace(nodule, regions=("right lung",))) is None


def test_the_side_is_dropped_only_where_one_lesion_can_be_meant() -> None:
    nodule = Phrase("A left nodule.", (Box(0.6, 0.2, 0.7, 0.3),), findings={"nodule": POSITIVE})
    other = replace(nodule, text="A right nodule.", boxes=(Box(0.1, 0.2, 0.2, 0.3),))

    def study(*phrases: Phrase) -> Study:
        return Study("s", lambda: None, phrases=phrases)  # type: ignore[arg-type,return-value]

    found = side_dropped(study(nodule), nodule)
    assert found is not None
    assert found.text == "A nodule."
    assert not found.boxes
    assert side_dropped(study(nodule, other), nodule) is None
    both = replace(other, boxes=(*nodule.boxes, *other.boxes))
    assert side_dropped(replace(study(nodule), located_findings=(both,)), nodule) is None
    spine = Phrase("Scoliosis convex to the right.", nodule.boxes, findings={"scoliosis": POSITIVE})
    assert side_dropped(study(spine), spine) is None  # scoliosis has no side
