"""`--from N`: what a folder with later checkpoints goes on with, and a crash at each step of going back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.checkpoint.driver import CheckpointIO
from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.state_fits import Program
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import Committable, SplitProgress, SplitState
from onceflow.runtime.contracts.going_back import GoingBack
from onceflow.runtime.contracts.sink import WentBack


class Splits:
    def initial_splits(self) -> Mapping[str, Sequence[SplitProgress]]:
        return {"src": [SplitProgress(SplitState("t-0", {"next_offset": 0}))]}

    def found_since(self, manifest: CheckpointManifest) -> Mapping[str, Sequence[SplitProgress]]:
        return {}

    def prune(self, manifest: CheckpointManifest, finished: Mapping[str, Any]) -> CheckpointManifest:
        return manifest

    def on_pruned(self, manifest: CheckpointManifest, finished: Mapping[str, Any]) -> None: ...

    def check_restored(self, splits: Mapping[str, Sequence[SplitProgress]]) -> None: ...


class Sinks:
    def __init__(self) -> None:
        self.restored: list[CheckpointManifest] = []

    def restore(self, attempt: int, manifest: CheckpointManifest) -> CheckpointManifest:
        self.restored.append(manifest)
        return manifest

    def commit(self, manifest: CheckpointManifest) -> None: ...


class Crash(BaseException):
    """The driver's process is gone."""


class CrashingStore(MemoryStore):
    """Crashes before or after its n-th call that changes something."""

    def __init__(self) -> None:
        super().__init__()
        self.left: float = math.inf

    def create(self, path: str, content: bytes) -> None:
        self._step()
        super().create(path, content)
        self._step()

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Crash


class Sink:
    """A TracedSink."""

    def written_since(self, time_ms: int) -> Sequence[Mapping[str, str | int]]:
        return [{"topic": "out", "partition": 0, "begin": time_ms, "end": 99}]


def driver(
    store: CheckpointStore, chosen: int | None = None, going: GoingBack | None = None
) -> tuple[CheckpointIO, Sinks]:
    sinks = Sinks()
    io = CheckpointIO(
        store, ManualClock(7), Splits(), sinks, Program("job", 8, {"src": None, "out": None}), 1
    )
    io.from_checkpoint_id, io.going_back = chosen, going or GoingBack()
    return io, sinks


def opened(io: CheckpointIO) -> ev.AttemptOpened:
    answer = io.execute(ev.OpenAttempt())
    assert isinstance(answer, ev.AttemptOpened), answer
    return answer


def written(store: CheckpointStore, checkpoints: int = 3) -> None:
    """A job with checkpoints 1 to so many; each has read ten records more, and promises one file."""
    io, _ = driver(store)
    base = opened(io).manifest
    for n in range(1, checkpoints + 1):
        splits = {"src": [SplitProgress(SplitState("t-0", {"next_offset": 10 * n}))]}
        promised = [Committable("out", "0", n, {"file": n})]
        manifest = replace(
            base, checkpoint_id=n, splits=splits, committables=promised, triggered_ms=100 * n, attempt=1
        )
        assert io.execute(ev.Persist(manifest)) == ev.Persisted(1, n)


def offset(manifest: CheckpointManifest) -> Any:
    return manifest.splits["src"][0].split.position["next_offset"]


DOUBLING = GoingBack(doubling=["out"], traced={"out": Sink()})


def test_output_that_can_go_back_goes_on_from_a_copy_under_the_next_id() -> None:
    store = MemoryStore()
    written(store)
    io, sinks = driver(store, 1)
    answer = opened(io)
    assert (answer.manifest.checkpoint_id, answer.next_checkpoint_id, offset(answer.manifest)) == (4, 5, 10)
    assert answer.manifest.went_back == WentBack(1, 3)
    assert answer.manifest.promised_id == 1
    assert [m.checkpoint_id for m in sinks.restored] == [4], "the sinks take back before any slot starts"
    [told] = [each for each in answer.notices if each.event == "went_back"]
    assert told.fields == {"to": 1, "past": 3, "checkpoint_id": 4, "doubled": {}}


def test_later_checkpoints_say_that_the_job_went_back_and_promise_their_own() -> None:
    store = MemoryStore()
    written(store)
    io, _ = driver(store, 1)
    base = opened(io).manifest
    io.execute(ev.Persist(replace(base, checkpoint_id=5)))
    again, _ = driver(store)
    manifest = opened(again).manifest
    assert (manifest.checkpoint_id, manifest.promised_id, manifest.went_back) == (5, 5, WentBack(1, 3))


def test_the_same_command_goes_on_and_does_not_go_back_again() -> None:
    store = MemoryStore()
    written(store)
    io, _ = driver(store, 1)
    base = opened(io).manifest
    io.execute(ev.Persist(replace(base, checkpoint_id=5)))
    again, _ = driver(store, 1)
    answer = opened(again)
    assert answer.manifest.checkpoint_id == 5
    [told] = answer.notices
    assert told.event == "warning"
    assert "has gone back to checkpoint 1 before" in str(told.fields["reason"])
    assert "--from 4 goes back to the copy of 1" in str(told.fields["reason"])


def test_rows_that_can_only_be_added_keep_the_checkpoint_itself_so_that_their_ledger_refuses() -> None:
    store = MemoryStore()
    written(store)
    io, _ = driver(store, 1, DOUBLING)
    manifest = opened(io).manifest
    assert (manifest.checkpoint_id, manifest.went_back) == (1, None)


def test_who_accepts_duplicates_is_told_where_they_will_be_and_rows_are_marked() -> None:
    store = MemoryStore()
    written(store)
    io, _ = driver(store, 1, replace(DOUBLING, accepted=1))
    answer = opened(io)
    assert answer.manifest.went_back == WentBack(1, 3, is_marked=True)
    [told] = [each for each in answer.notices if each.event == "went_back"]
    assert told.fields["doubled"] == {"out": [{"topic": "out", "partition": 0, "begin": 100, "end": 99}]}
    marked, _ = driver(store, 1, replace(DOUBLING, accepted=1))
    assert opened(marked).manifest.went_back == WentBack(1, 3, is_marked=True)
    plain, _ = driver(store)
    assert opened(plain).manifest.went_back == WentBack(1, 3), "without the option nothing is marked"


def test_the_last_checkpoint_is_no_going_back() -> None:
    store = MemoryStore()
    written(store)
    io, _ = driver(store, 3, GoingBack(taking=["queue"]))
    manifest = opened(io).manifest
    assert (manifest.checkpoint_id, manifest.went_back) == (3, None)


def test_a_queue_is_refused_and_nothing_is_written() -> None:
    store = MemoryStore()
    written(store)
    before = read_log(store).next_position
    answer = driver(store, 1, GoingBack(taking=["queue"]))[0].execute(ev.OpenAttempt())
    assert isinstance(answer, ev.OpenFailed)
    assert answer.is_fatal
    assert "can't go back to checkpoint 1: source 'queue' is a queue" in answer.reason
    assert read_log(store).next_position == before


def test_from_the_copy_one_can_go_back_once_more() -> None:
    store = MemoryStore()
    written(store)
    io, _ = driver(store, 1)
    base = opened(io).manifest
    io.execute(ev.Persist(replace(base, checkpoint_id=5)))
    again, _ = driver(store, 4)
    manifest = opened(again).manifest
    assert (manifest.checkpoint_id, manifest.went_back, offset(manifest)) == (6, WentBack(4, 5), 10)


@pytest.mark.parametrize("same_command", [True, False])
def test_a_crash_at_each_step_leaves_the_job_where_it_was_or_gone_back_once(same_command: bool) -> None:
    step = 0
    while True:
        store = CrashingStore()
        written(store)
        store.left = step
        io, _ = driver(store, 1)
        try:
            opened(io)
        except Crash:
            is_over = False
        else:
            is_over = True
        store.left = math.inf
        again, _ = driver(store, 1 if same_command else None)
        manifest = opened(again).manifest
        found = (manifest.checkpoint_id, offset(manifest), manifest.promised_id)
        assert found in ([(4, 10, 1)] if same_command or is_over else [(4, 10, 1), (3, 30, 3)]), step
        copies = [m for _, m in read_log(store).completed() if m.went_back is not None]
        assert len(copies) <= 1
        if is_over:
            break
        step += 1
    assert step > 3, "each call crashed once"
