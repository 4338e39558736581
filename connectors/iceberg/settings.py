"""What an Iceberg sink was told, as its parts need it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog

from onceflow.connectors.tables.columns import TypesOfTable

ICEBERG_TYPES = TypesOfTable("Iceberg", int_bits_min=32, has_time=True)
_PYARROW_IO = {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}


@dataclass(frozen=True, slots=True)
class IcebergSettings:
    """See IcebergSink, whose arguments these are."""

    catalog: str | Mapping[str, str] = field(repr=False)
    table: str
    key: tuple[str, ...]
    partition_by: tuple[str, ...]
    create_table: bool
    may_add_columns: bool
    expire_ms: int | None
    order_by: str | None = None
    compact_every: int | None = None

    def open_catalog(self) -> Catalog:
        """Raises what the catalog's client raises."""
        if isinstance(self.catalog, str):
            return rolled_back_at_once(load_catalog(self.catalog, **_PYARROW_IO))
        return rolled_back_at_once(load_catalog(None, **{**_PYARROW_IO, **self.catalog}))


def rolled_back_at_once(catalog: Catalog) -> Catalog:
    """The catalog, of whose SQLite no connection is used again with a transaction that was left open.

    SQLAlchemy 2.1 takes the transaction of a COMMIT that was refused ("database is locked") for ended. Reads
    over that connection then find what it did not commit, so that the ledger would lie.
    """
    engine = getattr(catalog, "engine", None)  # of SqlCatalog
    if engine is not None and engine.dialect.name == "sqlite":
        from sqlalchemy import event

        event.listen(engine, "reset", _rolled_back)
    return catalog


def _rolled_back(connection: Any, record: object, state: object) -> None:
    if connection.in_transaction:
        connection.rollback()
