"""Rows in flight go on only in a program that has their way; else they are refused, or dropped and said."""

from __future__ import annotations

import pytest
from msgspec import structs

from onceflow.runtime.checkpoint.in_flight_fits import fitting_in_flight
from onceflow.runtime.checkpoint.manifest import CheckpointManifest, StateHandle, TableFile
from onceflow.runtime.checkpoint.state_comparison import StateNote
from onceflow.runtime.errors import UsageError
from onceflow.runtime.state.description import KeyColumn, StateDescription

WAY = "orders > slow"
WAS = StateDescription("rows in flight", "in_flight", (KeyColumn("customer", "int64"),))
TABLE = TableFile("in_flight", "state/1", 0, 10, "crc32:0", (3, 4))
HANDLES = [StateHandle("slow", 0, 0, 2), StateHandle(WAY, 0, 0, 2, (TABLE,))]
MANIFEST = CheckpointManifest("job", "beef", 1, 7, 0, 0, 1, 2, states=HANDLES, operators={WAY: WAS})
CHANGED = structs.replace(WAS, keys=(KeyColumn("item", "string"),))


def test_rows_that_have_their_way_are_kept() -> None:
    notes: list[StateNote] = []
    assert fitting_in_flight(MANIFEST, {WAY: WAS}, False, notes) is MANIFEST
    assert notes == []


@pytest.mark.parametrize(
    ("ways", "why"),
    [({}, "which is not in the program"), ({WAY: CHANGED}, "whose rows have changed")],
    ids=["gone", "another key"],
)
def test_rows_whose_way_is_another_or_gone_are_refused_or_dropped(
    ways: dict[str, StateDescription], why: str
) -> None:
    said = f"checkpoint 7 has 7 rows in flight on the way 'orders > slow', {why}"
    with pytest.raises(UsageError, match=f"{said}: run the program that wrote it with barriers=aligned"):
        fitting_in_flight(MANIFEST, ways, False, [])
    notes: list[StateNote] = []
    kept = fitting_in_flight(MANIFEST, ways, True, notes)
    assert [handle.uid for handle in kept.states] == ["slow"]
    assert [note.text for note in notes] == [f"{said}: dropped"]
