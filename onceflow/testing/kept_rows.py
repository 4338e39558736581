"""What an operator keeps, as a test of a job reads it."""

from __future__ import annotations

from typing import Any

from onceflow.runtime.checkpoint.reading import stored_checkpoint
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.operators.processing.key_memory import CLOCK_TIMERS


def kept_rows(store: CheckpointStore, uid: str, table: str | None) -> list[dict[str, Any]]:
    """The rows of an operator's table in the latest completed checkpoint, without keys that have forgotten
    everything. Raises UsageError for what is not there."""
    batches = stored_checkpoint(store).batches(uid, table)
    return [row for batch in batches for row in batch.to_pylist() if not _is_forgotten(row)]


def _is_forgotten(row: dict[str, Any]) -> bool:
    """Whether it is the row of a key whose states are cleared and whose timers have fired: a KeyedProcess
    keeps such rows until half of all are so."""
    states = row.get("state")
    if not isinstance(states, dict) or row.get("timers") or row.get(CLOCK_TIMERS):
        return False
    return all(value is None or value == [] for value in states.values())
