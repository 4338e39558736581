"""What every Sink must do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onceflow.runtime.contracts import Committable, SinkWriter
from onceflow.runtime.errors import Fenced
from onceflow.runtime.records import Records
from onceflow.runtime.testing.conformance import quotations
from onceflow.runtime.testing.conformance.checking import expect_rows, raises, through_json_committable


@dataclass(frozen=True)
class SinkUnderTest:
    """A sink's writers with a fresh output. `open_writer(subtask, parallelism, attempt, restored
    checkpoint id)`; `records(n)`: a batch of one row that only n has; `visible()`: the rows that a
    careful reader sees, as those n."""

    open_writer: Callable[[int, int, int, int], SinkWriter]
    records: Callable[[int], Records]
    visible: Callable[[], Sequence[int]]


@quotations.of(SinkWriter.pre_commit, "Nothing becomes visible.")
def nothing_is_visible_before_the_commit(case: SinkUnderTest) -> None:
    writer = started(case)
    promise(writer, case, 1, [1, 2])
    expect_rows(case.visible(), [], "checkpoint 1 is not committed")
    writer.commit(1)
    expect_rows(case.visible(), [1, 2], "checkpoint 1 is committed")


@quotations.of(SinkWriter.commit, "idempotent; returns when known done.")
def commit_may_be_told_twice(case: SinkUnderTest) -> None:
    writer = started(case)
    promise(writer, case, 1, [1])
    writer.commit(1)
    writer.commit(1)
    promise(writer, case, 2, [2])
    writer.commit(2)
    expect_rows(case.visible(), [1, 2], "checkpoint 1 was committed twice, and then checkpoint 2")


@quotations.of(SinkWriter.commit, "The checkpoint is durable: make its output visible;")
def an_empty_checkpoint_is_none_the_worse(case: SinkUnderTest) -> None:
    writer = started(case)
    promise(writer, case, 1, [])
    writer.commit(1)
    promise(writer, case, 2, [2])
    writer.commit(2)
    expect_rows(case.visible(), [2], "checkpoint 1 had no rows, and checkpoint 2 had one")


@quotations.of(SinkWriter.pre_commit, "Output of an earlier checkpoint that was aborted is part of it.")
def output_of_an_aborted_checkpoint_is_part_of_the_next(case: SinkUnderTest) -> None:
    writer = started(case)
    promise(writer, case, 1, [1])
    promise(writer, case, 2, [2])
    writer.commit(2)
    expect_rows(case.visible(), [1, 2], "checkpoint 1 was aborted, and 2 committed")


@quotations.of(SinkWriter.pre_commit, "Freeze what was written and not committed yet, for this checkpoint.")
def rows_after_the_barrier_belong_to_the_next_checkpoint(case: SinkUnderTest) -> None:
    writer = started(case)
    promise(writer, case, 1, [1])
    writer.write(case.records(2))
    writer.commit(1)
    expect_rows(case.visible(), [1], "row 2 was written behind the barrier")
    promise(writer, case, 2, [])
    writer.commit(2)
    expect_rows(case.visible(), [1, 2], "checkpoint 2 has row 2")


@quotations.of(SinkWriter.recover, "then commit what the restored checkpoint promised.")
def recovery_commits_what_was_promised_once(case: SinkUnderTest) -> None:
    """The writer dies between the promise and its commit; and again after the commit."""
    committable = promise(started(case), case, 1, [1, 2])
    for attempt in (2, 3):
        writer = case.open_writer(0, 1, attempt, 1)
        writer.recover([through_json_committable(committable)])
        expect_rows(case.visible(), [1, 2], "the restored checkpoint has rows 1 and 2")
    promise(writer, case, 2, [3])
    writer.commit(2)
    expect_rows(case.visible(), [1, 2, 3], "the job has gone on")


@quotations.of(SinkWriter.recover, "then commit what the restored checkpoint promised.")
def recovery_after_the_commit_changes_nothing(case: SinkUnderTest) -> None:
    writer = started(case)
    committable = promise(writer, case, 1, [1])
    writer.commit(1)
    case.open_writer(0, 1, 2, 1).recover([through_json_committable(committable)])
    expect_rows(case.visible(), [1], "it was committed before the restart")


@quotations.of(SinkWriter.recover, "Fence earlier attempts,")
def an_older_attempt_can_not_commit_any_more(case: SinkUnderTest) -> None:
    """It may commit what the newer one has committed too, or be fenced; it adds nothing."""
    zombie = started(case)
    committable = promise(zombie, case, 1, [1])
    newer = case.open_writer(0, 1, 2, 1)
    newer.recover([through_json_committable(committable)])
    zombie.write(case.records(9))
    zombie.pre_commit(2)
    raises(Fenced, lambda: zombie.commit(1))
    raises(Fenced, lambda: zombie.commit(2))
    expect_rows(case.visible(), [1], "a newer attempt has recovered")


@quotations.of(SinkWriter.recover, "The committables may be other owners' (after a rescale).")
def another_parallelism_commits_for_the_owners_of_before(case: SinkUnderTest) -> None:
    before = [case.open_writer(n, 2, 1, 0) for n in range(2)]
    for writer in before:
        writer.recover([])
    committables = [promise(writer, case, 1, [n]) for n, writer in enumerate(before)]
    only = case.open_writer(0, 1, 2, 1)
    only.recover([through_json_committable(c) for c in committables])
    expect_rows(case.visible(), [0, 1], "one writer has recovered what two had promised")
    promise(only, case, 2, [5])
    only.commit(2)
    expect_rows(case.visible(), [0, 1, 5], "it has gone on")


SINK_CHECKS: Sequence[Callable[[SinkUnderTest], None]] = (
    nothing_is_visible_before_the_commit,
    commit_may_be_told_twice,
    an_empty_checkpoint_is_none_the_worse,
    output_of_an_aborted_checkpoint_is_part_of_the_next,
    rows_after_the_barrier_belong_to_the_next_checkpoint,
    recovery_commits_what_was_promised_once,
    recovery_after_the_commit_changes_nothing,
    an_older_attempt_can_not_commit_any_more,
    another_parallelism_commits_for_the_owners_of_before,
)


def started(case: SinkUnderTest) -> SinkWriter:
    writer = case.open_writer(0, 1, 1, 0)
    writer.recover([])
    return writer


def promise(writer: SinkWriter, case: SinkUnderTest, checkpoint_id: int, rows: Sequence[int]) -> Committable:
    """Write these rows and pre-commit them."""
    for n in rows:
        writer.write(case.records(n))
    return writer.pre_commit(checkpoint_id).stage()
