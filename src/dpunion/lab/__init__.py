"""For study, never a release: generated data and comparisons of algorithms."""
