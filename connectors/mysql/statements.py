"""The statements that write rows: many rows in each, as bytes that are made column by column. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.mysql.catalog import quoted
from onceflow.connectors.mysql.columns import SentColumn
from onceflow.connectors.sql_tables.session import BadRowsError

STATEMENT_BYTES = 1 << 20
_SLICE_BYTES = 16 << 20
_DELETED_ROWS = 1_000
"""At most in a statement: for more conditions servers stop to use the index."""


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements that write to one table. `table`: as it is written in SQL. `key`: empty to append.
    `bytes_max`: what a statement may have, as the server says."""

    table: str
    columns: Sequence[SentColumn]
    key: Sequence[str]
    bytes_max: int

    def inserts(self, rows: pa.RecordBatch) -> Iterator[bytes]:
        """Put these rows; by key each takes the place of the one that has its key. Raises BadRowsError for
        rows that can't be sent."""
        names = ", ".join(quoted(column.name) for column in self.columns)
        head = f"INSERT INTO {self.table} ({names}) VALUES ".encode()
        tail = self._on_duplicate().encode()
        for piece in _slices(rows):
            texts = pc.binary_join_element_wise(*self._literals(piece, self.columns), ",")
            yield from self._chunks(pc.binary_join_element_wise(",(", texts, ")", ""), head, b",", tail)

    def deletes(self, rows: pa.RecordBatch) -> Iterator[bytes]:
        """Delete the rows that have the keys of these."""
        columns = [column for column in self.columns if column.name in self.key]
        for first in range(0, len(rows), _DELETED_ROWS):
            texts = self._literals(rows.slice(first, _DELETED_ROWS), columns)
            if len(columns) == 1:
                head = f"DELETE FROM {self.table} WHERE {quoted(columns[0].name)} IN (".encode()
                yield from self._chunks(pc.binary_join_element_wise(",", texts[0], ""), head, b",", b")")
                continue
            parts: list[object] = [" OR ("]
            for column, literals in zip(columns, texts, strict=True):
                parts += [f"{' AND ' if len(parts) > 1 else ''}{quoted(column.name)}=", literals]
            same = pc.binary_join_element_wise(*parts, ")", "")
            yield from self._chunks(same, f"DELETE FROM {self.table} WHERE".encode(), b" OR", b"")

    def _on_duplicate(self) -> str:
        if not self.key:
            return ""
        others = [quoted(c.name) for c in self.columns if c.name not in self.key]
        first = quoted(self.key[0])
        changes = ", ".join(f"{name}=VALUES({name})" for name in others) or f"{first}={first}"
        return f" ON DUPLICATE KEY UPDATE {changes}"

    def _literals(self, rows: pa.RecordBatch, columns: Sequence[SentColumn]) -> list[pa.Array]:
        literals = []
        for column in columns:
            values = rows.column(column.name)
            if values.null_count and not column.takes_null:
                # Some columns would take it and put something else: now(), or the next number.
                key = "key column" if column.name in self.key else "column"
                raise BadRowsError(f"{key} {column.name!r} is null", column.name)
            try:
                literals.append(pc.fill_null(column.literals(values), "NULL"))
            except (pa.ArrowInvalid, ValueError) as error:
                raise BadRowsError(f"column {column.name!r}: {error}", column.name) from error
        return literals

    def _chunks(self, texts: pa.Array, head: bytes, separator: bytes, tail: bytes) -> Iterator[bytes]:
        """Statements of these texts, each of which begins with the separator; the first in a statement loses
        it."""
        _, offsets_buffer, content = texts.buffers()
        offsets = np.frombuffer(offsets_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1]
        room = self.bytes_max - len(head) - len(tail)
        data, first = memoryview(content or b""), 0
        while first < len(texts):
            begin = int(offsets[first])
            end = int(np.searchsorted(offsets, begin + min(STATEMENT_BYTES, room), side="right")) - 1
            end = min(max(end, first + 1), len(texts))
            chunk = data[begin + len(separator) : int(offsets[end])]
            if len(chunk) > room:
                raise BadRowsError(
                    f"a row takes {len(chunk)} bytes in a statement, and max_allowed_packet of the server is "
                    f"{self.bytes_max}"
                )
            yield b"".join((head, chunk, tail))
            first = end


def _slices(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Parts whose texts fit into one array."""
    count = max(1, len(rows) * _SLICE_BYTES // max(rows.nbytes, 1))
    for first in range(0, len(rows), count):
        yield rows.slice(first, count)
