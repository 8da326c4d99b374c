"""CLIP for chest X-rays: one embedding space for images, patches and texts."""

from rightlung.models.clip.config import ClipConfig, ClipImageConfig, ClipTextConfig
from rightlung.models.clip.model import Clip

__all__ = ["Clip", "ClipConfig", "ClipImageConfig", "ClipTextConfig"]
