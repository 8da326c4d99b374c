"""What a film tells about itself, the fit of the chest, and films that cannot be painted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter

from rightlung.core import InputError
from rightlung.painting.chest import fit_chest
from rightlung.painting.film import develop, to_grey, to_log
from rightlung.painting.outlines import find_outlines
from rightlung.painting.render import Job, paint
from rightlung.phantom.config import default_config
from rightlung.phantom.sampling import sample_scene
from rightlung.studies.sources import open_source
from tests.painting.films import SIZE, normal_phantoms, pixels, write_films


def disc(noise: float, blur: float = 0.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A dark lung in a bright body, on the logarithmic scale, and the distances inside lung and body."""
    rows, columns = np.mgrid[:128, :128]
    inside = 40.0 - np.hypot(rows - 64, columns - 64)
    clean = gaussian_filter(np.where(inside > 0, 0.4, 1.6), blur) if blur else np.where(inside > 0, 0.4, 1.6)
    log = clean + np.random.default_rng(0).normal(0, noise, inside.shape)
    distance = torch.from_numpy(inside * 0.25).float()
    return to_grey(torch.from_numpy(log).float()), distance, -distance


def test_a_film_knows_its_speed_and_its_noise() -> None:
    for noise in (0.02, 0.08):
        grey, lungs, body = disc(noise)
        film = develop(grey, lungs, body, torch.full_like(grey, 2.0), 0.25, 65_535)
        assert film.noise == pytest.approx(noise, rel=0.1)
        assert film.speed == pytest.approx((1.6 - 0.4) / 2.0, rel=0.02)
    values = torch.linspace(0, 1, 9)
    torch.testing.assert_close(to_grey(to_log(values)), values)


def test_what_is_painted_is_softer_on_a_blurred_film() -> None:
    blurs = [develop(*disc(0.01, blur), torch.ones(128, 128), 0.25, 255).blur for blur in (0.0, 1.5, 3.0)]
    assert blurs[0] < blurs[1] < blurs[2]


def test_the_chest_fits_the_lungs_of_a_phantom() -> None:
    for study in normal_phantoms()[:4]:
        chest = fit_chest(find_outlines(study.image, "film"), study.image.shape, study.sex, "film")
        scene = sample_scene(default_config(), 1, 1)
        bare = type(scene)(1, 1, chest.body(scene.body, "F", 50), chest.exposure("PA", 1))
        (found,) = paint([Job(study.image, chest, bare)])
        for side, name in enumerate(("right lung", "left lung")):
            exact = study.extra["anatomy_masks"][name].pixels
            fitted = found.lungs[0, side].numpy()
            assert (exact & fitted).sum() / (exact | fitted).sum() > 0.85, (study.id, name)


def test_a_film_that_is_not_square_keeps_its_shape(tmp_path: Path) -> None:
    wide = [np.pad(pixels(one), ((0, 0), (9, 20))) for one in normal_phantoms()[:2]]
    study = open_source(f"painted:{write_films(tmp_path, [{}, {}], wide)}?seed=1&findings=mass&untouched=0&control=0")[
        1
    ]
    assert study.image.shape == (SIZE, SIZE + 29)
    mask = study.located_findings[0].mask
    assert mask is not None
    assert mask.pixels.shape == study.image.shape
    film = (wide[1] / np.float32(255)).astype(np.float32)
    assert (study.image - film)[mask.pixels].mean() > 0.03


def test_letters_and_arrows_stay_and_black_borders_stay_black(tmp_path: Path) -> None:
    drawn = pixels(normal_phantoms()[0]).copy()
    ink = np.zeros(drawn.shape, bool)
    ink[60:64, 20:60] = ink[50:74, 38:41] = True  # a cross over the right lung
    drawn[ink] = 255
    drawn[:12] = 0
    source = open_source(
        f"painted:{write_films(tmp_path, [{}], [drawn])}?count=8&seed=1&findings=pleural%20effusion,pneumothorax"
        "&untouched=0&control=0"
    )
    changed = 0
    for study in source:
        assert study.image[ink].mean() > 0.95  # a mediastinum that is pushed aside takes a few letters with it
        assert study.image[:12].max() == 0
        changed += not np.array_equal(study.image, (drawn / 255).astype(np.float32))
    assert changed == 8


def test_films_that_cannot_be_painted_are_named_with_the_reason(tmp_path: Path) -> None:
    normal = pixels(normal_phantoms()[0])
    small, tiny = (np.asarray(normal[::step, ::step][:side, :side]) for step, side in ((2, 64), (4, 40)))
    pictures = [normal, 255 - normal, normal[:, : SIZE // 2], tiny, normal.T.copy(),
                (normal.astype(np.uint16) << 4), normal.astype(np.uint16) << 8, small]  # fmt: skip
    source = open_source(f"painted:{write_films(tmp_path, [{}] * len(pictures), pictures)}?seed=1")
    painted = {str(study.extra["painted"]["film"]) for study in source}
    assert {"film-0", "film-6"} <= painted <= {"film-0", "film-6", "film-7"}  # 16 bits are fine, and so may 64 pixels
    reasons = {problem.file.split("'")[1].split("-painted")[0]: problem.message for problem in source.problems}
    assert "inverted" in reasons["film-1"]
    assert "anatomy is not found" in reasons["film-2"] or "nothing is painted" in reasons["film-2"]
    assert "fewer than 64 pixels" in reasons["film-3"]
    assert "12 bits stored in 16" in reasons["film-5"]
    assert len(list(source)) == len(painted)
    assert len(source.problems) == len(pictures) - len(painted)


def test_outlines_are_kept_and_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    image = normal_phantoms()[0].image
    first = find_outlines(image, "film", tmp_path)
    (kept,) = tmp_path.rglob("*.npz")
    kept.write_bytes(b"damaged")
    again = find_outlines(image, "film", tmp_path)
    np.testing.assert_array_equal(first.lateral, again.lateral)
    np.testing.assert_array_equal(find_outlines(image, "film", tmp_path).regions, first.regions)
    assert kept.stat().st_size > 1000
    with pytest.raises(InputError, match="a grey square: nothing is painted"):
        find_outlines(np.full((80, 80), 0.5, np.float32), "a grey square", tmp_path)
