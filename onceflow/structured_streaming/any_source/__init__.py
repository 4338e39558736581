"""Sources of the runtime as formats of Structured Streaming, with the same code: see `source_format.py`."""
