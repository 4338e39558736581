"""Record batches as kafka-python writes them, read by ours: what is handed on, what is left out, and that
bytes which are wrong are said to be."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record._crc32c import crc
from kafka.record.default_records import DefaultRecordBatchBuilder

from onceflow.connectors.kafka.fetch import Wanted
from onceflow.connectors.kafka.fetch_protocol import Aborted
from onceflow.connectors.kafka.wire import ProtocolError
from onceflow.runtime.kernels.compiled import kernels_enabled

pytestmark = pytest.mark.skipif(not kernels_enabled(), reason="needs numba")

Record = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]
"""Value, key, time, headers."""

some_bytes = st.one_of(st.none(), st.binary(max_size=150))
records = st.lists(
    st.tuples(
        some_bytes,
        some_bytes,
        st.integers(0, 1 << 41),
        st.lists(st.tuples(st.text(max_size=9), st.one_of(st.none(), st.binary(max_size=9))), max_size=2),
    ),
    min_size=1,
    max_size=4,
)


@dataclass
class Batch:
    """A batch in a log; its offset is its place there."""

    records: list[Record]
    codec: int = 0
    producer: int = -1
    is_transactional: bool = False
    marker: int | None = None
    """0 aborts this producer's transaction, 1 commits it."""


@dataclass
class Log:
    batches: list[Batch]
    data: bytes = b""
    expected: list[tuple[int, Record]] = field(default_factory=list)
    aborted: list[tuple[Aborted, int]] = field(default_factory=list)
    """And the offset of the marker."""

    def __post_init__(self) -> None:
        offset = 0
        begun: dict[int, tuple[int, list[tuple[int, Record]]]] = {}
        for batch in self.batches:
            self.data += encoded(batch, offset)
            if batch.marker is not None:
                first, held = begun.pop(batch.producer, (-1, []))
                if batch.marker == 1:
                    self.expected += held
                elif first >= 0:
                    self.aborted.append((Aborted(batch.producer, first), offset))
                offset += 1
                continue
            rows = list(enumerate(batch.records, offset))
            if batch.is_transactional:
                begun.setdefault(batch.producer, (offset, []))[1].extend(rows)
            else:
                self.expected += rows
            offset += len(rows)
        self.expected.sort(key=lambda row: row[0])
        self.end = offset
        assert not begun, "a reader of committed records is shown none that is open"

    def aborted_from(self, offset: int) -> list[Aborted]:
        """What a broker tells with an answer that begins there."""
        return [each for each, marker in self.aborted if marker >= offset]


def encoded(batch: Batch, offset: int) -> bytes:
    builder: Any = DefaultRecordBatchBuilder(
        2, batch.codec, batch.is_transactional, batch.producer, 0, 0, 1 << 20
    )
    if batch.marker is not None:
        builder.append(0, 1, struct.pack(">hh", 0, batch.marker), b"\0\0\0\0\0\0", [])
    for number, (value, key, time, headers) in enumerate(batch.records):
        builder.append(number, time, key, value, headers)
    built = bytearray(builder.build())
    struct.pack_into(">q", built, 0, offset)
    if batch.marker is not None:
        attributes = struct.unpack_from(">h", built, 21)[0] | 0x30
        struct.pack_into(">h", built, 21, attributes)
        struct.pack_into(">I", built, 17, crc(bytes(built[21:])))
    return bytes(built)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    batches: list[Batch] = []
    open_: set[int] = set()
    for _ in range(draw(st.integers(0, 6))):
        producer = draw(st.integers(0, 2))
        if producer in open_ and draw(st.booleans()):
            batches.append(Batch([], 0, producer, True, draw(st.integers(0, 1))))
            open_.discard(producer)
        elif draw(st.booleans()):
            batches.append(Batch(draw(records), draw(st.sampled_from([0, 1])), producer, True))
            open_.add(producer)
        else:
            batches.append(Batch(draw(records), draw(st.sampled_from([0, 1]))))
    batches += [Batch([], 0, producer, True, draw(st.integers(0, 1))) for producer in sorted(open_)]
    return Log(batches)


def read_all(
    data: bytes, aborted: list[Aborted], from_offset: int = 0, room: int = 5, stop: int = 1 << 62
) -> tuple[list[tuple[int, Record]], int]:
    """Rows, and the offset behind all."""
    from onceflow.connectors.kafka.fetch_leader import Lane, _section
    from onceflow.connectors.kafka.fetch_records import RecordColumns
    from onceflow.connectors.kafka.record_batches import record_batches
    from onceflow.connectors.kafka.record_kernels import LEFT

    memory = np.frombuffer(data, np.uint8).copy()
    lane = Lane(3, b"", 0, from_offset, stop, from_offset)
    batches, after = record_batches(memory.ctypes.data, len(memory), from_offset, aborted)
    columns = RecordColumns(Wanted(True, True, True, True), room)
    rows: list[tuple[int, Record]] = []
    sections = [_section(lane, batch) for batch in batches]
    while sections:
        table = np.stack([section.fields for section in sections])
        fetched: Any = columns.read(table)
        assert len(fetched) <= room
        for row in range(len(fetched)):
            headers = [(each["key"], each["value"]) for each in fetched.headers[row].as_py()]
            details = fetched.details(row)
            assert fetched.row_split[row] == 3
            assert fetched.time_kind[row] == 1
            key, time = fetched.key[row].as_py(), int(fetched.timestamp_ms[row])
            assert (details.key, details.timestamp_ms) == (key, time)
            assert [(each["key"], each["value"]) for each in details.headers] == headers
            rows.append((int(fetched.offset[row]), (fetched.value[row].as_py(), key, time, headers)))
        for section, fields in zip(sections, table, strict=True):
            section.fields[:] = fields
        sections = [section for section in sections if section.fields[LEFT]]
    return rows, after


@given(logs(), st.data())
def test_committed_records_are_read_and_nothing_else(log: Log, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, log.end))
    stop = data.draw(st.integers(start, log.end))
    aborted = data.draw(st.permutations(log.aborted_from(start)))
    rows, after = read_all(log.data, aborted, start, data.draw(st.sampled_from([1, 3, 50])), stop)
    assert rows == [row for row in log.expected if start <= row[0] < stop]
    assert after == log.end or not log.data


@given(logs(), st.data())
def test_a_last_batch_that_is_cut_off_is_left_for_the_next_answer(log: Log, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(log.data)))
    rows, after = read_all(log.data[:cut], log.aborted_from(0))
    assert rows == [row for row in log.expected if row[0] < after]


@given(logs().filter(lambda log: bool(log.expected)), st.data())
def test_a_changed_byte_is_never_handed_on(log: Log, data: st.DataObject) -> None:
    """Of offset, length and leader's epoch, which brokers write, there is no checksum."""
    changed = bytearray(log.data)
    at = data.draw(st.integers(0, len(changed) - 1))
    changed[at] ^= data.draw(st.integers(1, 255))
    start = 0
    while start + 12 + struct.unpack_from(">i", log.data, start + 8)[0] <= at:
        start += 12 + struct.unpack_from(">i", log.data, start + 8)[0]
    try:
        rows, _ = read_all(bytes(changed), log.aborted_from(0))
    except ProtocolError:
        return
    assert at - start < 17
    if at - start < 12:
        assert all(record in [r for _, r in log.expected] for _, record in rows)


@given(st.binary(max_size=80), st.integers(1, 5), st.booleans())
def test_bytes_that_are_no_records_are_malformed_or_within_bounds(
    data: bytes, count: int, with_headers: bool
) -> None:
    from onceflow.connectors.kafka import record_kernels as kernels

    memory = np.frombuffer(data, np.uint8).copy()
    start, end = memory.ctypes.data, memory.ctypes.data + len(data)
    sections = np.zeros((1, kernels.SECTION_FIELDS), np.int64)
    sections[0, [kernels.AT, kernels.END, kernels.LEFT]] = start, end, count
    sections[0, kernels.WANTED_FROM], sections[0, kernels.WANTED_TO] = -(1 << 62), 1 << 62
    found = np.zeros((kernels.RECORD_FIELDS, 3), np.int64)
    sums = np.zeros(kernels.SUMS, np.int64)
    rows = kernels.read(sections, with_headers, found, sums)
    for row in range(rows):
        for at, length in ((kernels.VALUE_AT, kernels.VALUE_BYTES), (kernels.KEY_AT, kernels.KEY_BYTES)):
            assert start <= found[at, row] <= found[at, row] + max(0, found[length, row]) <= end


@pytest.mark.parametrize(
    "value", [0, 1, -1, 63, -64, 64, -65, 1 << 31, -(1 << 62), (1 << 63) - 1, -(1 << 63)]
)
def test_varints_of_every_width(value: int) -> None:
    from onceflow.connectors.kafka.record_kernels import MALFORMED, varint

    number, text = ((value << 1) ^ (value >> 63)) & ((1 << 64) - 1), bytearray()
    while number >= 0x80:
        text.append(number & 0x7F | 0x80)
        number >>= 7
    text.append(number)
    memory = np.frombuffer(bytes(text) + b"\xff", np.uint8).copy()
    start = memory.ctypes.data
    assert varint(start, start + len(text)) == (value, start + len(text))
    assert varint(start, start + len(text) - 1) == (0, MALFORMED)


def test_snappy_as_java_writes_it_and_as_librdkafka_does() -> None:
    import cramjam

    from onceflow.connectors.kafka.record_codecs import decompress

    text = b"Ringelnatter" * 5_000
    raw = bytes(cramjam.snappy.compress_raw(text))
    assert bytes(decompress(2, raw)) == text
    blocks = b"".join(
        struct.pack(">i", len(block)) + block
        for block in (
            bytes(cramjam.snappy.compress_raw(text[at : at + 32_768])) for at in range(0, 60_000, 32_768)
        )
    )
    assert bytes(decompress(2, b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + blocks)) == text
    for codec in (1, 2, 3, 4, 5):
        with pytest.raises(ProtocolError):
            decompress(codec, b"\xff" * 40)


def test_a_column_of_too_many_bytes_is_large_binary() -> None:
    from onceflow.connectors.kafka.fetch_leader import Lane, _section
    from onceflow.connectors.kafka.fetch_records import RecordColumns
    from onceflow.connectors.kafka.record_batches import record_batches

    data = encoded(Batch([(b"12345", b"k", 0, []), (None, None, 0, [])]), 0)
    memory = np.frombuffer(data, np.uint8).copy()
    lane = Lane(0, b"", 0, 0, 9, 0)
    (batch,), _ = record_batches(memory.ctypes.data, len(memory), 0, [])
    for bytes_max, expected in ((5, pa.binary()), (4, pa.large_binary())):
        table = np.stack([_section(lane, batch).fields])
        fetched: Any = RecordColumns(Wanted(key=True), 9, bytes_max).read(table)
        fetched.value.validate(full=True)
        assert (fetched.value.type, fetched.key.type) == (expected, pa.binary())
        assert fetched.value.to_pylist() == [b"12345", None]
