"""Deterministic property tests: the same examples on every machine, no deadline on a busy one."""

import torch
from hypothesis import settings

settings.register_profile("rightlung", derandomize=True, deadline=None, max_examples=60, database=None)
settings.load_profile("rightlung")

THREADS = torch.get_num_threads()
torch.set_num_threads(1)  # the test processes share the cores: two threads each, on tiny tensors, mostly wait
