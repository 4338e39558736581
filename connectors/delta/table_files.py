"""The files of one version of a Delta table, as splits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, BinaryIO
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from onceflow.connectors.delta.columns import as_text
from onceflow.connectors.delta.library_errors import asking
from onceflow.connectors.delta.settings import DeltaSettings
from onceflow.connectors.files.file_split import FileSplit
from onceflow.connectors.files.place import FileVersion
from onceflow.connectors.tables.file_store import FileStore
from onceflow.runtime.contracts import SplitState
from onceflow.runtime.errors import GraphError

_READ_AS_THEY_ARE = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "domainMetadata"})
"""Features of tables whose files have their rows as any Parquet file has."""


@dataclass(frozen=True)
class TableStorage:
    """A StoredFiles: the table's folder, by the same client as its log. A file of a table is never written
    twice, so its size is its version. Picklable; opens nothing when it is made."""

    settings: DeltaSettings

    def __getstate__(self) -> dict[str, Any]:
        return {"settings": self.settings}

    @cached_property
    def _store(self) -> FileStore:
        return self.settings.file_store()

    def version(self, path: str) -> FileVersion | None:
        size = self._store.size(path)
        return None if size is None else FileVersion(size, "")

    def open(self, path: str) -> BinaryIO:
        return self._store.open(path)


class TableEnumerator:
    """A SplitEnumerator. What the table has in one version, the latest one if none is named, is found at the
    first start of the job and read by every later one, whatever is written meanwhile."""

    def __init__(self, settings: DeltaSettings, version: int | None, where: str) -> None:
        self._settings = settings
        self._version = version
        self._where = where
        self._storage = TableStorage(settings)

    @property
    def discovery_interval_ms(self) -> int | None:
        return None

    def initial_splits(self) -> Sequence[SplitState]:
        table = open_version(self._settings, self._version, self._where)
        with asking(self._where):
            files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        partition_by = table.metadata().partition_columns
        splits = []
        # Oldest first, so that rows come about in the order in which they were written.
        for file in sorted(files, key=lambda file: (file["modification_time"], file["path"])):
            constants = {name: as_text(file[f"partition.{name}"]) for name in partition_by}
            version = FileVersion(file["size_bytes"], "")
            splits += FileSplit.of(unquote(file["path"]), version, constants=constants)
        return [split.state() for split in splits]

    def discover(self, known: frozenset[str]) -> Sequence[SplitState]:
        return []

    def check_restored(self, splits: Sequence[SplitState]) -> None:
        for split in splits:
            FileSplit.from_state(split).check(self._storage)

    def close(self) -> None:
        """Nothing is open."""


def open_version(settings: DeltaSettings, version: int | None, where: str) -> DeltaTable:
    """The table as it was at a version; None: as it is. Raises Unavailable if it can't be read now, and
    GraphError if it is not there, or its files are not its rows."""
    with asking(where):
        if not DeltaTable.is_deltatable(settings.url, dict(settings.storage_options)):
            raise GraphError(f"{where}: there is no Delta table: give the folder that has its _delta_log")
        table = DeltaTable(settings.url, version=version, storage_options=dict(settings.storage_options))
    if odd := sorted(set(table.protocol().reader_features or ()) - _READ_AS_THEY_ARE):
        raise GraphError(
            f"{where}: the table has the feature {odd[0]!r}, under which its files are not its rows as they "
            "are: drop the feature, or read a copy of the table"
        )
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        raise GraphError(
            f"{where}: the table maps its columns to other names (delta.columnMapping.mode): read a copy of "
            "the table without it"
        )
    return table
