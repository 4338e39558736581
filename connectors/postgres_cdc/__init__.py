"""Changes of a table of PostgreSQL, by logical replication."""

from onceflow.connectors.postgres_cdc.source import PostgresCdcSource

__all__ = ["PostgresCdcSource"]
