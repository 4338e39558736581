"""Staged files give back what was written, whatever of it they left out."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA
from onceflow.connectors.kafka.produce.constant_columns import SameForAll, only_topic
from onceflow.connectors.kafka.transactions.staged_file import StagedFileWriter, checksum, read_rows

TOPICS = ["out", "tou", "o", "longer-name", "", "ü"]


class Kept(io.BytesIO):
    """Keeps its content when it is closed."""

    content = b""

    def close(self) -> None:
        if not self.closed:
            self.content = self.getvalue()
        super().close()


def batches() -> st.SearchStrategy[pa.RecordBatch]:
    """Some have columns that are the same in all rows, as most sinks' have."""
    header = st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.none() | st.binary(max_size=3)})
    kinds: dict[str, Any] = {
        "key": st.none() | st.binary(max_size=5),
        "headers": st.none() | st.lists(header, max_size=2),
        "timestamp": st.none() | st.integers(0, 1 << 40),
    }

    @st.composite
    def made(draw: Any) -> pa.RecordBatch:
        count = draw(st.integers(0, 5))
        topics = draw(st.sampled_from([[draw(st.sampled_from(TOPICS))], TOPICS]))
        absent = draw(st.sets(st.sampled_from(sorted(kinds))))
        rows = [
            {
                "topic": draw(st.sampled_from(topics)),
                "partition": draw(st.integers(-1, 3)),
                "value": draw(st.none() | st.binary(max_size=5)),
                **{name: None if name in absent else draw(kind) for name, kind in kinds.items()},
            }
            for _ in range(count)
        ]
        start = draw(st.integers(0, 1))
        return pa.RecordBatch.from_pylist(rows, PRODUCE_SCHEMA)[start:]

    return made()


def written(*rows: pa.RecordBatch) -> bytes:
    file = Kept()
    writer = StagedFileWriter("path", file)
    for batch in rows:
        writer.write(batch)
    assert writer.close() == checksum(io.BytesIO(file.content))
    return file.content


@settings(max_examples=200)
@given(st.lists(batches(), max_size=5))
def test_batches_come_back_as_they_were(rows: list[pa.RecordBatch]) -> None:
    content = written(*rows)
    found = list(read_rows(io.BytesIO(content), len(content)))
    assert [batch.to_pylist() for batch in found] == [batch.to_pylist() for batch in rows]
    for batch in found:
        assert batch.schema == PRODUCE_SCHEMA
        batch.validate(full=True)


@settings(max_examples=200)
@given(batches())
def test_the_only_topic_is_that_of_all_rows(rows: pa.RecordBatch) -> None:
    topics = set(rows["topic"].to_pylist())
    assert only_topic(rows) == (topics.pop() if len(topics) == 1 else None)


def test_large_batches_come_back_and_so_does_their_checksum() -> None:
    rows = one_topic(40_000)
    content = written(rows, rows)
    assert len(content) > 8 * (1 << 18)
    assert [b.equals(rows) for b in read_rows(io.BytesIO(content), len(content))] == [True, True]


def one_topic(count: int, topic: str = "out") -> pa.RecordBatch:
    same = SameForAll(topic).columns(count)
    columns = [
        same["topic"],
        pa.array([0] * count, pa.int32()),
        same["key"],
        pa.array([b"v" * 20] * count, pa.large_binary()),
        same["headers"],
        same["timestamp"],
    ]
    return pa.RecordBatch.from_arrays(columns, schema=PRODUCE_SCHEMA)


def test_what_is_the_same_in_all_rows_takes_no_bytes_for_each() -> None:
    few, many = len(written(one_topic(1_000))), len(written(one_topic(2_000)))
    assert (many - few) / 1_000 == pytest.approx(20 + 8 + 4, abs=0.5)  # value, its offset, partition


def test_topics_in_turn_begin_no_stream_each() -> None:
    here, there = one_topic(1), one_topic(1, "other")
    assert streams(written(*[here, there] * 50)) == 2


def test_a_column_that_was_needed_once_stays() -> None:
    plain, keys = one_topic(1), pa.array([b"k"], pa.large_binary())
    with_key = plain.set_column(2, PRODUCE_SCHEMA.field("key"), keys)
    with_time = plain.set_column(5, PRODUCE_SCHEMA.field("timestamp"), pa.array([7], pa.int64()))
    assert streams(written(*[plain, with_key, with_time] * 10)) == 3


def streams(content: bytes) -> int:
    file, found = io.BytesIO(content), 0
    while file.tell() < len(content):
        with pa.ipc.open_stream(file) as stream:
            list(stream)
        found += 1
    return found


def test_files_of_whole_rows_as_they_were_written_before_are_read() -> None:
    """Checkpoints of earlier versions have one stream with all columns."""
    file = io.BytesIO()
    rows = one_topic(3)
    with pa.ipc.new_stream(file, PRODUCE_SCHEMA) as stream:
        stream.write_batch(rows)
    size = file.tell()
    file.seek(0)
    assert [batch.to_pylist() for batch in read_rows(file, size)] == [rows.to_pylist()]


def test_a_file_of_this_machine_is_read_like_any_other(tmp_path: Path) -> None:
    content = written(one_topic(3), one_topic(2, "other"))
    (tmp_path / "staged").write_bytes(content)
    with (tmp_path / "staged").open("rb") as file:
        assert checksum(file) == checksum(io.BytesIO(content))
        file.seek(0)
        found = list(read_rows(file, len(content)))
    assert [row["topic"] for batch in found for row in batch.to_pylist()] == ["out"] * 3 + ["other"] * 2
