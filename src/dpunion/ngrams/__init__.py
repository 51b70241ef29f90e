"""N-grams, length by length: DPNE (Kim et al., NeurIPS 2021), corrected and improved as docs/ngrams.md says."""
