"""Synthetic studies: radiograph, report and exact ground truth of patients who never existed."""
