"""What sinks on SQL databases with transactions have in common: the table, the rows that it refuses, and a
Target on top of a dialect. A database is a `Dialect` and its `Session` (session.py)."""
