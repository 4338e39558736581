"""HttpSink: rows posted to a receiver, each request under a key that it can know it by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pyarrow as pa

from onceflow.connectors.extras import needs_extra
from onceflow.connectors.staged_commits.writer import CommitSettings, StagedCommitsWriter
from onceflow.connectors.versioned_upserts.documents import Documents
from onceflow.runtime.contracts import SinkContext
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.records import Records


@explained
@dataclass(frozen=True, slots=True)
class HttpSink:
    """Posts rows as JSON to `url`, once their checkpoint is durable. A Sink; opens nothing when it is made.
    Needs `pip install 'onceflow[http]'`.

    Each request has an `Idempotency-Key`: the job's lineage, the sink's uid, the checkpoint, the subtask and
    the numbers of its rows there. After a crash or a lost answer the same rows come again under the same
    key: a receiver that remembers keys handles each once, any other one at least once. A subtask sends its
    rows in their order, one request at a time.

    `batch_rows`: 1 sends an object for each row; more, an array of up to so many. `headers`: sent with each
    request, as {"Authorization": "Bearer ${TOKEN}"}, where `${TOKEN}` is a variable of the slots'
    environment. `bad_rows_to`: a URL for rows that are refused (400, 413, 422 and other answers that are
    about the row; a value that JSON does not know), each with the reason; without it such a row ends the job.
    `answer_timeout`: how long one answer may take. `delivery_timeout`: how long the receiver may be away (no
    answer, 408, 409, 423, 425, 429, or 500 and above) before the attempt fails.
    """

    url: str = field(repr=False)
    batch_rows: int = 1
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    bad_rows_to: str | None = field(default=None, repr=False)
    answer_timeout: str | int = "30 s"
    delivery_timeout: str | int = "2 min"

    def __post_init__(self) -> None:
        for name in ("url", "bad_rows_to"):
            if getattr(self, name) is not None and not _is_url(getattr(self, name)):
                raise OptionError(f"HttpSink: {name} must begin with http:// or https://, and name a host")
        if not (type(self.batch_rows) is int and self.batch_rows > 0):
            raise OptionError(f"HttpSink: batch_rows={self.batch_rows!r} must be a whole number above 0")
        if any(name.lower() == "idempotency-key" for name in self.headers):
            raise OptionError("HttpSink: the header Idempotency-Key is the sink's: leave it out")
        if duration_ms(self.answer_timeout, "answer_timeout") == 0:
            raise OptionError("HttpSink: answer_timeout=0 waits for no answer: give it a time")
        duration_ms(self.delivery_timeout, "delivery_timeout")
        with needs_extra("HttpSink", "http"):
            import urllib3  # noqa: F401

    @property
    def plan_note(self) -> str:
        return (
            "exactly once if the receiver honours the Idempotency-Key, else at least once: "
            f"POST of up to {self.batch_rows} row(s), after the checkpoint"
        )

    def check(self, schema: pa.Schema, uid: str) -> None:
        Documents(schema)

    def open_writer(self, context: SinkContext) -> StagedCommitsWriter:
        return StagedCommitsWriter(context, self.commit_settings(context))

    def commit_settings(self, context: SinkContext) -> CommitSettings:
        """See TargetSink."""
        from onceflow.connectors.webhooks.target import Sender, WebhookSettings, WebhookTarget

        answer_s = duration_ms(self.answer_timeout, "answer_timeout") / 1000
        settings = WebhookSettings(self.url, dict(self.headers), self.batch_rows, self.bad_rows_to, answer_s)

        def open_target(owner: str) -> WebhookTarget:
            return WebhookTarget(settings, Sender(context.lineage, context.uid, owner), context.schema)

        timeout_ms = duration_ms(self.delivery_timeout, "delivery_timeout")
        return CommitSettings(
            "HTTP sink", open_target, timeout_ms, context.schema, _as_they_are, keeps_ledger=False
        )


def _is_url(url: object) -> bool:
    if not isinstance(url, str):
        return False
    parts = urlsplit(url)
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _as_they_are(records: Records) -> pa.RecordBatch:
    return records.batch
