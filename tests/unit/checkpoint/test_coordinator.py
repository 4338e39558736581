"""The coordinator: one checkpoint at a time, its commit included; stale and late answers; stop; restart."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.checkpoint.events import Outcome
from onceflow.runtime.checkpoint.job_phase import JobPhase
from onceflow.runtime.checkpoint.manifest import SlotSnapshot
from onceflow.runtime.checkpoint.restart import ExponentialDelay, FixedDelay, NoRestart
from onceflow.runtime.testing.coordination import Coordination, manifest, snapshot


def test_a_checkpoint_goes_from_trigger_to_commit() -> None:
    job = Coordination().running()
    assert job.at(99).found(ev.Trigger) == []
    assert job.at(100).only(ev.Trigger) == ev.Trigger(1, 1, is_last=False)
    job.on(ev.SlotAcked(1, 1, 0, snapshot(0)))
    assert job.found(ev.Persist) == [], "one slot is missing"
    job.now_ms = 130
    persist = job.on(ev.SlotAcked(1, 1, 1, snapshot(1))).only(ev.Persist)
    assert [h.subtask for h in persist.manifest.states] == [0, 1]
    assert (persist.manifest.triggered_ms, persist.manifest.completed_ms) == (1_100, 1_130)
    assert persist.manifest.total_bytes == 20
    assert job.found(ev.Commit) == [], "nothing is committed before the manifest is durable"
    assert job.on(ev.Persisted(1, 1)).only(ev.Commit) == ev.Commit(1, 1)
    job.on(ev.SlotCommitted(1, 1, 0))
    assert job.announced == []
    job.on(ev.SlotCommitted(1, 1, 1))
    assert job.announced == ["checkpoint_completed"]
    assert job.only(ev.Subsume).checkpoint_id == 1


def test_sources_that_stand_still_go_on_when_all_slots_have_acked() -> None:
    job = Coordination(halts=True).running().at(100)
    job.on(ev.SlotAcked(1, 1, 0, snapshot(0)))
    assert job.found(ev.Resume) == [], "one slot is missing"
    job.on(ev.SlotAcked(1, 1, 1, snapshot(1)))
    assert job.only(ev.Resume) == ev.Resume(1, 1)
    assert job.found(ev.Persist), "nobody waits for the manifest"


def test_the_next_checkpoint_waits_for_the_commit_of_the_one_before() -> None:
    job = Coordination().running().at(100).acked().on(ev.Persisted(1, 1))
    assert job.at(5_000).found(ev.Trigger) == []
    job.committed()
    assert job.at(5_009).found(ev.Trigger) == [], "minimum pause"
    assert job.at(5_010).only(ev.Trigger).checkpoint_id == 2


def test_no_checkpoint_before_the_restored_one_is_committed_again() -> None:
    job = Coordination().on(ev.AttemptOpened(2, manifest(7), 8))
    assert job.only(ev.StartSlots).manifest.checkpoint_id == 7
    assert job.at(10_000).found(ev.Trigger) == []
    assert job.on(ev.SlotsRunning(2)).only(ev.Subsume).checkpoint_id == 7
    assert job.at(10_100).only(ev.Trigger).checkpoint_id == 8


def test_answers_of_a_stale_attempt_are_ignored() -> None:
    job = Coordination().running(1).at(100)
    job.on(ev.AttemptFailed(1, "lost")).at(300).running(2).at(500)
    assert job.only(ev.Trigger) == ev.Trigger(2, 1, is_last=False)
    job.on(ev.SlotAcked(2, 1, 0, snapshot(0, 2)))
    job.on(ev.SlotAcked(1, 1, 1, snapshot(1, 1)))
    assert job.found(ev.Persist) == []
    for event in (
        ev.Persisted(1, 1),
        ev.PersistConflict(1, 1),
        ev.SlotDrained(1, 0),
        ev.AttemptFailed(1, "x"),
    ):
        assert job.on(event).effects == []
    persist = job.on(ev.SlotAcked(2, 1, 1, snapshot(1, 2))).only(ev.Persist)
    assert {t.path for h in persist.manifest.states for t in h.tables} == {"state/2/1.0", "state/2/1.1"}


def test_late_ack_of_an_aborted_checkpoint_is_ignored_and_its_files_discarded() -> None:
    job = Coordination(timeout_ms=1_000).running().at(100)
    job.on(ev.SlotAcked(1, 1, 0, snapshot(0)))
    job.at(1_100)
    assert job.only(ev.AbortCheckpoint).checkpoint_id == 1
    assert job.only(ev.Discard).paths == {"state/1/1.0"}
    assert "no ack from slots 1" in str(job.found(ev.Announce)[0].fields["reason"])
    job.on(ev.SlotAcked(1, 1, 1, snapshot(1)))
    assert job.only(ev.Discard).paths == {"state/1/1.1"}
    assert job.found(ev.Persist) == []
    assert "late ack of an aborted checkpoint" in job.marks


def test_a_declined_checkpoint_is_aborted_and_the_next_one_triggered() -> None:
    job = Coordination().running().at(100)
    assert job.on(ev.SlotDeclined(1, 1, 1, "disk full")).only(ev.AbortCheckpoint).checkpoint_id == 1
    assert job.at(200).only(ev.Trigger).checkpoint_id == 2


def test_too_many_aborted_checkpoints_in_a_row_fail_the_attempt() -> None:
    job = Coordination(tolerable_failures=1).running().at(100)
    job.on(ev.SlotDeclined(1, 1, 0, "full"))
    assert job.found(ev.CancelAttempt) == []
    job.at(200).on(ev.SlotDeclined(1, 2, 0, "full"))
    assert job.only(ev.CancelAttempt).attempt == 1
    assert job.coordinator.phase is JobPhase.RESTARTING


def test_a_manifest_of_unknown_fate_is_asked_for_again_and_never_aborted() -> None:
    job = (
        Coordination(persist_retry_ms=50, timeout_ms=200, persist_timeout_ms=1_000).running().at(100).acked()
    )
    first = job.only(ev.Persist)
    assert job.on(ev.PersistUnknown(1, 1, "no answer")).effects == []
    assert job.at(150).only(ev.Persist) == first
    job.on(ev.PersistUnknown(1, 1, "no answer")).at(400)
    assert job.found(ev.AbortCheckpoint) == []
    job.on(ev.PersistUnknown(1, 1, "no answer")).at(1_100)
    assert job.only(ev.CancelAttempt).attempt == 1, "the next attempt reads the log"


def test_a_manifest_that_is_known_not_to_be_durable_aborts_the_checkpoint() -> None:
    job = Coordination().running().at(100).acked().on(ev.PersistNotDone(1, 1, "full"))
    assert job.only(ev.AbortCheckpoint).checkpoint_id == 1


def test_a_conflict_means_that_a_newer_driver_owns_the_job() -> None:
    job = Coordination().running().at(100).acked().on(ev.PersistConflict(1, 1))
    assert job.only(ev.FinishJob).outcome is Outcome.FENCED
    assert job.only(ev.CancelAttempt).attempt == 1
    assert job.at(10_000).effects == []


def test_a_commit_that_takes_too_long_fails_the_attempt_and_nothing_is_aborted() -> None:
    job = Coordination(commit_timeout_ms=500).running().at(100).acked().on(ev.Persisted(1, 1)).at(600)
    assert job.only(ev.CancelAttempt)
    assert job.found(ev.AbortCheckpoint) == []
    assert job.coordinator.last_completed_id == 1


def test_a_drained_job_takes_a_last_checkpoint_and_finishes() -> None:
    job = Coordination().running().on(ev.SlotDrained(1, 0))
    assert job.found(ev.Trigger) == []
    assert job.on(ev.SlotDrained(1, 1)).only(ev.Trigger) == ev.Trigger(1, 1, is_last=True)
    job.completed()
    assert job.only(ev.MarkFinished).attempt == 1
    assert job.on(ev.FinishMarked(1)).only(ev.FinishJob).outcome is Outcome.FINISHED


def test_a_drained_job_finishes_its_running_checkpoint_first() -> None:
    job = Coordination().running().at(100).on(ev.SlotDrained(1, 0)).on(ev.SlotDrained(1, 1)).completed()
    assert job.found(ev.MarkFinished) == []
    assert job.at(120).only(ev.Trigger) == ev.Trigger(1, 2, is_last=True)


def test_a_drain_ends_the_sources_between_two_checkpoints_and_then_takes_a_last_one() -> None:
    job = Coordination().running().at(100)
    assert job.on(ev.StopRequested(drains=True)).found(ev.Drain) == [], "checkpoint 1 is under way"
    assert job.completed().found(ev.Drain) == [ev.Drain(1)]
    assert job.at(1_000).effects == [], "its state is neither that before the drain nor that behind it"
    assert job.on(ev.SlotDrained(1, 0)).effects == []
    assert job.on(ev.SlotDrained(1, 1)).only(ev.Trigger) == ev.Trigger(1, 2, is_last=True)
    assert job.acked(2).only(ev.Persist).manifest.is_drained
    job.on(ev.Persisted(1, 2)).committed(2)
    finish = job.on(ev.FinishMarked(1)).only(ev.FinishJob)
    assert (finish.outcome, finish.last_checkpoint_id) == (Outcome.FINISHED, 2)
    assert finish.reason.startswith("drained on request")


def test_who_goes_on_from_a_drained_checkpoint_has_only_to_end() -> None:
    """A checkpoint before the end would be one that is read on from."""
    job = Coordination().on(ev.AttemptOpened(2, replace(manifest(5), is_drained=True), 6))
    job.on(ev.SlotsRunning(2))
    assert job.at(1_000).effects == []
    assert job.on(ev.StopRequested()).effects == [], "also if a plain stop is asked for now"
    job.on(ev.SlotDrained(2, 0))
    assert job.on(ev.SlotDrained(2, 1)).only(ev.Trigger) == ev.Trigger(2, 6, is_last=True)


def test_a_drain_may_take_as_long_as_a_checkpoint() -> None:
    job = Coordination(stop_timeout_ms=10, timeout_ms=5_000).running().on(ev.StopRequested(drains=True))
    assert job.at(4_999).found(ev.FinishJob) == []
    assert job.at(5_000).only(ev.FinishJob).outcome is Outcome.CANCELLED


def test_stop_takes_a_last_checkpoint_at_once() -> None:
    job = Coordination().running().on(ev.StopRequested())
    assert job.only(ev.Trigger).is_last
    job.completed()
    finish = job.only(ev.FinishJob)
    assert (finish.outcome, finish.last_checkpoint_id) == (Outcome.STOPPED, 1)
    assert job.found(ev.CancelAttempt) == []


def test_stop_has_a_limit() -> None:
    job = Coordination(stop_timeout_ms=10_000).running().on(ev.StopRequested()).at(10_000)
    assert job.only(ev.CancelAttempt)
    assert job.only(ev.FinishJob).outcome is Outcome.CANCELLED
    assert "no last checkpoint" in job.only(ev.FinishJob).reason


def test_stop_while_a_restart_is_waited_for_ends_at_once() -> None:
    job = Coordination().running().on(ev.AttemptFailed(1, "lost")).on(ev.StopRequested())
    assert job.only(ev.FinishJob).outcome is Outcome.CANCELLED, "what attempt 1 did is not in a checkpoint"


def test_stop_before_the_first_attempt_was_opened_leaves_nothing_out() -> None:
    assert Coordination().on(ev.StopRequested()).only(ev.FinishJob).outcome is Outcome.STOPPED


def test_a_failure_while_a_last_checkpoint_is_taken_ends_without_it() -> None:
    job = Coordination().running().on(ev.StopRequested()).on(ev.AttemptFailed(1, "slot 0 was lost"))
    finish = job.only(ev.FinishJob)
    assert (finish.outcome, finish.reason) == (
        Outcome.CANCELLED,
        "without a last checkpoint: slot 0 was lost",
    )


def test_a_fatal_failure_fails_the_job_and_names_the_last_checkpoint() -> None:
    job = Coordination().running().at(100).completed().on(ev.AttemptFailed(1, "bad record", is_fatal=True))
    finish = job.only(ev.FinishJob)
    assert (finish.outcome, finish.reason, finish.last_checkpoint_id) == (Outcome.FAILED, "bad record", 1)


def test_an_error_that_always_comes_back_ends_when_the_strategy_gives_up() -> None:
    job = Coordination(restart=ExponentialDelay(initial_ms=100, failures_max=3))
    delays = []
    for attempt in range(1, 5):
        job.running(attempt).on(ev.AttemptFailed(attempt, "always"))
        if job.found(ev.FinishJob):
            break
        started_ms = job.now_ms
        job.at(int(job.coordinator.wake_at_ms))
        assert job.only(ev.OpenAttempt)
        delays.append(job.now_ms - started_ms)
    assert delays == [100, 200, 400]
    assert job.only(ev.FinishJob).reason == "always (4 failures in a row)"


def test_an_attempt_that_ran_stable_ends_the_row_of_failures() -> None:
    job = Coordination(restart=FixedDelay(10, failures_max=1, stable_after_ms=1_000))
    job.running(1).on(ev.AttemptFailed(1, "once")).at(10).running(2).at(110).completed(1, 2)
    job.at(1_500).on(ev.AttemptFailed(2, "again"))
    assert job.found(ev.FinishJob) == []


def test_without_a_completed_checkpoint_an_attempt_was_not_stable() -> None:
    job = Coordination(restart=FixedDelay(10, failures_max=1, stable_after_ms=1_000))
    job.running(1).on(ev.AttemptFailed(1, "once")).at(10).running(2).at(1_500)
    assert job.on(ev.AttemptFailed(2, "again")).only(ev.FinishJob).outcome is Outcome.FAILED


def test_a_second_report_of_the_same_failure_is_ignored() -> None:
    job = Coordination().running().on(ev.AttemptFailed(1, "slot 0 lost"))
    assert job.on(ev.AttemptFailed(1, "slot 1 lost")).effects == []


def test_a_fenced_slot_restarts_the_attempt_because_the_log_knows_who_is_newer() -> None:
    job = Coordination().running().on(ev.AttemptFailed(1, "fenced", is_fatal=True, is_fenced=True))
    assert job.coordinator.phase is JobPhase.RESTARTING
    job.at(200).on(ev.OpenFailed("newer attempt", is_fenced=True))
    assert job.only(ev.FinishJob).outcome is Outcome.FENCED


def test_a_job_that_had_finished_says_so() -> None:
    job = Coordination().on(ev.AlreadyFinished(9))
    assert (job.only(ev.FinishJob).outcome, job.only(ev.FinishJob).last_checkpoint_id) == (
        Outcome.FINISHED,
        9,
    )


def test_no_restart_strategy_fails_at_the_first_failure() -> None:
    job = Coordination(restart=NoRestart()).running().on(ev.AttemptFailed(1, "lost"))
    assert job.only(ev.FinishJob).outcome is Outcome.FAILED


def test_slots_that_never_start_are_given_up() -> None:
    job = Coordination(start_timeout_ms=1_000).on(ev.AttemptOpened(1, manifest(0), 1)).at(1_000)
    assert "did not start" in job.only(ev.CancelAttempt).reason


@pytest.mark.parametrize(
    "event", [ev.Persisted(1, 9), ev.SlotCommitted(1, 1, 0), ev.SlotDeclined(1, 9, 0, "")]
)
def test_answers_that_nobody_waits_for_change_nothing(event: ev.Event) -> None:
    job = Coordination().running().at(100)
    assert job.on(event).effects == []


def test_bookkeeping_of_a_thousand_slots_is_cheap() -> None:
    """Linear in slots: a thousand acks and commits, with 10 states each, well under a second."""
    job = Coordination(slots=1_000, max_parallelism=1_024).running().at(100)
    states = [h for n in range(10) for h in snapshot(0, 1, n).states]
    part = SlotSnapshot(states)
    start = time.process_time()
    for slot in range(1_000):
        job.on(ev.SlotAcked(1, 1, slot, part))
    assert len(job.only(ev.Persist).manifest.states) == 10_000
    job.on(ev.Persisted(1, 1)).committed()
    assert "checkpoint_completed" in job.announced
    assert time.process_time() - start < 0.5


# --- Fatal, or another attempt ------------------------------------------------------------------------


def test_what_is_outside_and_was_never_there_ends_the_job_at_once() -> None:
    job = Coordination().on(ev.OpenFailed("no broker at x:1", is_unavailable=True))
    finish = job.only(ev.FinishJob)
    assert finish.outcome is Outcome.FAILED
    assert finish.reason.startswith("no broker at x:1. Nothing of this run has worked before")
    job = Coordination().on(ev.AttemptOpened(1, manifest(0), 1))
    job.on(ev.AttemptFailed(1, "the sink waited for x:1", is_unavailable=True))
    assert job.only(ev.FinishJob).outcome is Outcome.FAILED


def test_what_is_outside_and_was_there_is_waited_for() -> None:
    """All slots ran and a record was read, in either order; or a checkpoint was completed."""
    away = ev.AttemptFailed(1, "the broker is away", is_unavailable=True)
    running, record = ev.SlotsRunning(1), ev.FirstRecordRead(1)
    for events in ((running, record), (record, running)):
        job = Coordination().on(ev.AttemptOpened(1, manifest(0), 1))
        for event in events:
            job.on(event)
        assert job.on(away).found(ev.FinishJob) == []
        assert job.at(200).on(ev.OpenFailed("still away", is_unavailable=True)).found(ev.FinishJob) == []
    assert Coordination().running().at(100).completed().on(away).found(ev.FinishJob) == []
    assert Coordination().running().on(away).only(ev.FinishJob), "it ran, but nothing came of it"
    assert Coordination().on(ev.AttemptOpened(1, manifest(0), 1)).on(record).on(away).only(ev.FinishJob)


def test_a_folder_that_was_never_written_ends_the_job_and_one_that_was_does_not() -> None:
    job = Coordination(tolerable_failures=0).running().at(100)
    job.on(ev.SlotDeclined(1, 1, 0, "staged/ is read-only", is_unavailable=True))
    assert "staged/ is read-only" in job.only(ev.FinishJob).reason
    job = Coordination(tolerable_failures=0).running().at(100).completed().at(300)
    job.on(ev.SlotDeclined(1, 2, 0, "staged/ is read-only", is_unavailable=True))
    assert job.found(ev.FinishJob) == []


def test_the_same_failure_twice_ends_the_job() -> None:
    job = Coordination().running(1).on(ev.AttemptFailed(1, "KeyError: 7", fingerprints={"KeyError"}))
    assert job.found(ev.FinishJob) == []
    job.at(200).running(2).at(300).completed(1, 2)
    job.on(ev.AttemptFailed(2, "KeyError: 8", fingerprints={"x", "KeyError"}))
    assert job.only(ev.FinishJob).outcome is Outcome.FAILED
    assert job.only(ev.FinishJob).reason == (
        "KeyError: 8 (attempt 1 failed for the same reason, and so would another)"
    )


def test_the_same_failure_after_a_stable_attempt_is_a_first_one_again() -> None:
    job = Coordination(restart=FixedDelay(10, stable_after_ms=1_000)).running(1)
    job.on(ev.AttemptFailed(1, "x", fingerprints={"x"})).at(10).running(2).at(110).completed(1, 2)
    job.at(1_500).on(ev.AttemptFailed(2, "x", fingerprints={"x"}))
    assert job.found(ev.FinishJob) == []
    job.at(1_600).running(3, 1).on(ev.AttemptFailed(3, "x", fingerprints={"x"}))
    assert job.only(ev.FinishJob).outcome is Outcome.FAILED


def test_what_may_pass_is_tried_as_often_as_the_strategy_says() -> None:
    job = Coordination(restart=FixedDelay(10, failures_max=5))
    for attempt in range(1, 6):
        job.running(attempt).on(ev.AttemptFailed(attempt, "slot 0 was lost"))
        assert job.found(ev.FinishJob) == [], attempt
        job.at(int(job.coordinator.wake_at_ms))


def test_each_failure_is_announced_once_with_the_attempt_and_when_the_next_comes() -> None:
    job = Coordination(restart=FixedDelay(10)).running(1).on(ev.AttemptFailed(1, "lost"))
    (first,) = job.found(ev.Announce)
    assert first.fields == {"attempt": 1, "reason": "lost", "restart_in_ms": 10, "failures": 1}
    (second,) = job.at(10).on(ev.OpenFailed("no answer")).found(ev.Announce)
    assert second.fields["attempt"] is None, "attempt 1 did not fail a second time"
    assert second.fields["failures"] == 2


def test_slots_that_the_host_has_not_yet_are_no_failure_however_long_they_take() -> None:
    job = Coordination(start_timeout_ms=1_000).on(ev.AttemptOpened(1, manifest(0), 1))
    for now_ms in range(900, 10_000, 900):
        job.at(now_ms).on(ev.SlotsAwaited(1))
        assert job.effects == []
    assert job.coordinator.phase is JobPhase.STARTING
    job.at(9_900 + 1_000)
    assert job.announced == ["attempt_failed"], "from the last word of the host on, the slots have their time"
    assert job.at(20_000).on(ev.SlotsAwaited(1)).announced == []


def test_a_stop_before_any_slot_has_begun_ends_at_once_and_cancels_the_attempt() -> None:
    job = Coordination().on(ev.AttemptOpened(1, manifest(3), 4)).on(ev.StopRequested(has_slots=False))
    assert job.only(ev.CancelAttempt).attempt == 1
    assert job.only(ev.FinishJob) == ev.FinishJob(
        Outcome.STOPPED, "on request, before an attempt of this run was started", 3
    )


def test_a_stop_before_slots_have_begun_again_has_no_last_checkpoint() -> None:
    """The attempt before had read something that no checkpoint has."""
    job = Coordination().running(1).on(ev.AttemptFailed(1, "lost")).at(1_000)
    job.on(ev.AttemptOpened(2, manifest(0), 1)).on(ev.StopRequested(has_slots=False))
    assert job.only(ev.CancelAttempt).attempt == 2
    assert job.only(ev.FinishJob).outcome is Outcome.CANCELLED


def test_a_stop_while_slots_begin_waits_for_a_last_checkpoint() -> None:
    job = Coordination().on(ev.AttemptOpened(1, manifest(3), 4)).on(ev.StopRequested())
    assert job.effects == []
    assert job.on(ev.SlotsRunning(1)).only(ev.Trigger).is_last


def test_sinks_commit_in_the_driver_before_the_slots_are_told() -> None:
    job = Coordination(has_committers=True).running().at(100).acked()
    job.on(ev.Persisted(1, 1))
    assert job.only(ev.CommitSinks).manifest.checkpoint_id == 1
    assert job.found(ev.Commit) == []
    assert job.on(ev.SinksCommitted(1, 1)).only(ev.Commit) == ev.Commit(1, 1)
    job.now_ms = 170
    fields = job.committed().found(ev.Announce)[0].fields
    assert fields["commit_ms"] == 70, "both commits count"
    assert job.on(ev.SinksCommitted(1, 1)).effects == [], "an answer that nobody waits for"


def test_a_commit_of_sinks_of_which_nothing_is_known_is_asked_for_again() -> None:
    job = Coordination(has_committers=True, persist_retry_ms=50).running().at(100).acked()
    job.on(ev.Persisted(1, 1)).on(ev.SinksNotCommitted(1, 1, "no answer"))
    assert job.found(ev.CommitSinks) == []
    assert job.coordinator.wake_at_ms == 150
    assert job.at(150).only(ev.CommitSinks).manifest.checkpoint_id == 1
    assert job.on(ev.SinksCommitted(1, 1)).only(ev.Commit)


def test_sinks_that_do_not_commit_in_time_fail_the_attempt_and_nothing_is_aborted() -> None:
    job = Coordination(has_committers=True, commit_timeout_ms=1_000).running().at(100).acked()
    job.on(ev.Persisted(1, 1)).on(ev.SinksNotCommitted(1, 1, "the table is away"))
    job.at(1_100)
    assert job.found(ev.AbortCheckpoint) == []
    assert job.only(ev.CancelAttempt).reason == (
        "the sinks did not commit checkpoint 1 within 1000 ms: the table is away"
    )
    assert job.coordinator.last_completed_id == 1, "it is durable: the next attempt commits it"


def test_a_committer_that_can_never_commit_fails_the_job() -> None:
    job = Coordination(has_committers=True).running().at(100).acked().on(ev.Persisted(1, 1))
    job.on(ev.AttemptFailed(1, "no such table", is_fatal=True))
    assert job.only(ev.FinishJob).outcome is Outcome.FAILED
