"""How long ChEX takes for 29 prompts about 16 images, and for one phrase about one image.

    python benchmarks/chex.py [--model chex] [--repeats 3]

The comparison is a loop over prompts and images that re-uses each encoded image, which is what a user would write with
a model that takes one prompt at a time. Detection and sentences are timed apart; both ways must agree.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

import rightlung
from rightlung.core import Query
from rightlung.lexicon import IMAGENOME_REGIONS
from rightlung.models.encoders.image import ImageEmbeddings

IMAGES = 16


def seconds(work: Callable[[], Any], repeats: int) -> float:
    """Return the seconds of the fastest repeat."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Run and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="chex")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    model: Any = rightlung.load(options.model)
    images = [study.image for study in rightlung.open_source(f"phantom?count={IMAGES}&seed=3")]
    queries = [Query(name) for name in IMAGENOME_REGIONS]

    with model.eval_mode():
        encoded, extents = next(model._encoded(images))
        rows = [
            (ImageEmbeddings(encoded.patch_embeddings[row : row + 1], encoded.global_embedding[row : row + 1]), extent)
            for row, extent in enumerate(extents)
        ]

        def features(images: ImageEmbeddings, asked: Any) -> Any:
            return model.look_again(asked.tokens, asked.found.box_tokens, asked.has_boxes, images).flatten(0, 1)

        def together(write: bool = False) -> Any:
            asked = model.ask(encoded, [queries] * IMAGES, extents)
            return model.write(features(encoded, asked)) if write else asked.found.boxes

        def one_by_one(write: bool = False) -> Any:
            found = []
            for part, extent in rows:
                for query in queries:
                    asked = model.ask(part, [[query]], [extent])
                    found.append(model.write(features(part, asked)) if write else asked.found.boxes)
            return found

        torch.testing.assert_close(torch.cat(one_by_one()).view_as(together()), together(), rtol=1e-3, atol=1e-4)
        print(f"{IMAGES} images x {len(queries)} prompts, encoded images given, seconds (best of {options.repeats})")
        for what, write in (("boxes", False), ("boxes and sentences", True)):
            ours = seconds(lambda write=write: together(write), options.repeats)  # type: ignore[misc]
            loop = seconds(lambda write=write: one_by_one(write), 1)  # type: ignore[misc]
            print(f"  {what}: together {ours:.2f}, one by one {loop:.2f}: {loop / ours:.1f} times as long")
    one = images[0]
    grounded = seconds(lambda: model.ground(one, "left pleural effusion"), options.repeats)
    described = seconds(lambda: model.describe([one], [Query("left pleural effusion")]), options.repeats)
    print(f"one phrase, one image, {torch.get_num_threads()} threads, milliseconds:")
    print(f"  boxes {1e3 * grounded:.0f}, sentence {1e3 * described:.0f}")


if __name__ == "__main__":
    main()
