"""Keyed state in RocksDB, as far as it has no room in memory: an implementation of `state/overflow.py`."""
