"""Record batches as a direct producer writes them, against kafka-python's own writer and reader."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA, ProducerIdentity
from onceflow.runtime.kernels.compiled import kernels_enabled

if not kernels_enabled():
    pytest.skip("kernels are off", allow_module_level=True)

from onceflow.connectors.kafka.batch_writing import BatchWriter, RowBytes, next_sequence
from onceflow.connectors.kafka.record_codecs import Codec, codec_of, decompress

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
    writer, table, at = BatchWriter(IDENTITY, limit, codec), RowBytes(batch, NOW_MS), 0
    found: list[bytes] = []
    while at < batch.num_rows:
        writer.reserve(table, [(at, batch.num_rows)])
        memory, at = writer.write(table, at, batch.num_rows, sequence)
        found.append(bytes(memory))
        sequence = next_sequence(sequence, struct.unpack_from(">i", found[-1], 57)[0])
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


@given(st.lists(rows, min_size=1, max_size=30), st.integers(0, (1 << 31) - 1))
def test_batches_are_byte_for_byte_those_of_another_writer(
    given_rows: list[dict[str, Any]], sequence: int
) -> None:
    builder = DefaultRecordBatchBuilder(2, 0, 1, IDENTITY.producer_id, IDENTITY.epoch, sequence, 1 << 20)
    for number, (key, value, found, time) in enumerate(as_records(given_rows)):
        assert builder.append(number, time, key, value, found) is not None
    [batch] = written(pa.RecordBatch.from_pylist(given_rows, PRODUCE_SCHEMA), 1 << 20, sequence)
    # The other writer says leader epoch 0 where a client says that it knows none (-1).
    expected = bytearray(builder.build())
    expected[12:16] = b"\xff" * 4
    assert batch == bytes(expected)


@pytest.mark.parametrize(("name", "number"), [("gzip", 1), ("snappy", 2), ("zstd", 4)])
@given(st.lists(rows, min_size=1, max_size=30), st.sampled_from([1, 700, 1 << 20]))
def test_compressed_batches_are_read(
    name: str, number: int, given_rows: list[dict[str, Any]], limit: int
) -> None:
    given_rows = [*given_rows, {**PLAIN, "key": None, "value": b"again" * 100}]
    batches = written(
        pa.RecordBatch.from_pylist(given_rows, PRODUCE_SCHEMA), limit, codec=codec_of(name, None)
    )
    assert [record for each in batches for record in read_compressed(each)] == as_records(given_rows)
    codecs = [DefaultRecordBatch(bytearray(each)).compression_type for each in batches]
    assert codecs[-1] == number
    assert set(codecs) <= {0, number}  # what would grow stays as it is


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
