"""Rows of a program that was changed: every sink writes them, or refuses them in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onceflow.runtime.contracts import Sink
from onceflow.runtime.errors import Fatal, GraphError
from onceflow.runtime.testing.conformance import quotations
from onceflow.runtime.testing.conformance.played_engine import Attempt, Durable, PlayedSink


@quotations.of(
    Sink.open_writer,
    "Raises Fatal in one sentence where the output that is there does not fit `context.schema`",
)
def rows_of_another_schema_are_written_or_refused(case: PlayedSink) -> None:
    """A changed program goes on from a committed checkpoint: its rows are seen, or one sentence refuses them
    before the first is written. Nothing that was there changes."""
    first = Attempt(case, 1)
    first.write(1)
    durable = first.checkpoint(1)
    first.commit(durable)
    first.close()
    go_on_with_other_schema(case, durable, [1])


@quotations.of(
    Sink.open_writer,
    "Raises Fatal in one sentence where the output that is there does not fit `context.schema`",
)
def a_promise_outlives_a_change_of_the_schema(case: PlayedSink) -> None:
    """The last checkpoint of the old program is durable, and its rows are not committed yet."""
    first = Attempt(case, 1)
    first.write(1)
    durable = first.checkpoint(1)
    first.close()
    go_on_with_other_schema(case, durable, [1])


SCHEMA_CHECKS: Sequence[Callable[[PlayedSink], None]] = (
    rows_of_another_schema_are_written_or_refused,
    a_promise_outlives_a_change_of_the_schema,
)


def go_on_with_other_schema(case: PlayedSink, durable: Durable, before: list[int]) -> None:
    try:
        job = Attempt(case, 2, durable, with_other_schema=True)
    except (Fatal, GraphError) as refusal:
        case.calls.say(f"refused: {refusal}")
        Attempt(case, 3, durable).close()
        case.expect(before, "the program with the old schema goes on")
        return
    except Exception as error:
        raise AssertionError(
            f"rows with the columns {case.other_schema.names} are neither written nor refused: "
            f"{type(error).__name__} is no Fatal and no GraphError: {error}"
        ) from error
    job.write(7)
    try:
        job.commit(job.checkpoint(2))
    except Fatal as refusal:
        case.calls.say(f"refused: {refusal}")
        case.expect(before, "rows of the new schema were refused")
        return
    case.expect([*before, 7], "rows of the new schema were taken")
