"""Operators: what happens to one batch."""
