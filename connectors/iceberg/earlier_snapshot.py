"""Which snapshot of an Iceberg table an older checkpoint has left, when a job goes back to it."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from onceflow.connectors.iceberg.iceberg_ledger import checkpoint_of, committed_in
from onceflow.runtime.errors import Fatal


def snapshot_at(table: Table, ledger: str, to: int, past: int, where: str) -> int | None:
    """The latest snapshot that has no rows of `ledger` behind checkpoint `to`; all behind it are this sink's
    own. None: the table had none.

    Raises Fatal if somebody else has written in between, or snapshots are gone: `past` is the checkpoint that
    the job can go on from instead.
    """
    chain = list(_chain(table))
    if (committed_in(table, ledger) or 0) <= to:
        return int(chain[0].snapshot_id) if chain else None
    later = [checkpoint_of(each, ledger) for each in chain]
    own = next((n for n, its in enumerate(later) if its is None or its <= to), len(chain))
    if own == len(chain):
        if chain and chain[-1].parent_snapshot_id is not None:
            raise Fatal(
                f"{where}: the snapshots before {chain[-1].snapshot_id} have expired, and checkpoint {to} "
                f"has left one of them: start the job with --from {past}"
            )
        return None
    below = next((its for its in later[own:] if its is not None), None)
    if below is None or below > to:
        raise Fatal(
            f"{where}: snapshot {chain[own].snapshot_id} is somebody else's, or an older onceflow's, and "
            f"younger than checkpoint {to}: going back would take it away; start with --from {past}"
        )
    return int(chain[own].snapshot_id)


def _chain(table: Table) -> Iterator[Snapshot]:
    """The snapshots that are there, from the current one back."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
