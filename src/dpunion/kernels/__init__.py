"""Compiled loops: arrays in, arrays out. Each has a slow, readable twin in `reference.py`."""
