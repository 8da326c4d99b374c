"""What is done to a question before a model is asked it: each probe by name, a pure function of study, phrase, seed."""

from rightlung.probes.company import Company
from rightlung.probes.exchange import Owner, exchanged, exchanged_outside, windows
from rightlung.probes.probe import Probe, Question, Setting
from rightlung.probes.registry import PROBES, find_probe, list_probes, register_probe

__all__ = [
    "PROBES", "Company", "Owner", "Probe", "Question", "Setting", "exchanged", "exchanged_outside", "find_probe",
    "list_probes", "register_probe", "windows",
]  # fmt: skip
