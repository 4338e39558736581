"""Streams over HTTP: server-sent events, and JSON lines that do not end."""

from onceflow.connectors.http_stream.source import HttpStreamSource

__all__ = ["HttpStreamSource"]
