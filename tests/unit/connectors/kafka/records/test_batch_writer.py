"""Record batches as a direct producer writes them, against kafka-python's own writer and reader."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA, ProducerIdentity
from onceflow.connectors.kafka.records.compression import Codec, codec_of, decompress
from onceflow.runtime.kernels.ops import ops
from tests.unit.guarded_memory import array_of, before_closed_page

if not ops().are_compiled:
    pytest.skip("needs numba", allow_module_level=True)

from onceflow.connectors.kafka.records.batch_writer import BatchWriter, RowsToWrite, next_sequence

IDENTITY = ProducerIdentity(1 << 40, 77)
NOW_MS = 1_700_000_000_000

maybe_bytes = st.none() | st.binary(max_size=200)
headers = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.none() | st.text(max_size=5), "value": maybe_bytes}), max_size=3
)
rows = st.fixed_dictionaries(
    {
        "topic": st.just("t"),
        "partition": st.just(0),
        "key": maybe_bytes,
        "value": maybe_bytes,
        "headers": headers,
        "timestamp": st.none() | st.integers(0, 1 << 62),
    }
)
PLAIN: dict[str, Any] = {"topic": "t", "partition": 0, "headers": None, "timestamp": None}


def written(batch: pa.RecordBatch, limit: int, sequence: int = 0, codec: Codec | None = None) -> list[bytes]:
    """All batches of these rows."""
    [found] = written_runs(batch, [(0, batch.num_rows)], limit, sequence, codec)
    return found


def written_runs(
    batch: pa.RecordBatch,
    runs: list[tuple[int, int]],
    limit: int,
    sequence: int = 0,
    codec: Codec | None = None,
) -> list[list[bytes]]:
    """All batches of each run."""
    writer, rest = BatchWriter(IDENTITY, limit, codec), dict(enumerate(runs))
    writer.take(batch, NOW_MS)
    found: list[list[bytes]] = [[] for _ in runs]
    sequences = [sequence] * len(runs)
    while rest:
        batches = writer.write([RowsToWrite(*run, sequences[number]) for number, run in rest.items()])
        for number, made in zip(list(rest), batches, strict=True):
            found[number].append(b"".join(made.pieces))
            assert len(made) == len(found[number][-1])
            count = struct.unpack_from(">i", found[number][-1], 57)[0]
            assert count == made.after - rest[number][0]
            sequences[number] = next_sequence(sequences[number], count)
            rest[number] = (made.after, rest[number][1])
        rest = {number: run for number, run in rest.items() if run[0] < run[1]}
    return found


def as_records(given_rows: list[dict[str, Any]]) -> list[Any]:
    """What a reader has to find."""
    return [
        (
            row["key"],
            row["value"],
            [(header["key"] or "", header["value"]) for header in row["headers"] or []],
            NOW_MS if row["timestamp"] is None else row["timestamp"],
        )
        for row in given_rows
    ]


def read(batch: bytes) -> list[Any]:
    whole = DefaultRecordBatch(bytearray(batch))
    assert whole.validate_crc()
    return [(each.key, each.value, each.headers, each.timestamp) for each in whole]


def read_compressed(batch: bytes) -> list[Any]:
    """kafka-python itself would need a package for each codec."""
    codec = DefaultRecordBatch(bytearray(batch)).compression_type
    if not codec:
        return read(batch)
    assert DefaultRecordBatch(bytearray(batch)).validate_crc()
    plain = bytearray(batch[:61]) + bytes(decompress(codec, batch[61:]))
    plain[22] &= ~7
    return [(each.key, each.value, each.headers, each.timestamp) for each in DefaultRecordBatch(plain)]


@given(st.lists(rows, min_size=1, max_size=30), st.integers(0, 29), st.sampled_from([1, 150, 700, 1 << 20]))
@example([{**PLAIN, "key": b"", "value": None}, {**PLAIN, "key": None, "value": b""}], 0, 1 << 20)
def test_what_is_written_is_read(given_rows: list[dict[str, Any]], skipped: int, limit: int) -> None:
    skipped = min(skipped, len(given_rows) - 1)
    batch = pa.RecordBatch.from_pylist(given_rows, PRODUCE_SCHEMA).slice(skipped)
    batches = written(batch, limit)
    assert [record for each in batches for record in read(each)] == as_records(given_rows[skipped:])
    for each in batches:
        assert len(each) <= limit or len(read(each)) == 1


@pytest.mark.parametrize(("name", "number"), [("gzip", 1), ("snappy", 2), ("zstd", 4)])
@given(st.lists(rows, min_size=1, max_size=30), st.sampled_from([1, 700, 1 << 20]))
def test_compressed_batches_are_read(
    name: str, number: int, given_rows: list[dict[str, Any]], limit: int
) -> None:
    given_rows = [*given_rows, {**PLAIN, "key": None, "value": b"again" * 100}]
    batch = pa.RecordBatch.from_pylist(given_rows, PRODUCE_SCHEMA)
    batches = written(batch, limit, codec=codec_of(name, None))
    assert [record for each in batches for record in read_compressed(each)] == as_records(given_rows)
    codecs = [DefaultRecordBatch(bytearray(each)).compression_type for each in batches]
    assert codecs[-1] == number
    for codec, each, plain in zip(codecs, batches, written(batch, limit), strict=True):
        assert codec in (0, number)  # what would grow stays as it is
        assert len(each) < len(plain) if codec else each == plain


@pytest.mark.parametrize(
    ("sequence", "count", "after"), [(0, 5, 5), ((1 << 31) - 1, 1, 0), ((1 << 31) - 3, 5, 2)]
)
def test_sequences_begin_again_behind_the_last(sequence: int, count: int, after: int) -> None:
    assert next_sequence(sequence, count) == after


def test_a_header_column_that_is_sliced_keeps_its_rows_apart() -> None:
    """A null over headers that are another row's, as a filter or a slice leaves them."""
    lists = pa.array([[{"key": "a", "value": b"1"}], [{"key": "b", "value": b"2"}], []])
    _, offsets = lists.buffers()[:2]
    validity = pa.py_buffer(bytes([0b101]))
    with_null = pa.Array.from_buffers(
        PRODUCE_SCHEMA.field("headers").type, 3, [validity, offsets], children=[lists.values]
    )
    batch = pa.RecordBatch.from_pylist([{**PLAIN, "value": b"v"}] * 3, PRODUCE_SCHEMA)
    batch = batch.set_column(4, PRODUCE_SCHEMA.field(4), with_null)
    [found] = written(batch, 1 << 20)
    assert [record[2] for record in read(found)] == [[("a", b"1")], [], []]


def test_a_null_may_lie_over_bytes_that_are_not_its_own() -> None:
    values = pa.array([b"first", b"second", b"third"], pa.large_binary())
    _, offsets, data = values.buffers()
    validity = pa.py_buffer(bytes([0b101]))
    with_null = pa.Array.from_buffers(pa.large_binary(), 3, [validity, offsets, data])
    batch = pa.RecordBatch.from_pylist([{**PLAIN, "value": b"v"}] * 3, PRODUCE_SCHEMA)
    batch = batch.set_column(2, PRODUCE_SCHEMA.field(2), with_null)
    batch = batch.set_column(3, PRODUCE_SCHEMA.field(3), with_null)
    # There is room for just these: bytes that are not there take none.
    [found] = written(batch, 61 + 3 * 7 + 20)
    assert [record[:2] for record in read(found)] == [(each, each) for each in (b"first", None, b"third")]


@pytest.mark.parametrize("length", [1, 11, 31, 32, 33, 100])
def test_nothing_is_read_behind_the_end_of_the_memory(length: int) -> None:
    values = [b"x" * length] * 3
    with before_closed_page() as put, before_closed_page() as put_also:
        batch = pa.RecordBatch.from_pylist([PLAIN] * 3, PRODUCE_SCHEMA)
        for column, content in ((2, put(b"".join(values))), (3, put_also(b"".join(values)))):
            array = array_of(values, content, pa.large_binary())
            batch = batch.set_column(column, PRODUCE_SCHEMA.field(column), array)
        [found] = written(batch, 1 << 20)
        assert [record[:2] for record in read(found)] == list(zip(values, values, strict=True))


lengths = st.sampled_from([0, 1, 62, 63, 64, 65, 120, 8_170, 8_180, 8_191, 8_192, 16_400, 70_000])
times = st.none() | st.integers(0, (1 << 63) - 1) | st.integers(NOW_MS - 70, NOW_MS + 9_000)
hostile_rows = st.fixed_dictionaries(
    {
        "topic": st.just("t"),
        "partition": st.just(0),
        "key": st.none() | st.builds(bytes, lengths),
        "value": st.none() | st.builds(bytes, lengths),
        "headers": headers,
        "timestamp": times,
    }
)


def of_another_writer(rows: pa.RecordBatch, runs: list[tuple[int, int]], limit: int) -> list[list[bytes]]:
    """The batches of each run as kafka-python writes them, each as full as it may be."""
    records = as_records(rows.to_pylist())
    found: list[list[bytes]] = []
    for start, stop in runs:
        batches: list[bytes] = []
        at = sequence = 0
        while start + at < stop:
            builder = DefaultRecordBatchBuilder(
                2, 0, 1, IDENTITY.producer_id, IDENTITY.epoch, sequence, limit
            )
            number = 0
            while start + at < stop:
                key, value, headers, time = records[start + at]
                if builder.append(number, time, key, value, headers) is None:
                    break
                number, at = number + 1, at + 1
            sequence = next_sequence(sequence, number)
            # The other writer says leader epoch 0 where a client says that it knows none (-1).
            batch = bytearray(builder.build())
            batch[12:16] = b"\xff" * 4
            batches.append(bytes(batch))
        found.append(batches)
    return found


@given(
    st.lists(hostile_rows, min_size=1, max_size=20),
    st.lists(st.integers(1, 400), min_size=1, max_size=6),
    st.sets(st.sampled_from(["key", "value", "headers", "timestamp"])),
    st.integers(0, 3),
    st.sampled_from([1, 500, 9_000, 20_000, 1 << 20]),
)
@settings(max_examples=15, deadline=None)
def test_batches_of_many_runs_are_byte_for_byte_those_of_another_writer(
    given_rows: list[dict[str, Any]], counts: list[int], without: set[str], gap: int, limit: int
) -> None:
    """Many partitions, not all neighbours, of a slice; with columns that are null for all, and rows that come
    again and again, since what is rare in one batch is not in another."""
    given_rows = [{**row, **dict.fromkeys(without)} for row in given_rows]
    runs, at = [], gap
    for count in counts:
        runs.append((at, at + count))
        at += count + gap
    repeated = [given_rows[n % len(given_rows)] for n in range(at + 3)]
    batch = pa.RecordBatch.from_pylist(repeated, PRODUCE_SCHEMA).slice(3)
    assert written_runs(batch, runs, limit) == of_another_writer(batch, runs, limit)


@pytest.mark.parametrize("count", [63, 64, 65, 8_191, 8_193, 20_000])
def test_many_records_are_numbered_as_another_writer_does(count: int) -> None:
    batch = pa.RecordBatch.from_pylist([{**PLAIN, "value": b"v"}] * count, PRODUCE_SCHEMA)
    runs = [(0, count // 3), (count // 3, count)]
    assert written_runs(batch, runs, 100_000) == of_another_writer(batch, runs, 100_000)


def test_a_batch_is_filled_to_the_last_byte() -> None:
    batch = pa.RecordBatch.from_pylist(
        [{**PLAIN, "value": b"v" * (n % 3)} for n in range(12)], PRODUCE_SCHEMA
    )
    for limit in range(61, 61 + 12 * 10):
        runs = [(0, 5), (5, 12)]
        assert written_runs(batch, runs, limit) == of_another_writer(batch, runs, limit)
