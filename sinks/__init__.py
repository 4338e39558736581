"""Exactly-once sinks. Each module stands alone."""
