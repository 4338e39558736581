"""What every sink must do, of either kind, when attempts end and others begin: abort, zombies, rescaling,
another process, committables that were dropped, and answers that were lost."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from unittest import SkipTest

from onceflow.runtime.checkpoint.copies import delete_with_copies
from onceflow.runtime.checkpoint.state_paths import STAGED_FOLDER
from onceflow.runtime.contracts import Committable, PreCommit, SinkWriter, StagedFiles
from onceflow.runtime.errors import Fenced, Indeterminate, Retryable
from onceflow.runtime.testing.conformance import quotations
from onceflow.runtime.testing.conformance.played_engine import Attempt, Durable, PlayedSink

LOST = (Fenced, Indeterminate, Retryable)
"""How an attempt may fail whose time is over, or which has got no answer."""


# --- Abort ----------------------------------------------------------------------------------------------


@quotations.of(SinkWriter.close, "What is not committed stays invisible.")
def output_of_an_attempt_that_failed_is_never_seen(case: PlayedSink) -> None:
    """It has staged a checkpoint that never became durable; its rows come again."""
    failed = Attempt(case, 1)
    failed.write(1, 2)
    failed.checkpoint(1)
    failed.write(3)
    failed.close()
    case.expect([], "no checkpoint was durable")
    job = Attempt(case, 2)
    case.expect([], "a recovery from nothing commits nothing")
    job.write(1, 2)
    job.commit(job.checkpoint(1))
    case.expect([1, 2], "the rows were read again from the source")
    job.close()


@quotations.of(SinkWriter.close, "What is not committed stays invisible.")
def output_behind_the_last_checkpoint_is_never_seen(case: PlayedSink) -> None:
    """The attempt fails after a committed checkpoint, while the next one is being staged."""
    failed = Attempt(case, 1)
    failed.write(1)
    durable = failed.checkpoint(1)
    failed.commit(durable)
    failed.write(2, 3)
    failed.checkpoint(2)
    job = Attempt(case, 2, durable)
    case.expect([1], "checkpoint 2 was never durable")
    job.write(2, 3)
    job.commit(job.checkpoint(2))
    case.expect([1, 2, 3], "the rows were read again from the source")


# --- Dropped committables -------------------------------------------------------------------------------


@quotations.of(SinkWriter.pre_commit, "Output of an earlier checkpoint that was aborted is part of it.")
def a_dropped_committable_is_needed_by_nobody(case: PlayedSink) -> None:
    """Checkpoint 1 is aborted: its committables are dropped, and whatever the manifest of checkpoint 2 does
    not name is deleted. A new attempt commits from that manifest alone."""
    failed = Attempt(case, 1)
    failed.write(1, 2)
    failed.checkpoint(1)
    failed.write(3)
    durable = failed.checkpoint(2)
    failed.close()
    delete_what_nobody_names(case, durable)
    job = Attempt(case, 2, durable)
    case.expect([1, 2, 3], "checkpoint 2 is durable, and has the rows of the one that was aborted")
    job.close()


@quotations.of(StagedFiles, "A file that no durable checkpoint references is deleted by the engine, later.")
def what_is_staged_lasts_as_long_as_it_is_named(case: PlayedSink) -> None:
    """Nothing but what a committable names in `paths` is kept, and the writer that staged it is gone."""
    failed = Attempt(case, 1)
    failed.write(1, 2)
    durable = failed.checkpoint(1)
    delete_what_nobody_names(case, durable)
    job = Attempt(case, 2, durable)
    case.expect([1, 2], "checkpoint 1 is durable")
    job.write(3)
    durable = job.checkpoint(2)
    delete_what_nobody_names(case, durable)
    Attempt(case, 3, durable).close()
    case.expect([1, 2, 3], "checkpoint 2 is durable, and 1 is committed")


# --- Zombies --------------------------------------------------------------------------------------------


@quotations.of(
    SinkWriter.recover, "Fence earlier attempts, then commit what the restored checkpoint promised."
)
def an_older_attempt_that_goes_on_adds_nothing(case: PlayedSink) -> None:
    """It was frozen between two checkpoints, writes, pre-commits and commits what the newer one has done."""
    zombie = Attempt(case, 1)
    zombie.write(1)
    durable = zombie.checkpoint(1)
    newer = Attempt(case, 2, durable)
    newer.write(2)
    second = newer.checkpoint(2)
    newer.commit(second)
    with contextlib.suppress(*LOST):
        zombie.commit(durable)
    with contextlib.suppress(*LOST):
        zombie.write(2)
        zombie.commit(zombie.checkpoint(2))
    case.expect([1, 2], "the older attempt is fenced, and its output is no part of any checkpoint")
    newer.write(3)
    goes_on(case, newer, newer.checkpoint(3), [1, 2, 3])


@quotations.of(
    SinkWriter.recover, "Fence earlier attempts, then commit what the restored checkpoint promised."
)
def a_late_recovery_of_an_older_attempt_adds_nothing(case: PlayedSink) -> None:
    """It was frozen before its recovery, and wakes up when a newer one has committed the same and more. It
    may fence the newer one (that costs a restart); rows are neither lost nor doubled."""
    failed = Attempt(case, 1)
    failed.write(1)
    durable = failed.checkpoint(1)
    assert not case.commits_once, "its writers have nothing to recover"
    zombie = Attempt(case, 2, durable, recovers=False)
    newer = Attempt(case, 3, durable)
    newer.write(2)
    second = newer.checkpoint(2)
    with contextlib.suppress(*LOST):
        zombie.recover()
    case.expect([1], "checkpoint 2 is not committed yet")
    goes_on(case, newer, second, [1, 2])


# --- Another parallelism --------------------------------------------------------------------------------


@quotations.of(SinkWriter.recover, "The committables may be other owners' (after a rescale).")
def fewer_subtasks_commit_what_more_have_promised(case: PlayedSink) -> None:
    rescaled(case, 3, 2)


@quotations.of(Committable, "it stays the same after a rescale, when another subtask commits it.")
def more_subtasks_commit_what_fewer_have_promised(case: PlayedSink) -> None:
    rescaled(case, 1, 3)


# --- Another process ------------------------------------------------------------------------------------


@quotations.of(PreCommit.stage, "Make it durable.")
def a_new_process_commits_what_was_promised(case: PlayedSink) -> None:
    """It knows the description of the sink and the manifest, and nothing of the process that wrote."""
    if case.elsewhere is None:
        raise SkipTest("the output is in the memory of this process")
    job = Attempt(case, 1)
    job.write(1, 2)
    durable = job.checkpoint(1)
    case.calls.say("a new process is attempt 2, recovers, writes 3 and commits checkpoint 2")
    second = case.elsewhere("restore_and_go_on", {"attempt": 2, "durable": durable.as_json(), "row": 3})
    case.expect([1, 2, 3], "a new process has recovered and gone on")
    Attempt(case, 3, Durable.of_json(second)).close()
    case.expect([1, 2, 3], "it was all committed")


# --- Lost answers ---------------------------------------------------------------------------------------


@quotations.of(SinkWriter.commit, "idempotent; returns when known done.")
def a_commit_whose_answer_is_lost_is_done_once(case: PlayedSink) -> None:
    """The system does what it is asked and its answers are lost: in one attempt, and then in the next."""
    if case.answers_lost is None:
        raise SkipTest("the kit does not say how answers of this system are lost: answers_lost()")
    job = Attempt(case, 1)
    job.write(1, 2)
    durable = job.checkpoint(1)
    with case.answers_lost(), contextlib.suppress(*LOST):
        case.calls.say("from here on answers are lost")
        job.commit(durable)
    case.calls.say("answers come again")
    with contextlib.suppress(*LOST):
        job.commit(durable)
    newer = Attempt(case, 2, durable)
    case.expect([1, 2], "the commit was done, or was not, and was tried again")
    newer.write(3)
    goes_on(case, newer, newer.checkpoint(2), [1, 2, 3])


RECOVERY_CHECKS: Sequence[Callable[[PlayedSink], None]] = (
    output_of_an_attempt_that_failed_is_never_seen,
    output_behind_the_last_checkpoint_is_never_seen,
    a_dropped_committable_is_needed_by_nobody,
    what_is_staged_lasts_as_long_as_it_is_named,
    an_older_attempt_that_goes_on_adds_nothing,
    fewer_subtasks_commit_what_more_have_promised,
    more_subtasks_commit_what_fewer_have_promised,
    a_new_process_commits_what_was_promised,
    a_commit_whose_answer_is_lost_is_done_once,
)

"""The checks of every sink."""

WRITER_RECOVERY_CHECKS: Sequence[Callable[[PlayedSink], None]] = (
    a_late_recovery_of_an_older_attempt_adds_nothing,
)
"""More checks, of sinks whose writers commit."""


def goes_on(case: PlayedSink, attempt: Attempt, durable: Durable, rows: Sequence[int]) -> None:
    """The attempt commits what is durable, or fails and another one does; then these rows are seen."""
    try:
        attempt.commit(durable)
    except LOST as error:
        case.calls.say(f"the attempt fails: {error}")
        Attempt(case, 9, durable).close()
    case.expect(rows, f"checkpoint {durable.checkpoint_id} is durable and was committed")


def rescaled(case: PlayedSink, before: int, after: int) -> None:
    job = Attempt(case, 1, parallelism=before)
    for subtask in range(before):
        job.write(subtask, subtask=subtask)
    durable = job.checkpoint(1)
    job.close()
    rows = list(range(before))
    second = Attempt(case, 2, durable, after)
    case.expect(rows, f"{after} subtasks have recovered what {before} had promised")
    for subtask in range(after):
        second.write(10 + subtask, subtask=subtask)
    rows += range(10, 10 + after)
    durable = second.checkpoint(2)
    second.commit(durable)
    case.expect(rows, f"{after} subtasks have committed")
    second.close()
    third = Attempt(case, 3, durable, before)
    for subtask in range(before):
        third.write(20 + subtask, subtask=subtask)
    third.commit(third.checkpoint(3))
    case.expect([*rows, *range(20, 20 + before)], f"{before} subtasks have gone on behind {after}")
    third.close()


def delete_what_nobody_names(case: PlayedSink, durable: Durable) -> None:
    """What the engine does later: only staged files that the manifest references are kept."""
    named = {path for committable in durable.committables for path in committable.paths}
    case.calls.say(f"the engine deletes all staged files but {sorted(named)}")
    staged = {file.path for file in case.store.list(STAGED_FOLDER)}
    delete_with_copies(case.store, staged - named)
