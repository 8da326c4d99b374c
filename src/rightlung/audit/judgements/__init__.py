"""People's judgements of heatmaps as data: tables to fill in, their checks, and what they say.

The counterpart of the radiologist's study in "That's the Wrong Lung!" (sections 3.3, 4.2.2, 4.2.5 and A.7).
"""

from rightlung.audit.judgements.analysis import analyse
from rightlung.audit.judgements.blinding import Key, blind, read_key, write_key
from rightlung.audit.judgements.instances import JudgedInstance, read_instances
from rightlung.audit.judgements.judgement import CUSTOM, RATINGS, VERSION, Judgement
from rightlung.audit.judgements.measures import Measures, measured_models, models_to_judge, read_measures
from rightlung.audit.judgements.page import fragment, render_page
from rightlung.audit.judgements.planning import plan, write_table
from rightlung.audit.judgements.reading import Judgements, read_judgements
from rightlung.audit.judgements.run import Analysis, analyse_table

__all__ = [
    "CUSTOM", "RATINGS", "VERSION", "Analysis", "JudgedInstance", "Judgement", "Judgements", "Key", "Measures",
    "analyse", "analyse_table", "blind", "fragment", "measured_models", "models_to_judge", "plan",
    "read_instances", "read_judgements", "read_key", "read_measures", "render_page", "write_key", "write_table",
]  # fmt: skip
