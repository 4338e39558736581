"""Record batches as kafka-python writes them, read by ours: what is handed on, what is left out, and that
bytes which are wrong are said to be."""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass, field
from typing import Any

import cramjam
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record._crc32c import crc
from kafka.record.default_records import DefaultRecordBatchBuilder

from onceflow.connectors.formats.format import as_list, value_at
from onceflow.connectors.kafka.fetch.lane import Lane
from onceflow.connectors.kafka.fetched import Wanted
from onceflow.connectors.kafka.protocol.fetch_messages import Aborted
from onceflow.connectors.kafka.protocol.wire import ProtocolError
from onceflow.connectors.kafka.records.batch_headers import record_batches
from onceflow.connectors.kafka.records.compression import decompress
from onceflow.connectors.kafka.records.section import (
    AT,
    END,
    LEFT,
    SECTION_FIELDS,
    SPLIT,
    WANTED_FROM,
    WANTED_TO,
    Section,
)
from onceflow.runtime.kernels.ops import ops

if not ops().are_compiled:
    pytest.skip("needs numba", allow_module_level=True)

from onceflow.connectors.kafka.fetch.broker_lanes import _section
from onceflow.connectors.kafka.records.read_columns import RecordColumns

HEADER_BYTES = 61

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
    data: bytes,
    aborted: list[Aborted],
    from_offset: int = 0,
    room: int = 5,
    stop: int = 1 << 62,
    at_once: int = 1 << 30,
    asked: int = 9,
) -> tuple[list[tuple[int, Record]], int]:
    """Rows, and the offset behind all. `at_once`: so many sections are there, then others come.
    `asked`: for so many rows."""
    memory = np.frombuffer(data, np.uint8).copy()
    lane = Lane(3, b"", 0, from_offset, stop, from_offset)
    batches, after, _ = record_batches(memory.ctypes.data, len(memory), from_offset, aborted)
    columns = RecordColumns(Wanted(True, True, True, True), room)
    rows: list[tuple[int, Record]] = []
    coming = [_section(lane, batch) for batch in batches]
    sections: list[Section] = []
    while coming or sections:
        sections, coming = sections + coming[:at_once], coming[at_once:]
        before = sum(int(section.fields[LEFT]) for section in sections)
        fetched, finished = columns.read(sections, asked)
        left = sum(int(section.fields[LEFT]) for section in sections[finished:])
        assert finished or left < before
        assert len(fetched) <= min(room, asked, before - left)
        rows += rows_of(fetched)
        sections = sections[finished:]
    return rows, after


def rows_of(fetched: Any) -> list[tuple[int, Record]]:
    rows: list[tuple[int, Record]] = []
    for row in range(len(fetched)):
        headers = [(each["key"], each["value"]) for each in fetched.headers[row].as_py()]
        details = fetched.details(row)
        assert fetched.row_split[row] == 3
        assert fetched.time_kind[row] == 1
        key, time = value_at(fetched.key, row), int(fetched.timestamp_ms[row])
        assert (details.key, details.timestamp_ms) == (key, time)
        assert [(each["key"], each["value"]) for each in details.headers] == headers
        rows.append((int(fetched.offset[row]), (value_at(fetched.value, row), key, time, headers)))
    return rows


@given(logs(), st.data())
def test_committed_records_are_read_and_nothing_else(log: Log, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, max(0, log.end - 1)))  # from the end on, a broker sends no bytes
    stop = data.draw(st.integers(start, log.end))
    aborted = data.draw(st.permutations(log.aborted_from(start)))
    room, at_once, asked = (data.draw(st.sampled_from([1, some, 50])) for some in (3, 2, 4))
    rows, after = read_all(log.data, aborted, start, room, stop, at_once, asked)
    assert rows == [row for row in log.expected if start <= row[0] < stop]
    assert after == log.end or not log.data


@given(logs(), st.data())
def test_a_last_batch_that_is_cut_off_is_left_for_the_next_answer(log: Log, data: st.DataObject) -> None:
    first = 12 + struct.unpack_from(">i", log.data, 8)[0] if log.data else 0
    cut = data.draw(st.integers(first, len(log.data)))
    rows, after = read_all(log.data[:cut], log.aborted_from(0))
    assert rows == [row for row in log.expected if row[0] < after]


@given(logs().filter(lambda log: bool(log.batches)), st.data())
def test_bytes_without_one_whole_batch_are_no_answer(log: Log, data: st.DataObject) -> None:
    """A broker sends one whole batch at least: the question would be asked for ever."""
    first = 12 + struct.unpack_from(">i", log.data, 8)[0]
    cut = data.draw(st.integers(1, first - 1))
    with pytest.raises(ProtocolError, match="from offset 0 on is no whole record batch"):
        read_all(log.data[:cut], [])


@given(logs().filter(lambda log: bool(log.expected)), st.data())
def test_a_changed_byte_is_never_handed_on(log: Log, data: st.DataObject) -> None:
    """Only offset, length and leader's epoch, which brokers write, have no checksum."""
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


def section_of(memory: Any, at: int, size: int, count: int) -> Section:
    fields = np.zeros(SECTION_FIELDS, np.int64)
    fields[AT] = memory.ctypes.data + at
    fields[END], fields[LEFT] = fields[AT] + size, count
    fields[WANTED_FROM], fields[WANTED_TO] = -(1 << 62), 1 << 62
    return Section(fields)


def verdict(data: bytes, count: int, wanted: Wanted) -> Any:
    """The section's records, or None if they are malformed. What lies around must not be read."""
    memory = np.frombuffer(b"\xff" * 9 + data + b"\xff" * 99, np.uint8).copy()
    columns = RecordColumns(wanted, count)
    try:
        fetched, finished = columns.read([section_of(memory, 9, len(data), count)], count)
    except ProtocolError:
        return None
    assert finished == 1
    return [
        as_list(fetched.value),
        None if fetched.key is None else as_list(fetched.key),
        fetched.offset.tolist(),
        None if fetched.headers is None else fetched.headers.to_pylist(),
    ]


@st.composite
def record_bytes(draw: st.DrawFn) -> tuple[bytes, int]:
    """Records written by kafka-python, maybe spoilt, and how many they are said to be."""
    batch = Batch(draw(records))
    whole = bytearray(encoded(batch, 0)[HEADER_BYTES:])
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(whole) - 1))
        whole[at] = draw(st.one_of(st.integers(0, 255), st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF])))
    cut = draw(st.sampled_from([len(whole), len(whole), draw(st.integers(0, len(whole)))]))
    return bytes(whole[:cut]), len(batch.records) + draw(st.sampled_from([0, 0, 0, -1, 1]))


class _Cursor:
    """Reads what `judged` is made of. Raises ProtocolError for what is not there."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data):
            raise ProtocolError("cut off")
        taken, self.data = self.data[:size], self.data[size:]
        return taken

    def number(self) -> int:
        zigzag = 0
        for place in range(10):
            (byte,) = self.take(1)
            zigzag |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                zigzag &= (1 << 64) - 1
                return zigzag >> 1 ^ -(zigzag & 1)
        raise ProtocolError("wider than 64 bits")

    def field(self) -> bytes | None:
        size = self.number()
        return None if size == -1 else self.take(size)

    def end(self) -> None:
        if self.data:
            raise ProtocolError("left over")


def judged(data: bytes, count: int, wanted: Wanted) -> Any:
    """What `verdict` has to be: records read one by one, as KIP-98 says how they are."""
    values, keys, offsets, all_headers = [], [], [], []
    section = _Cursor(data)
    try:
        for _ in range(count):
            record = _Cursor(section.take(section.number()))
            record.take(1)
            record.number()
            offsets.append(record.number())
            keys.append(record.field())
            values.append(record.field())
            if wanted.headers:
                headers = []
                for _ in range(checked_count(record.number())):
                    name = record.take(record.number()).decode(errors="replace")
                    headers.append({"key": name, "value": record.field()})
                record.end()
                all_headers.append(headers)
        section.end()
    except ProtocolError:
        return None
    return [values, keys, offsets, all_headers if wanted.headers else None]


def checked_count(count: int) -> int:
    if count < 0:
        raise ProtocolError("less than none")
    return count


@given(st.one_of(record_bytes(), st.tuples(st.binary(max_size=80), st.integers(0, 5))), st.booleans())
@settings(max_examples=400)
def test_what_is_malformed_is_what_a_reader_of_single_records_finds_so(
    made: tuple[bytes, int], headers: bool
) -> None:
    data, count = made
    wanted = Wanted(key=True, headers=headers)
    assert verdict(data, count, wanted) == judged(data, count, wanted)


def number(value: int) -> bytes:
    """A varint."""
    zigzag, text = ((value << 1) ^ (value >> 63)) & ((1 << 64) - 1), bytearray()
    while zigzag >= 0x80:
        text.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*text, zigzag])


def record(*fields: bytes, attributes: bytes = b"\0") -> bytes:
    body = attributes + b"".join(fields)
    return number(len(body)) + body


START = number(0) + number(0)
NO_KEY, VALUE = number(-1), number(3) + b"abc"
GOOD = record(START, NO_KEY, VALUE, number(0))
TOO_WIDE = b"\x80" * 10 + b"\x01"


@pytest.mark.parametrize(
    ("data", "is_good"),
    [
        (GOOD + GOOD, True),
        (GOOD + record(START, NO_KEY, VALUE, number(0), attributes=b"\x07"), True),
        (GOOD + record(b"\x80" * 9 + b"\x01", number(0), NO_KEY, VALUE, number(0)), True),
        (GOOD + record(TOO_WIDE, number(0), NO_KEY, VALUE, number(0)), False),
        (GOOD + record(b"\x80" * 10, number(0), NO_KEY, VALUE, number(0)), False),
        (GOOD + number(-len(GOOD)) + GOOD[1:], False),
        (GOOD + b"\0" + GOOD, False),
        (GOOD + number(len(GOOD)) + GOOD[1:], False),
        (GOOD, False),
        (GOOD + GOOD + GOOD, False),
        (GOOD + GOOD + b"\0", False),
        (GOOD + record(START, number(-2), VALUE, number(0)), False),
        (GOOD + record(START, number(40), VALUE, number(0)), False),
        (GOOD + record(START, NO_KEY, number(-2), b"abc", number(0)), False),
        (GOOD + record(START, NO_KEY, number(5), b"abc", number(0)), False),
        (GOOD + record(START, NO_KEY), False),
        (GOOD + record(START), False),
        (GOOD + record(START, NO_KEY, VALUE, number(-1)), False),
        (GOOD + record(START, NO_KEY, VALUE, number(1 << 40), b"abc"), False),
        (GOOD + record(START, NO_KEY, VALUE), False),
        (GOOD + record(START, NO_KEY, VALUE, number(0), b"x"), False),
        (GOOD + record(START, NO_KEY, VALUE, number(1), number(1), b"k", number(-1)), True),
        (GOOD + record(START, NO_KEY, VALUE, number(1), number(-1), number(-1)), False),
        (GOOD + record(START, NO_KEY, VALUE, number(1), number(-1)), False),
        (GOOD + record(START, NO_KEY, VALUE, number(-1), number(1), b"k", number(-1)), False),
        (GOOD + record(START, NO_KEY, VALUE, number(1), number(9), b"k", number(-1)), False),
        (GOOD + record(START, NO_KEY, VALUE, number(1), number(1), b"k", number(-2)), False),
        (GOOD + record(START, NO_KEY, VALUE, number(1), number(1), b"k", number(9)), False),
        (GOOD + record(START, NO_KEY, VALUE, number(1), number(1), b"k"), False),
        (GOOD + record(START, NO_KEY, VALUE, number(2), number(1), b"k", number(-1)), False),
    ],
)
def test_two_records_that_are_good_or_malformed(data: bytes, is_good: bool) -> None:
    assert (verdict(data, 2, Wanted(key=True, headers=True)) is not None) is is_good


@pytest.mark.parametrize("fields", [(number(-2), VALUE), (NO_KEY, number(-2), b"abc"), (NO_KEY, number(9))])
def test_lengths_are_checked_where_nobody_wants_headers(fields: Any) -> None:
    data = record(START, *fields, number(0))
    assert verdict(data, 1, Wanted(key=True)) is None


def test_a_section_that_ends_within_a_record_is_malformed() -> None:
    """Though its bytes go on in the next one."""
    memory = np.frombuffer(GOOD * 3, np.uint8).copy()
    cut = len(GOOD) + 4
    sections = [section_of(memory, 0, cut, 2), section_of(memory, cut, len(memory) - cut, 1)]
    with pytest.raises(ProtocolError):
        RecordColumns(Wanted(), 9).read(sections, 9)


def test_a_section_that_is_left_out_is_not_handed_on_with_the_one_before() -> None:
    memory = np.frombuffer(GOOD * 8, np.uint8).copy()
    sections = []
    for split, (first, count) in enumerate([(0, 4), (4, 2), (6, 2)]):
        sections.append(section_of(memory, first * len(GOOD), count * len(GOOD), count))
        sections[-1].fields[SPLIT] = split
    columns = RecordColumns(Wanted(), 3)
    fetched, finished = columns.read(sections, 9)
    assert (fetched.row_split.tolist(), finished) == ([0, 0, 0], 0)
    left, splits = [sections[0], sections[2]], []
    while left:
        fetched, finished = columns.read(left, 9)
        splits += fetched.row_split.tolist()
        left = left[finished:]
    assert splits == [0, 2, 2]


def test_batches_whose_offsets_go_back_are_malformed() -> None:
    batch = Batch([(b"v", None, 0, [])])
    memory = np.frombuffer(encoded(batch, 8) + encoded(batch, 7), np.uint8).copy()
    with pytest.raises(ProtocolError):
        record_batches(memory.ctypes.data, len(memory), 0, [])


@given(st.lists(st.binary(max_size=80).map(lambda data: b"\0\x02\0" + data), min_size=1), st.data())
def test_values_that_look_like_records_are_told_apart(values: list[bytes], data: st.DataObject) -> None:
    """Zeros that are as far apart as those between records."""
    rows = [(value, None, 0, []) for value in values]
    parts = data.draw(st.lists(st.integers(0, len(rows)), max_size=3).map(sorted))
    batches = [Batch(rows[a:b]) for a, b in itertools.pairwise([0, *parts, len(rows)]) if a < b]
    read, _ = read_all(Log(batches).data, [], room=7, at_once=2)
    assert [record for _, record in read] == rows


def test_snappy_as_java_writes_it_and_as_librdkafka_does() -> None:
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
    data = encoded(Batch([(b"12345", b"k", 0, []), (None, None, 0, [])]), 0)
    memory = np.frombuffer(data, np.uint8).copy()
    lane = Lane(0, b"", 0, 0, 9, 0)
    (batch,), _, _ = record_batches(memory.ctypes.data, len(memory), 0, [])
    for bytes_max, expected in ((5, pa.binary()), (4, pa.large_binary())):
        columns = RecordColumns(Wanted(key=True), 9, bytes_max)
        fetched: Any = columns.read([_section(lane, batch)], 9)[0]
        fetched.value.validate(full=True)
        assert (fetched.value.type, fetched.key.type) == (expected, pa.binary())
        assert fetched.value.to_pylist() == [b"12345", None]
