"""One statement: its text becomes steps of a job, all of them or none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

from onceflow.runtime.api.stream import Stream
from onceflow.runtime.errors import GraphError
from onceflow.runtime.sql.grammar import parsed
from onceflow.runtime.sql.selects import Queries, stream_of

if TYPE_CHECKING:
    from onceflow.runtime.api.graph_builder import JobGraphBuilder


def run_statement(
    job: JobGraphBuilder, text: str, tables: Mapping[str, Stream[Any]], uid: str | None
) -> Stream[Any]:
    """See JobGraphBuilder.sql."""
    if not isinstance(text, str):
        raise GraphError(
            f"job.sql({text!r}): give the query as a text, as in job.sql('SELECT ...', visits=visits)"
        )
    if uid is not None and not isinstance(uid, str):
        raise GraphError(
            f"job.sql(..., uid={uid!r}): uid= is a text, the uid of the window: give a table another name"
        )
    for name, stream in tables.items():
        if not isinstance(stream, Stream):
            raise GraphError(
                f"job.sql(..., {name}={stream!r}): a table is a stream: give what job.source(...) returns"
            )
        if stream._job is not job:
            raise GraphError(
                f"job.sql(..., {name}=...): the stream belongs to another job: use that one's sql(...)"
            )
    try:
        with job.all_steps_or_none():
            return stream_of(Queries(tables, _uids(uid)), parsed(text))
    except RecursionError as error:
        raise GraphError(
            "SQL: the query is nested too deeply, or has too long a chain of AND, OR, + or ||: write IN or "
            "CASE in place of a chain, or several calls of job.sql(...), each on the result of another"
        ) from error


def _uids(uid: str | None) -> Iterator[str | None]:
    """The uids of the windows of a query: the first has the given one."""
    for n in count(1):
        yield uid if uid is None or n == 1 else f"{uid}-{n}"
