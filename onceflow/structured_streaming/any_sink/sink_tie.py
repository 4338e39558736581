"""SinkTie: a checkpoint belongs to one output, from its first batch on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from onceflow.runtime.errors import UsageError
from onceflow.structured_streaming.staging import Folder

_FILE = "sink.json"


@dataclass(frozen=True, slots=True)
class SinkTie:
    """What `onceflow/sink.json` in the checkpoint says."""

    query_id: str
    uid: str
    format: str


def is_tied(folder: Folder, tie: SinkTie) -> bool:
    """Whether this checkpoint has written to this output before; False: it has written to none. Raises
    UsageError if it has written to another."""
    content = folder.read(_FILE)
    if content is None:
        return False
    try:
        said = json.loads(content)
        found = SinkTie(said["query_id"], said["uid"], said.get("format", "onceflow-kafka"))
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(
            f"{folder.url}/{_FILE} can't be read: restore it, or start the query with a new checkpoint folder"
        ) from error
    if found.query_id != tie.query_id:
        raise UsageError(
            f"{folder.url} was written by query {found.query_id}, and this is query {tie.query_id}: a part "
            "of the checkpoint was copied or deleted. Restore it all, or start with a new checkpoint folder"
        )
    if found != tie:
        raise UsageError(
            f"the checkpoint of {folder.url} was used with format {found.format} and uid {found.uid!r}, not "
            f"{tie.format} and {tie.uid!r}: under another name nobody knows what is written. Give the old "
            "one, or a new checkpoint folder"
        )
    return True


def put_tie(folder: Folder, tie: SinkTie) -> None:
    folder.put(_FILE, json.dumps(asdict(tie)).encode())
