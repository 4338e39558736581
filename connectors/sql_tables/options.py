"""What the sinks on SQL databases are told alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa

from onceflow.connectors.staged_commits.staged_kinds import kinds_beside, with_kind
from onceflow.connectors.staged_commits.target import Target
from onceflow.connectors.staged_commits.writer import CommitSettings
from onceflow.runtime.errors import OptionError
from onceflow.runtime.records import Records

LEDGER_TABLE = "onceflow_ledger"


def check_names(who: str, texts: dict[str, str], table: str, other_tables: Sequence[str | None]) -> None:
    """Raises OptionError if one of `texts` is empty, or `table` is one of the others, too."""
    for name, value in texts.items():
        if not (isinstance(value, str) and value):
            raise OptionError(f"{who}: {name} must be a text that is not empty")
    if table in other_tables:
        raise OptionError(f"{who}: table {table!r} has two purposes: give each table a name of its own")


def commit_settings(
    who: str, open_target: Callable[[str], Target], timeout_ms: int, schema: pa.Schema, has_key: bool
) -> CommitSettings:
    """Settings of a sink's commits; with a key its rows are staged together with their kinds."""
    if not has_key:
        return CommitSettings(who, open_target, timeout_ms, schema, _as_they_are)
    staged_schema = with_kind(schema)
    return CommitSettings(who, open_target, timeout_ms, staged_schema, partial(kinds_beside, staged_schema))


def _as_they_are(records: Records) -> pa.RecordBatch:
    return records.batch
