"""Delta Lake: tables, and commits that have their ledger in them; `delta_source` reads one."""

from onceflow.connectors.delta.source import delta_source

__all__ = ["delta_source"]
