"""How a transaction on an Iceberg table becomes what readers see: in one request, and only on top of what it
was made on."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID

_BRANCH = "main"


def swap(catalog: Catalog, table: Table, transaction: Transaction) -> None:
    """Commit, if the branch still has the snapshot that `table` was loaded with. Raises what the catalog's
    client raises: CommitFailedException where another snapshot is there."""
    seen = table.metadata.refs.get(_BRANCH)
    requirements = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertRefSnapshotId(**{"ref": _BRANCH, "snapshot-id": None if seen is None else seen.snapshot_id}),
    )
    catalog.commit_table(table, requirements, transaction._updates)
