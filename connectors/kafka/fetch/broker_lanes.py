"""LeaderFetch: the partitions that one broker leads, read from it directly.

One request is out at a time, and the next one is sent as soon as an answer is there: so while the records
of an answer are handed on, the broker prepares the next, which waits in the socket. Memory is one answer.
Import only if kernels are enabled.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from onceflow.connectors.kafka.fetch.lane import Lane, check_answer
from onceflow.connectors.kafka.fetched import CREATE_TIME, LOG_APPEND_TIME, Fetched, OnThrottle
from onceflow.connectors.kafka.options import Isolation
from onceflow.connectors.kafka.protocol.fetch_messages import (
    FetchedPartition,
    FetchPartition,
    fetch_answer,
    fetch_request,
)
from onceflow.connectors.kafka.protocol.polling_connection import BrokerConnection, Frame
from onceflow.connectors.kafka.protocol.wire import ProtocolError
from onceflow.connectors.kafka.records.batch_headers import RecordBatch, record_batches
from onceflow.connectors.kafka.records.compression import decompress
from onceflow.connectors.kafka.records.read_columns import RecordColumns
from onceflow.connectors.kafka.records.section import (
    AT,
    END,
    FIRST_OFFSET,
    FIRST_TIME,
    FIXED_TIME,
    LEFT,
    SECTION_FIELDS,
    SPLIT,
    TIME_KIND,
    WANTED_FROM,
    WANTED_TO,
    Section,
)

_WAIT_MS_MAX = 50
_BYTES_AT_ONCE = 16 << 20
"""The uncompressed bytes that are handed on at once; a batch more is possible."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How much a broker may answer, in bytes; a single batch may always be larger."""

    answer: int
    partition: int
    partition_min: int


class _Opened(NamedTuple):
    """A batch whose records are being handed on."""

    lane: Lane
    batch: RecordBatch
    section: Section


class LeaderFetch:
    """Used by one thread. Whatever a call raises (OSError, ProtocolError), the lanes' next offsets hold, and
    it is good for `close` only. What is wrong with one partition is its lane's `trouble`: whoever called
    takes it out."""

    def __init__(
        self,
        connection: BrokerConnection,
        reader: RecordColumns,
        client_id: str,
        isolation: Isolation,
        limits: FetchLimits,
        on_throttle: OnThrottle,
    ) -> None:
        self.lanes: list[Lane] = []
        """The partitions read here, in the order in which the next request asks for them."""
        self._connection = connection
        self._reader = reader
        self._client_id = client_id
        self._isolation: Isolation = isolation
        self._limits = limits
        self._on_throttle = on_throttle
        self._muted_until_s = 0.0
        self._correlation_id = 0
        self._asked: dict[tuple[bytes, int], Lane] = {}
        self._answered: list[Lane] = []
        self._frame: Frame | None = None
        self._batches: deque[tuple[Lane, RecordBatch]] = deque()
        self._opened: deque[_Opened] = deque()
        self._handed_on: list[_Opened] = []
        """What the last fetch handed on, kept since its details look at these bytes."""

    def add(self, lane: Lane) -> None:
        self.lanes.append(lane)

    def remove(self, lane: Lane) -> None:
        """Nothing more of it is handed on."""
        lane.is_open = False
        self.lanes.remove(lane)

    @property
    def muted_s(self) -> float:
        """The seconds for which the broker does not listen yet, because it throttles us (KIP-219)."""
        return max(0.0, self._muted_until_s - time.monotonic())

    def fileno(self) -> int:
        return self._connection.fileno()

    def fetch(self, records_max: int) -> Fetched | None:
        """The next records, at most so many, if some are there; never waits. Then lanes may be at their
        end."""
        self._handed_on.clear()
        self._skip_closed()
        if not self._batches and not self._opened:
            self._receive()
            self._ask()
            if not self._batches:
                return None
        self._uncompress(records_max)
        if not self._opened:
            return None  # all of them were of lanes that are not open any more
        read = self._read(records_max)
        return None if read is None else self._go_on(*read)

    def close(self) -> None:
        self._connection.close()

    # --- Requests and answers ---

    def _receive(self) -> None:
        """The next answer, if it is there. That before it is used up."""
        for lane in self._answered:
            if not lane.trouble:
                lane.go_on(lane.ask_offset, lane.ask_epoch)
        self._answered.clear()
        if self._frame is not None:
            self._connection.give_back(self._frame)
            self._frame = None
        frame = self._connection.receive()
        if frame is None:
            return
        self._frame = frame
        answer = fetch_answer(frame.data)
        if answer.correlation_id != self._correlation_id:
            raise ProtocolError(f"answer {answer.correlation_id} to request {self._correlation_id}")
        if answer.throttle_ms > 0:
            self._muted_until_s = time.monotonic() + answer.throttle_ms / 1000
            self._on_throttle(answer.throttle_ms)
        found = [self._partition(frame, each) for each in answer.partitions]
        found = [batches for batches in found if batches]
        while found:  # a batch of each in turn, so that event time stays together
            self._batches.extend(batches.popleft() for batches in found)
            found = [batches for batches in found if batches]

    def _partition(self, frame: Frame, partition: FetchedPartition) -> deque[tuple[Lane, RecordBatch]]:
        lane = self._asked.get((partition.topic_id, partition.partition))
        if lane is None:
            raise ProtocolError("the answer is for a partition that was not asked for")
        if not lane.is_open:
            return deque()
        address, size = frame.ctypes.data + partition.start, partition.end - partition.start
        try:
            check_answer(partition, lane)
            batches, after, epoch = record_batches(address, size, lane.ask_offset, partition.aborted)
        except ProtocolError as error:
            lane.trouble = str(error)
            return deque()
        readable = (
            partition.last_stable_offset if self._isolation == "read_committed" else partition.high_watermark
        )
        lane.is_at_end = after == lane.ask_offset and after >= readable
        lane.ask_offset, lane.ask_epoch = after, lane.ask_epoch if epoch is None else epoch
        self._answered.append(lane)
        if batches:  # the others come first next time, for only the first may answer more than its share
            self.lanes.remove(lane)
            self.lanes.append(lane)
        return deque((lane, batch) for batch in batches if batch.base_offset < lane.stop_offset)

    def _ask(self) -> None:
        wanted = [lane for lane in self.lanes if lane.is_to_be_asked]
        if self._connection.is_waiting or not wanted or self.muted_s:
            return
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        self._asked = {lane.key: lane for lane in wanted}
        share = self._limits.answer // len(wanted)
        request = fetch_request(
            self._correlation_id,
            self._client_id,
            self._isolation,
            [FetchPartition(*lane.key, lane.ask_offset, lane.ask_epoch) for lane in wanted],
            wait_ms_max=_WAIT_MS_MAX,
            bytes_max=self._limits.answer,
            partition_bytes_max=min(self._limits.partition, max(self._limits.partition_min, share)),
        )
        self._connection.send(request)

    # --- Records ---

    def _skip_closed(self) -> None:
        while self._batches and not self._batches[0][0].is_open:
            self._batches.popleft()
        if not all(opened.lane.is_open for opened in self._opened):
            self._opened = deque(opened for opened in self._opened if opened.lane.is_open)

    def _uncompress(self, records_max: int) -> None:
        """Sections enough for a fetch."""
        fields = [opened.section.fields for opened in self._opened]
        records = sum(int(each[LEFT]) for each in fields)
        size = sum(int(each[END] - each[AT]) for each in fields)
        while self._batches and records < records_max and size < _BYTES_AT_ONCE:
            lane, batch = self._batches.popleft()
            if lane.is_open and not lane.trouble:
                try:
                    section = self._open(lane, batch)
                except ProtocolError as error:
                    lane.trouble = str(error)
                    continue
                self._opened.append(_Opened(lane, batch, section))
                records += batch.count
                size += int(section.fields[END] - section.fields[AT])

    def _open(self, lane: Lane, batch: RecordBatch) -> Section:
        """Raises ProtocolError for a batch that is not what was written."""
        return _section(lane, batch)

    def _read(self, records_max: int) -> tuple[Fetched, int] | None:
        """The next records and how many sections have nothing left; None: the first section is malformed."""
        try:
            return self._reader.read([opened.section for opened in self._opened], records_max)
        except ProtocolError:  # in one of them: each of those before it can be read alone
            first = self._opened[0]
        try:
            return self._reader.read([first.section], records_max)
        except ProtocolError as error:
            first.lane.trouble = f"the batch at offset {first.batch.base_offset}: {error}"
            self._opened.popleft()
            return None

    def _go_on(self, fetched: Fetched, finished: int) -> Fetched:
        """What has been handed on is let go, and the lanes' next offsets go on."""
        epochs = {}
        for _ in range(finished):
            opened = self._opened.popleft()
            self._handed_on.append(opened)
            opened.lane.go_on(opened.batch.last_offset + 1, opened.batch.leader_epoch)
            epochs[opened.lane.split] = opened.batch.leader_epoch
        if self._opened:  # the first of them may be begun
            lane, batch, _ = self._opened[0]
            if len(fetched) and fetched.row_split[-1] == lane.split:
                lane.go_on(int(fetched.offset[-1]) + 1, batch.leader_epoch)
                epochs[lane.split] = batch.leader_epoch
        return replace(fetched, epochs=epochs)


def _section(lane: Lane, batch: RecordBatch) -> Section:
    """Raises ProtocolError for a batch that is not what was written."""
    batch.check()
    memory: Any = None
    start, end = batch.records_at, batch.records_end
    if batch.compression:
        memory = decompress(batch.compression, pa.foreign_buffer(start, end - start))
        bytes_: Any = np.frombuffer(memory, np.uint8)
        start = bytes_.ctypes.data
        end = start + len(bytes_)
    fields = np.empty(SECTION_FIELDS, np.int64)
    fields[AT] = start
    fields[END] = end
    fields[LEFT] = batch.count
    fields[FIRST_OFFSET] = batch.base_offset
    fields[FIRST_TIME] = batch.base_time_ms
    fields[FIXED_TIME] = batch.max_time_ms
    fields[TIME_KIND] = LOG_APPEND_TIME if batch.has_append_time else CREATE_TIME
    fields[WANTED_FROM] = lane.next_offset
    fields[WANTED_TO] = lane.stop_offset
    fields[SPLIT] = lane.split
    return Section(fields, memory)


def wait_for(leaders: Sequence[LeaderFetch], timeout_ms: int) -> None:
    """Wait until one of these brokers may have something, or listens again; at most `timeout_ms`."""
    muted_ms = [leader.muted_s * 1000 for leader in leaders if leader.muted_s]
    poll = select.poll()
    for leader in leaders:
        poll.register(leader, select.POLLIN)
    poll.poll(min([timeout_ms, *muted_ms]))
