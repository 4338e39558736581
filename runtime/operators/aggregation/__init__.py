"""What aggregates keep for each key and window, and how rows become part of it."""
