"""Recovery: what the log says, what fits, who gets what at another parallelism."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.runtime.checkpoint.log import (
    AttemptStarted,
    CheckpointCompleted,
    JobCreated,
    JobFinished,
)
from onceflow.runtime.checkpoint.log_view import LogView
from onceflow.runtime.checkpoint.manifest import StateHandle
from onceflow.runtime.checkpoint.recovery import (
    Finished,
    NeverStarted,
    Resumable,
    assign,
    derive_job,
)
from onceflow.runtime.contracts import Committable, SplitProgress, SplitState
from onceflow.runtime.errors import CorruptCheckpointError, UsageError
from onceflow.runtime.state.key_groups import key_group_range
from onceflow.runtime.testing.coordination import manifest

CREATED = JobCreated("job", "beef", 1)


def started(attempt: int, restored: int | None = None) -> AttemptStarted:
    return AttemptStarted(attempt, restored, "me", 1, 2)


def completed(checkpoint_id: int, attempt: int = 1) -> CheckpointCompleted:
    return CheckpointCompleted(manifest(checkpoint_id, attempt))


def log(*entries: object, corrupt: dict[int, str] | None = None) -> LogView:
    view = LogView({n: entry for n, entry in enumerate(entries) if entry is not None}, corrupt or {})  # type: ignore[misc]
    return view


def resumable(view: LogView, chosen: int | None = None) -> Resumable:
    job = derive_job(view, chosen)
    assert isinstance(job, Resumable)
    return job


def test_an_empty_log_is_a_job_that_never_started() -> None:
    assert derive_job(log()) == NeverStarted()


def test_a_job_that_crashed_before_its_first_checkpoint_starts_anew_with_a_higher_attempt() -> None:
    job = resumable(log(CREATED, started(1)))
    assert (job.latest, job.next_attempt, job.next_checkpoint_id, job.next_position) == (None, 2, 0, 2)


def test_the_latest_completed_checkpoint_is_restored() -> None:
    job = resumable(log(CREATED, started(1), completed(0), completed(1), started(2, 1), completed(2, 2)))
    assert job.latest is not None
    assert (job.latest.checkpoint_id, job.next_attempt, job.next_checkpoint_id) == (2, 3, 3)


def test_an_attempt_without_a_checkpoint_of_its_own_leaves_what_it_was_started_from() -> None:
    """The user went back to checkpoint 1; a crash before the next one must not jump ahead to 2."""
    job = resumable(log(CREATED, started(1), completed(0), completed(1), completed(2), started(2, 1)))
    assert job.latest is not None
    assert job.latest.checkpoint_id == 1
    assert job.next_checkpoint_id == 3, "ids are never used twice"


def test_a_finished_job_says_so() -> None:
    job = derive_job(log(CREATED, started(1), completed(0), completed(1), JobFinished(1, 5)))
    assert isinstance(job, Finished)
    assert job.latest.checkpoint_id == 1


def test_an_unreadable_entry_that_may_be_the_latest_checkpoint_stops_and_offers_the_last_good_one() -> None:
    view = log(CREATED, started(1), completed(0), completed(1), corrupt={4: "dir/log/4.json is torn"})
    with pytest.raises(CorruptCheckpointError, match=r"4\.json is torn; the last good checkpoint is 1"):
        derive_job(view)
    job = resumable(view, chosen=1)
    assert job.latest is not None
    assert job.latest.checkpoint_id == 1
    assert (job.next_attempt, job.next_checkpoint_id, job.next_position) == (3, 3, 5)


def test_an_unreadable_entry_before_the_latest_attempt_does_not_matter() -> None:
    view = log(CREATED, started(1), completed(0), None, started(3, 0), corrupt={3: "torn"})
    assert resumable(view).latest is not None


def test_a_missing_manifest_of_the_restored_checkpoint_stops() -> None:
    with pytest.raises(CorruptCheckpointError, match="checkpoint 5 can't be read"):
        derive_job(log(CREATED, started(1), completed(0), started(2, 5)))


def test_a_checkpoint_that_is_not_kept_can_not_be_chosen() -> None:
    with pytest.raises(UsageError, match="kept are: 0, 1"):
        derive_job(log(CREATED, started(1), completed(0), completed(1)), 7)


@given(old=st.integers(1, 9), new=st.integers(1, 9), splits=st.integers(0, 20), finished=st.integers(0, 20))
def test_every_part_goes_to_exactly_the_slots_that_own_it(
    old: int, new: int, splits: int, finished: int
) -> None:
    """Key groups once each, splits once each and balanced, all committables of an owner to one slot."""
    groups = [key_group_range(9, old, i) for i in range(old)]
    progress = [
        SplitProgress(SplitState(f"t-{n}", {"next_offset": n}), None, n < finished) for n in range(splits)
    ]
    whole = replace(
        manifest(1),
        max_parallelism=9,
        states=[StateHandle("op", i, r.start, r.stop) for i, r in enumerate(groups)],
        splits={"src": progress},
        committables=[Committable("sink", str(i % old), 1, {"n": i}) for i in range(2 * old)],
    )
    slots = assign(whole, new)
    owned = []
    for number, slot in enumerate(slots):
        mine = key_group_range(9, new, number)
        for handle in slot.states.get("op", []):
            cut = [g for g in handle.key_groups if g in mine]
            assert cut, "a state without any key group of the slot"
            owned += cut
    assert sorted(owned) == list(range(9))
    given_splits = [p.split.split_id for slot in slots for p in slot.splits.get("src", [])]
    assert sorted(given_splits) == sorted(p.split.split_id for p in progress)
    loads = [sum(not p.is_finished for p in slot.splits.get("src", [])) for slot in slots]
    assert max(loads) - min(loads) <= 1
    owners = [{c.owner for c in slot.committables.get("sink", [])} for slot in slots]
    assert sum(len(o) for o in owners) == old
    assert set().union(*owners) == {str(i) for i in range(old)}
