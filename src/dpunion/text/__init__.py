"""Texts: what a word is, how words are spelled, and other ways to split a text."""
