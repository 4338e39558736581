"""What a message costs the driver's garbage collector."""

from __future__ import annotations

import gc

import msgspec

from onceflow.runtime.checkpoint.manifest import SlotSnapshot, StateHandle, TableFile
from onceflow.runtime.control.messages import Acked, ToDriver


def test_an_ack_is_nothing_that_the_collector_walks() -> None:
    """A thousand slots ack at once, and the driver keeps it all until the manifest is durable: what the
    collector tracked would be walked again and again. Tuples without tracked items it lets go of itself."""
    table = TableFile("windows", "state/1.op.0.arrows", 0, 10, "crc32:0", (1, 2))
    states = tuple(StateHandle(f"op-{number}", 0, 0, 2, (table,)) for number in range(3))
    content = msgspec.json.encode(Acked(1, 7, SlotSnapshot(states)))
    ack = msgspec.json.decode(content, type=ToDriver)
    assert isinstance(ack, Acked)
    gc.collect()
    parts = [ack, ack.snapshot, ack.snapshot.states, ack.snapshot.splits, ack.snapshot.committables]
    for handle in ack.snapshot.states:
        parts += [handle, handle.tables, *handle.tables, handle.tables[0].rows_per_key_group]
    assert not [part for part in parts if gc.is_tracked(part)]
    assert ack.snapshot == SlotSnapshot(states)
