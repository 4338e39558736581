"""Receivers of HTTP requests as what a sink writes to (sinks/http.py). Needs the extra `http`."""
