"""The way in to SQL: `job.sql(...)`. Everything that needs sqlglot, an extra, is imported behind this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onceflow.runtime.errors import UsageError

if TYPE_CHECKING:
    from onceflow.runtime.api.graph_builder import JobGraphBuilder
    from onceflow.runtime.api.stream import Stream


def sql(job: JobGraphBuilder, text: str, tables: Mapping[str, Stream[Any]], uid: str | None) -> Stream[Any]:
    """See JobGraphBuilder.sql. Raises UsageError if sqlglot is not installed."""
    try:
        import sqlglot  # noqa: F401 - only the program that builds the graph needs it
    except ImportError as error:
        raise UsageError("job.sql() needs sqlglot: pip install 'onceflow[sql]'") from error
    from onceflow.runtime.sql.statement import run_statement

    return run_statement(job, text, tables, uid)
