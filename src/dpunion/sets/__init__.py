"""From rows to each user's bounded set, and what remains of the sets between rounds."""
