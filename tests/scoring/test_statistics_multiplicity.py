"""Adjusted p-values against statsmodels and a hand calculation, and every example of the documentation."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from rightlung.core.errors import InputError
from rightlung.scoring.statistics import benjamini_hochberg, holm


@settings(max_examples=80, deadline=None)
@given(st.lists(st.one_of(st.sampled_from([0.0, 0.01, 0.05, 1.0, np.nan]), st.floats(0, 1)), max_size=12))
def test_adjusted_p_values_are_those_of_statsmodels_with_nan_left_out(p: list[float]) -> None:
    values = np.array(p, dtype=np.float64)
    known = ~np.isnan(values)
    for function, name in ((holm, "holm"), (benjamini_hochberg, "fdr_bh")):
        adjusted = function(p)
        assert np.isnan(adjusted[~known]).all()
        if known.any():
            with patch("gc.collect"):  # it is called every time and takes half a second in a large process
                expected = multipletests(values[known], method=name)[1]
            np.testing.assert_allclose(adjusted[known], expected, atol=1e-12)


def test_a_hand_calculation() -> None:
    np.testing.assert_allclose(holm([0.02, 0.01, np.nan, 0.6]), [0.04, 0.03, np.nan, 0.6])
    np.testing.assert_allclose(benjamini_hochberg([0.02, 0.01, np.nan, 0.6]), [0.03, 0.03, np.nan, 0.6])


@pytest.mark.parametrize("function", [holm, benjamini_hochberg])
def test_a_p_value_outside_its_range_is_refused_by_place(function: object) -> None:
    assert callable(function)
    with pytest.raises(InputError, match=r"p\[1\] is 1.5; a p-value lies between 0 and 1"):
        function([0.1, 1.5])
    with pytest.raises(InputError, match=r"p\[0\] is -0.1"):
        function([-0.1])
    with pytest.raises(InputError, match=r"p must have 1 dimension\(s\)"):
        function([[0.1]])
    assert function([]).shape == (0,)
