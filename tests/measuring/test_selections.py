"""Which images a selection holds, and what missing labels mean."""

from __future__ import annotations

import pytest

from rightlung.core import InputError
from rightlung.measuring.selections import Selection, find_selection, missing_as_negative, select
from rightlung.measuring.targets import StudyLabels


def labels(**findings: dict[str, str]) -> dict[str, StudyLabels]:
    return {study: StudyLabels(f"patient of {study}", one) for study, one in findings.items()}


YES, NO, MAYBE = "positive", "negative", "uncertain"


def test_named_selections() -> None:
    assert find_selection("5x200") == Selection(
        "5x200", ("atelectasis", "cardiomegaly", "consolidation", "edema", "pleural effusion"), 200
    )
    assert len(find_selection("14x100").classes) == 14
    assert "no finding" in find_selection("14x100").classes
    assert "hernia" not in find_selection("14x100").classes
    assert find_selection("pneumonia").classes == ("pneumonia", "no finding")
    for unknown in ("5x0", "6x10", "edema", "5x200x3"):
        with pytest.raises(InputError, match=f"unknown selection '{unknown}': there are 5xN"):
            find_selection(unknown)


def test_each_image_shows_one_class_alone() -> None:
    given = labels(
        one={"Edema": YES, "Effusion": NO},
        both={"edema": YES, "pleural effusion": YES},
        doubt={"edema": YES, "pleural effusion": MAYBE},
        doubtful={"edema": MAYBE},
        other={"pleural effusion": YES, "mass": YES},  # a mass is none of the classes
        none={"edema": NO, "pleural effusion": NO},
        unknown={},
    )
    chosen = select(given, Selection("two", ("edema", "pleural effusion")))
    assert {study: one.findings for study, one in chosen.items()} == {
        "one": {"edema": YES, "pleural effusion": NO},
        "other": {"edema": NO, "pleural effusion": YES},
    }
    assert chosen["one"].patient == "patient of one"


def test_no_finding_is_what_is_labelled_so_or_known_to_lack_findings() -> None:
    given = labels(
        told={"no finding": YES, "support devices": YES},
        inferred={"edema": NO, "support devices": YES},
        listed={"mass": YES, "edema": NO},
        unknown={"support devices": YES},
        uncoded={"No Indexing": YES, "edema": NO},
        edema={"edema": YES},
        second={"edema": YES},
    )
    chosen = select(given, Selection("two", ("edema", "no finding")))
    assert [study for study, one in chosen.items() if one.findings["no finding"] == YES] == ["told", "inferred"]


def test_a_selection_depends_on_the_seed_and_grows_with_its_number() -> None:
    given = labels(**{f"s{n}": {"edema" if n % 2 else "mass": YES} for n in range(60)})
    small, large, other = (
        set(select(given, Selection("x", ("edema", "mass"), n), seed)) for n, seed in ((5, 0), (12, 0), (5, 1))
    )
    assert len(small) == 10
    assert small < large
    assert small != other
    assert small == set(select(dict(reversed(given.items())), Selection("x", ("edema", "mass"), 5)))
    with pytest.raises(InputError, match="selection 5x200 needs 200 studies of each class alone; got atelectasis 0, "):
        select(given, find_selection("5x200"))


def test_missing_labels_are_negative_if_other_studies_have_them() -> None:
    found = missing_as_negative(
        labels(a={"Effusion": YES}, b={}, c={"mass": MAYBE}, d={"No Indexing": YES}, e={"support devices": YES})
    )
    assert found["a"].findings == {
        "pleural effusion": YES, "mass": NO, "support devices": NO, "no finding": NO,
    }  # fmt: skip
    assert found["b"].findings == {"pleural effusion": NO, "mass": NO, "support devices": NO, "no finding": YES}
    assert found["c"].findings["mass"] == MAYBE
    assert found["c"].findings["no finding"] == NO
    assert found["d"].findings == {"no indexing": YES}
    assert found["e"].findings["no finding"] == YES
