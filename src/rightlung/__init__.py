"""rightlung: ask a chest X-ray model where it is looking, and find out whether it is the right lung.

Not a medical device: for research only, not for diagnosis or treatment.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rightlung.models.registry import list_models, load
    from rightlung.studies import open_source, read_image

__version__ = "0.1.0"
NOT_A_MEDICAL_DEVICE = "Not a medical device: for research only, not for diagnosis or treatment."

_HOMES = {
    "list_models": "rightlung.models.registry",
    "load": "rightlung.models.registry",
    "open_source": "rightlung.studies",
    "read_image": "rightlung.studies",
}

__all__ = ["NOT_A_MEDICAL_DEVICE", "__version__", "list_models", "load", "open_source", "read_image"]


def __getattr__(name: str) -> Any:
    """Import a name on first use, so that ``import rightlung`` alone is fast."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'rightlung' has no attribute {name!r}")
