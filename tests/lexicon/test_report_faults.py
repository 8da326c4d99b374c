"""Faults of a report that need no reference."""

from __future__ import annotations

import pytest

from rightlung.lexicon.report_faults import compared_with_prior, contradictions


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The heart size is unchanged. No effusion.", 1),
        ("There has been interval placement of a chest tube.", 1),
        ("The left effusion has slightly increased.", 1),
        ("Right lower lobe opacity, larger than on the prior examination.", 1),
        ("No new consolidation. Stable cardiomegaly.", 2),
        ("Prior sternotomy. Old rib fracture. Chronic changes. Previous granulomatous disease.", 0),
        ("COMPARISON: Chest radiograph of the previous day.\nFINDINGS: The lungs are clear.", 0),
        ("No prior studies are available for comparison. The heart is enlarged.", 0),
    ],
)
def test_sentences_that_compare_with_an_earlier_study_are_found(text: str, found: int) -> None:
    assert len(compared_with_prior(text)) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Left pneumothorax. No pneumothorax is seen.", ("left pneumothorax",)),
        ("Left pneumothorax. No right pneumothorax.", ()),
        ("Left pneumothorax. No other pneumothorax.", ()),
        ("The heart is enlarged. Heart size is normal.", ("cardiomegaly",)),
        ("The lungs are clear. Consolidation in the right lower lobe.", ("right consolidation",)),
        ("Right lower lobe consolidation. The lungs are otherwise clear.", ()),
        ("Calcified granuloma in the left lung. No nodule.", ()),
        ("Possible edema. No edema.", ()),
    ],
)
def test_a_finding_that_is_asserted_and_denied_is_a_contradiction(text: str, found: tuple[str, ...]) -> None:
    assert contradictions(text) == found
