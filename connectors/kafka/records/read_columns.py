"""RecordColumns: the records of sections in columns. Import only if kernels are enabled."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.connectors.kafka.arrow_columns import BINARY_BYTES_MAX, bytes_column, headers_column
from onceflow.connectors.kafka.fetched import Details, Fetched, Wanted
from onceflow.connectors.kafka.protocol.wire import ProtocolError
from onceflow.connectors.kafka.records import read_header_kernels as header_kernels
from onceflow.connectors.kafka.records import read_kernels as kernels
from onceflow.connectors.kafka.records.section import LEFT, Section, table_of
from onceflow.runtime.arrays.recycled_memory import RecycledMemory
from onceflow.runtime.records import Int64s


class RecordColumns:
    """Room for the records of one fetch after the other. One thread."""

    def __init__(self, wanted: Wanted, room: int, binary_bytes_max: int = BINARY_BYTES_MAX) -> None:
        """`room`: for so many records. `binary_bytes_max`: more bytes in one column make it large_binary."""
        self._wanted = wanted
        self._with_headers = wanted.headers or wanted.details
        self._binary_bytes_max = binary_bytes_max
        self._records = np.empty((kernels.RECORD_FIELDS, room), np.int64)
        self._sums = np.zeros(kernels.SUMS, np.int64)
        self._rows = 0
        self._memory = RecycledMemory()

    def read(self, sections: Sequence[Section], records_max: int) -> tuple[Fetched, int]:
        """The next records of these sections, at most records_max and as many as there is room for, and how
        many sections have nothing left. The next one goes on where it was left; whoever calls again may
        have left some out and put others behind.

        Values, keys and headers are copied, `details` may look at the sections' own bytes. Raises
        ProtocolError if records are malformed: nothing of them was handed on.
        """
        table = table_of(sections)
        rows = kernels.read(table, self._with_headers, records_max, self._records, self._sums)
        if rows == kernels.MALFORMED:
            raise ProtocolError("records are not as version 2 has them")
        self._rows = rows
        self._memory.let_go(time.monotonic() * 1000)
        unfinished = np.flatnonzero(table[:, LEFT])
        finished = int(unfinished[0]) if len(unfinished) else len(table)
        if finished < len(table):
            sections[finished].fields[:] = table[finished]
        return self._fetched(), finished

    def _fetched(self) -> Fetched:
        value_bytes, key_bytes, null_values, null_keys = self._sums.tolist()
        wanted, found = self._wanted, self._records[:, : self._rows]
        return Fetched(
            value=self._gather(kernels.VALUE_AT, value_bytes, null_values),
            row_split=found[kernels.ROW_SPLIT].astype(np.uint16),
            offset=found[kernels.OFFSET].copy(),
            key=self._gather(kernels.KEY_AT, key_bytes, null_keys) if wanted.key else None,
            timestamp_ms=found[kernels.TIME].copy() if wanted.timestamp else None,
            time_kind=found[kernels.KIND].astype(np.int8) if wanted.timestamp else None,
            headers=self._headers(found[kernels.HEADERS_AT]) if wanted.headers else None,
            details=self._details if wanted.details else None,
        )

    def _gather(self, field: int, size: int, nulls: int) -> pa.Array:
        """`field` is where its addresses are; its lengths are next to them."""
        of = (self._records[field, : self._rows], self._records[field + 1, : self._rows])
        return bytes_column(
            self._rows,
            size,
            nulls,
            self._binary_bytes_max,
            lambda *to: kernels.gather(*of, *to),
            self._memory,
        )

    def _headers(self, headers_at: Int64s) -> pa.Array:
        starts = np.empty(len(headers_at) + 1, np.int32)
        sums = np.zeros(header_kernels.HEADER_SUMS, np.int64)
        header_kernels.survey_headers(headers_at, starts, sums)
        return headers_column(starts, sums, lambda *to: header_kernels.gather_headers(headers_at, *to))

    def _details(self, row: int) -> Details:
        assert row < self._rows, "details of the last fetch only"
        _, _, key_at, key_bytes, _, _, time_ms, _, _ = self._records[:, row].tolist()
        key = None if key_bytes < 0 else pa.foreign_buffer(key_at, key_bytes).to_pybytes()
        headers: Any = self._headers(self._records[kernels.HEADERS_AT, row : row + 1])
        return Details(key, time_ms, headers.to_pylist()[0])
