"""A figure of points in the plane, such as a UMAP of embeddings: groups by colour, kinds by shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from rightlung.core.errors import InputError
from rightlung.pages.content import Figure
from rightlung.pages.figures import COLOURS
from rightlung.scoring.geometry import umap_map

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

HUES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")
"""Colours that colour-blind readers can tell apart (Okabe and Ito)."""
SHAPES = ("o", "^", "x", "s", "+")


def point_figure(
    name: str, title: str, caption: str, points: ArrayLike, groups: Sequence[str], kinds: Sequence[str]
) -> Figure:
    """Return a scatter plot of points (n, 2); each has a group (up to 7) and a kind (up to 5)."""
    places = np.asarray(points, np.float64)
    if places.shape != (len(groups), 2) or len(kinds) != len(groups):
        raise InputError(f"expected points (n, 2), and a group and a kind for each; got the shape {places.shape}")
    hues, shapes = (
        dict(zip(dict.fromkeys(names), marks, strict=False)) for names, marks in ((groups, HUES), (kinds, SHAPES))
    )
    if len(hues) < len(set(groups)) or len(shapes) < len(set(kinds)):
        raise InputError(f"at most {len(HUES)} groups and {len(SHAPES)} kinds can be drawn")

    def draw() -> Drawing:
        from matplotlib.figure import Figure as Drawing
        from matplotlib.lines import Line2D

        drawing = Drawing(figsize=(8.4, 5.2), facecolor=COLOURS["paper"])
        axes = drawing.add_axes((0.02, 0.03, 0.72, 0.94))
        axes.set(xticks=[], yticks=[], facecolor=COLOURS["paper"])
        lines = [Line2D([], [], linestyle="", marker="o", color=hue, label=one) for one, hue in hues.items()]
        for kind, shape in shapes.items():
            lines.append(Line2D([], [], linestyle="", marker=shape, color=COLOURS["ink"], label=kind))
            for group, hue in hues.items():
                chosen = np.array([pair == (group, kind) for pair in zip(groups, kinds, strict=True)])
                axes.scatter(*places[chosen].T, s=14, marker=shape, color=hue, alpha=0.6, linewidths=0.8)
        axes.legend(handles=lines, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8.5)
        return drawing

    rows = zip(places.round(4).tolist(), groups, kinds, strict=True)
    return Figure(name, title, caption, cache(draw), numbers=[[*place, group, kind] for place, group, kind in rows])


def umap_figure(
    name: str, title: str, vectors: Mapping[str, ArrayLike], groups: Sequence[str], seed: int = 0, note: str = ""
) -> Figure:
    """Return a UMAP (cosine) of embeddings by kind, such as ``images`` and ``texts``, (n, dimension) each.

    ``groups`` (n) are those of the studies, the same for every kind.
    """
    tables = {kind: np.asarray(one) for kind, one in vectors.items()}
    if any(len(one) != len(groups) for one in tables.values()):
        raise InputError(f"every kind needs {len(groups)} vectors, one for each group that is given")
    points = umap_map(np.concatenate([*tables.values()]), seed)
    caption = f"UMAP by cosine, seed {seed}, of {len(groups):,} studies. Its distances prove nothing. {note}"
    kinds = [kind for kind in tables for _ in groups]
    return point_figure(name, title, caption.strip(), points, [*groups] * len(tables), kinds)
