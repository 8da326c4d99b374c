"""The predictions file: what models answered, for scoring without the model (docs/predictions.md)."""

from rightlung.predictions.batch import Batch
from rightlung.predictions.prediction import IMAGE_QUERY, Key, Prediction, phrase_query, region_query
from rightlung.predictions.reader import Predictions, check_predictions, open_predictions
from rightlung.predictions.schema import REQUIRED_COLUMNS, SCHEMA, SCHEMA_VERSION
from rightlung.predictions.writer import DoneKeys, PredictionWriter

__all__ = [
    "IMAGE_QUERY", "REQUIRED_COLUMNS", "SCHEMA", "SCHEMA_VERSION", "Batch", "DoneKeys", "Key", "Prediction",
    "PredictionWriter", "Predictions", "check_predictions", "open_predictions", "phrase_query", "region_query",
]  # fmt: skip
