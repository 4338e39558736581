"""Made-up records: the same ones for the same seed and position."""
