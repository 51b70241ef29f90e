"""N-grams, length by length.

DPNE (Kim et al., "Differentially Private n-gram Extraction", NeurIPS 2021), corrected and improved as docs/ngrams.md
says.

plans        every length's noise, from public parameters only
candidates   the n-grams whose two parts were released: the public set of the next length
lengths      one length after the other, wherever the texts are
"""
