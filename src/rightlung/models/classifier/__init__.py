"""A supervised baseline: probabilities of findings, and a map of each, from an image encoder."""

from rightlung.models.classifier.model import Classifier, ClassifierConfig

__all__ = ["Classifier", "ClassifierConfig"]
