"""The most frequent texts: counted by subject, whatever the image shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rightlung.core import Box, InputError, Query, Report, Study
from rightlung.models.blind.texts import FrequentText
from rightlung.models.folder import load_folder, save_model

IMAGE = np.zeros((8, 8), dtype=np.float32)
REPORTS = [
    "No pneumothorax. Small left pleural effusion. The heart is enlarged.",
    "No pneumothorax. Large right pleural effusion.",
    "No pneumothorax. Small left pleural effusion.",
    "Nodule in the right upper lobe.",
]


def studies(*texts: str) -> list[Study]:
    return [Study(f"s{number}", lambda: IMAGE, report=Report(text)) for number, text in enumerate(texts)]


def test_a_query_is_answered_with_the_most_frequent_sentence_about_its_subject() -> None:
    model = FrequentText.fit([*studies(*REPORTS), Study("none", lambda: IMAGE)])
    queries = [Query("is there an effusion?"), Query("right upper lobe"), Query(box=Box(0, 0, 1, 1)), Query("hernia")]
    answers = model.describe([IMAGE] * 4, queries)
    assert answers == [
        "Small left pleural effusion.", "Nodule in the right upper lobe.", "No pneumothorax.", "No pneumothorax.",
    ]  # fmt: skip


def test_the_report_is_the_most_frequent_or_the_most_like_the_others(tmp_path: Path) -> None:
    assert FrequentText.fit(studies(*REPORTS, REPORTS[3])).report([IMAGE])[0].text == REPORTS[3]
    model = FrequentText.fit(studies(*REPORTS))
    assert [one.text for one in model.report([IMAGE, IMAGE])] == [
        REPORTS[2]
    ] * 2  # all of its sentences occur elsewhere
    save_model(model, tmp_path / "frequent")
    assert load_folder(tmp_path / "frequent") == model
    with pytest.raises(InputError, match="no study has a report"):
        FrequentText.fit([Study("none", lambda: IMAGE)])
