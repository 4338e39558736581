"""Counts of all fields from the headers of a stream, compared with the columns themselves."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceflow.runtime.checkpoint.copies import copy_path
from onceflow.runtime.checkpoint.manifest import TableFile
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.errors import CorruptCheckpointError
from onceflow.runtime.state_tables import stream_headers
from onceflow.runtime.state_tables.stream_headers import ITEM, field_paths, places_and_nulls
from onceflow.runtime.testing.mutation import Mutant, mutated

SCHEMA = pa.schema(
    [
        pa.field("n", pa.uint16(), nullable=False),
        ("state", pa.struct([("v", pa.string()), ("m", pa.map_(pa.string(), pa.list_(pa.int64())))])),
        ("times", pa.list_(pa.int64())),
        ("fixed", pa.list_(pa.bool_(), 2)),
    ]
)
ROW = st.fixed_dictionaries(
    {
        "n": st.integers(0, 9),
        "state": st.fixed_dictionaries(
            {
                "v": st.none() | st.text(max_size=3),
                "m": st.none()
                | st.dictionaries(
                    st.text(max_size=2), st.lists(st.none() | st.integers(0, 9), max_size=2)
                ).map(lambda entries: [*entries.items()]),
            }
        ),
        "times": st.none() | st.lists(st.integers(0, 99), max_size=3),
        "fixed": st.none() | st.tuples(st.none() | st.booleans(), st.booleans()).map(list),
    }
)
ONE: Any = [{"n": 1, "state": {"v": None, "m": [("a", [1, None])]}, "times": [3, 4], "fixed": None}]


def written(rows: list[Any], piece: int, is_compressed: bool) -> tuple[MemoryStore, TableFile]:
    """A stream behind seven bytes of another one, and with others behind it."""
    options = pa.ipc.IpcWriteOptions(compression="lz4" if is_compressed else None)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA, options=options) as writer:
        for batch in pa.Table.from_pylist(rows, SCHEMA).to_batches(max_chunksize=piece):
            writer.write_batch(batch)
    content, store = sink.getvalue().to_pybytes(), MemoryStore()
    store.create("file", b"another" + content + b"and more")
    return store, TableFile("t", "file", 7, len(content), "", (len(rows),))


def check(rows: list[Any], piece: int, is_compressed: bool) -> None:
    found = places_and_nulls(*written(rows, piece, is_compressed))
    assert list(found) == field_paths(SCHEMA)
    states = [row["state"] for row in rows]
    entries = [entry for state in states for entry in state["m"] or ()]
    assert found["n",] == (len(rows), 0)
    assert found["state", "v"] == (len(rows), sum(state["v"] is None for state in states))
    assert found["state", "m"] == (len(rows), sum(state["m"] is None for state in states))
    assert found["state", "m", ITEM] == (len(entries), 0)
    numbers = [number for _, value in entries for number in value]
    assert found["state", "m", ITEM, "value", ITEM] == (len(numbers), numbers.count(None))
    assert found["times",] == (len(rows), sum(row["times"] is None for row in rows))
    assert found["times", ITEM] == (sum(len(row["times"] or ()) for row in rows), 0)
    assert found["fixed",] == (len(rows), sum(row["fixed"] is None for row in rows))


@settings(max_examples=150, deadline=None)
@given(st.lists(ROW, max_size=9), st.integers(1, 4), st.booleans())
def test_counts_are_those_of_the_columns(rows: list[Any], piece: int, is_compressed: bool) -> None:
    check(rows, piece, is_compressed)


def test_a_reader_of_headers_that_takes_the_first_batch_for_all_is_found() -> None:
    check(ONE * 3, 1, True)
    real = stream_headers._nodes
    calls: list[bytes] = []

    def first_only(header: bytes, count: int) -> Any:
        calls.append(header)
        return real(header, count) if len(calls) == 1 else [(0, 0)] * count

    mutant = Mutant("only the first batch counts", [(stream_headers, "_nodes", first_only)])
    with mutated(mutant), pytest.raises(CorruptCheckpointError):
        check(ONE * 3, 1, True)


@pytest.mark.parametrize("place", [0, 3, 9, 60, 200])
def test_a_file_that_is_no_such_stream_is_told_and_its_copy_is_read(place: int) -> None:
    store, table = written(ONE * 5, 2, False)
    content = store.read("file")
    store.delete(["file"])
    short = content[: 7 + place]
    store.create("file", short)
    with pytest.raises(CorruptCheckpointError, match="gone or was altered, and has no whole copy"):
        places_and_nulls(store, table)
    store.create(copy_path("file"), content)
    assert places_and_nulls(store, table)["n",] == (5, 0)


def test_another_number_of_rows_than_the_manifest_has_is_damage() -> None:
    store, table = written(ONE * 5, 2, False)
    other = TableFile(table.name, table.path, table.offset, table.size, "", (4,))
    with pytest.raises(CorruptCheckpointError):
        places_and_nulls(store, other)
