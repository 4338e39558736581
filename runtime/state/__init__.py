"""Keyed state and timers of one subtask."""
