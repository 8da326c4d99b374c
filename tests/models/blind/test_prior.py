from __future__ import annotations

import numpy as np
import pytest

from rightlung.core import Box, InputError, Mask, Phrase, Polarity
from rightlung.lexicon.wordkeys import word_key, zones_in
from rightlung.models.base import BlindGrounder
from rightlung.models.blind.prior import GRID, LocationPrior, PriorRow, fit_prior, fold_of

LEFT, RIGHT = Box(0.5, 0.0, 1.0, 1.0), Box(0.0, 0.0, 0.5, 1.0)


def patients_of_fold(fold: int, count: int, folds: int = 2) -> list[str]:
    names = (f"p{number}" for number in range(1000))
    return [name for name in names if fold_of(name, folds) == fold][:count]


def halves(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> tuple[float, float]:
    """The mean on the patient's right and on the patient's left."""
    return float(values[:, : GRID // 2].mean()), float(values[:, GRID // 2 :].mean())


def test_a_map_is_the_mean_target_shrunk_as_worked_out_by_hand() -> None:
    own, other = patients_of_fold(0, 1)[0], patients_of_fold(1, 3)
    rows = [
        PriorRow(other[0], "mass", ["mass"], [LEFT]),
        PriorRow(other[1], "mass", ["mass"], [LEFT]),
        PriorRow(other[2], "nodule", ["nodule"], [RIGHT]),
        PriorRow(own, "mass", ["mass"], [RIGHT]),
    ]
    prior = fit_prior(rows, folds=2, widths=[0.0], strength=4.0)
    right, left = halves(prior.map_of("mass", ["mass"], patient=own).values)
    # All: one right, two left. The finding: (0 + 4/3) / 6 right. Then the finding without a side: once more.
    finding_right, finding_left = (0 + 4 / 3) / 6, (2 + 4 * 2 / 3) / 6
    assert right == pytest.approx((0 + 4 * finding_right) / 6, rel=1e-4)
    assert left == pytest.approx((2 + 4 * finding_left) / 6, rel=1e-4)


def test_a_patients_own_targets_are_never_used() -> None:
    own, others = patients_of_fold(0, 1)[0], patients_of_fold(1, 5)
    rows = [PriorRow(name, "mass", ["mass"], [RIGHT]) for name in others]
    with_own = fit_prior([*rows, PriorRow(own, "mass", ["mass"], [LEFT])], folds=2, widths=[1.0])
    without = fit_prior(rows, folds=2, widths=[1.0])
    assert np.array_equal(with_own.map_of("mass", ["mass"], own).values, without.map_of("mass", ["mass"]).values)
    assert halves(with_own.map_of("mass", ["mass"]).values)[1] > 0.01  # a stranger may profit from everybody


def test_a_side_never_seen_with_a_finding_is_folded_over() -> None:
    rows = [PriorRow(f"p{number}", "right mass", ["mass"], [Box(0.1, 0.2, 0.3, 0.4)]) for number in range(20)]
    prior = fit_prior(rows, widths=[0.0])
    values = prior.map_of("left mass", ["mass"]).to_size((20, 20), keep_mass=False)
    row, column = np.unravel_index(int(values.argmax()), values.shape)
    assert 4 <= row < 8
    assert 14 <= column < 18
    assert values[:, :10].max() == 0.0


def test_zone_words_sharpen_the_map_even_for_a_finding_not_seen_there() -> None:
    rows = []
    for number in range(30):
        upper, lower = Box(0.6, 0.1, 0.9, 0.4), Box(0.6, 0.6, 0.9, 0.9)
        rows.append(PriorRow(f"p{number}", "left upper lobe nodule", ["nodule"], [upper]))
        rows.append(PriorRow(f"p{number}", "left lower lobe nodule", ["nodule"], [lower]))
        rows.append(PriorRow(f"p{number}", "left mass", ["mass"], [upper if number % 2 else lower]))
    prior = fit_prior(rows, widths=[0.0])
    values = prior.map_of("left lower lobe mass", ["mass"]).to_size((10, 10), keep_mass=False)
    assert values[7, 7] > 10 * values[2, 7]
    whole = prior.map_of("left mass", ["mass"]).to_size((10, 10), keep_mass=False)
    assert whole[7, 7] == pytest.approx(whole[2, 7], rel=0.1)


def test_the_true_region_is_not_looked_at() -> None:
    said = Phrase("rib fracture", regions=("right upper lung zone",), findings={"rib fracture": Polarity.POSITIVE})
    rows = [PriorRow(f"p{number}", "rib fracture", ["rib fracture"], [LEFT]) for number in range(9)]
    prior = fit_prior(rows, widths=[0.0])
    assert np.array_equal(prior.map_of(said).values, prior.map_of("rib fracture", ["rib fracture"]).values)


def test_two_findings_fall_back_on_where_each_lies() -> None:
    rows = [PriorRow(f"p{number}", "mass", ["mass"], [LEFT]) for number in range(50)]
    rows += [PriorRow(f"q{number}", "nodule", ["nodule"], [RIGHT]) for number in range(50)]
    right, left = halves(fit_prior(rows, widths=[0.0]).map_of("x", ["mass", "nodule"]).values)
    assert right == pytest.approx(left, rel=0.01)
    assert right > 0.4


def test_the_width_is_chosen_where_it_helps() -> None:
    # Spots scattered about a centre: the mean of few of them is rough, and smoothing fills the gaps.
    rng = np.random.default_rng(0)
    rows = []
    for number in range(60):
        x, y = rng.normal(0.5, 0.08, 2).clip(0.1, 0.9)
        box = Box(x - 0.02, y - 0.02, x + 0.02, y + 0.02)
        rows.append(PriorRow(f"p{number}", "nodule", ["nodule"], [box]))
    assert fit_prior(rows).width(None) > 0
    same = [PriorRow(f"p{number}", "heart", ["cardiomegaly"], [Box(0.25, 0.25, 0.5, 0.5)]) for number in range(60)]
    assert fit_prior(same).width(None) == 0


def test_the_order_of_rows_does_not_matter_and_nothing_is_flat() -> None:
    rng = np.random.default_rng(1)
    rows = []
    for number in range(900):  # more than are kept to choose the width by
        x, y = rng.uniform(0.1, 0.8, 2)
        rows.append(PriorRow(f"p{number}", "nodule", ["nodule"], [Box(x, y, x + 0.1, y + 0.1)]))
    one, other = fit_prior(rows), fit_prior(rows[::-1])
    assert one.width(2) == other.width(2)
    assert np.allclose(one.map_of("nodule", ["nodule"]).values, other.map_of("nodule", ["nodule"]).values, atol=1e-6)
    assert np.ptp(LocationPrior().map_of("anything").values) == 0
    assert len(one) == 900


def test_an_empty_mask_teaches_nothing_and_masks_of_any_shape_fit_the_grid() -> None:
    prior = fit_prior([PriorRow("a", "mass", ["mass"], Mask(np.zeros((8, 8))))])
    assert len(prior) == 0
    tall = np.zeros((300, 17), dtype=bool)
    tall[150:] = True
    values = fit_prior([PriorRow("a", "mass", ["mass"], tall)], widths=[0.0], strength=1e-6).map_of("mass", ["mass"])
    assert values.values[GRID // 2 :].min() == pytest.approx(1.0, abs=1e-3)
    assert values.values[: GRID // 2].max() == pytest.approx(0.0, abs=1e-3)


def test_a_prior_without_folds_or_widths_is_refused() -> None:
    with pytest.raises(InputError, match="at least 2 folds"):
        LocationPrior(folds=1)


@pytest.mark.parametrize(
    ("text", "zones"),
    [
        ("Bibasilar atelectasis", ("base",)),
        ("RUL consolidation", ("upper",)),
        ("Retrocardiac opacity", ("retrocardiac",)),
        ("central venous catheter, tip in the SVC", ("great veins",)),
        ("Central congestion", ("hilum",)),
        ("upright chest, slower", ()),
        ("left apical pneumothorax", ("apex",)),
        ("blunting of the right costophrenic angle", ("costophrenic angle",)),
    ],
)
def test_zones_are_found_in_words(text: str, zones: tuple[str, ...]) -> None:
    assert zones_in(text) == zones


def test_a_key_holds_asserted_findings_only_by_their_canonical_names() -> None:
    key = word_key("Left effusion, no pneumothorax", {"Effusion": "positive", "Pneumothorax": "negative"})
    assert key == (("pleural effusion",), "left", ())


def test_the_prior_grounds_words_without_an_image_and_says_the_same_of_the_same_words() -> None:
    own, others = patients_of_fold(0, 1, folds=5)[0], patients_of_fold(1, 5, folds=5)
    prior: BlindGrounder = fit_prior(
        PriorRow(name, "mass", ["mass"], [LEFT if name == own else RIGHT]) for name in [own, *others]
    )
    said = [Phrase(text, findings={"mass": Polarity.POSITIVE}) for text in ("A mass.", "Mass again.", "A mass.")]
    one, other, held_out = prior.ground_blind(said, [None, "a stranger", own])
    assert one.heatmap is not None
    assert other.heatmap is not None
    assert held_out.heatmap is not None
    assert one.heatmap.values is other.heatmap.values
    assert halves(held_out.heatmap.values)[1] < halves(one.heatmap.values)[1]  # without its own fold
