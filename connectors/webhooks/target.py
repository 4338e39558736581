"""WebhookTarget: an owner's rows as HTTP requests, each under a key that stays the same when it is sent
again."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

import msgspec
import pyarrow as pa
import urllib3

from onceflow.connectors.http_headers import headers_with_variables
from onceflow.connectors.rows_as_text import json_lines
from onceflow.connectors.versioned_upserts.documents import Documents
from onceflow.connectors.webhooks.answers import RefusedError, meaning
from onceflow.runtime.errors import Fatal, Indeterminate, Retryable

KEY_HEADER = "Idempotency-Key"
_SET_ASIDE = "/refused"
"""The end of the key under which a refused row goes to bad_rows_to: its own POST had the key before it."""
_CONNECT_S = 10.0


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """See HttpSink, whose arguments these are."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    batch_rows: int
    bad_rows_to: str | None = field(repr=False)
    answer_s: float


@dataclass(frozen=True, slots=True)
class Sender:
    """The owner that sends requests: it is in the key of each."""

    lineage: str
    uid: str
    owner: str

    def key(self, checkpoint_id: int, first: int, count: int) -> str:
        """The key of a request. It says which rows these are, so that one of another size has another."""
        names = (self.lineage, self.uid, str(checkpoint_id), self.owner, f"{first}-{first + count - 1}")
        return "/".join(quote(name, safe="") for name in names)


class WebhookTarget:
    """A Target without a ledger: the receiver knows a request by its key. What is not known to be accepted is
    sent again under the same key, whoever sends it.

    | crash, or a lost answer          | what comes next                                                     |
    | -------------------------------- | ------------------------------------------------------------------- |
    | before a request is sent         | it is sent                                                          |
    | the answer was lost              | it is sent again; the receiver has its key                          |
    | all accepted, the slot is killed | the restored checkpoint's rows are sent again; it has their keys    |
    | an older attempt still lives     | it sends rows of a durable checkpoint, under the keys of the newer  |

    Checkpoints of a job have numbers of their own for ever, and a durable one has the same rows in the same
    order whoever reads them: so no two requests with other rows have one key.
    """

    def __init__(self, settings: WebhookSettings, sender: Sender, schema: pa.Schema) -> None:
        """Connects to nothing yet. Raises Fatal for a header that names a variable that is not there."""
        self._settings = settings
        self._sender = sender
        self._documents = Documents(schema)
        self._where = f"sink {sender.uid!r}"
        self._headers = {
            "Content-Type": "application/json",
            **headers_with_variables(settings.headers, os.environ, self._where),
        }
        self._committed = 0
        self._accepted = (0, 0)
        """A checkpoint, and how many of its rows were accepted or set aside in this attempt."""
        self._refused: dict[str, str] = {}
        """The keys of refused requests whose rows are not all accepted or set aside yet, and the reasons."""
        timeout = urllib3.Timeout(connect=_CONNECT_S, read=settings.answer_s)
        self._client = urllib3.PoolManager(num_pools=2, maxsize=1, retries=False, timeout=timeout)

    def claim(self) -> int:
        """See Target. 0: nobody but the checkpoint knows what is committed."""
        return self._committed

    def commit(self, checkpoint_id: int, rows: Iterator[pa.RecordBatch]) -> None:
        first = 0
        for batch in rows:
            for start in range(0, len(batch), self._settings.batch_rows):
                piece = batch.slice(start, self._settings.batch_rows)
                if self._accepted < (checkpoint_id, first + len(piece)):
                    self._deliver(checkpoint_id, first, piece)
                first += len(piece)
        self._committed = checkpoint_id

    def close(self) -> None:
        self._client.clear()

    def _deliver(self, checkpoint_id: int, first: int, rows: pa.RecordBatch) -> None:
        """Rows, in one request; if it is refused, each in a request of its own. What is behind it is
        remembered, so that the next call goes on at the request that failed. Raises Fatal for a row that is
        refused even so and has no place to go to."""
        key = self._sender.key(checkpoint_id, first, len(rows))
        try:
            if key not in self._refused:
                self._send(key, rows)
        except RefusedError as refused:
            self._refused[key] = str(refused)
        if key in self._refused:
            if len(rows) > 1:
                self._deliver_each(checkpoint_id, first, rows)
            else:
                self._set_aside(key, rows, self._refused[key])
            del self._refused[key]
        self._accepted = (checkpoint_id, first + len(rows))

    def _deliver_each(self, checkpoint_id: int, first: int, rows: pa.RecordBatch) -> None:
        for n in range(len(rows)):
            if self._accepted < (checkpoint_id, first + n + 1):
                self._deliver(checkpoint_id, first + n, rows.slice(n, 1))

    def _send(self, key: str, rows: pa.RecordBatch) -> None:
        documents, bad = self._documents.of(rows)
        if bad:
            raise RefusedError(*bad.values())
        self._post(self._settings.url, key, self._body(documents))

    def _body(self, documents: list[bytes]) -> bytes:
        return documents[0] if self._settings.batch_rows == 1 else b"[" + b",".join(documents) + b"]"

    def _set_aside(self, key: str, row: pa.RecordBatch, reason: str) -> None:
        text, place = next(json_lines(row)), self._settings.bad_rows_to
        if place is None:
            raise Fatal(
                f"{self._where}: a row is refused: {reason}. The row: {text}. Let the receiver take such "
                "rows, filter them out in the job, or name a place for them with bad_rows_to="
            )
        try:
            self._post(place, key + _SET_ASIDE, msgspec.json.encode({"reason": reason, "row": text}))
        except RefusedError as refused:
            raise Fatal(
                f"{self._where}: bad_rows_to refuses a row too: {refused}. The row: {text}"
            ) from refused

    def _post(self, url: str, key: str, body: bytes) -> None:
        """Send it until there is an answer that takes it; raises what another one means."""
        headers = {**self._headers, KEY_HEADER: key}
        try:
            answer = self._client.request("POST", url, body=body, headers=headers, redirect=False)
        except urllib3.exceptions.SSLError as error:
            raise Fatal(f"{self._where}: no connection: {_reason(error)}: correct the URL") from error
        except (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError) as error:
            raise Retryable(f"{self._where}: no connection: {_reason(error)}") from error
        except urllib3.exceptions.HTTPError as error:
            raise Indeterminate(f"{self._where}: no answer: {_reason(error)}") from error
        told = meaning(answer.status, answer.data, self._where)
        if told is not None:
            raise told


def _reason(error: Exception) -> str:
    """What went wrong, without the repr of a connection, which has its address in memory in it."""
    return str(error).rpartition(">: ")[2] or type(error).__name__
