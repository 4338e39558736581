"""The ledger of an Iceberg table: a property, which the expiry of snapshots leaves alone. Each snapshot says
in its summary of which checkpoint it is."""

from __future__ import annotations

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

_PROPERTY = "onceflow."
_LEDGER, _CHECKPOINT = "onceflow.ledger", "onceflow.checkpoint-id"


def committed_in(table: Table, ledger: str) -> int | None:
    """What the ledger says."""
    said = table.properties.get(_PROPERTY + ledger)
    return None if said is None else int(said)


def says(ledger: str, checkpoint_id: int) -> dict[str, str]:
    """The property with which the ledger says this."""
    return {_PROPERTY + ledger: str(checkpoint_id)}


def named_checkpoint(ledger: str, checkpoint_id: int) -> dict[str, str]:
    """What a snapshot says of itself in its summary."""
    return {_LEDGER: ledger, _CHECKPOINT: str(checkpoint_id)}


def checkpoint_of(snapshot: Snapshot, ledger: str) -> int | None:
    """The checkpoint of this ledger that a snapshot is of; None: it is another's, or of an older onceflow."""
    summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
    return int(summary[_CHECKPOINT]) if summary.get(_LEDGER) == ledger else None
