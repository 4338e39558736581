"""Apache NiFi: flow files of output ports by site-to-site, confirmed when a checkpoint is complete."""

from onceflow.connectors.nifi.source import NifiSource

__all__ = ["NifiSource"]
