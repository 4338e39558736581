"""BulkRoute: records go to librdkafka a partition's run at a time, and are counted as they come back.

No delivery callback is set, so Python sees no record a second time. What was delivered is counted from
librdkafka's own delivery reports: it queues one for each answer of the broker, with all the records that
the answer is about and one error for them. `rd_kafka_poll` would hand them out record by record; the
same queue, read as events, gives the reports themselves. A record is counted here exactly when its
callback would have been called; docs/adr/0060-bulk-produce.md says what else.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from onceflow.connectors.kafka.librdkafka.library import CMessage, Library
from onceflow.connectors.kafka.produce.batch_limit import TOO_LARGE, RefusedBatch
from onceflow.connectors.kafka.produce.structs import (
    COPY,
    MessageArray,
    Run,
    arguments_of,
    is_plain,
    runs,
    sorted_by_partition,
)

Waits = Callable[[Callable[[], bool]], None]
"""Calls its argument until it is true; raises what there is to raise if nothing goes on."""

_DELIVERY, _LOG, _ERROR, _STATISTICS = 0x1, 0x4, 0x8, 0x40  # rd_kafka_event_type_t
_POLL_S = 0.05
_RUNS_MIN, _ROWS_OF_A_RUN = 64, 16
"""From this many runs on, if they are shorter than this many rows, sorting the rows costs less than the
calls."""
_MESSAGE_BYTES = ctypes.sizeof(CMessage)


class BulkRoute:
    """See Route in produce.py. Between `begin` and the last `is_flushed` the producer may be polled by
    `poll` only: a report that anything else took would count as a record that was not delivered."""

    def __init__(
        self,
        library: Library,
        producer: Producer,
        handle: int,
        on_statistics: Callable[[str], None],
        on_error: Callable[[KafkaError], None],
        on_log: Callable[[int, str], None],
    ) -> None:
        """`handle`: the producer's, by library.handle."""
        self.delivered = 0
        self.first_failure: tuple[KafkaError, str] | None = None
        self.refused: RefusedBatch | None = None
        self._producer: Producer | None = producer  # keeps the handle alive
        self._library = library
        self._handle = handle
        self._queue: int = library.rd_kafka_queue_get_main(handle)
        self._on_statistics = on_statistics
        self._on_error = on_error
        self._on_log = on_log
        self._messages = MessageArray()

    @property
    def may_commit(self) -> bool:
        return True

    def begin(self) -> None:
        self.delivered = 0
        self.first_failure = self.refused = None

    def send(self, rows: pa.RecordBatch, wait: Waits) -> None:
        if not is_plain(rows):
            self._send_one_by_one(rows, wait)
            return
        pieces = runs(rows)
        if len(pieces) > _RUNS_MIN and len(pieces) * _ROWS_OF_A_RUN > rows.num_rows:
            rows = sorted_by_partition(rows)
            pieces = runs(rows)
        messages = self._messages.fill(rows)
        address = messages.ctypes.data
        for run in pieces:
            self._send_run(run, address, messages["err"], wait)

    def is_flushed(self, timeout_s: float) -> bool:
        if not self._library.rd_kafka_outq_len(self._handle):
            return True  # all reports were taken: polling would wait for the next statistics
        self.poll(timeout_s)
        return not self._library.rd_kafka_outq_len(self._handle)

    def poll(self, timeout_s: float) -> None:
        """Take what is there; wait for the first of it."""
        library = self._library
        event = library.rd_kafka_queue_poll(self._queue, int(timeout_s * 1000))
        while event:
            try:
                self._take(event)
            finally:
                library.rd_kafka_event_destroy(event)
            event = library.rd_kafka_queue_poll(self._queue, 0)

    def abort(self) -> None: ...

    def close(self) -> None:
        """Let go of the producer. Called before it goes."""
        if self._producer is not None:
            self._library.rd_kafka_queue_destroy(self._queue)
            self._producer = None

    def _send_run(self, run: Run, address: int, errors: Any, wait: Waits) -> None:
        library = self._library
        topic = library.rd_kafka_topic_new(self._handle, run.topic.encode(), None)
        if not topic:
            raise KafkaException(KafkaError(library.rd_kafka_last_error()))
        at = run.start

        def is_sent() -> bool:
            nonlocal at
            first = address + at * _MESSAGE_BYTES
            accepted = library.rd_kafka_produce_batch(topic, run.partition, COPY, first, run.stop - at)
            if accepted == run.stop - at:
                return True
            # In order: once the queue is full, librdkafka takes none of the rest. So those it took are
            # the first ones, and any other error is one that waiting does not help.
            refused = errors[at : run.stop]
            others = refused[(refused != 0) & (refused != KafkaError._QUEUE_FULL)]
            if len(others):
                raise KafkaException(KafkaError(int(others[0])))
            assert not refused[:accepted].any(), "accepted in order"
            at += accepted
            self.poll(_POLL_S)
            return False

        try:
            if not is_sent():
                wait(is_sent)
        finally:
            library.rd_kafka_topic_destroy(topic)

    def _send_one_by_one(self, rows: pa.RecordBatch, wait: Waits) -> None:
        """Rows with headers or timestamps."""
        arguments = arguments_of(rows)
        produce, handle = self._library.rd_kafka_produceva, self._handle
        for address, count in zip(arguments.addresses, arguments.counts, strict=True):
            error = produce(handle, address, count)
            if error and self._is_queue_full(error):

                def is_sent(address: int = address, count: int = count) -> bool:
                    self.poll(_POLL_S)
                    error = produce(handle, address, count)
                    return not error or not self._is_queue_full(error)

                wait(is_sent)

    def _is_queue_full(self, error: int) -> bool:
        """True; raises if it is another error. Frees it."""
        code = self._library.rd_kafka_error_code(error)
        self._library.rd_kafka_error_destroy(error)
        if code != KafkaError._QUEUE_FULL:
            raise KafkaException(KafkaError(code))
        return True

    def _take(self, event: int) -> None:
        library = self._library
        kind = library.rd_kafka_event_type(event)
        if kind == _DELIVERY:
            code = library.rd_kafka_event_error(event)
            if code == 0:
                self.delivered += library.rd_kafka_event_message_count(event)
            else:
                self._take_failure(event, code)
        elif kind == _STATISTICS:
            self._on_statistics(library.rd_kafka_event_stats(event).decode())
        elif kind == _ERROR:
            text = (library.rd_kafka_event_error_string(event) or b"").decode(errors="replace")
            is_fatal = bool(library.rd_kafka_event_error_is_fatal(event))
            self._on_error(KafkaError(library.rd_kafka_event_error(event), text, fatal=is_fatal))
        elif kind == _LOG:
            facility, said, level = ctypes.c_char_p(), ctypes.c_char_p(), ctypes.c_int()
            library.rd_kafka_event_log(event, ctypes.byref(facility), ctypes.byref(said), ctypes.byref(level))
            text = f"{(facility.value or b'').decode()} {(said.value or b'').decode(errors='replace')}"
            self._on_log(level.value, text)

    def _take_failure(self, event: int, code: int) -> None:
        """A report is about one batch, or about records that never were in one."""
        library, sizes = self._library, list[int]()
        records = library.rd_kafka_event_message_count(event)
        first = CMessage.from_address(library.rd_kafka_event_message_next(event))
        topic = library.rd_kafka_topic_name(first.rkt).decode()
        self.first_failure = self.first_failure or (KafkaError(code), topic)
        if code in TOO_LARGE and self.refused is None:
            key = ctypes.string_at(first.key, first.key_len) if first.key else None
            sizes.append(first.len + first.key_len)
            while message := library.rd_kafka_event_message_next(event):
                other = CMessage.from_address(message)
                sizes.append(other.len + other.key_len)
            self.refused = RefusedBatch(topic, records, sum(sizes), key)
