"""The slots of one attempt as the driver sees them: who is numbered, heard, lost or sent away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.checkpoint.fingerprints import Unexpected
from onceflow.runtime.checkpoint.manifest import SlotSnapshot
from onceflow.runtime.control.message import Message
from onceflow.runtime.control.messages import (
    Acked,
    Assignment,
    Commit,
    Committed,
    Declined,
    Drained,
    Failed,
    GroupWatermarks,
    Hello,
    LowestWatermarks,
    Progress,
    Running,
    Shutdown,
)
from onceflow.runtime.errors import Fatal, OnceflowError, OptionError, Retryable, Unavailable
from onceflow.runtime.slot.group import SlotGroup

ATTEMPT = 4
LAUNCH = 7


class Driver:
    """A group, and what was sent to whom."""

    def __init__(self, parallelism: int = 2, timeout_ms: float = 30_000) -> None:
        self.sent: list[tuple[int, Message]] = []
        self.group = SlotGroup(ATTEMPT, LAUNCH, parallelism, self._send, self._send_all, timeout_ms)
        self.group.begin(self._assign, 0)

    def _assign(self, slot: int, peers: Sequence[tuple[str, int]]) -> Assignment:
        return Assignment(
            attempt=ATTEMPT,
            slot=slot,
            parallelism=2,
            lineage="ab",
            restored_checkpoint_id=0,
            peers=peers,
            splits={},
            states=[],
            committables={},
        )

    def _send(self, peer: int, message: Message) -> bool:
        self.sent.append((peer, message))
        return True

    def _send_all(self, peers: Iterable[int], message: Message) -> None:
        self.sent += [(peer, message) for peer in peers]

    def hear(self, peer: int, message: Any, now_ms: float = 0.0) -> list[ev.Event]:
        return self.group.on_message(peer, message, now_ms)

    def hello(self, peer: int, partition: int, launch: int = LAUNCH) -> list[ev.Event]:
        address = ("127.0.0.1", 1000 + partition)
        return self.hear(peer, Hello(launch, ATTEMPT, partition, 100 + partition, "here", address, "0"))


@pytest.fixture
def driver() -> Driver:
    """Two slots, on peers 11 and 10; the second to come is slot 0."""
    both = Driver()
    both.hello(11, partition=1)
    both.hello(10, partition=0)
    return both


def test_slots_are_numbered_by_their_partition_once_all_are_there() -> None:
    driver = Driver()
    assert driver.hello(11, partition=1) == []
    assert driver.sent == []
    driver.hello(10, partition=0)
    assigned = {peer: message for peer, message in driver.sent if isinstance(message, Assignment)}
    assert {peer: message.slot for peer, message in assigned.items()} == {10: 0, 11: 1}
    assert list(assigned[11].peers) == [("127.0.0.1", 1000), ("127.0.0.1", 1001)]
    assert driver.group.describe() == [
        {"slot": 0, "pid": 100, "host": "here"},
        {"slot": 1, "pid": 101, "host": "here"},
    ]


def test_the_attempt_runs_when_the_last_slot_does(driver: Driver) -> None:
    assert driver.hear(10, Running(ATTEMPT)) == []
    assert driver.hear(11, Running(ATTEMPT)) == [ev.SlotsRunning(ATTEMPT)]


def test_what_slots_say_becomes_events_with_their_number(driver: Driver) -> None:
    snapshot = SlotSnapshot()
    assert driver.hear(11, Acked(ATTEMPT, 7, snapshot)) == [ev.SlotAcked(ATTEMPT, 7, 1, snapshot)]
    assert driver.hear(10, Declined(ATTEMPT, 7, "full")) == [ev.SlotDeclined(ATTEMPT, 7, 0, "full")]
    assert driver.hear(10, Committed(ATTEMPT, 7)) == [ev.SlotCommitted(ATTEMPT, 7, 0)]
    assert driver.hear(11, Drained(ATTEMPT)) == [ev.SlotDrained(ATTEMPT, 1)]
    failed = Failed(ATTEMPT, "why", is_fatal=True, is_fenced=True, detail="...")
    assert driver.hear(10, failed) == [ev.AttemptFailed(ATTEMPT, "why", True, True)]


@pytest.mark.parametrize("attempt", [ATTEMPT - 1, ATTEMPT + 1])
def test_a_stale_slot_is_not_heard(driver: Driver, attempt: int) -> None:
    """It was frozen, wakes up on its old connection, and acks."""
    assert driver.hear(10, Acked(attempt, 7, SlotSnapshot())) == []
    assert driver.hear(10, Failed(attempt, "why", is_fatal=True)) == []


def test_a_peer_that_never_said_hello_is_not_heard(driver: Driver) -> None:
    assert driver.hear(99, Acked(ATTEMPT, 7, SlotSnapshot())) == []
    assert driver.group.on_lost(99) == []


def test_a_slot_that_fails_before_its_hello_is_heard() -> None:
    failed = Failed(ATTEMPT, "module 'mine' is not there", is_fatal=False)
    assert Driver().hear(99, failed) == [ev.AttemptFailed(ATTEMPT, failed.reason)]


@pytest.mark.parametrize("launch", [LAUNCH - 1, LAUNCH])
def test_a_hello_too_many_is_sent_away(driver: Driver, launch: int) -> None:
    assert driver.hello(12, partition=0, launch=launch) == []
    assert isinstance(driver.sent[-1][1], Shutdown)
    assert driver.sent[-1][0] == 12
    assert len(driver.group.slots) == 2


def test_a_lost_slot_fails_the_attempt_and_is_named(driver: Driver) -> None:
    (event,) = driver.group.on_lost(11)
    assert event == ev.AttemptFailed(ATTEMPT, "slot 1 (pid 101 on here) was lost")


def test_a_slot_lost_before_all_have_come_fails_the_attempt() -> None:
    driver = Driver()
    driver.hello(11, partition=1)
    (event,) = driver.group.on_lost(11)
    assert event == ev.AttemptFailed(ATTEMPT, "a slot (pid 101 on here) was lost")


@pytest.mark.parametrize(
    ("error", "said", "is_fatal"),
    [
        (Retryable("out of memory"), "out of memory", False),
        (Fatal("Spark is gone"), "Spark is gone", True),
        (OptionError("too many"), "too many", True),
        (None, "the host ended the slots", False),
    ],
)
def test_the_hosts_end_fails_the_attempt(
    driver: Driver, error: OnceflowError | None, said: str, is_fatal: bool
) -> None:
    if not is_fatal:
        assert driver.group.on_host_ended(error, 5_000) == [], "a slot may have said why"
        assert driver.group.check_alive(5_999) == []
        events = driver.group.check_alive(6_000)
    else:
        events = driver.group.on_host_ended(error, 5_000)
    kind = type(error).__name__ if error else ""
    assert events == [ev.AttemptFailed(ATTEMPT, said, is_fatal, kind=kind)], "what to do next hangs on it"


def test_what_a_slot_did_not_expect_is_compared_with_the_next_failure() -> None:
    marks = []
    for port in (7, 8):
        (failed,) = Driver().group.on_host_ended(Unexpected(f"ValueError: port {port}"), 0.0)
        assert isinstance(failed, ev.AttemptFailed)
        assert not failed.is_fatal
        marks.append(failed.fingerprints)
    assert marks[0] == marks[1] != frozenset()


def test_the_hosts_end_before_a_slot_has_come_fails_the_attempt_at_once() -> None:
    assert Driver().group.on_host_ended(Retryable("no slots"), 0.0) == [
        ev.AttemptFailed(ATTEMPT, "no slots", kind="Retryable")
    ]


def test_a_host_that_could_not_use_something_outside_says_so_also_if_some_slots_came() -> None:
    """A slot that can't reach the driver beside one that can: else it would be tried twelve times."""
    driver = Driver()
    error = Unavailable("the driver can't be reached from worker")
    failed = ev.AttemptFailed(ATTEMPT, str(error), is_unavailable=True, kind="Unavailable")
    assert driver.group.on_host_ended(error, 0.0) == [failed]
    half = Driver()
    half.hello(10, partition=0)
    assert half.group.on_host_ended(error, 0.0) == []
    assert half.group.check_alive(1_000) == [failed]


def test_what_the_failed_slot_says_goes_before_what_others_say_of_it(driver: Driver) -> None:
    """The host's word and a peer's come by other ways than the slot's own, and may come first."""
    gone = Failed(ATTEMPT, "slot 0 is gone", is_fatal=False, is_consequence=True)
    assert driver.hear(11, gone, now_ms=10) == []
    assert driver.group.on_host_ended(None, 20) == []
    why = Failed(ATTEMPT, "topic 'out' does not exist", is_fatal=True)
    assert driver.hear(10, why, now_ms=30) == [ev.AttemptFailed(ATTEMPT, why.reason, is_fatal=True)]


def test_what_a_peer_says_counts_if_nobody_else_says_why(driver: Driver) -> None:
    driver.hear(11, Failed(ATTEMPT, "slot 0 is gone", is_fatal=False, is_consequence=True), now_ms=10)
    assert driver.group.check_alive(1_010) == [ev.AttemptFailed(ATTEMPT, "slot 0 is gone")]


def test_what_may_be_compared_and_what_is_outside_is_passed_on(driver: Driver) -> None:
    failed = Failed(
        ATTEMPT, "why", is_fatal=False, is_unavailable=True, fingerprints=("a", "b"), kind="KeyError"
    )
    (event,) = driver.hear(10, failed)
    assert event == ev.AttemptFailed(
        ATTEMPT, "why", is_unavailable=True, fingerprints=frozenset("ab"), kind="KeyError"
    )
    declined = Declined(ATTEMPT, 7, "read-only", is_unavailable=True)
    assert driver.hear(10, declined) == [ev.SlotDeclined(ATTEMPT, 7, 0, "read-only", True)]


def test_the_first_record_of_an_attempt_is_told_once(driver: Driver) -> None:
    assert driver.hear(10, Progress(ATTEMPT, {})) == []
    assert driver.hear(10, Progress(ATTEMPT, {}, first_record_ms=7)) == [ev.FirstRecordRead(ATTEMPT)]
    assert driver.hear(11, Progress(ATTEMPT, {}, first_record_ms=5)) == []


def test_a_host_without_room_is_waited_for_and_says_why() -> None:
    driver = Driver()
    assert driver.group.host_wait(0) is None
    assert driver.group.on_host_waiting("needs 4, has 2", 1_000) == [ev.SlotsAwaited(ATTEMPT)]
    assert driver.group.host_wait(2_000) == "needs 4, has 2"
    assert driver.group.host_wait(4_000) is None, "it has not said so again"
    driver.group.end("stop")
    assert driver.group.on_host_waiting("needs 4, has 2", 5_000) == []


def test_a_late_word_of_the_host_about_slots_that_are_there_means_nothing(driver: Driver) -> None:
    assert driver.group.on_host_waiting("needs 2, has 1", 0) == []


def test_memory_counts_once_for_each_process(driver: Driver) -> None:
    driver.hear(10, Progress(ATTEMPT, {}, busy_ratio=0.5, rss_bytes=100))
    driver.hear(11, Progress(ATTEMPT, {}, busy_ratio=0.25, rss_bytes=200))
    assert driver.group.rss_bytes == 300
    assert driver.group.describe_usage() == [
        {"slot": 0, "pid": 100, "host": "here", "busy_ratio": 0.5, "rss_bytes": 100},
        {"slot": 1, "pid": 101, "host": "here", "busy_ratio": 0.25, "rss_bytes": 200},
    ]
    threads = Driver()
    for peer in (0, 1):
        threads.hear(peer, Hello(LAUNCH, ATTEMPT, peer, 100, "here", ("127.0.0.1", 1000 + peer), "0"))
        threads.hear(peer, Progress(ATTEMPT, {}, rss_bytes=100))
    threads.hear(0, Progress(ATTEMPT, {}, rss_bytes=100))
    assert threads.group.rss_bytes == 100


def test_a_silent_slot_is_lost_and_a_sign_of_life_counts(driver: Driver) -> None:
    driver.hear(10, Progress(ATTEMPT, {}), now_ms=20_000)
    assert driver.group.check_alive(30_000) == []
    (event,) = driver.group.check_alive(30_001)
    assert isinstance(event, ev.AttemptFailed)
    assert event.reason.startswith("slot 1 (pid 101")
    assert "30 s" in event.reason


def test_a_silent_slot_that_stands_still_is_named_with_the_line_and_counts_as_the_same_failure() -> None:
    stacks = (
        "Thread 0x1 (most recent call first):\n"
        '  File "totals.py", line 88 in check\n'
        '  File "/onceflow/runtime/slot/process.py", line 215 in _loop\n'
    )
    told = {(100, 7): stacks}
    sent: list[Message] = []
    assign, address = Driver()._assign, ("127.0.0.1", 1)
    for fd, is_told in ((7, True), (8, False), (None, False)):
        group = SlotGroup(
            ATTEMPT,
            LAUNCH,
            1,
            lambda _, message: bool(sent.append(message)),
            lambda *_: None,
            30_000,
            lambda pid, fd: told.get((pid, fd), ""),
        )
        group.begin(assign, 0)
        group.on_message(1, Hello(LAUNCH, ATTEMPT, 0, 100, "here", address, "0", fd), 0)
        (event,) = group.check_alive(30_001)
        assert isinstance(event, ev.AttemptFailed)
        assert ("is at totals.py:88 in check" in event.reason) is is_told
        assert bool(event.fingerprints) is is_told
        assert not event.is_fatal


def test_slots_that_are_being_awaited_are_not_silent() -> None:
    driver = Driver()
    driver.hello(11, partition=1)
    assert driver.group.check_alive(1e9) == []


def test_the_first_record_is_the_earliest_of_all_slots(driver: Driver) -> None:
    assert driver.group.first_record_ms is None
    driver.hear(10, Progress(ATTEMPT, {}, first_record_ms=2_000))
    driver.hear(11, Progress(ATTEMPT, {}, first_record_ms=1_000))
    assert driver.group.first_record_ms == 1_000


def test_commands_go_to_all_or_to_one(driver: Driver) -> None:
    driver.sent.clear()
    driver.group.broadcast(Commit(7))
    driver.group.send(1, Commit(8))
    assert driver.sent == [(10, Commit(7)), (11, Commit(7)), (11, Commit(8))]


def test_after_the_end_every_slot_is_told_and_none_is_heard(driver: Driver) -> None:
    driver.sent.clear()
    driver.group.end("restart")
    assert sorted(peer for peer, message in driver.sent if isinstance(message, Shutdown)) == [10, 11]
    assert driver.hear(10, Acked(ATTEMPT, 7, SlotSnapshot())) == []
    assert driver.group.on_lost(10) == []
    assert driver.group.on_host_ended(Retryable("x"), 0.0) == []
    assert driver.group.check_alive(1e9) == []


def test_a_slot_that_arrives_after_the_end_is_sent_away() -> None:
    driver = Driver()
    driver.hello(11, partition=1)
    driver.group.end("the job has ended")
    driver.hello(10, partition=0)
    assert [(peer, type(message)) for peer, message in driver.sent] == [(11, Shutdown), (10, Shutdown)]


def test_slots_with_paused_splits_hear_how_far_the_slowest_is(driver: Driver) -> None:
    driver.sent.clear()
    assert driver.hear(10, LowestWatermarks(ATTEMPT, {"g": 9}, True)) == []
    driver.sent.clear()
    driver.hear(11, LowestWatermarks(ATTEMPT - 1, {"g": 1}, False))
    assert driver.sent == [], "of another attempt"
    driver.hear(11, LowestWatermarks(ATTEMPT, {"g": 5}, False))
    assert driver.sent == [(10, GroupWatermarks({"g": 5})), (11, GroupWatermarks({"g": 5}))]
