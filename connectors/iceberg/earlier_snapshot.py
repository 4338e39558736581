"""Which snapshot of an Iceberg table an older checkpoint has left, when a job goes back to it."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from onceflow.runtime.errors import Fatal

_LEDGER, _CHECKPOINT = "onceflow.ledger", "onceflow.checkpoint-id"


def named_checkpoint(ledger: str, checkpoint_id: int) -> dict[str, str]:
    """What a snapshot says of itself in its summary."""
    return {_LEDGER: ledger, _CHECKPOINT: str(checkpoint_id)}


def snapshot_at(table: Table, ledger: str, to: int, past: int, where: str) -> int | None:
    """The latest snapshot that has no rows of `ledger` behind checkpoint `to`; all behind it are this sink's
    own. None: the table had none.

    Raises Fatal if somebody else has written since then, or snapshots are gone: `past` is the checkpoint that
    the job can go on from instead.
    """
    if _said(table, ledger) <= to:
        now = table.current_snapshot()
        return None if now is None else now.snapshot_id
    snapshot = table.current_snapshot()
    while snapshot is not None:
        summary = _summary(snapshot)
        if summary.get(_LEDGER) != ledger:
            raise Fatal(
                f"{where}: snapshot {snapshot.snapshot_id} is somebody else's, or an older onceflow's, and "
                f"younger than checkpoint {to}: going back would take it away; start with --from {past}"
            )
        if int(summary[_CHECKPOINT]) <= to:
            return int(snapshot.snapshot_id)
        if snapshot.parent_snapshot_id is None:
            return None
        before = table.snapshot_by_id(snapshot.parent_snapshot_id)
        if before is None:
            raise Fatal(
                f"{where}: the snapshots before {snapshot.snapshot_id} have expired, and checkpoint {to} has "
                f"left one of them: start the job with --from {past}"
            )
        snapshot = before
    return None


def _said(table: Table, ledger: str) -> int:
    return int(table.properties.get(f"onceflow.{ledger}") or 0)


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties
