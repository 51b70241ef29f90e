"""What a release is, what it says of itself, and the files that it is written to."""
