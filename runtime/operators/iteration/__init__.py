"""Cycles: rows that go round, until none is left (`stream.iterate`)."""
