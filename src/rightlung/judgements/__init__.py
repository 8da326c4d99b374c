"""Ratings of heatmaps by radiologists: plan a blinded study, check its table, analyse the results.

Follows the radiologist's study in "That's the Wrong Lung!" (sections 3.3, 4.2.2, 4.2.5 and A.7).
"""

from rightlung.judgements.analysis import analyse
from rightlung.judgements.blinding import BlindingKey, blind, read_key, write_key
from rightlung.judgements.judgement import CUSTOM, RATINGS, VERSION, Judgement
from rightlung.judgements.measures import JudgedInstance, Measures, read_measures
from rightlung.judgements.page import make_page, sections
from rightlung.judgements.planning import plan, write_table
from rightlung.judgements.reading import Judgements, read_judgements
from rightlung.judgements.run import Analysis, analyse_table

__all__ = [
    "CUSTOM", "RATINGS", "VERSION", "Analysis", "BlindingKey", "JudgedInstance", "Judgement", "Judgements", "Measures",
    "analyse", "analyse_table", "blind", "make_page", "plan", "read_judgements", "read_key",
    "read_measures", "sections", "write_key", "write_table",
]  # fmt: skip
