"""MessageBatch: the messages of one fetch as librdkafka handed them out, read in whole columns by kernels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.connectors.kafka.arrow_columns import BINARY_BYTES_MAX, bytes_column, headers_column
from onceflow.connectors.kafka.librdkafka import message_kernels as kernels
from onceflow.connectors.kafka.librdkafka.library import CMessage, Library
from onceflow.runtime.records import Int64s


class Survey(NamedTuple):
    """What is among the messages that were taken."""

    records: int
    runs: Int64s
    """(n x 3): first record, address of the topic and partition of each run of records of one partition."""
    failed: npt.NDArray[np.int64]
    """(n x 2), of the messages that are no records: address, and how many records came before."""
    bytes: int
    """How many all records' values and keys have."""


class MessageBatch:
    """Room for the messages of one fetch after the other. One thread."""

    def __init__(self, library: Library, room: int, binary_bytes_max: int = BINARY_BYTES_MAX) -> None:
        """More bytes than binary_bytes_max in one column make it large_binary."""
        self.addresses = np.zeros(room, np.int64)
        """Where to write the addresses of rd_kafka_message_t: see CMessage. After `survey` those of the
        records, in order, until `release`."""
        self._binary_bytes_max = binary_bytes_max
        self._runs = np.zeros((room, 3), np.int64)
        self._failed = np.zeros((room, 2), np.int64)
        self._counts = np.zeros(kernels.COUNTS, np.int64)
        self._kind = np.zeros(1, np.int32)
        self._records = 0
        self._sizes = {CMessage.payload.offset: (0, 0), CMessage.key.offset: (0, 0)}
        self._destroy = library.address_of("rd_kafka_message_destroy")
        self._timestamp = library.address_of("rd_kafka_message_timestamp")
        self._header_calls = np.zeros(kernels.HEADER_CALLS, np.int64)
        self._header_calls[0] = library.address_of("rd_kafka_message_headers")
        self._header_calls[1] = library.address_of("rd_kafka_header_get_all")
        self._header_counts = np.zeros(kernels.HEADER_COUNTS, np.int64)
        self._compile()

    def survey(self, count: int) -> Survey:
        """Looks at the first `count` messages, of which the records are kept and the others handed back:
        whoever called destroys these."""
        kernels.survey(self.addresses, count, self._runs, self._failed, self._counts)
        records, runs, errors, value_bytes, key_bytes, null_values, null_keys = self._counts.tolist()
        self._records = records
        self._sizes[CMessage.payload.offset] = (value_bytes, null_values)
        self._sizes[CMessage.key.offset] = (key_bytes, null_keys)
        return Survey(records, self._runs[:runs], self._failed[:errors], value_bytes + key_bytes)

    def gather(self, field: int) -> pa.Array:
        """The records' values or keys, as an array of its own memory. `field` is where its address is in
        CMessage; its length is next to it."""
        size, nulls = self._sizes[field]
        of = (self.addresses, self._records, field)
        return bytes_column(
            self._records, size, nulls, self._binary_bytes_max, lambda *to: kernels.gather(*of, *to)
        )

    def offsets(self) -> Int64s:
        offsets = np.empty(self._records, np.int64)
        kernels.read_offsets(self.addresses, self._records, offsets)
        return offsets

    def timestamps(self) -> tuple[Int64s, npt.NDArray[np.int8]]:
        """The messages' timestamps in ms, and whose clock each is of."""
        times = np.empty(self._records, np.int64)
        kinds = np.empty(self._records, np.int8)
        kernels.read_timestamps(self.addresses, self._records, self._timestamp, times, self._kind, kinds)
        return times, kinds

    def headers(self) -> pa.Array:
        """The records' headers, of HEADERS_TYPE: an empty list for a record without, no nulls."""
        starts = np.empty(self._records + 1, np.int32)
        of = (self.addresses, self._header_calls, starts)
        kernels.survey_headers(*of, self._header_counts)
        return headers_column(starts, self._header_counts, lambda *to: kernels.gather_headers(*of, *to))

    def release(self) -> None:
        """Gives the records back to librdkafka; as often as you like."""
        kernels.destroy(self.addresses, self._records, self._destroy)
        self._records = 0

    def _compile(self) -> None:
        """No record waits for the compiler."""
        self.survey(0)
        self.offsets()
        self.timestamps()
        self.headers()
        self.gather(CMessage.payload.offset)
        kernels.gather(self.addresses, 0, 0, np.empty(1, np.int64), np.empty(0, np.uint8), 0)
        self.release()
