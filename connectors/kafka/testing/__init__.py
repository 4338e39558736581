"""Kafka as tests want it: in memory, and behind a proxy that cuts and delays."""
