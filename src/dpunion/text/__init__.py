"""Texts: what a word is, how words are spelled, and the other ways to split a text."""
