"""Predictions × targets × measures → an instances table with a protocol hash (docs/measuring.md)."""

from rightlung.measuring.box_settings import BoxSettings, tune_boxes
from rightlung.measuring.measures import MEASURES, Measure, find_measure, register_measure
from rightlung.measuring.phrases import PhraseTargets, TargetMask
from rightlung.measuring.protocols import PROTOCOLS, Protocol, find_protocol
from rightlung.measuring.run import measure, write_instances
from rightlung.measuring.targets import Targets, gather_targets, prepare_studies

__all__ = [
    "MEASURES", "PROTOCOLS", "BoxSettings", "Measure", "PhraseTargets", "Protocol", "TargetMask", "Targets",
    "find_measure", "find_protocol", "gather_targets", "measure", "prepare_studies", "register_measure",
    "tune_boxes", "write_instances",
]  # fmt: skip
