"""What every sink must do that commits once for all its writers (CommittingSink).

The checks play the engine: `last_committed` before each `commit`, and `recover` with nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onceflow.runtime.contracts import Committable, SinkCommitter, SinkWriter
from onceflow.runtime.driver.committers import commit_once
from onceflow.runtime.errors import Fenced, Indeterminate, Retryable
from onceflow.runtime.records import Records
from onceflow.runtime.testing.conformance import quotations
from onceflow.runtime.testing.conformance.checking import expect_rows, raises, through_json_committable


@dataclass(frozen=True)
class CommittingSinkUnderTest:
    """A sink with a fresh output. `open_writer(subtask, attempt)`; `open_committer(attempt)`; `records(n)`: a
    batch of one row that only n has; `visible()`: the rows that a careful reader sees, as those n."""

    open_writer: Callable[[int, int], SinkWriter]
    open_committer: Callable[[int], SinkCommitter]
    records: Callable[[int], Records]
    visible: Callable[[], Sequence[int]]


@quotations.of(
    SinkCommitter.commit, "Make all of these visible, and the ledger say `checkpoint_id`, in one step."
)
def all_writers_become_visible_by_one_commit(case: CommittingSinkUnderTest) -> None:
    writers, committer = started(case, 2)
    promised = promise(writers, case, 1, {0: [1, 2], 1: [3]})
    expect_rows(case.visible(), [], "nothing is visible before the commit")
    commit_once(committer, "sink", 1, promised)
    expect_rows(case.visible(), [1, 2, 3], "checkpoint 1 is committed")
    forget(writers, 1)
    expect_rows(case.visible(), [1, 2, 3], "a writer's commit adds nothing")


@quotations.of(
    SinkCommitter.last_committed,
    "Ask the system of record for the latest checkpoint that was committed under this ledger.",
)
def what_is_committed_is_known_to_be(case: CommittingSinkUnderTest) -> None:
    """A committer knows what is committed, one of a later attempt too, which knows nothing but the output."""
    writers, committer = started(case, 1)
    assert committer.last_committed() is None, "conformance needs a fresh output"
    commit_once(committer, "sink", 1, promise(writers, case, 1, {0: [1]}))
    assert committer.last_committed() == 1, "checkpoint 1 is committed, and its committer does not know"
    later = case.open_committer(2).last_committed()
    assert later == 1, f"checkpoint 1 is committed, and a later attempt is told {later}"


@quotations.of(SinkCommitter.commit, "Returns when it is known to be done.")
def a_commit_that_was_done_is_not_done_again(case: CommittingSinkUnderTest) -> None:
    """Whoever is not told asks; the same attempt, and a later one with the committables of the manifest."""
    writers, committer = started(case, 1)
    promised = promise(writers, case, 1, {0: [1]})
    for again in (committer, committer, case.open_committer(2)):
        commit_once(again, "sink", 1, [through_json_committable(c) for c in promised])
        expect_rows(case.visible(), [1], "it was committed once, and asked for again")


@quotations.of(
    SinkCommitter.commit, "Make all of these visible, and the ledger say `checkpoint_id`, in one step."
)
def what_was_promised_is_committed_by_a_later_attempt(case: CommittingSinkUnderTest) -> None:
    """The driver and its slots die between the manifest and the commit."""
    writers, _ = started(case, 2)
    promised = promise(writers, case, 1, {0: [1], 1: [2]})
    later = case.open_committer(2)
    commit_once(later, "sink", 1, [through_json_committable(c) for c in promised])
    writer = case.open_writer(0, 2)
    writer.recover([])
    commit_once(later, "sink", 2, promise([writer], case, 2, {0: [3]}))
    expect_rows(case.visible(), [1, 2, 3], "a later attempt has committed what was promised, and gone on")


@quotations.of(SinkWriter.pre_commit, "Output of an earlier checkpoint that was aborted is part of it.")
def output_of_an_aborted_checkpoint_is_part_of_the_next(case: CommittingSinkUnderTest) -> None:
    writers, committer = started(case, 1)
    promise(writers, case, 1, {0: [1]})
    commit_once(committer, "sink", 2, promise(writers, case, 2, {0: [2]}))
    forget(writers, 2)
    commit_once(committer, "sink", 3, promise(writers, case, 3, {0: [3]}))
    expect_rows(case.visible(), [1, 2, 3], "checkpoint 1 was aborted, and 2 and 3 committed")


@quotations.of(SinkCommitter.commit, "Returns when it is known to be done.")
def an_empty_checkpoint_is_none_the_worse(case: CommittingSinkUnderTest) -> None:
    writers, committer = started(case, 2)
    commit_once(committer, "sink", 1, promise(writers, case, 1, {}))
    forget(writers, 1)
    commit_once(committer, "sink", 2, promise(writers, case, 2, {1: [2]}))
    expect_rows(case.visible(), [2], "checkpoint 1 had no rows, and checkpoint 2 had one")


@quotations.of(
    SinkCommitter.commit,
    "It has to fail if anybody has committed since the latest answer of `last_committed`",
)
def a_frozen_attempt_can_not_commit_any_more(case: CommittingSinkUnderTest) -> None:
    """It asked what was there, stood still, and goes on after a newer one has committed the same and more."""
    writers, frozen = started(case, 1)
    promised = promise(writers, case, 1, {0: [1]})
    frozen.last_committed()
    newer = case.open_committer(2)
    commit_once(newer, "sink", 1, promised)
    raises((Fenced, Indeterminate, Retryable), lambda: frozen.commit(1, promised))
    expect_rows(case.visible(), [1], "a newer attempt has committed the same")
    writer = case.open_writer(0, 2)
    writer.recover([])
    commit_once(newer, "sink", 2, promise([writer], case, 2, {0: [2]}))
    assert raises(Fenced, lambda: commit_once(frozen, "sink", 1, promised)), "once it asks it is told"
    expect_rows(case.visible(), [1, 2], "a newer attempt has committed the same and more")


COMMITTER_CHECKS: Sequence[Callable[[CommittingSinkUnderTest], None]] = (
    all_writers_become_visible_by_one_commit,
    what_is_committed_is_known_to_be,
    a_commit_that_was_done_is_not_done_again,
    what_was_promised_is_committed_by_a_later_attempt,
    output_of_an_aborted_checkpoint_is_part_of_the_next,
    an_empty_checkpoint_is_none_the_worse,
    a_frozen_attempt_can_not_commit_any_more,
)


def started(case: CommittingSinkUnderTest, parallelism: int) -> tuple[list[SinkWriter], SinkCommitter]:
    committer = case.open_committer(1)
    writers = [case.open_writer(subtask, 1) for subtask in range(parallelism)]
    for writer in writers:
        writer.recover([])
    return writers, committer


def promise(
    writers: Sequence[SinkWriter],
    case: CommittingSinkUnderTest,
    checkpoint_id: int,
    rows: dict[int, Sequence[int]],
) -> list[Committable]:
    """Each writer writes its rows and pre-commits."""
    for subtask, numbers in rows.items():
        for n in numbers:
            writers[subtask].write(case.records(n))
    return [writer.pre_commit(checkpoint_id).stage() for writer in writers]


def forget(writers: Sequence[SinkWriter], checkpoint_id: int) -> None:
    """The committer has committed: what the engine tells the writers then."""
    for writer in writers:
        writer.commit(checkpoint_id)
