"""Counting the people who hold each listed item: who holds what of the list, three noisy steps, and the estimates."""
