"""Noise scales and thresholds: pure mathematics, always ending on the private side."""
