"""What a Delta sink was told, as its parts need it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.fs as pafs
from deltalake.fs import DeltaStorageHandler

from onceflow.connectors.tables.columns import TypesOfTable
from onceflow.connectors.tables.file_store import FileStore

DELTA_TYPES = TypesOfTable("Delta", int_bits_min=8, has_time=False)


@dataclass(frozen=True, slots=True)
class DeltaSettings:
    """See DeltaSink, whose arguments these are."""

    url: str
    storage_options: Mapping[str, str] = field(repr=False)
    key: tuple[str, ...]
    partition_by: tuple[str, ...]
    create_table: bool
    may_add_columns: bool
    only_writer: bool
    compact_every: int | None
    expire_ms: int | None
    order_by: str | None = None

    @staticmethod
    def to_read(url: str, storage_options: Mapping[str, str]) -> DeltaSettings:
        """Settings of a table to which nothing is written."""
        return DeltaSettings(url, storage_options, (), (), False, False, False, None, None)

    @property
    def is_local(self) -> bool:
        return "://" not in self.url

    @property
    def is_on_s3(self) -> bool:
        return self.url.startswith(("s3://", "s3a://"))

    def file_store(self) -> FileStore:
        """The storage of the table, by the same client and options as its log."""
        if self.is_local:
            return FileStore(pafs.LocalFileSystem(), self.url, Path(self.url))
        handler = DeltaStorageHandler(self.url, dict(self.storage_options))
        return FileStore(pafs.PyFileSystem(handler), "", None)
