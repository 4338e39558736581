"""Rows as JSON documents, for stores that take these."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from onceflow.connectors.formats import EncodeError, Json


class Documents:
    """Encodes rows of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        """Raises GraphError if a column has no JSON form."""
        self._encoder = Json().encoder(schema)

    def of(self, rows: pa.RecordBatch) -> tuple[list[bytes], dict[int, str]]:
        """A document for each row, empty for those that have none; these with the reason, by their places."""
        try:
            return self._encoder.encode(rows).to_pylist(), {}
        except EncodeError:
            return self._one_by_one(rows)

    def _one_by_one(self, rows: pa.RecordBatch) -> tuple[list[bytes], dict[int, str]]:
        documents: list[Any] = []
        bad = {}
        for n in range(len(rows)):
            try:
                documents += self._encoder.encode(rows.slice(n, 1)).to_pylist()
            except EncodeError as error:
                documents.append(b"")
                bad[n] = str(error).replace(" in row 0 of a batch", "")
        return documents, bad
