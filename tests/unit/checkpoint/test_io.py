"""CheckpointIO: opening attempts, taking over, fencing, initial splits, retention, what is left behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.checkpoint.copies import copy_path, create_copied_file, delete_with_copies
from onceflow.runtime.checkpoint.driver import CheckpointIO
from onceflow.runtime.checkpoint.io_thread import CheckpointIOThread
from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.manifest import MANIFEST_VERSION, CheckpointManifest, StateHandle, TableFile
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.state_fits import Program
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import Committable, SplitProgress, SplitState
from onceflow.runtime.errors import DataLossError, Fatal, Fenced, Indeterminate, Retryable
from onceflow.runtime.state.description import StateDescription
from onceflow.runtime.testing.choices import ReplayedChoices
from onceflow.runtime.testing.faults import FaultyStore


class Splits:
    """One split; `asked` counts how often the sources were asked where to begin."""

    def __init__(self, loss: str = "") -> None:
        self.asked = 0
        self.told: list[int] = []
        self.new: list[SplitProgress] = []
        self._loss = loss

    def initial_splits(self) -> Mapping[str, Sequence[SplitProgress]]:
        self.asked += 1
        return {"src": [SplitProgress(SplitState("t-0", {"next_offset": 10 * self.asked}))]}

    def found_since(self, manifest: CheckpointManifest) -> Mapping[str, Sequence[SplitProgress]]:
        return {"src": self.new} if self.new else {}

    def prune(self, manifest: CheckpointManifest, finished: Mapping[str, Any]) -> CheckpointManifest:
        """Remembers how many splits have finished."""
        done = [p for p in manifest.splits["src"] if p.is_finished]
        left = [p for p in manifest.splits["src"] if not p.is_finished]
        return replace(manifest, splits={"src": left}, finished={"src": finished.get("src", 0) + len(done)})

    def on_pruned(self, manifest: CheckpointManifest, finished: Mapping[str, Any]) -> None:
        self.told.append(finished["src"])

    def check_restored(self, splits: Mapping[str, Sequence[SplitProgress]]) -> None:
        if self._loss:
            raise DataLossError(self._loss)


class Sinks:
    """Commits in the driver; `failures` are raised first, one for each call."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.restored: list[tuple[int, int]] = []
        self.committed: list[int] = []

    def restore(self, attempt: int, manifest: CheckpointManifest) -> CheckpointManifest:
        self._fail()
        self.restored.append((attempt, manifest.checkpoint_id))
        return replace(manifest, committables=[])

    def commit(self, manifest: CheckpointManifest) -> None:
        self._fail()
        self.committed.append(manifest.checkpoint_id)

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)


def driver(
    store: CheckpointStore, splits: Splits | None = None, retained: int = 2, sinks: Sinks | None = None
) -> CheckpointIO:
    program = Program("job", 8, {"src": None, "op": StateDescription("counts", "t", ())})
    return CheckpointIO(store, ManualClock(5), splits or Splits(), sinks or Sinks(), program, 1, retained)


def opened(io: CheckpointIO) -> ev.AttemptOpened:
    answer = io.execute(ev.OpenAttempt())
    assert isinstance(answer, ev.AttemptOpened), answer
    return answer


def write_checkpoint(
    io: CheckpointIO, store: CheckpointStore, base: CheckpointManifest, attempt: int, checkpoint_id: int
) -> ev.Event | None:
    path = f"state/attempt-{attempt:06d}/{checkpoint_id:010d}.op.0.arrows"
    with create_copied_file(store, path) as file:
        file.write(b"0123456789")
    table = TableFile("t", path, 0, 10, "crc32:0", (0,) * 8)
    handles = [StateHandle("op", 0, 0, 8, (table,))]
    return io.execute(
        ev.Persist(
            replace(base, attempt=attempt, checkpoint_id=checkpoint_id, states=handles, total_bytes=10)
        )
    )


def test_the_entry_that_slots_look_for_is_the_one_that_began_the_attempt() -> None:
    store = MemoryStore()
    for attempt in (1, 2):
        io = driver(store)
        assert opened(io).attempt == attempt
        assert io.attempt_entry is not None
        assert store.read(io.attempt_entry.path) == io.attempt_entry.content
        assert b'"attempt_started"' in io.attempt_entry.content


def test_the_first_start_makes_the_sources_beginning_durable_once() -> None:
    store, splits = MemoryStore(), Splits()
    first = opened(driver(store, splits))
    assert (first.attempt, first.manifest.checkpoint_id, first.next_checkpoint_id) == (1, 0, 1)
    again = opened(driver(store, splits))
    assert (again.attempt, again.manifest.splits) == (2, first.manifest.splits)
    assert splits.asked == 1


def test_splits_that_appeared_while_the_job_was_down_begin_with_the_rest_and_are_said() -> None:
    store, splits = MemoryStore(), Splits()
    old = opened(driver(store, splits)).manifest.splits["src"]
    splits.new = [SplitProgress(SplitState("t-1", {"next_offset": 0}))]
    again = opened(driver(store, splits))
    assert again.manifest.splits == {"src": [*old, *splits.new]}
    assert [(n.event, n.fields["splits"]) for n in again.notices] == [("splits_discovered", ["t-1"])]


def test_a_driver_that_was_overtaken_is_fenced_whatever_it_does_next() -> None:
    store = MemoryStore()
    old = driver(store)
    first = opened(old)
    opened(driver(store))
    assert write_checkpoint(old, store, first.manifest, 1, 1) == ev.PersistConflict(1, 1)
    answer = old.execute(ev.OpenAttempt())
    assert isinstance(answer, ev.OpenFailed)
    assert answer.is_fenced


def test_a_restart_of_the_same_driver_goes_on_from_its_latest_checkpoint() -> None:
    store = MemoryStore()
    io = driver(store)
    first = opened(io)
    assert write_checkpoint(io, store, first.manifest, 1, 1) == ev.Persisted(1, 1)
    second = opened(io)
    assert (second.attempt, second.manifest.checkpoint_id, second.next_checkpoint_id) == (2, 1, 2)


def test_a_manifest_of_unknown_fate_that_was_written_is_what_the_next_attempt_restores() -> None:
    """Three tries without an answer, the last of them done: then the attempt fails."""
    store = MemoryStore()
    io = driver(FaultyStore(store, ReplayedChoices([0, 0, 0, 2, 2, 3]), 9))
    first = opened(io)
    answer = write_checkpoint(io, store, first.manifest, 1, 1)
    assert isinstance(answer, ev.PersistUnknown)
    assert opened(io).manifest.checkpoint_id == 1


def test_a_manifest_of_unknown_fate_that_was_not_written_never_comes_back() -> None:
    store = MemoryStore()
    io = driver(FaultyStore(store, ReplayedChoices([0, 0, 0, 2, 2, 2]), 9))
    first = opened(io)
    assert isinstance(write_checkpoint(io, store, first.manifest, 1, 1), ev.PersistUnknown)
    second = opened(io)
    assert (second.attempt, second.manifest.checkpoint_id) == (2, 0)


def test_a_first_start_without_an_answer_takes_over_all_the_same() -> None:
    """The new driver's entry gets no answer and is not written; the old one goes on; then it tries again."""
    store = MemoryStore()
    old = driver(store)
    first = opened(old)
    new = driver(FaultyStore(store, ReplayedChoices([2, 2, 2]), 3))
    answer = new.execute(ev.OpenAttempt())
    assert isinstance(answer, ev.OpenFailed)
    assert not answer.is_fatal
    assert write_checkpoint(old, store, first.manifest, 1, 1) == ev.Persisted(1, 1)
    assert opened(new).manifest.checkpoint_id == 1
    assert write_checkpoint(old, store, first.manifest, 1, 2) == ev.PersistConflict(1, 2)


def test_retention_keeps_the_newest_and_the_files_they_name() -> None:
    store = MemoryStore()
    io = driver(store, retained=2)
    base = opened(io).manifest
    for n in range(1, 5):
        assert write_checkpoint(io, store, base, 1, n) == ev.Persisted(1, n)
        io.execute(ev.Subsume(1, n))
    assert [m.checkpoint_id for _, m in read_log(store).completed()] == [3, 4]
    assert {s.path.split("/")[-1] for s in store.list("state")} == {
        "0000000003.op.0.arrows",
        "0000000004.op.0.arrows",
    }
    assert opened(driver(store)).manifest.checkpoint_id == 4


def test_a_new_attempt_sweeps_what_dead_ones_left_and_nothing_of_a_newer_one() -> None:
    store = MemoryStore()
    opened(driver(store))
    for path in ("state/attempt-000001/9.op", "staged/attempt-000001/x", "state/attempt-000009/1.op"):
        store.create(path, b"left")
    io = driver(store)
    opened(io)
    assert [s.path for s in store.list("state") + store.list("staged")] == ["state/attempt-000009/1.op"]


def test_a_checkpoint_with_a_missing_file_stops_and_offers_the_last_good_one() -> None:
    store = MemoryStore()
    io = driver(store)
    base = opened(io).manifest
    for n in (1, 2):
        write_checkpoint(io, store, base, 1, n)
    delete_with_copies(store, ["state/attempt-000001/0000000002.op.0.arrows"])
    answer = driver(store).execute(ev.OpenAttempt())
    assert isinstance(answer, ev.OpenFailed)
    assert answer.is_fatal
    assert "0000000002.op.0.arrows is gone or short, and has no copy" in answer.reason
    assert "the last good checkpoint is 1" in answer.reason
    chosen = driver(store)
    chosen.from_checkpoint_id = 1
    back = opened(chosen).manifest
    assert (back.checkpoint_id, back.promised_id) == (3, 1), "a copy of checkpoint 1 is the next one"
    assert back.states == read_log(store).completed()[1][1].states
    assert opened(driver(store)).manifest.checkpoint_id == 3, "the choice outlives a crash"


def test_a_manifest_says_how_much_each_operator_keeps() -> None:
    files = [TableFile("t", f"state/{n}", n, 10 * n, "crc32:0", (n, *(0,) * 7)) for n in (1, 2, 3)]
    handles = [StateHandle("op", n, n, n + 1, (files[n],)) for n in (0, 1)]
    handles += [StateHandle("other", 0, 0, 8, (files[2],)), StateHandle("empty", 0, 0, 8)]
    manifest = CheckpointManifest("job", "beef", 1, 1, 0, 0, 2, 8, states=handles)
    sizes = {"op": {"rows": 3, "bytes": 30}, "other": {"rows": 3, "bytes": 30}}
    assert manifest.sizes_by_operator() == sizes


def test_lost_input_is_fatal_and_takes_no_attempt() -> None:
    store = MemoryStore()
    opened(driver(store))
    answer = driver(store, Splits("t-0: offset 10 is gone")).execute(ev.OpenAttempt())
    assert answer == ev.OpenFailed("t-0: offset 10 is gone", is_fatal=True, kind="DataLossError")
    assert read_log(store).next_position == 3


def test_a_finished_job_is_not_started_again() -> None:
    store = MemoryStore()
    io = driver(store)
    opened(io)
    assert io.execute(ev.MarkFinished(1)) == ev.FinishMarked(1)
    assert driver(store).execute(ev.OpenAttempt()) == ev.AlreadyFinished(0)


def test_a_folder_of_another_job_is_refused() -> None:
    store = MemoryStore()
    opened(driver(store))
    other = CheckpointIO(store, ManualClock(), Splits(), Sinks(), Program("other", 8, {"src": None}), 1)
    answer = other.execute(ev.OpenAttempt())
    assert isinstance(answer, ev.OpenFailed)
    assert "belongs to job 'job', not 'other'" in answer.reason


def test_the_thread_answers_in_order() -> None:
    answers: list[ev.Event] = []
    thread = CheckpointIOThread(driver(MemoryStore()), answers.append)
    thread.submit(ev.OpenAttempt())
    thread.submit(ev.MarkFinished(1))
    thread.close()
    assert [type(answer) for answer in answers] == [ev.AttemptOpened, ev.FinishMarked]


class BrokenSplits(Splits):
    def initial_splits(self) -> Mapping[str, Sequence[SplitProgress]]:
        raise KeyError("a connector's fault")


def test_a_connectors_fault_ends_the_job_instead_of_the_thread() -> None:
    answers: list[ev.Event] = []
    thread = CheckpointIOThread(driver(MemoryStore(), BrokenSplits()), answers.append)
    thread.submit(ev.OpenAttempt())
    thread.submit(ev.MarkFinished(1))
    thread.close()
    assert answers[0] == ev.OpenFailed('KeyError: "a connector\'s fault"', is_fatal=True)
    assert answers[1] == ev.FinishMarked(1)


def test_a_discard_takes_no_file_that_a_checkpoint_needs() -> None:
    """An aborted checkpoint may have named files of the completed one before it (which was not written
    again), and the next one may name files that were written for the aborted one."""
    store = MemoryStore()
    io = driver(store, retained=1)
    first = opened(io)
    assert write_checkpoint(io, store, first.manifest, 1, 1) == ev.Persisted(1, 1)
    io.execute(ev.Subsume(1, 1))
    completed, aborted, unused = (f"state/attempt-000001/000000000{n}.op.0.arrows" for n in (1, 2, 3))
    for path in (aborted, unused):
        with store.create_file(path) as file:
            file.write(b"0123456789")
    io.execute(ev.Discard(frozenset({completed, aborted, unused})))
    assert {completed, aborted, unused} <= {status.path for status in store.list("state")}
    handles = [StateHandle("op", 0, 0, 8, (TableFile("t", aborted, 0, 10, "crc32:0", (0,) * 8),))]
    manifest = replace(first.manifest, checkpoint_id=4, states=handles)
    assert io.execute(ev.Persist(manifest)) == ev.Persisted(1, 4)
    io.execute(ev.Subsume(1, 4))
    assert {status.path for status in store.list("state")} == {aborted}
    assert opened(driver(store)).manifest.checkpoint_id == 4


def test_a_damaged_latest_checkpoint_is_restored_from_its_copies_and_said() -> None:
    store = MemoryStore()
    io = driver(store)
    base = opened(io).manifest
    write_checkpoint(io, store, base, 1, 1)
    store.write_copy("log/0000000003.json", b"{torn")
    again = opened(driver(store))
    assert again.manifest.checkpoint_id == 1
    (notice,) = again.notices
    assert notice.event == "damage_healed"
    assert "log/0000000003.json is no valid entry" in str(notice.fields["message"])


def test_an_entry_that_is_gone_is_put_back_before_its_position_is_anybodys() -> None:
    store = MemoryStore()
    old = driver(store)
    base = opened(old).manifest
    new = driver(store)
    opened(new)
    content = store.read("log/0000000003.json")
    store.delete(["log/0000000003.json"])
    assert opened(driver(store)).attempt == 3
    assert store.read("log/0000000003.json") == content
    assert write_checkpoint(old, store, base, 1, 1) == ev.PersistConflict(1, 1)


def test_a_log_of_an_older_onceflow_is_read_and_said_to_have_no_checksums_and_gets_copies() -> None:
    store = MemoryStore()
    opened(driver(store))
    for position in range(3):
        path = f"log/{position:010d}.json"
        body = store.read(path).partition(b',"checksum"')[0]
        store.write_copy(
            path, body.replace(b'"format_version":%d' % MANIFEST_VERSION, b'"format_version":2', 1) + b"}"
        )
        store.delete([copy_path(path)])
    io = driver(store)
    answer = opened(io)
    assert [(n.event, n.fields["entries"]) for n in answer.notices] == [("entries_without_checksum", 3)]
    assert not opened(io).notices, "it is said once in a run"
    store.write_copy("log/0000000002.json", b"")
    assert opened(driver(store)).manifest.checkpoint_id == 0


def test_nothing_is_left_of_what_retention_drops() -> None:
    store = MemoryStore()
    io = driver(store, retained=1)
    base = opened(io).manifest
    for n in range(1, 4):
        write_checkpoint(io, store, base, 1, n)
        io.execute(ev.Subsume(1, n))
    originals = {s.path for s in store.list("log") + store.list("state")}
    assert {s.path for s in store.list("copies")} == {copy_path(path) for path in originals}
    store.create("copies/state/attempt-000001/9.op", b"left")
    opened(driver(store))
    assert "copies/state/attempt-000001/9.op" not in {s.path for s in store.list("copies")}


def promise(io: CheckpointIO, base: CheckpointManifest, checkpoint_id: int) -> CheckpointManifest:
    """A durable checkpoint with something to commit."""
    promised = [Committable("op", "0", checkpoint_id, {"parts": ["p"]})]
    manifest = replace(base, checkpoint_id=checkpoint_id, committables=promised)
    assert io.execute(ev.Persist(manifest)) == ev.Persisted(base.attempt, checkpoint_id)
    return manifest


def test_sinks_commit_in_the_driver_when_asked_and_again_at_the_next_start() -> None:
    store, sinks = MemoryStore(), Sinks()
    io = driver(store, sinks=sinks)
    manifest = promise(io, opened(io).manifest, 1)
    assert sinks.committed == []
    assert io.execute(ev.CommitSinks(manifest)) == ev.SinksCommitted(1, 1)
    assert sinks.committed == [1]
    again = Sinks()
    answer = opened(driver(store, sinks=again))
    assert again.restored == [(2, 1)], "after the attempt was fenced, with the restored checkpoint"
    assert answer.manifest.committables == [], "what the committers have committed is not for the slots"


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (Retryable("away"), ev.SinksNotCommitted(1, 1, "away")),
        (Indeterminate("no answer"), ev.SinksNotCommitted(1, 1, "no answer")),
        (OSError("broken pipe"), ev.SinksNotCommitted(1, 1, "broken pipe")),
        (Fenced("a newer one"), ev.AttemptFailed(1, "a newer one", is_fenced=True)),
        (Fatal("no such table"), ev.AttemptFailed(1, "no such table", is_fatal=True, kind="Fatal")),
    ],
    ids=["not done", "unknown", "an error of the system", "fenced", "fatal"],
)
def test_what_became_of_a_commit_in_the_driver(error: Exception, answer: ev.Event) -> None:
    sinks = Sinks()
    io = driver(MemoryStore(), sinks=sinks)
    manifest = promise(io, opened(io).manifest, 1)
    sinks.failures.append(error)
    assert io.execute(ev.CommitSinks(manifest)) == answer


def test_an_attempt_does_not_open_before_its_sinks_have_committed() -> None:
    io = driver(MemoryStore(), sinks=Sinks(Indeterminate("no answer"), Fatal("no such table")))
    answer = io.execute(ev.OpenAttempt())
    assert isinstance(answer, ev.OpenFailed)
    assert (answer.reason, answer.is_fatal) == ("no answer", False)
    answer = io.execute(ev.OpenAttempt())
    assert isinstance(answer, ev.OpenFailed)
    assert answer.is_fatal
    assert opened(io).attempt == 3, "each try has fenced the one before"


def test_a_fault_of_a_committer_fails_the_attempt_and_has_a_fingerprint() -> None:
    sinks = Sinks()
    io = driver(MemoryStore(), sinks=sinks)
    manifest = promise(io, opened(io).manifest, 1)
    sinks.failures.append(KeyError("parts"))
    answers: list[ev.Event] = []
    thread = CheckpointIOThread(io, answers.append)
    thread.submit(ev.CommitSinks(manifest))
    thread.close()
    reason = "KeyError: 'parts'"
    assert answers == [ev.AttemptFailed(1, reason, fingerprints=frozenset({reason}))]


def finished(number: int) -> SplitProgress:
    return SplitProgress(SplitState(f"t-{number}", {"next_offset": 9}), is_finished=True)


def test_finished_splits_leave_the_checkpoints_and_are_remembered() -> None:
    store, splits = MemoryStore(), Splits()
    io = driver(store, splits)
    first = opened(io).manifest
    open_split = first.splits["src"][0]
    for n, done in ((1, [finished(1), finished(2)]), (2, [finished(3)]), (3, [])):
        manifest = replace(first, checkpoint_id=n, splits={"src": [*done, open_split]})
        assert io.execute(ev.Persist(manifest)) == ev.Persisted(1, n)
    assert splits.told == [2, 3, 3]
    restored = opened(driver(store)).manifest
    assert (restored.splits, restored.finished) == ({"src": [open_split]}, {"src": 3})


def test_a_manifest_of_unknown_fate_is_pruned_once() -> None:
    """The second try writes the same bytes: else its own entry would look like another driver's."""
    faulty = FaultyStore(MemoryStore(), ReplayedChoices([2] * 3), faults=0)
    io = driver(faulty)
    first = opened(io).manifest
    faulty.faults_left = 3
    manifest = replace(first, checkpoint_id=1, splits={"src": [finished(1), *first.splits["src"]]})
    assert isinstance(io.execute(ev.Persist(manifest)), ev.PersistUnknown)
    assert io.execute(ev.Persist(manifest)) == ev.Persisted(1, 1)
    assert opened(driver(faulty)).manifest.finished == {"src": 1}
