"""Accept images and texts as people have them: paths, Pillow images and arrays, one or several."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from PIL.Image import Image as PillowImage
from torch import Tensor

from rightlung.core import Box, Image, InputError, Phrase, Query
from rightlung.core.checks import check_text
from rightlung.core.study import check_image
from rightlung.studies.images import from_pillow, read_image

ImageInput = Image | str | os.PathLike[str] | PillowImage
Images = ImageInput | Sequence[ImageInput]
Phrases = Phrase | str | Sequence[Phrase | str]
Queries = Query | str | Box | Sequence[Query | str | Box]


def as_images(images: Images) -> list[Image]:
    """Return one image or several as a list of arrays ``(height, width)`` in 0 to 1.

    A path or object that occurs several times gives the same array, which models encode once.
    """
    given: list[Any] = [images] if _is_one_image(images) or not isinstance(images, Iterable) else list(images)
    keys = [image if isinstance(image, str | os.PathLike) else id(image) for image in given]
    arrays = {key: _as_array(image) for key, image in dict(zip(keys, given, strict=True)).items()}
    return [arrays[key] for key in keys]


def as_pairs(images: Images, phrases: Phrases) -> tuple[list[Image], list[Phrase | str]]:
    """Return images and phrases as lists of equal length; one image or one phrase is paired with all of the other."""
    arrays, listed = as_images(images), as_list(phrases)
    if _is_one_image(images):
        arrays = arrays * len(listed)
    elif isinstance(phrases, str | Phrase):
        listed = listed * len(arrays)
    if len(arrays) != len(listed):
        raise InputError(
            "expected as many images as phrases, or a single image or phrase outside a list; "
            f"got {len(arrays)} images and {len(listed)} phrases"
        )
    return arrays, listed


def as_queries(images: Images, queries: Queries) -> tuple[list[Image], list[Query]]:
    """Return images and queries as lists of equal length; a text or a box is a query, and one is paired with all."""
    alone = isinstance(queries, Query | str | Box)
    given: list[Any] = list(queries) if not alone and isinstance(queries, Iterable) else [queries]
    arrays, listed = as_images(images), [_as_query(one) for one in given]
    if len(arrays) == 1:
        arrays = arrays * len(listed)
    elif alone:
        listed = listed * len(arrays)
    if len(arrays) != len(listed):
        raise InputError(f"expected as many images as queries; got {len(arrays)} images and {len(listed)} queries")
    return arrays, listed


def _as_query(given: object) -> Query:
    if isinstance(given, Query):
        return given
    if isinstance(given, str):
        return Query(given)
    if isinstance(given, Box):
        return Query(box=given)
    raise InputError(f"a query must be a Query, a text or a Box; got {type(given).__name__}")


def phrase_texts(phrases: Iterable[Phrase | str]) -> list[str]:
    """Return the words of phrases; a text that is empty or too long is an error."""
    return [check_text(phrase.text if isinstance(phrase, Phrase) else phrase, "a phrase") for phrase in phrases]


def pairs_by_image(images: Sequence[Image]) -> list[list[int]]:
    """Return the pairs that each distinct image occurs in, so that a model encodes it once."""
    pairs: dict[int, list[int]] = {}
    for pair, image in enumerate(images):
        pairs.setdefault(id(image), []).append(pair)
    return list(pairs.values())


def as_list(texts: Phrases) -> list[Any]:
    """Return one text or several as a list."""
    if isinstance(texts, str | Phrase):
        return [texts]
    if not isinstance(texts, Iterable):
        raise InputError(f"expected a text or a list of texts; got {type(texts).__name__}")
    return list(texts)


def _is_one_image(images: object) -> bool:
    if isinstance(images, np.ndarray | Tensor):
        if images.ndim == 3 and images.shape[-1] in (3, 4):
            raise InputError(
                f"an image must be grey, (height, width); got a colour image of the shape {tuple(images.shape)}: "
                "pass its path or a Pillow image, which are converted"
            )
        return images.ndim == 2
    return isinstance(images, str | os.PathLike | PillowImage)


def _as_array(image: Any) -> Image:
    if isinstance(image, str | os.PathLike):
        return read_image(image)
    if isinstance(image, PillowImage):
        return from_pillow(image)
    array = image.detach().cpu().numpy() if isinstance(image, Tensor) else image
    if not isinstance(array, np.ndarray):
        raise InputError(
            f"an image must be a path, a Pillow image or an array (height, width) in 0 to 1; got {type(image).__name__}"
        )
    if array.dtype == np.uint8:
        return np.divide(array, np.float32(255), dtype=np.float32)
    if not np.issubdtype(array.dtype, np.floating):
        raise InputError(f"an image array must hold floats in 0 to 1, or 8-bit integers; got {array.dtype}")
    return check_image(array.astype(np.float32, copy=False), "the given array")
