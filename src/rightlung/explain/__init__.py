"""Pure functions from attention, similarities and gradients to heatmaps, and from heatmaps to boxes and peaks."""

from rightlung.explain.attention import attention_maps
from rightlung.explain.boxes import BoxRule, boxes_of, suppressed
from rightlung.explain.gradcam import as_heatmaps, class_activation, grad_cam
from rightlung.explain.layers import ActivationHook, encoder_grad_cam
from rightlung.explain.peak import peak_of, peaks, side_at, side_of_peak
from rightlung.explain.rollout import attention_relevance, attention_rollout, gradient_attention, token_maps
from rightlung.explain.similarity import cosine_maps, shifted

__all__ = [
    "ActivationHook", "BoxRule", "as_heatmaps", "attention_maps", "attention_relevance", "attention_rollout",
    "boxes_of", "class_activation", "cosine_maps", "encoder_grad_cam", "grad_cam", "gradient_attention", "peak_of",
    "peaks", "shifted", "side_at", "side_of_peak", "suppressed", "token_maps",
]  # fmt: skip
