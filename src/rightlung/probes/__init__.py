"""Probes: named changes applied to a question before a model is asked."""

from rightlung.probes.exchange import Owner, exchanged, exchanged_outside, windows
from rightlung.probes.probe import Probe, Probed, Setting
from rightlung.probes.registry import PROBES, find_probe, register_probe
from rightlung.probes.sentence_pool import SentencePool

__all__ = [
    "PROBES", "Owner", "Probe", "Probed", "SentencePool", "Setting", "exchanged", "exchanged_outside", "find_probe",
    "register_probe", "windows",
]  # fmt: skip
