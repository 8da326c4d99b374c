"""Boxes, extents and maps for property tests; corners keep a thousandth apart so that rounding has room."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from rightlung.core import Box, Extent, Heatmap, Mask

sides = st.tuples(st.floats(0, 1), st.floats(0, 1)).filter(lambda pair: abs(pair[0] - pair[1]) > 1e-3).map(sorted)
boxes = st.builds(lambda xs, ys: Box(xs[0], ys[0], xs[1], ys[1]), sides, sides)
grid_boxes = st.builds(  # corners on a grid of sixteenths, so that rasterising at 16 x 16 is exact
    lambda xs, ys: Box(xs[0] / 16, ys[0] / 16, xs[1] / 16, ys[1] / 16),
    *[st.tuples(st.integers(0, 16), st.integers(0, 16)).filter(lambda p: p[0] != p[1]).map(sorted)] * 2,
)
sizes = st.tuples(st.integers(1, 40), st.integers(1, 40))
grids = npst.arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(1, 9)), elements=st.floats(0, 1000, width=32))
frames = st.builds(
    lambda x, y, w, h: Extent(x, y, x + w, y + h),
    st.floats(-2, 1.5), st.floats(-2, 1.5), st.floats(0.25, 4), st.floats(0.25, 4),
)  # fmt: skip
heatmaps = st.builds(Heatmap, grids, frames, st.floats(0, 1))
masks = npst.arrays(np.bool_, sizes).map(Mask)
