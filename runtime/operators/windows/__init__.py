"""The operators of windows, and of reduce, which has one that never ends."""
