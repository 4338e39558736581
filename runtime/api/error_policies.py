"""`on_error=`: what a step does with a record for which its function raises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from onceflow.runtime.errors import GraphError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.graph.steps import Rows
from onceflow.runtime.operators.failed_records import FAILED, ErrorPolicy, policy_of
from onceflow.runtime.operators.operator import MAIN


@dataclass(frozen=True, slots=True)
class ErrorsTo:
    """A side output for failed records; made by `errors_to`."""

    tag: str


@explained
def errors_to(tag: str) -> ErrorsTo:
    """For `on_error=`: records for which the function raises go to `side_output(tag)` of the result, with the
    error and its traceback."""
    if not (isinstance(tag, str) and tag):
        raise GraphError(f"errors_to({tag!r}): a side output needs a name")
    return ErrorsTo(tag)


OnError = str | ErrorsTo


@dataclass(frozen=True, slots=True)
class Aside:
    """What `on_error=` comes to for one step."""

    policy: ErrorPolicy | None = None
    tag: str | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether a record that fails does not fail the attempt."""
        return self.policy is not None

    def reads(self, columns: frozenset[str]) -> frozenset[str]:
        """The columns that the step needs, of which its function reads these: failed records are whole."""
        schema = None if self.policy is None else self.policy.schema
        return columns if schema is None else frozenset(schema.names)

    def outputs(self, rows: Rows) -> dict[str, Rows]:
        """The step's outputs: its rows, and the failed records."""
        if self.policy is None or self.tag is None:
            return {MAIN: rows}
        return {MAIN: rows, FAILED: Rows(self.policy.output, None, rows.has_event_time)}

    @property
    def tags(self) -> Mapping[str, str]:
        """What `side_output` finds by the user's name."""
        return {} if self.tag is None else {self.tag: FAILED}


NO_ASIDE = Aside()


def aside_of(on_error: OnError, uid: str, fn: Callable[..., Any], schema: pa.Schema) -> Aside:
    """Check `on_error` of a function over these columns. Raises GraphError for what it can't be."""
    match on_error:
        case "fail":
            return NO_ASIDE
        case "drop":
            return Aside(policy_of(fn, schema, None))
        case ErrorsTo(tag):
            return Aside(policy_of(fn, schema, tag), tag)
        case _:
            raise GraphError(
                f'operator {uid!r}: on_error={on_error!r}: write "fail", "drop", or errors_to("failed") '
                "for a side output of this name"
            )
