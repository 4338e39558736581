"""OpenSearchSink: each row as a document of OpenSearch or Elasticsearch, updated and deleted exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from onceflow.connectors.extras import needs_extra
from onceflow.connectors.staged_commits.writer import CommitSettings, StagedCommitsWriter
from onceflow.connectors.versioned_upserts.documents import Documents
from onceflow.connectors.versioned_upserts.keys import check_key, key_columns
from onceflow.connectors.versioned_upserts.target import Upserts
from onceflow.connectors.versioned_upserts.writers import UpsertSettings, upsert_commits
from onceflow.runtime.contracts import SinkContext
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained

LEDGER_INDEX = "onceflow-ledger"


@explained
@dataclass(frozen=True, slots=True)
class OpenSearchSink:
    """Keeps the last row of each `key` as a document of `index`, in OpenSearch or Elasticsearch (7 or later).
    A Sink; opens nothing when it is made. Needs `pip install 'onceflow[opensearch]'`.

    A checkpoint's rows wait in the checkpoint folder until it is durable, and are then sent in bulk requests,
    each row under its key and with a version: readers see them come within moments (and the index's refresh
    interval), never one of a checkpoint that was not completed, and a late copy of a request replaces
    nothing that is newer. Deletes of a changelog delete the document.

    `url`: "https://host:9200", with a user and a password before an @ if there are, or several of one
    cluster. `key`: the column or columns that tell rows apart; the document's _id is the value, or of several
    the values, joined by colons. There is no appending without one: a request that is sent again would
    double its rows. The engine brings all rows of a key to one subtask.

    `create_index`: make the index if it is not there; a mapping is the body to make it with, as in
    {"mappings": ...}. `bad_rows_to`: an index for rows that `index` refuses (a value that its mapping does
    not take, a key that is no _id), with the reason; without it such a row ends the job. `headers`: sent
    with each request, as {"Authorization": "ApiKey ${KEY}"}, where `${KEY}` is a variable of the slots'
    environment. `ca_certs`: a file of certificates that are trusted. `ledger_index`: where the ledgers lie;
    it is made. `delivery_timeout`: how long the cluster may be away, or too busy, before the attempt fails.
    """

    url: str | Sequence[str] = field(repr=False)
    index: str
    key: str | Sequence[str]
    create_index: bool | Mapping[str, Any] = False
    bad_rows_to: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_certs: str | None = None
    ledger_index: str = LEDGER_INDEX
    delivery_timeout: str | int = "2 min"

    def __post_init__(self) -> None:
        if not self.key:
            raise OptionError(
                "OpenSearchSink: without a key nothing can be appended exactly once, since a request that is "
                "sent again would double its rows: name the column, or the columns, that tell rows apart"
            )
        key_columns(self.key, "OpenSearchSink")
        urls = self._urls
        if not urls or not all(isinstance(url, str) and _is_url(url) for url in urls):
            raise OptionError("OpenSearchSink: url must begin with http:// or https://, and name a host")
        given = {"index": self.index, "ledger_index": self.ledger_index}
        if self.bad_rows_to is not None:
            given["bad_rows_to"] = self.bad_rows_to
        for name, value in given.items():
            if not _is_index(value):
                raise OptionError(
                    f"OpenSearchSink: {name}={value!r} must be the name of one index, in small letters"
                )
        if len(set(given.values())) < len(given):
            raise OptionError("OpenSearchSink: an index has two purposes: give each a name of its own")
        if not isinstance(self.create_index, bool | Mapping):
            raise OptionError("OpenSearchSink: create_index must be True, or what to make the index with")
        duration_ms(self.delivery_timeout, "delivery_timeout")
        with needs_extra("OpenSearchSink", "opensearch"):
            import urllib3  # noqa: F401

    @property
    def takes_kinds(self) -> bool:
        """See ChangelogSink."""
        return True

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """See PartitionedSink."""
        return key_columns(self.key, "OpenSearchSink")

    @property
    def plan_note(self) -> str:
        by = ", ".join(self.partition_columns)
        return f"exactly once: the last row of each {by}, seen row by row once its checkpoint is durable"

    def check(self, schema: pa.Schema, uid: str) -> None:
        check_key(self.partition_columns, schema, uid)
        Documents(schema)

    def open_writer(self, context: SinkContext) -> StagedCommitsWriter:
        return StagedCommitsWriter(context, self.commit_settings(context))

    def commit_settings(self, context: SinkContext) -> CommitSettings:
        """See TargetSink."""
        from onceflow.connectors.opensearch.backend import IndexSettings, OpenSearchBackend
        from onceflow.connectors.opensearch.bulk import BulkRows
        from onceflow.connectors.opensearch.client import Access

        access = Access(self._urls, self.headers, self.ca_certs)
        settings = IndexSettings(self.index, self.ledger_index, self._new_index, self.bad_rows_to)
        rows = BulkRows(Documents(context.schema))
        upserts = Upserts(self.partition_columns, f"index {self.index}", self.bad_rows_to is not None)
        timeout_ms = duration_ms(self.delivery_timeout, "delivery_timeout")

        def open_backend() -> OpenSearchBackend:
            return OpenSearchBackend(access, settings, rows, context.uid)

        return upsert_commits(context, UpsertSettings("OpenSearch sink", upserts, open_backend, timeout_ms))

    @property
    def _urls(self) -> Sequence[str]:
        return (self.url,) if isinstance(self.url, str) else tuple(self.url)

    @property
    def _new_index(self) -> Mapping[str, Any] | None:
        if isinstance(self.create_index, bool):
            return {} if self.create_index else None
        return self.create_index


def _is_index(name: object) -> bool:
    return (
        isinstance(name, str) and bool(name) and name == name.lower() and not set(name) & set('*,"\\/?<>| #')
    )


def _is_url(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in ("http", "https") and bool(parts.hostname)
