"""One machine: everybody's sets are arrays here."""
