"""Bulk requests: rows as lines of one, and what its answer says of each row. Pure.

A row is put, or deleted, under its key with an external version: the server refuses it with 409 where this
version or a newer one is there, which is what a repetition wants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from onceflow.connectors.opensearch.client import error_text, error_type, failure_of
from onceflow.connectors.versioned_upserts.backend import Answer, Piece
from onceflow.connectors.versioned_upserts.documents import Documents
from onceflow.runtime.errors import Retryable

ID_BYTES_MAX = 512
_THERE_ALREADY = 409
_NOT_FOUND = 404
_NO_INDEX = "index_not_found_exception"


class BulkRows:
    """Makes requests of rows of one schema."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def request(self, piece: Piece, version: int) -> tuple[bytes, list[int], dict[int, str]]:
        """The lines, the places in the piece of the rows that are in them, and why others can't be."""
        documents, bad = self._documents.of(piece.rows)
        gone = set(piece.is_gone.nonzero()[0].tolist())
        bad = {n: reason for n, reason in bad.items() if n not in gone}
        lines, places = [], []
        behind = b',"version":%d,"version_type":"external"}}\n' % version
        for n, (key, document) in enumerate(zip(piece.keys, documents, strict=True)):
            identity = msgspec.json.encode(key)
            reason = _no_id(key)
            if reason is not None:
                bad[n] = reason
            if n in bad:
                continue
            places.append(n)
            if n in gone:
                lines.append(b'{"delete":{"_id":%b%b' % (identity, behind))
            else:
                lines.append(b'{"index":{"_id":%b%b%b\n' % (identity, behind, document))
        return b"".join(lines), places, bad


def answer_of(items: Sequence[Any], places: Sequence[int], bad: dict[int, str], doing: str) -> Answer:
    """What became of each row. `items`: the server's answer for each line, in their order. Raises Retryable
    or Fatal for what is no row's fault: no index, no right to write."""
    busy = []
    bad = dict(bad)
    for place, item in zip(places, items, strict=True):
        ((_, told),) = item.items()
        status = told.get("status", 500)
        if 200 <= status < 300 or status == _THERE_ALREADY:
            continue
        if error_type(told) == _NO_INDEX:
            raise Retryable(f"{doing}: the index is gone")
        if status == _NOT_FOUND:
            continue  # there was nothing to delete
        failure = failure_of(status, told, doing)
        if failure is None:
            bad[place] = error_text(told).removeprefix(": ") or f"the server answers {status}"
        elif status < 500 and not isinstance(failure, Retryable):
            raise failure
        else:
            busy.append(place)
    return Answer(busy=busy, bad=bad)


def _no_id(key: str) -> str | None:
    """Why a key can't be an _id; the server would refuse all rows of the request."""
    if not key:
        return "its key is the empty text, and an _id has to have a character"
    length = len(key.encode())
    if length > ID_BYTES_MAX:
        return f"its key has {length} bytes, and an _id at most {ID_BYTES_MAX}"
    return None
