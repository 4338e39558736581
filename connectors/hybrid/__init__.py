"""A source that reads others one after the other: history first, then what happens now."""

from onceflow.connectors.hybrid.source import HybridSource

__all__ = ["HybridSource"]
