"""Cassandra as the store that a sink writes to (sinks/cassandra.py). Needs the extra `cassandra`."""
