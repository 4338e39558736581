"""Joins of two streams by key, in columns."""
