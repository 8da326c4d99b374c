"""What tells a side lives in `rightlung.models.blind.sides`."""

from rightlung.models.blind.sides import AT_LEAST, GIVEN_AWAY, Telling, WordSides, about_device, what_tells

__all__ = ["AT_LEAST", "GIVEN_AWAY", "Telling", "WordSides", "about_device", "what_tells"]
