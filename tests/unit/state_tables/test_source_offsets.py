"""How far sources were read, as rows."""

from __future__ import annotations

from onceflow.runtime.contracts import SplitProgress, SplitState
from onceflow.runtime.state_tables.source_offsets import offsets_of


def test_a_row_for_each_split() -> None:
    kafka = SplitState("events-3", {"topic": "events", "partition": 3, "next_offset": 42})
    file = SplitState("a.csv", {"partition": "odd", "row": 7})
    rows = offsets_of([SplitProgress(kafka, 1_000), SplitProgress(file, is_finished=True)]).to_pylist()
    assert rows[0] == {
        "split": "events-3",
        "topic": "events",
        "partition": 3,
        "offset": 42,
        "position": '{"next_offset": 42, "partition": 3, "topic": "events"}',
        "max_event_time": 1_000,
        "is_finished": False,
    }
    assert list(rows[1].values()) == ["a.csv", None, None, None, '{"partition": "odd", "row": 7}', None, True]
