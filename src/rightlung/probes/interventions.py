"""Interventions: changes inside a model that answers, of one source of what it writes. The question stays as it is.

A model that has such a source implements `rightlung.models.base.Intervenable`. If its answers stay as they are, it does
not use the source.
"""

from __future__ import annotations

from collections.abc import Mapping

INTERVENTIONS: Mapping[str, str] = {
    "saliency-uniform": "the saliency of symptoms replaced by uniform maps",
    "saliency-mirrored": "the saliency of symptoms mirrored, left for right",
    "symptoms-permuted": "each symptom's probability and saliency replaced by those of the next symptom",
    "text-zeros": "the features of the words written so far replaced by zeros",
}
"""Names, used as conditions, and what is changed."""
