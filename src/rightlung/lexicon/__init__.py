"""Regions, findings, label sets and the maps between them, prompts, sides, sections and sentences of reports.

Importing it is cheap: it needs no numpy, and all data files but the regions are read on first use. The rule labeller,
`rightlung.lexicon.labeller`, is not imported here.
"""

from rightlung.lexicon.findings import FINDINGS, Finding, canonical_finding, find, finding
from rightlung.lexicon.labels import LABEL_SETS, LabelMap, LabelSet, label_map, label_set
from rightlung.lexicon.laterality import mirror_phrase, side_of, sides_in, swap_sides
from rightlung.lexicon.prompts import negative_prompts, positive_prompts, prompt
from rightlung.lexicon.regions import (
    IMAGENOME_REGIONS,
    PAIRED_REGIONS,
    REGIONS,
    STRUCTURES,
    Region,
    ancestors,
    descendants,
    mirror_region,
    region,
)
from rightlung.lexicon.sections import ReportSection, find_sections, report_sections
from rightlung.lexicon.sentences import split_sentences

__all__ = [
    "FINDINGS", "IMAGENOME_REGIONS", "LABEL_SETS", "PAIRED_REGIONS", "REGIONS", "STRUCTURES", "Finding", "LabelMap",
    "LabelSet", "Region", "ReportSection", "ancestors", "canonical_finding", "descendants", "find", "find_sections",
    "finding", "label_map", "label_set", "mirror_phrase", "mirror_region", "negative_prompts", "positive_prompts",
    "prompt", "region", "report_sections", "side_of", "sides_in", "split_sentences", "swap_sides",
]  # fmt: skip
