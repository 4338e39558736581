"""The sources' enumerators in the driver: one thread at a time each, and a failed look is tried again."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import SplitProgress, SplitState
from onceflow.runtime.driver.enumerators import Enumerators
from onceflow.runtime.errors import DataLossError, Fatal, OptionError, Retryable, UsageError
from onceflow.runtime.graph.job_graph import Chain, JobGraph, SourceNode

DEADLINE_S = 60.0
EMPTY = pa.schema([])


def split(number: int, position: int = 0) -> SplitState:
    return SplitState(f"t-{number}", {"next": position})


@dataclass
class Enumerator:
    """Finds what `there` holds; `failures` are raised first, one for each look."""

    there: list[SplitState] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    discovery_interval_ms: int | None = 1
    checked: list[str] = field(default_factory=list)
    is_closed: bool = False
    _inside: threading.Lock = field(default_factory=threading.Lock)

    def initial_splits(self) -> Sequence[SplitState]:
        return self.there

    def discover(self, known: frozenset[str]) -> Sequence[SplitState]:
        assert self._inside.acquire(blocking=False), "two threads at once"
        try:
            if self.failures:
                raise self.failures.pop(0)
            return [s for s in self.there if s.split_id not in known]
        finally:
            self._inside.release()

    def check_restored(self, splits: Sequence[SplitState]) -> None:
        assert self._inside.acquire(blocking=False), "two threads at once"
        self.checked += [s.split_id for s in splits]
        self._inside.release()
        if "t-13" in self.checked:
            raise DataLossError("t-13 is gone")

    def close(self) -> None:
        self.is_closed = True


class Skipping(Enumerator):
    def skip_to_end(self, splits: Sequence[SplitState]) -> Sequence[SplitState]:
        return [SplitState(s.split_id, {"next": 99}) for s in splits]


class Starting(Enumerator):
    def splits_from(self, start: Any) -> Sequence[SplitState]:
        if start != "latest":
            raise UsageError(f"no start {start!r}")
        return [SplitState(s.split_id, {"next": 99}) for s in self.there]


class Bounding(Enumerator):
    def bounded(self, splits: Sequence[SplitState], finished: Any) -> Sequence[SplitState]:
        stop = 9 if finished is None else finished
        return [SplitState(s.split_id, {**s.position, "stop": stop}) for s in (*splits, *self.there)]


@dataclass(frozen=True)
class FoundSource:
    enumerator: Any
    is_bounded: bool = False
    schema: pa.Schema = EMPTY
    record_type: type | None = None

    def open_enumerator(self, job: str, clock: Any) -> Any:
        return self.enumerator

    def open_reader(self, context: Any) -> Any: ...


def enumerators(**by_uid: Enumerator) -> Enumerators:
    nodes = {uid: SourceNode(uid, FoundSource(e), None, {}) for uid, e in by_uid.items()}
    chains = [Chain(n, uid, {uid: node}) for n, (uid, node) in enumerate(nodes.items())]
    return Enumerators(JobGraph("job", chains, []), ManualClock())


def test_initial_splits_come_by_source() -> None:
    found = enumerators(a=Enumerator([split(1)]), b=Enumerator([split(2), split(3)])).initial_splits()
    assert found == {"a": [SplitProgress(split(1))], "b": [SplitProgress(split(2)), SplitProgress(split(3))]}


class Wrong(Enumerator):
    def initial_splits(self) -> Sequence[SplitState]:
        raise self.error


def wrong(error: Exception) -> Wrong:
    enumerator = Wrong()
    enumerator.error = error
    return enumerator


def test_what_is_wrong_with_each_source_is_told_at_once() -> None:
    one, two = OptionError("topic 'a' does not exist"), OptionError("topic 'b' does not exist")
    for given in [{"a": wrong(one)}, {"a": wrong(one), "b": Enumerator(), "c": wrong(two)}]:
        with pytest.raises(OptionError) as raised:
            enumerators(**given).initial_splits()
        assert str(raised.value) == "; ".join(str(e.error) for e in given.values() if isinstance(e, Wrong))
    with pytest.raises(Fatal, match="a broker that is away ends it at once"):
        enumerators(a=wrong(Fatal("a broker that is away ends it at once")), b=wrong(one)).initial_splits()


def test_finished_splits_are_not_checked_at_a_restore() -> None:
    """Retention may have taken what was read to its end long ago."""
    enumerator = Enumerator()
    progress = [SplitProgress(split(1)), SplitProgress(split(13), is_finished=True)]
    enumerators(a=enumerator).check_restored({"a": progress})
    assert enumerator.checked == ["t-1"]


def test_a_split_that_is_gone_is_told() -> None:
    with pytest.raises(DataLossError, match="t-13 is gone"):
        enumerators(a=Enumerator()).check_restored({"a": [SplitProgress(split(13))]})


def test_skipping_keeps_what_the_engine_knows_of_a_split() -> None:
    progress = [SplitProgress(split(1, 5), 1_000, is_finished=True)]
    found = enumerators(a=Skipping()).skip_to_end({"a": progress})
    assert found == {"a": [SplitProgress(split(1, 99), 1_000, is_finished=True)]}


def test_what_appeared_while_the_job_was_down_is_found_before_anything_is_read() -> None:
    away = Enumerator([split(7)], failures=[Retryable("broker away")])
    never_asked = Enumerator([split(8)], discovery_interval_ms=None)
    opened = enumerators(a=Enumerator([split(1), split(2)]), b=away, c=never_asked)
    restored = manifest(SplitProgress(split(1, 5), 1_000))
    restored = replace(restored, splits={**restored.splits, "b": [], "c": []})
    assert opened.found_since(restored) == {"a": [SplitProgress(split(2))]}
    assert away.failures == []


def test_a_source_that_the_program_did_not_have_begins_where_it_is_configured_to() -> None:
    """One that never looks for new splits, too."""
    opened = enumerators(
        a=Enumerator([split(1)]), b=Enumerator([split(8)], discovery_interval_ms=None), c=Enumerator()
    )
    restored = replace(manifest(SplitProgress(split(1, 5))), finished={"c": 3})
    assert opened.found_since(restored) == {"b": [SplitProgress(split(8))]}


def test_a_source_begins_elsewhere_if_it_can() -> None:
    opened = enumerators(a=Starting([split(1)]), b=Enumerator([split(2)]))
    assert opened.splits_from({"a": "latest", "b": "start"}) == {
        "a": [SplitProgress(split(1, 99))],
        "b": [SplitProgress(split(2))],
    }
    with pytest.raises(UsageError, match="--reset-offsets b: this source begins where the program says only"):
        opened.splits_from({"b": "latest"})
    with pytest.raises(UsageError, match="--reset-offsets a: no start 'never'"):
        opened.splits_from({"a": "never"})


def test_skipping_skips_nothing_of_a_split_that_the_checkpoint_does_not_know() -> None:
    opened = enumerators(a=Skipping([split(1), split(2)]))
    opened.found_since(manifest(SplitProgress(split(1, 5))))
    progress = [SplitProgress(split(2)), SplitProgress(split(1, 5))]
    assert opened.skip_to_end({"a": progress}) == {
        "a": [SplitProgress(split(1, 99)), SplitProgress(split(2))]
    }


def test_a_source_that_cannot_skip_refuses_at_most_once() -> None:
    with pytest.raises(Fatal, match="source 'a' can't skip to its end: at-most-once"):
        enumerators(a=Enumerator()).skip_to_end({"a": [SplitProgress(split(1))]})


def test_new_splits_are_found_though_a_look_failed_before() -> None:
    enumerator = Enumerator([split(1), split(2)], failures=[Retryable("broker away"), DataLossError("gone")])
    told = threading.Event()
    found: list[tuple[str, Sequence[SplitProgress]]] = []

    def hear(uid: str, splits: Sequence[SplitProgress]) -> None:
        found.append((uid, splits))
        told.set()

    opened = enumerators(a=enumerator)
    opened.restore(manifest(SplitProgress(split(1))))
    end = opened.start_discovery(hear)
    assert told.wait(DEADLINE_S)
    end()
    assert found[0] == ("a", [SplitProgress(split(2))])
    assert enumerator.failures == []


def test_a_split_is_given_out_once_with_its_number() -> None:
    opened = enumerators(a=Enumerator())
    opened.restore(manifest(SplitProgress(split(1))))
    found = [SplitProgress(split(n)) for n in (1, 2, 3)]
    assert opened.take_new("a", found, is_wanted=True) == [(1, found[1]), (2, found[2])]
    assert opened.take_new("a", found, is_wanted=True) == []


def test_a_source_without_an_interval_is_not_looked_at() -> None:
    enumerator = Enumerator([split(1)], discovery_interval_ms=None)
    before = set(threading.enumerate())
    enumerators(a=enumerator).start_discovery(lambda uid, splits: None)
    assert set(threading.enumerate()) == before


def test_looks_and_checks_never_meet() -> None:
    """A restart checks the splits while the last attempt's discovery may still be looking."""
    enumerator = Enumerator()
    opened = enumerators(a=enumerator)
    ends = [opened.start_discovery(lambda uid, splits: None) for _ in range(3)]
    for _ in range(200):
        opened.check_restored({"a": [SplitProgress(split(1))]})
    for end in ends:
        end()


def test_after_the_end_nobody_is_told() -> None:
    enumerator = Enumerator([split(1)])
    opened = enumerators(a=enumerator)
    told: list[object] = []
    opened.restore(manifest(SplitProgress(split(1))))
    end = opened.start_discovery(lambda uid, splits: told.append(splits))
    threads = [t for t in threading.enumerate() if t.name == "onceflow-discover-a"]
    end()
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    assert told == []
    opened.close()
    assert enumerator.is_closed


class PruningFake(Enumerator):
    """`finished` is the sorted list of ids."""

    def discover_unfinished(self, known: frozenset[str], finished: Any) -> Sequence[SplitState]:
        return [s for s in self.discover(known) if s.split_id not in (finished or [])]


@dataclass(frozen=True)
class PruningFoundSource(FoundSource):
    def add_finished(self, finished: Any, splits: Sequence[SplitState]) -> Any:
        return sorted({*(finished or []), *(s.split_id for s in splits)})


def pruning(enumerator: Enumerator) -> Enumerators:
    node = SourceNode("a", PruningFoundSource(enumerator), None, {})
    return Enumerators(JobGraph("job", [Chain(0, "a", {"a": node})], []), ManualClock())


def done(number: int) -> SplitProgress:
    return SplitProgress(split(number), is_finished=True)


def test_finished_splits_are_taken_out_and_added_to_what_is_remembered() -> None:
    opened = pruning(PruningFake())
    full = manifest(done(1), SplitProgress(split(2)), done(3))
    pruned = opened.prune(full, {"a": ["t-0"], "other": 7})
    assert pruned.splits == {"a": [SplitProgress(split(2))]}
    assert pruned.finished == {"a": ["t-0", "t-1", "t-3"], "other": 7}
    assert opened.prune(full, {"a": ["t-0"], "other": 7}) == pruned, "pure"


def test_a_source_that_does_not_prune_keeps_its_finished_splits() -> None:
    full = manifest(done(1))
    assert enumerators(a=Enumerator()).prune(full, {}) == full


def test_what_was_pruned_is_not_found_again() -> None:
    enumerator = PruningFake([split(1), split(2)])
    opened = pruning(enumerator)
    opened.restore(replace(manifest(SplitProgress(split(9))), finished={"a": ["t-1"]}))
    found = looked_once(opened)
    assert [p.split.split_id for p in found] == ["t-2"]


def test_a_split_that_is_pruned_during_a_look_is_not_given_out_again() -> None:
    """A slow look: it began before the split was known, and ends when the split was read and pruned."""
    opened = pruning(PruningFake())
    book = opened._books["a"]
    assert book.look() == (frozenset(), None)
    assert opened.take_new("a", [SplitProgress(split(1))], is_wanted=True) == [(0, SplitProgress(split(1)))]
    opened.on_pruned(manifest(done(1)), {"a": ["t-1"]})
    assert opened.take_new("a", [SplitProgress(split(1))], is_wanted=True) == []
    assert book.look() == (frozenset(), ["t-1"]), "the next look is told"


def test_there_is_no_look_before_the_last_one_was_answered() -> None:
    book = pruning(PruningFake())._books["a"]
    book.ask()
    assert book.look() is None
    book.take([])
    assert book.look() is not None


def test_an_unwanted_answer_is_found_again() -> None:
    opened = pruning(PruningFake())
    assert opened.take_new("a", [SplitProgress(split(1))], is_wanted=False) == []
    assert opened.take_new("a", [SplitProgress(split(1))], is_wanted=True) == [(0, SplitProgress(split(1)))]


def looked_once(opened: Enumerators) -> Sequence[SplitProgress]:
    """What the first look finds."""
    told: queue.SimpleQueue[Sequence[SplitProgress]] = queue.SimpleQueue()
    end = opened.start_discovery(lambda uid, splits: told.put(splits))
    try:
        return told.get(timeout=DEADLINE_S)
    finally:
        end()


def manifest(*splits: SplitProgress) -> CheckpointManifest:
    return CheckpointManifest("job", "beef", 1, 1, 0, 0, 1, 8, splits={"a": list(splits)})


def test_splits_of_a_savepoint_get_an_end_and_keep_what_else_is_known_of_them() -> None:
    read = SplitProgress(split(1), 77)
    a = Bounding([split(2)])
    saved = replace(manifest(read), splits={"a": [read], "b": [SplitProgress(split(3))]})
    found = enumerators(a=a, b=Enumerator([])).bounded(saved)
    one, new = found["a"]
    assert (one.split.split_id, one.split.position["stop"], one.max_event_time_ms) == ("t-1", 9, 77)
    assert (new.split.position["stop"], new.max_event_time_ms) == (9, None)
    assert found["b"] == [SplitProgress(split(3))]
    again = enumerators(a=a, b=Enumerator([])).bounded(replace(saved, finished={"a": 5}))
    assert again["a"][0].split.position["stop"] == 5, "it is told what is remembered of finished splits"
