from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rightlung.audit import Audit
from rightlung.audit.summary import left_out_note
from rightlung.core import Mask, Phrase, Polarity, Study
from rightlung.scoring.localisation import METRICS, score
from tests.audit.cards import SIDE, Cards, audited, diagonal_map, disc, fitted_prior

OPACITY, DEVICE = {"lung opacity": Polarity.POSITIVE}, {"Support Devices": Polarity.POSITIVE}
DOCUMENTED = {
    "study", "query", "condition", "target", "patient", "phrase", "asked", "findings", "polarity", "regions",
    "side_named", "side_asked", "side_told", "zones_named", "target_kind", "target_side", "target_size", "target_area",
    "scored_pixels", "peak_x", "peak_y", "peak_side", "peak_on_side", "grid_entropy", "abstention", "abstention_given",
    "similarity_global", "similarity_local", "moved_mass", "moved_peak", "kl_random", "reason", "prior_peak_on_side",
    "prior_support", *METRICS, *(f"prior_{name}" for name in METRICS),
}  # fmt: skip


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    return audited(tmp_path_factory.mktemp("instances"), Cards(12), diagonal_map)


def test_the_table_has_the_documented_columns_and_says_what_it_is(done: Audit) -> None:
    table = pq.read_table(done.instances)
    assert set(table.schema.names) >= DOCUMENTED
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    listed = page[page.index("## The instances table") : page.index("## Speed")]
    missing = {name for name in DOCUMENTED if f"`{name}`" not in listed}
    assert missing == {*METRICS, *(f"prior_{name}" for name in METRICS), "prior_peak_on_side"}  # named together
    assert table.schema.metadata[b"rightlung.note"].startswith(b"Not a medical device")
    assert done.result["protocol"]["hash"].encode() in table.schema.metadata[b"rightlung.protocol"]
    assert table.schema.metadata[b"rightlung.model"] == b"known"


def test_an_audit_gives_its_numbers_as_a_data_frame(done: Audit) -> None:
    frame = done.to_pandas().set_index(["part", "group", "measure", "quantity"])
    written = done.result["overall"]["auroc"]["model"]
    assert frame.value["overall", "", "auroc", "model"] == written["estimate"]
    assert frame.n["overall", "", "auroc", "model"] == written["phrases"]


def test_the_prior_is_scored_on_the_words_asked_and_fitted_on_other_patients(done: Audit) -> None:
    source = Cards(12)
    prior = fitted_prior(source)
    for row in pq.read_table(done.instances).to_pylist():
        mask = source.study(row["study"]).phrases[int(row["query"][-1])].mask
        if mask is None:
            assert np.isnan(row["prior_auroc"])
            assert row["prior_support"] is None
            continue
        heatmap = prior.map_of(row["asked"], row["findings"], row["patient"])
        scores = score(heatmap.to_size((SIDE, SIDE), keep_mass=False)[None], mask.pixels[None])
        expected = scores["average_precision"][0]
        assert row["prior_average_precision"] == pytest.approx(expected, rel=0.01)  # ties in float32
        others = [study for study in source if study.patient != row["patient"]]
        alike = sum(one.text == row["asked"] for study in others for one in study.phrases)
        assert row["prior_support"] <= alike  # those of the same fold do not count either


class Telltale(Cards):
    """Cards with an opacity behind the heart, which is always on the left, and a tube, wherever it ends."""

    def _build(self, position: int) -> Study:
        study = super()._build(position)
        behind = Phrase("Retrocardiac opacity.", mask=Mask(disc(44, 44, 5)), findings=OPACITY)
        tube = Phrase("Tube in place.", mask=Mask(disc(12 + 40 * (position % 2), 50, 3)), findings=DEVICE)
        return replace(study, phrases=(study.phrases[1], behind, tube))


def test_only_phrases_whose_side_no_word_tells_ask_the_image(tmp_path: Path) -> None:
    done = audited(tmp_path, Telltale(60), diagonal_map, ("none",))
    sides = done.result["sides"]
    assert sides["from_image"]["model"]["phrases"] == 60
    assert sides["left_out"] == {"device": 60, "words": 60}
    assert sides["from_image"]["prior"]["estimate"] == pytest.approx(0.5, abs=0.2)  # of all three kinds, 0.7
    told = {(row["query"], row["side_told"]) for row in pq.read_table(done.instances).to_pylist()}
    assert told == {("phrase:0", "image"), ("phrase:1", "words"), ("phrase:2", "device")}
    (said,) = (one for one in done.result["summary"] if "only the image shows it" in one)
    assert "no difference shown" in said
    assert "60 phrases whose other words imply a side, and 60 phrases about devices" in said
    assert "60 phrases whose other words imply a side" in done.page.read_text(encoding="utf-8")


def test_one_phrase_that_is_not_counted_is_a_phrase() -> None:
    said = left_out_note({"words": 2, "device": 1})
    assert said == "not counted: 2 phrases whose other words imply a side, and 1 phrase about devices"
