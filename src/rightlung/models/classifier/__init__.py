"""The supervised baseline: a small residual network on image labels, which points by Grad-CAM."""

from rightlung.models.classifier.model import Classifier
from rightlung.models.classifier.network import NetworkConfig, ResidualNetwork

__all__ = ["Classifier", "NetworkConfig", "ResidualNetwork"]
