"""Compiled loops: arrays in, arrays out. What weighs, bounds or draws has a slow, readable twin in `reference*.py`."""
