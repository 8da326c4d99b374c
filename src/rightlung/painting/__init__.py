"""Findings of the phantom painted into real normal radiographs, with exact masks: the source ``painted:``."""
