from __future__ import annotations

import numpy as np

from rightlung.models.blind import ConstantText, MedianBoxes, fold_of

BY_FOLD = {fold_of(f"p{number}"): f"p{number}" for number in range(40)}
"""A patient of each fold."""


def test_the_median_box_leaves_out_the_fold_of_the_patient() -> None:
    boxes = MedianBoxes()
    corners = {0: (0.0, 0.0, 0.2, 0.2), 1: (0.2, 0.1, 0.5, 0.4), 2: (0.4, 0.5, 0.9, 0.9), 3: (0.3, 0.2, 0.8, 0.5)}
    for fold, some in corners.items():
        boxes.add("mass", BY_FOLD[fold], some)
    everything = boxes.box(["mass"], None)
    assert everything is not None
    assert np.allclose(everything.as_tuple(), np.median([*corners.values()], axis=0))
    without = boxes.box(["mass"], BY_FOLD[2])
    assert without is not None
    assert np.allclose(without.as_tuple(), (0.2, 0.1, 0.5, 0.4))


def test_the_first_name_that_other_patients_have_is_used() -> None:
    boxes = MedianBoxes()
    boxes.add("left mass", BY_FOLD[0], (0.5, 0.5, 0.9, 0.9))
    boxes.add("any", BY_FOLD[1], (0.1, 0.1, 0.2, 0.2))
    names = ["left mass", "any"]
    assert [boxes.box(names, BY_FOLD[fold]).x0 for fold in (1, 0)] == [0.5, 0.1]  # type: ignore[union-attr]
    assert boxes.box(["nodule"], None) is None


def test_the_most_frequent_text_of_other_patients_is_the_answer() -> None:
    texts = ConstantText()
    for fold, text in (
        (0, "No effusion."),
        (0, "No effusion."),
        (1, "Clear lungs."),
        (2, "Clear lungs."),
        (0, "Mass."),
    ):
        texts.add(BY_FOLD[fold], text)
    texts.add(BY_FOLD[0], "No effusion.")
    assert texts.text(None) == "No effusion."
    assert texts.text(BY_FOLD[0]) == "Clear lungs."
    assert ConstantText().text(None) is None


def test_of_equally_frequent_texts_the_one_most_like_the_others_is_taken() -> None:
    texts = ConstantText()
    for text in ("A pacemaker is seen.", "The heart is of normal size today.", "The heart is of normal size."):
        texts.add("p", text)
    assert texts.text(None) in ("The heart is of normal size today.", "The heart is of normal size.")
