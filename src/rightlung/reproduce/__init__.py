"""Reproduce papers: train their variants, measure them and judge their claims. One folder per paper."""
