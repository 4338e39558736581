"""QueryRecord: what the sink keeps in the query's checkpoint folder, below `onceflow/`.

    metadata                the query's id; Spark's own, read only
    onceflow/sink.json      which uid and ledger this checkpoint is tied to, and what was checked
    onceflow/sent-N         batch N may have been sent
    onceflow/staging/       staged files, unless option staging names another folder

The driver's Python processes use it; tasks see the staging folder only. The files need no checksums: of
sink.json all that decides is compared with what the query itself says, and a mark is there or not.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from onceflow.connectors.kafka.client import LedgerKey
from onceflow.runtime.errors import UsageError
from onceflow.structured_streaming.staging import Folder

FOLDER = "onceflow"
_SENT = "sent-"


@dataclass(frozen=True, slots=True)
class Tie:
    """What a checkpoint is tied to, from its first batch on."""

    query_id: str
    uid: str
    transactional_id: str
    ledger_topic: str
    checked: str
    """What was checked on the broker (SinkOptions.target)."""


class QueryRecord:
    """What is known of the query whose checkpoint is in this folder. Implements SentMarks."""

    def __init__(self, checkpoint: Folder) -> None:
        self._checkpoint = checkpoint
        self._folder = checkpoint.child(FOLDER)

    @property
    def default_staging(self) -> Folder:
        return self._folder.child("staging")

    def query_id(self) -> str:
        """Spark writes it before a query's first batch. Raises UsageError if it is not there."""
        content = self._checkpoint.read("metadata")
        try:
            return str(json.loads(content or b"")["id"])
        except (ValueError, KeyError, TypeError) as e:
            raise UsageError(
                f"the driver's Python finds no checkpoint of this query in {self._checkpoint.url}: give "
                "checkpointLocation as a URL that says where it is (file:///..., hdfs://..., s3a://...), in "
                "storage that the driver reaches"
            ) from e

    def tie(self) -> Tie | None:
        """What this checkpoint is tied to; None: no batch was planned yet."""
        content = self._folder.read("sink.json")
        if content is None:
            return None
        try:
            return Tie(**json.loads(content))
        except (ValueError, TypeError) as e:
            raise UsageError(
                f"{self._folder.url}/sink.json can't be read: restore it, or start the query with a new "
                "checkpoint folder and a new uid"
            ) from e

    def put_tie(self, tie: Tie) -> None:
        self._folder.put("sink.json", json.dumps(asdict(tie)).encode())

    def has(self, batch_id: int) -> bool:
        return self._folder.read(f"{_SENT}{batch_id}") is not None

    def add(self, batch_id: int) -> None:
        self._folder.put(f"{_SENT}{batch_id}", b"1")

    def forget_before(self, batch_id: int) -> None:
        for name in self._folder.names():
            number = name.removeprefix(_SENT)
            if name != number and number.isdigit() and int(number) < batch_id:
                self._folder.delete(name)


def check_tie(found: Tie, query_id: str, uid: str, ledger: LedgerKey, checkpoint: str) -> None:
    """Raises UsageError unless the checkpoint is tied to this query, this uid and this ledger."""
    if found.query_id != query_id:
        raise UsageError(
            f"the checkpoint {checkpoint} is query {query_id}'s, but its folder {FOLDER} was written by "
            f"query {found.query_id}: a part of it was copied or deleted. Restore all of it, or start with a "
            "new checkpoint folder and a new uid"
        )
    if (found.uid, found.transactional_id, found.ledger_topic) != (
        uid,
        ledger.transactional_id,
        ledger.topic,
    ):
        raise UsageError(
            f"the checkpoint {checkpoint} was used with uid {found.uid!r} (ledger {found.transactional_id} "
            f"on topic {found.ledger_topic}), not {uid!r} ({ledger.transactional_id} on {ledger.topic}): "
            "under another name nobody knows what is written. Give the old one, or a new checkpoint folder"
        )
