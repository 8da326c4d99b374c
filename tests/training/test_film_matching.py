"""Synthetic images take histograms and low frequencies of real films, as NumPy computes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from rightlung.core import InputError
from rightlung.training.batches import Batches
from rightlung.training.film_matching import match_histograms, match_low_frequencies, matched_to_films, read_films
from rightlung.training.recipe import Data, FilmMatching
from tests.training.recipes import run, small
from tests.training.test_batches import CPU, ENTRY, opened

FILMS = "phantom?count=12&seed=9&size=80"
MATCHING = FilmMatching(FILMS, histogram=0.5, low_frequency=0.5, band=0.05, films=5)


def random_images(seed: int, exponent: float, levels: int = 255) -> Tensor:
    drawn = torch.rand(4, 1, 20, 24, generator=torch.Generator().manual_seed(seed)) ** exponent
    return (drawn * levels).round() / 255


def by_numpy(image: NDArray[np.float32], film: NDArray[np.float32]) -> NDArray[np.float64]:
    """Histogram matching with unique values and linear interpolation of the cumulative histograms."""
    _, places, counts = np.unique(image, return_inverse=True, return_counts=True)
    values, of_film = np.unique(film, return_counts=True)
    matched = np.interp(np.cumsum(counts) / image.size, np.cumsum(of_film) / film.size, values)
    result: NDArray[np.float64] = matched[places].reshape(image.shape)
    return result


def fda(image: NDArray[np.float32], film: NDArray[np.float32], band: float) -> NDArray[np.float64]:
    """Fourier domain adaptation as its authors publish it: a square around the middle of the shifted spectrum."""
    spectrum, other = np.fft.fft2(image), np.fft.fft2(film)
    amplitude, of_film = np.fft.fftshift(np.abs(spectrum)), np.fft.fftshift(np.abs(other))
    height, width = image.shape
    b, y, x = int(np.floor(min(height, width) * band)), height // 2, width // 2
    amplitude[y - b : y + b + 1, x - b : x + b + 1] = of_film[y - b : y + b + 1, x - b : x + b + 1]
    back = np.fft.ifft2(np.fft.ifftshift(amplitude) * np.exp(1j * np.angle(spectrum)))
    return np.clip(np.real(back), 0, 1)


@pytest.mark.parametrize("levels", [255, 40, 3])
def test_histograms_are_matched_as_by_numpy(levels: int) -> None:
    images, films = random_images(1, 2.0, levels), random_images(2, 0.6)
    for one, other in ((images, films), (films, images)):
        for image, film, matched in zip(one, other, match_histograms(one, other), strict=True):
            np.testing.assert_allclose(matched[0].numpy(), by_numpy(image[0].numpy(), film[0].numpy()), atol=1e-6)
    torch.testing.assert_close(match_histograms(films, films), films)


@pytest.mark.parametrize("band", [0.0, 0.05, 0.2])
def test_low_frequencies_are_those_of_the_published_method(band: float) -> None:
    images, films = random_images(1, 2.0), random_images(2, 0.6)
    for image, film, matched in zip(images, films, match_low_frequencies(images, films, band), strict=True):
        np.testing.assert_allclose(matched[0].numpy(), fda(image[0].numpy(), film[0].numpy(), band), atol=1e-5)


def test_the_drawn_images_are_matched_and_the_others_untouched() -> None:
    images, films = random_images(3, 1.0).repeat(50, 1, 1, 1), (random_images(2, 0.5) * 255).to(torch.uint8)[:, 0]
    for settings in (FilmMatching("", histogram=0.3), FilmMatching("", low_frequency=0.3)):
        whole = matched_to_films(images, settings, films, generator(), torch.arange(200), 200)
        changed = (whole != images).flatten(1).any(1)
        assert 40 < int(changed.sum()) < 80
        rows = torch.tensor([3, 77, 150, 151])
        own = matched_to_films(images[rows], settings, films, generator(), rows, 200)
        torch.testing.assert_close(own, whole[rows])  # of a process with these rows


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(4)


def test_the_films_are_few_and_always_the_same(tmp_path: Path) -> None:
    films = read_films(FILMS, 5, 64, CPU)
    assert films.shape == (5, 64, 64)
    assert films.dtype == torch.uint8
    assert read_films(FILMS, 5, 64, CPU) is films  # read once
    assert len(read_films(FILMS, 50, 64, CPU)) == 12
    torch.testing.assert_close(read_films(FILMS, 50, 64, CPU)[:5], films)


def test_only_the_entry_that_says_so_changes() -> None:
    data = Data(train=(ENTRY, ENTRY), image_size=64, mask_grid=16, workers=0)
    plain = opened(ENTRY, data)
    matched = (replace(ENTRY, match_to=replace(MATCHING, histogram=1.0)), plain[1])
    batch = Batches([matched, plain], 8, 7, CPU, data=data).batch_at(3)
    before = Batches([plain, plain], 8, 7, CPU, data=data).batch_at(3)
    assert torch.equal(batch.images[4:], before.images[4:])
    assert bool((batch.images[:4] != before.images[:4]).flatten(1).any(1).all())
    assert (list(batch.texts), list(batch.ids)) == (list(before.texts), list(before.ids))
    assert torch.equal(batch.targets["phrases"]["masks"], before.targets["phrases"]["masks"])


def test_a_recipe_matches_and_refuses_what_it_cannot(tmp_path: Path) -> None:
    to_films = f"data.train[0].match_to={{source: '{FILMS}', histogram: 0.5, low_frequency: 0.5, films: 4}}"
    assert run(tmp_path, to_films, "schedule.steps=3").steps == 3
    for change, message in (
        (f"data.train[0].match_to={{source: '{FILMS}'}}", r"match_to: histogram or low_frequency must be above 0"),
        ("data.train[0].match_to={histogram: 1}", r"data\.train\[0\]\.match_to\.source is missing"),
        (to_films.replace("4}", "0}"), r"data\.train\[0\]\.match_to\.films must be from 1 to 1000; got 0"),
    ):
        with pytest.raises(InputError, match=message):
            small(tmp_path, change)
    with pytest.raises(InputError, match=r"data\.train\[0\]\.match_to\.source: .*none\.tar"):
        run(tmp_path, to_films.replace(FILMS, f"manifest:{tmp_path}/none.tar"), name="none")
