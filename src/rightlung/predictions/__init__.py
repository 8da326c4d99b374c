"""The predictions file: the seam between whatever made the answers and whatever scores them (docs/predictions.md)."""

from rightlung.predictions.batch import Batch
from rightlung.predictions.prediction import Key, Prediction, phrase_query
from rightlung.predictions.reader import Predictions, check_predictions, open_predictions
from rightlung.predictions.schema import REQUIRED_COLUMNS, SCHEMA, SCHEMA_VERSION
from rightlung.predictions.writer import DoneKeys, PredictionWriter

__all__ = [
    "REQUIRED_COLUMNS", "SCHEMA", "SCHEMA_VERSION", "Batch", "DoneKeys", "Key", "Prediction",
    "PredictionWriter", "Predictions", "check_predictions", "open_predictions", "phrase_query",
]  # fmt: skip
