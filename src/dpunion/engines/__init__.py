"""Where a release runs: each engine offers the same few verbs (weigh, decide)."""
