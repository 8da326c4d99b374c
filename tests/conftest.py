"""Deterministic property tests: the same examples on every machine, no deadline on a busy one."""

from hypothesis import settings

settings.register_profile("rightlung", derandomize=True, deadline=None, max_examples=60, database=None)
settings.load_profile("rightlung")
