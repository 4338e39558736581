"""Sinks of the runtime as formats of Structured Streaming, with the same code: see `sink_format.py`."""
