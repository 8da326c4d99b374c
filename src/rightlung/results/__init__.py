"""Estimates from instances tables: means and comparisons with confidence intervals, by subset, condition and seed."""
