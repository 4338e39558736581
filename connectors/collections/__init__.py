"""Sources of what a program has itself: its own records, a table, a function that yields records."""
