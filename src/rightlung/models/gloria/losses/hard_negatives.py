"""Hard negatives: texts of the batch with "left" and "right" exchanged."""

from __future__ import annotations

from rightlung.lexicon.side_changes import with_sides_exchanged
from rightlung.models.base import TrainingBatch


def hard_negatives(batch: TrainingBatch) -> dict[int, str]:
    """Return the text with its side exchanged for the index of each text that names exactly one side.

    Left out are texts whose image also has the exchanged text (effusions on both sides): there it is not wrong.
    """
    pairs = list(zip(batch.image_of_text, batch.texts, strict=True))
    existing = set(pairs)
    return {
        index: exchanged
        for index, (image, text) in enumerate(pairs)
        if (exchanged := with_sides_exchanged(text)) is not None and (image, exchanged) not in existing
    }
