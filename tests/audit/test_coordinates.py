"""Mistakes with coordinates are planted in a grounder that knows the truth, and found from its scores alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from rightlung.audit import audit
from rightlung.audit.coordinates import MOST, Found, coordinate_mistakes
from rightlung.audit.run import prior_rows
from rightlung.core import Box, Extent, Grounding, Heatmap, Mask, Phrase, Polarity, Query, ScoredBox, Study
from rightlung.core.errors import InputError
from rightlung.measuring import gather_targets
from rightlung.measuring.answered import answered
from rightlung.models.blind import LocationPrior
from rightlung.predictions import Batch, Prediction, Predictions, PredictionWriter, open_predictions
from rightlung.studies import Source, open_source
from tests.audit.cards import QUICK

GRID = 24
Where = tuple[float, float, float, float]


class Films(Source):
    """Studies of an opacity somewhere, known by its box; images are 100 high and 80 wide, or square."""

    def __init__(self, count: int = 40, height: int = 100, patients: int = 40) -> None:
        super().__init__("films")
        self.count, self.height, self.people = count, height, patients

    @property
    def ids(self) -> Sequence[str]:
        return [f"film-{number}" for number in range(self.count)]

    def _position(self, study_id: str) -> int | None:
        return self.ids.index(study_id) if study_id in self.ids else None

    def box(self, position: int) -> Box:
        rng = np.random.default_rng(position)
        x, y = rng.uniform(0.02, 0.8, 2)
        return Box(float(x), float(y), float(x) + 0.15, float(y) + 0.12)

    def _build(self, position: int) -> Study:
        image = np.full((self.height, 80), 0.5, np.float32)
        phrase = Phrase("An opacity.", (self.box(position),), findings={"lung opacity": Polarity.POSITIVE})
        patient = f"p{position % self.people}"
        return Study(f"film-{position}", lambda: image, patient, phrases=(phrase,))


def answers(source: Films, wrong: Callable[[Where], Where], boxes: bool, noise: float = 0.02) -> list[Prediction]:
    """Return answers that point at the truth, give or take ``noise``, in coordinates made wrong."""
    found = []
    for position, study in enumerate(source.ids):
        shift = np.random.default_rng((7, position)).normal(0, noise, 2)
        box = source.box(position)
        x0, y0, x1, y1 = wrong((box.x0 + shift[0], box.y0 + shift[1], box.x1 + shift[0], box.y1 + shift[1]))
        clipped = Box.clipped(x0, y0, x1, y1)
        assert clipped is not None
        if boxes:
            grounding = Grounding(boxes=[ScoredBox(clipped, 0.8)])
        else:
            pixels = Mask.from_boxes((clipped,), (GRID, GRID)).pixels
            grounding = Grounding(Heatmap(pixels.astype(np.float32) + 0.1))
        found.append(Prediction(study, "phrase:0", "none", Query("An opacity."), grounding))
    return found


def written(path: Path, rows: Sequence[Prediction]) -> Predictions:
    with PredictionWriter(path, source="films", model="planted") as writer:
        for row in rows:
            writer.write(row)
    return open_predictions(path)


def looked_at(path: Path, source: Source, rows: Sequence[Prediction]) -> list[Found]:
    return coordinate_mistakes([*answered(written(path, rows).batches(), gather_targets(source), MOST)], source)


PLANTED: dict[str, Callable[[Where], Where]] = {
    "mirrored": lambda c: (1 - c[2], c[1], 1 - c[0], c[3]),
    "upside-down": lambda c: (c[0], 1 - c[3], c[2], 1 - c[1]),
    "transposed": lambda c: (c[1], c[0], c[3], c[2]),
    "letterbox": lambda c: (0.1 + 0.8 * c[0], c[1], 0.1 + 0.8 * c[2], c[3]),
}


@pytest.mark.parametrize("boxes", [False, True], ids=["heatmaps", "boxes"])
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_named(tmp_path: Path, name: str, boxes: bool) -> None:
    source = Films()
    (found,) = looked_at(tmp_path / "p", source, answers(source, PLANTED[name], boxes))
    assert (found.mistake, found.where) == (name, "boxes" if boxes else "heatmaps")
    assert found.after > found.before + 0.1
    assert (found.answers, found.patients) == (40, 40)


@pytest.mark.parametrize("divided_by", [1.25, 2.05, 4.0], ids=["640/512", "1000/488", "2048/512"])
def test_boxes_in_another_unit_are_found_with_the_factor(tmp_path: Path, divided_by: float) -> None:
    source = Films(height=80)
    small = answers(
        source, lambda c: (c[0] / divided_by, c[1] / divided_by, c[2] / divided_by, c[3] / divided_by), True, 0
    )
    (found,) = looked_at(tmp_path / "p", source, small)
    assert found.mistake == "scale"
    assert f"{1 / divided_by:.3g} times" in found.says


def test_a_square_crop_is_found_in_a_square_image(tmp_path: Path) -> None:
    source = Films(height=80)
    inside = [n for n in range(40) if max(abs(v - 0.5) for v in source.box(n).as_tuple()) < 0.43]
    rows = answers(source, lambda c: tuple(0.5 + (v - 0.5) * 8 / 7 for v in c), boxes=True)  # type: ignore[arg-type, return-value]
    (found,) = looked_at(tmp_path / "p", source, [rows[n] for n in inside])
    assert found.mistake == "square-crop"


class Shapes(Films):
    """Films whose heights take turns."""

    def __init__(self, *heights: int) -> None:
        super().__init__()
        self.heights = heights

    def _build(self, position: int) -> Study:
        return Films(height=self.heights[position % len(self.heights)])._build(position)

    def letterboxed(self, boxes: bool) -> list[Prediction]:
        """Return answers in fractions of the padded square instead of the image."""
        found = []
        for height in self.heights:
            x0, y0, x1, y1 = Extent.letterbox((height, 80)).as_tuple()
            wide, high = x1 - x0, y1 - y0
            found.append(answers(self, lambda c, x=x0, y=y0, w=wide, h=high: (  # type: ignore[misc]
                (c[0] - x) / w, (c[1] - y) / h, (c[2] - x) / w, (c[3] - y) / h), boxes))  # fmt: skip
        return [found[position % len(found)][position] for position in range(self.count)]


@pytest.mark.parametrize("boxes", [False, True], ids=["heatmaps", "boxes"])
@pytest.mark.parametrize("heights", [(64,), (100, 64), (80,)], ids=["landscape", "both", "square"])
def test_a_letterbox_is_named_on_any_shape_but_a_square_that_has_none(
    tmp_path: Path, heights: tuple[int, ...], boxes: bool
) -> None:
    source = Shapes(*heights)
    found = looked_at(tmp_path / "p", source, source.letterboxed(boxes))
    assert [one.mistake for one in found] == ([] if heights == (80,) else ["letterbox"])


@pytest.mark.parametrize("height", [80, 100])
@pytest.mark.parametrize("boxes", [False, True])
@pytest.mark.parametrize("noise", [0.0, 0.03, 0.08])
def test_no_alarm_for_right_answers_however_imprecise(tmp_path: Path, height: int, boxes: bool, noise: float) -> None:
    source = Films(height=height)
    right = answers(source, lambda c: tuple(min(max(v, 0.0), 1.0) for v in c), boxes, noise)  # type: ignore[arg-type, return-value]
    assert looked_at(tmp_path / "p", source, right) == []


def test_no_alarm_for_maps_that_do_not_look_at_the_image(tmp_path: Path) -> None:
    """A constant map in the upper right fits targets in the lower left better once it is moved: no mistake."""

    class Low(Films):
        def box(self, position: int) -> Box:
            box = super().box(position)
            return Box(box.x0 / 3, 0.6 + box.y0 / 3, box.x1 / 3, 0.6 + box.y1 / 3)

    values = np.zeros((GRID, GRID), np.float32)
    values[:8, 14:] = 1.0
    same = Grounding(Heatmap(values, Extent()))
    rows = [Prediction(study, "phrase:0", "none", Query("An opacity."), same) for study in Low().ids]
    assert looked_at(tmp_path / "p", Low(), rows) == []


def test_no_alarm_for_the_location_prior_on_phantoms() -> None:
    source = open_source("phantom?count=24&size=96&seed=3")
    prior = LocationPrior()
    targets = gather_targets(source, seen=prior_rows(prior))
    phrases = [*targets.phrases.values()]
    asked = [Phrase(one.text, findings=dict.fromkeys(one.findings, Polarity.POSITIVE)) for one in phrases]
    maps = prior.ground_blind(asked, [one.patient for one in phrases])
    rows = zip(phrases, maps, strict=True)
    batch = Batch.of([Prediction(one.study, one.query, "none", Query(one.text), found) for one, found in rows])
    assert coordinate_mistakes([*answered([batch], targets, MOST)], source) == []


def test_too_few_patients_are_not_judged(tmp_path: Path) -> None:
    source = Films(patients=7)
    assert looked_at(tmp_path / "p", source, answers(source, PLANTED["transposed"], False)) == []


def test_the_audit_warns_at_the_top(tmp_path: Path) -> None:
    source = Films()
    done = audit(written(tmp_path / "p", answers(source, PLANTED["transposed"], False)), source, tmp_path / "a",
        settings=QUICK, cases=0)  # fmt: skip
    (warning,) = done.result["warnings"]
    assert warning.startswith("Coordinates: the heatmaps seem to be wrong: x and y (columns and rows) are exchanged.")
    assert done.result["summary"][0] == f"Warning: {warning}"
    text = done.page.read_text(encoding="utf-8")
    assert text.index("columns and rows") < text.index("Verdict")


def test_pixels_are_refused_with_a_hint(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path = tmp_path / "p"
    written(path, answers(Films(), lambda c: c, boxes=True, noise=0.0))
    (part,) = path.glob("*.parquet")
    table = pq.read_table(part)
    boxes = [[one | {"x1": 512.0} for one in row] for row in table["boxes"].to_pylist()]
    import pyarrow as pa

    place = table.schema.get_field_index("boxes")
    pq.write_table(
        table.set_column(place, table.schema.field(place), pa.array(boxes, table.schema.field(place).type)), part
    )
    with pytest.raises(InputError, match="looks like pixels or a scale of 0–1000"):
        list(open_predictions(path))
