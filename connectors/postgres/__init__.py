"""PostgreSQL as the system that a sink writes to (sinks/postgres.py). Needs the extra `postgres`."""
