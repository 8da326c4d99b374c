"""Pure functions on arrays: scores of maps, labels and texts, and their statistics."""
