"""OpenSearchBackend: rows as documents of one index, each under its key and with a version."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from onceflow.connectors.opensearch.bulk import BulkRows, answer_of
from onceflow.connectors.opensearch.client import Access, OpenSearchClient, Reply, error_text, in_path
from onceflow.connectors.versioned_upserts.backend import Answer, BadRow, Note, Piece, TooLargeError
from onceflow.runtime.errors import Fatal, Indeterminate, Retryable

_BAD_REQUEST, _NOT_FOUND, _CONFLICT, _TOO_LARGE = 400, 404, 409, 413
_TOLD = "filter_path=errors,items.*.status,items.*.error.type,items.*.error.reason,items.*.error.caused_by"
_DELETES_KEPT = "1h"
_DELETES_KEPT_MS_MIN = 10 * 60_000
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEDGER = {
    "settings": {"number_of_shards": 1},
    "mappings": {"dynamic": False, "properties": {"index": {"type": "keyword"}}},
}


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """See OpenSearchSink, whose arguments these are. `new_index`: the body with which the index is made;
    None: it has to be there."""

    index: str
    ledger_index: str
    new_index: Mapping[str, Any] | None
    bad_rows_to: str | None


class OpenSearchBackend:
    """See Backend.

    Notes are documents of the ledger's index. Each is changed only if its sequence number is still what it
    was when it was read. They belong to an index by its uuid: an index that was deleted and made again has
    none, and the job says so.
    """

    calls_max = 2
    rows_max = 4_000
    bytes_max = 4 << 20
    generation_first = 1 << 29
    """Others may have written documents with times as external versions: in ns those are below 2**61."""

    def __init__(self, access: Access, settings: IndexSettings, rows: BulkRows, uid: str) -> None:
        self._settings = settings
        self._rows = rows
        self._where = f"sink {uid!r}"
        self._client = OpenSearchClient(access, self._where, self.calls_max)
        self._index = ""
        """The index that is written, by its own name, and its uuid."""
        self._uuid = ""

    def open(self) -> None:
        self._index = ""
        found = self._look() or self._made()
        if len(found) != 1:
            raise Fatal(
                f"{self._where}: {self._settings.index!r} stands for {len(found)} indices: name one of them"
            )
        ((name, told),) = found.items()
        if name.startswith(".ds-") and not self._settings.index.startswith(".ds-"):
            raise Fatal(
                f"{self._where}: {self._settings.index!r} is a data stream, whose documents are never "
                "replaced: write into an index"
            )
        self._refuse(told["settings"])
        self._index, self._uuid = name, told["settings"]["index.uuid"]
        ledger = self._settings.ledger_index
        if self._client.call("looking for its ledger", "HEAD", f"/{in_path(ledger)}").status == _NOT_FOUND:
            self._make("making its ledger", ledger, _LEDGER)

    def read_note(self, name: str) -> Note | None:
        self._check_open()
        if self._look().get(self._index, {}).get("settings", {}).get("index.uuid") != self._uuid:
            self._index = ""
            raise Retryable(f"{self._where}: the index is another one now: its ledger is claimed again")
        reply = self._client.call("reading its ledger", "GET", f"{self._documents}/_doc/{self._id(name)}")
        if reply.status == _NOT_FOUND:
            return None
        self._done(reply, "reading its ledger")
        told = reply.said
        return Note(name, told["_source"]["text"], f"{told['_seq_no']}:{told['_primary_term']}")

    def put_note(self, name: str, text: str, over: Note | None) -> Note | None:
        self._check_open()
        place = f"{self._documents}/_create/{self._id(name)}"
        if over is not None:
            number, _, term = over.state.partition(":")
            place = f"{self._documents}/_doc/{self._id(name)}?if_seq_no={number}&if_primary_term={term}"
        body = {"index": self._index, "name": name, "text": text}
        reply = self._client.call("changing its ledger", "PUT", place, body)
        if reply.status in (_CONFLICT, _NOT_FOUND):  # 404: somebody has deleted it
            return None
        self._done(reply, "changing its ledger")
        return Note(name, text, f"{reply.said['_seq_no']}:{reply.said['_primary_term']}")

    def write(self, piece: Piece, version: int, under: Sequence[Note]) -> Answer:
        """`under` can't be compared in the same step: versions keep what is newer."""
        self._check_open()
        body, places, bad = self._rows.request(piece, version)
        if not places:
            return Answer(bad=bad)
        path = f"/{in_path(self._index)}/_bulk?{_TOLD}"
        reply = self._client.call("writing rows", "POST", path, body)
        if reply.status == _TOO_LARGE:
            raise TooLargeError(f"the server takes no request of {len(body)} bytes")
        self._done(reply, "writing rows")
        if not reply.said.get("errors", True):
            return Answer(bad=bad)
        return answer_of(reply.said.get("items", ()), places, bad, f"{self._where}: writing rows")

    def set_aside(self, bad: Sequence[BadRow]) -> None:
        place = self._settings.bad_rows_to
        assert place is not None, "asked for only where the user has named one"
        lines = []
        for row in bad:
            identity = hashlib.sha256(row.name.encode()).hexdigest()
            lines.append(msgspec.json.encode({"index": {"_id": identity}}))
            lines.append(msgspec.json.encode({"key": row.key, "reason": row.reason, "row": row.row}))
        body = b"\n".join(lines) + b"\n"
        reply = self._client.call("setting rows aside", "POST", f"/{in_path(place)}/_bulk?{_TOLD}", body)
        self._done(reply, "setting rows aside")
        if reply.said.get("errors", True):
            doing = f"{self._where}: setting rows aside"
            answer = answer_of(reply.said.get("items", ()), range(len(bad)), {}, doing)
            for reason in answer.bad.values():
                raise Fatal(f"{doing}: {place!r} refuses them: {reason}")
            if answer.busy:
                raise Retryable(f"{doing}: the server is too busy")

    def close(self) -> None:
        self._client.close()

    @property
    def _documents(self) -> str:
        return f"/{in_path(self._settings.ledger_index)}"

    def _id(self, name: str) -> str:
        return hashlib.sha256(f"{self._uuid} {name}".encode()).hexdigest()

    def _check_open(self) -> None:
        if not self._index:
            raise Retryable(f"{self._where} is not open: it is opened by the next claim")

    def _look(self) -> dict[str, Any]:
        """The settings of the indices that the name stands for, by their own names."""
        path = f"/{in_path(self._settings.index)}/_settings?flat_settings=true"
        reply = self._client.call("looking at the index", "GET", path)
        if reply.status == _NOT_FOUND:
            return {}
        self._done(reply, "looking at the index")
        found: dict[str, Any] = reply.said
        return found

    def _made(self) -> dict[str, Any]:
        body = self._settings.new_index
        if body is None:
            raise Fatal(
                f"{self._where}: there is no index {self._settings.index!r}: make it before, or say "
                "create_index=True"
            )
        settings = {"index.gc_deletes": _DELETES_KEPT, **body.get("settings", {})}
        self._make("making the index", self._settings.index, {**body, "settings": settings})
        return self._look()

    def _make(self, doing: str, index: str, body: Any) -> None:
        reply = self._client.call(doing, "PUT", f"/{in_path(index)}", body)
        if reply.status == _BAD_REQUEST and "already_exists" in str(reply.said):
            return  # another subtask was faster
        self._done(reply, doing)

    def _refuse(self, settings: Mapping[str, str]) -> None:
        """Raises Fatal for settings under which rows would be lost, or come back, in silence."""
        if settings.get("index.translog.durability", "request").lower() == "async":
            raise Fatal(
                f"{self._where}: index {self._settings.index!r} has translog.durability async: rows that it "
                "has acknowledged are gone when the server is killed, and nobody would notice: set it to "
                "request"
            )
        kept = settings.get("index.gc_deletes", "60s")
        if _milliseconds(kept) < _DELETES_KEPT_MS_MIN:
            raise Fatal(
                f"{self._where}: index {self._settings.index!r} forgets deletes after {kept} "
                "(index.gc_deletes), and a late copy of a request would bring a deleted row back: say "
                f"PUT {self._settings.index}/_settings with "
                f'{{"index.gc_deletes": "{_DELETES_KEPT}"}}, or 10m at least'
            )

    def _done(self, reply: Reply, doing: str) -> None:
        """Raises Fatal for a request that the server does not take."""
        if not 200 <= reply.status < 300:
            text = f"{self._where}: {doing}: the server answers {reply.status}{error_text(reply.said)}"
            raise Fatal(text)
        if not isinstance(reply.said, dict):
            raise Indeterminate(f"{self._where}: {doing}: the answer is not a JSON object")


def _milliseconds(text: str) -> float:
    """A time of the server's, as in 60s or 10m; 0 for what is none: then it is refused."""
    match = re.fullmatch(r"(\d+)(ms|s|m|h|d)", text)
    return int(match[1]) * _UNITS_MS[match[2]] if match else 0
