"""When a window sends its result: triggers, and what the user writes one with."""
