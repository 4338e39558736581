"""What an Iceberg sink was told, as its parts need it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
            return load_catalog(self.catalog, **_PYARROW_IO)
        return load_catalog(None, **{**_PYARROW_IO, **self.catalog})
