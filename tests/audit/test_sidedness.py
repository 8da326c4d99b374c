from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rightlung.audit import Sureness, audit
from rightlung.core import Heatmap, Mask, Phrase, Polarity, Study
from tests.audit.cards import Cards, disc, write_answers

OPACITY, DEVICE = {"lung opacity": Polarity.POSITIVE}, {"Support Devices": Polarity.POSITIVE}


class Telltale(Cards):
    """Cards with an opacity behind the heart, which is always on the left, and a tube, wherever it ends."""

    def _build(self, position: int) -> Study:
        study = super()._build(position)
        behind = Phrase("Retrocardiac opacity.", mask=Mask(disc(44, 44, 5)), findings=OPACITY)
        tube = Phrase("Tube in place.", mask=Mask(disc(12 + 40 * (position % 2), 50, 3)), findings=DEVICE)
        return replace(study, phrases=(study.phrases[1], behind, tube))


def test_only_phrases_whose_side_no_word_tells_ask_the_image(tmp_path: Path) -> None:
    source = Telltale(60)
    folder = write_answers(source, tmp_path / "p", lambda *_: Heatmap(np.eye(4)), conditions=("none",))
    done = audit(folder, source, tmp_path / "out", sureness=Sureness(resamples=300), cases=0)
    sides = done.result["sides"]
    assert sides["from_image"]["model"]["phrases"] == 60
    assert sides["left_out"] == {"device": 60, "words": 60}
    assert sides["from_image"]["prior"]["estimate"] == pytest.approx(0.5, abs=0.2)  # of all three kinds, 0.7
    rows = pq.read_table(done.instances).to_pylist()
    assert {(row["query"], row["side_told"]) for row in rows} == {
        ("phrase:0", "image"),
        ("phrase:1", "words"),
        ("phrase:2", "device"),
    }
    (said,) = (one for one in done.result["summary"] if "only the image can tell" in one)
    assert "no difference from the prior is shown" in said
    assert "60 whose words give it away, 60 about devices" in said
    assert "60 whose words give it away" in done.page.read_text(encoding="utf-8")
