"""Redis as the store that a sink writes to (sinks/redis.py). Needs the extra `redis`."""
