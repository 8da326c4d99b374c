"""Why a model points where it points: pure functions from activations, gradients and similarities to heatmaps."""

from rightlung.explain.gradcam import as_heatmaps, class_activation, grad_cam

__all__ = ["as_heatmaps", "class_activation", "grad_cam"]
