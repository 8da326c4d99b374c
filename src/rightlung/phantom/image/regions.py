"""Boxes of Chest ImaGenome's 29 regions, from the same outlines as the image."""

from __future__ import annotations

import numpy as np

from rightlung.lexicon import IMAGENOME_REGIONS
from rightlung.phantom.image.anatomy import FIELD, Thorax, at
from rightlung.phantom.image.frame import Frame
from rightlung.phantom.image.randomness import Floats
from rightlung.phantom.image.skeleton import girdle

_SMALLEST = 1e-3  # size of a box whose region lies outside the image, at its border


def _points(x: Floats, y: Floats) -> Floats:
    return np.stack([x, y], axis=-1)


def _rectangle(x0: Floats, y0: Floats, x1: Floats, y1: Floats) -> Floats:
    """Return the corners of rectangles, ``(n, 4, 2)``."""
    return np.stack([_points(x0, y0), _points(x1, y0), _points(x1, y1), _points(x0, y1)], axis=1)


def _lung_outline(thorax: Thorax, left: bool, low: float, high: float) -> Floats:
    """Return points around the part of a lung between two fractions of its height, ``(n, 2 * p, 2)``."""
    apex, dome = thorax.apex[:, None], thorax.dome[left][:, None]
    bottom = dome + 6.0 if high >= 1.0 else apex + high * (dome - apex)
    # Only the bottom of the lung is so curved that its lowest point must be searched for.
    steps = 48 if high >= 1.0 else 14
    y = apex + low * (dome - apex) + np.linspace(0, 1, steps)[None] * (bottom - apex - low * (dome - apex))
    outer, inner = at(thorax.outer[left], y), at(thorax.inner[left], y)
    across = (outer, inner, (outer + inner) / 2, 0.7 * outer + 0.3 * inner, 0.9 * outer + 0.1 * inner)
    return np.concatenate([_points(x, np.minimum(y, at(thorax.diaphragm, x))) for x in across], axis=1)


def _shapes(thorax: Thorax) -> dict[str, Floats]:
    """Return points ``(n, p, 2)`` in centimetres whose bounding box is each region's box."""
    height, carina, inner = thorax.height, thorax.carina, thorax.inner
    mean_dome = (thorax.dome[0] + thorax.dome[1]) / 2
    far = np.full_like(height, FIELD)
    heart_top = thorax.heart_middle - 4.4 * height
    heart_bottom = np.minimum(thorax.heart_middle + 4.9 * height, mean_dome + 3.0)
    levels = heart_top[:, None] + np.linspace(0, 1, 24)[None] * (heart_bottom - heart_top)[:, None]
    heart_right, heart_left = at(inner[0], levels), at(inner[1], levels)
    heart = np.concatenate([_points(heart_right, levels), _points(heart_left, levels)], axis=1)
    above = np.linspace(-13.0, -1.0, 24)[None] * height[:, None]
    upper = above[:, :16]
    knob = -7.0 * height
    cava_y = np.stack([-9.5 * height, heart_top + 0.6], axis=1)
    junction_x, junction_y = at(inner[0], heart_top + 0.6), heart_top + 0.6
    spine_y = np.linspace(-16, 17, 24)[None] * np.ones_like(height)[:, None]
    spine = at(thorax.spine, spine_y)
    atrium_mid = at(thorax.middle, thorax.heart_middle)
    shapes = {
        "trachea": _rectangle(carina[:, 0] - 1.3, -far, carina[:, 0] + 1.3, carina[:, 1]),
        "carina": _rectangle(carina[:, 0] - 1.5, carina[:, 1] - 1.2, carina[:, 0] + 1.5, carina[:, 1] + 1.2),
        "spine": np.concatenate([_points(spine - 2.2, spine_y), _points(spine + 2.2, spine_y)], axis=1),
        "aortic arch": _rectangle(at(thorax.middle, knob) - 0.2, knob - 2.0, at(inner[1], knob) + 0.2, knob + 1.7),
        "mediastinum": np.concatenate([*(_points(at(table, above), above) for table in inner), heart], axis=1),
        "upper mediastinum": np.concatenate([_points(at(table, upper), upper) for table in inner], axis=1),
        "svc": np.concatenate([_points(at(table, cava_y), cava_y) for table in (inner[0], thorax.middle)], axis=1),
        "cardiac silhouette": heart,
        "cavoatrial junction": _rectangle(junction_x - 0.3, junction_y - 1.2, junction_x + 2.4, junction_y + 1.2),
        "right atrium": np.concatenate(
            [_points(heart_right, levels)[:, 3:], _points(atrium_mid, thorax.heart_middle)[:, None]], axis=1
        ),
        "abdomen": _rectangle(
            -at(thorax.skin, mean_dome + 5),
            np.minimum(*thorax.dome),
            at(thorax.skin, mean_dome + 5),
            far,
        ),
    }
    clavicles = girdle(thorax)[0][0]
    for side, left in (("right", False), ("left", True)):
        sign = 1.0 if left else -1.0
        hilum, dome = thorax.hilum[left], thorax.dome[left]
        corner = at(thorax.outer[left], dome + 4.5)
        for name, low, high in (
            ("lung", 0.0, 1.0),
            ("upper lung zone", 0.0, 0.34),
            ("mid lung zone", 0.34, 0.66),
            ("lower lung zone", 0.66, 1.0),
            ("apical zone", 0.0, 0.14),
        ):
            shapes[f"{side} {name}"] = _lung_outline(thorax, left, low, high)
        shapes[f"{side} hilar structures"] = _rectangle(
            hilum[:, 0] - sign * 1.6, hilum[:, 1] - 2.6, hilum[:, 0] + sign * 2.6, hilum[:, 1] + 3.4
        )
        shapes[f"{side} costophrenic angle"] = _rectangle(corner - sign * 3.2, dome + 1.6, corner, dome + 5.4)
        shapes[f"{side} hemidiaphragm"] = _rectangle(at(inner[left], dome), dome - 0.6, corner, dome + 5.2)
        shapes[f"{side} clavicle"] = np.concatenate(
            [clavicles[:, int(left)] + np.array([0.0, reach]) for reach in (-0.7, 0.7)], axis=1
        )
    return shapes


def region_boxes(thorax: Thorax, frame: Frame, field: Floats) -> Floats:
    """Return boxes ``(n, 29, 4)`` in the order of ``IMAGENOME_REGIONS``, clipped to the ``field (n, 4)``; fractions."""
    found = _shapes(thorax)
    shapes = [found[name] for name in IMAGENOME_REGIONS]
    begins = np.cumsum([0, *(shape.shape[1] for shape in shapes[:-1])])
    x, y = np.moveaxis(frame.to_fractions(np.concatenate(shapes, axis=1)), -1, 0)
    sides = [bound.reduceat(axis, begins, axis=1) for bound in (np.minimum, np.maximum) for axis in (x, y)]
    boxes = np.stack(sides, axis=-1)
    first, last = field[:, None, :2], field[:, None, 2:]
    boxes[..., :2] = np.clip(boxes[..., :2], first, last - _SMALLEST)
    boxes[..., 2:] = np.clip(boxes[..., 2:], boxes[..., :2] + _SMALLEST, last)
    return boxes
