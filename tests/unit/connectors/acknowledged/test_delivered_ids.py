"""Which messages of a queue count already, when it forgets, delivers again, and has other readers."""

from __future__ import annotations

import random

import pytest

from onceflow.connectors.acknowledged.delivered_ids import DeliveredIds, digest

REMEMBER_MS, RESTORED_MS = 1_000, 10_000
A, B, C = digest("a"), digest("b"), digest("c")


def ids(packed: str = "", now_ms: float = 0) -> DeliveredIds:
    return DeliveredIds(packed, now_ms, REMEMBER_MS, RESTORED_MS)


def test_ids_are_known_by_sixteen_bytes() -> None:
    assert {len(digest(each)) for each in ("", "a", "x" * 1_000)} == {16}
    assert len({A, B, C}) == 3


def test_what_is_held_or_was_acknowledged_a_moment_ago_does_not_count_again() -> None:
    known = ids()
    assert known.add(A, False)
    assert not known.add(A, True)
    known.on_barrier(1)
    assert known.add(B, False)
    known.acknowledged(1, 100, is_told=True)
    assert not known.add(A, True), "the server did not hear it"
    assert not known.add(B, True)
    known.on_barrier(2)
    known.acknowledged(2, 200, is_told=True)
    known.forget(1_150, 1_150)
    assert len(known) == 2, "the first was delivered again, and acknowledged again, later"
    known.forget(1_200, 1_200)
    assert len(known) == 0
    assert known.add(A, False)


def test_a_checkpoint_that_was_aborted_is_acknowledged_with_the_next() -> None:
    known = ids()
    known.add(A, False)
    known.on_barrier(1)
    known.add(B, False)
    known.on_barrier(2)
    known.acknowledged(2, 0, is_told=True)
    known.forget(REMEMBER_MS, REMEMBER_MS)
    assert len(known) == 0


def test_what_an_earlier_reader_held_is_known_until_the_queue_is_read_beyond_it() -> None:
    before = ids()
    before.add(A, False)
    before.add(B, False)
    after = ids(before.packed(), now_ms=5_000)
    assert not after.add(A, True)
    after.forget(5_000 + RESTORED_MS, 5_000 + RESTORED_MS)
    assert not after.add(B, True), "nothing new has come yet"
    assert after.add(C, False)
    third = ids(after.packed(), now_ms=0)
    assert not third.add(B, True)
    assert third.add(digest("d"), False)
    third.forget(RESTORED_MS - 1, RESTORED_MS - 1)
    assert not third.add(A, True)
    third.forget(RESTORED_MS, RESTORED_MS)
    assert third.add(C, True), "forgotten by now"


@pytest.mark.parametrize("seed", range(30))
def test_each_message_counts_once_whatever_dies(seed: int) -> None:
    """The queue loses acknowledgements of its last second, readers die, and checkpoints are aborted."""
    chance = random.Random(seed)
    queue = [digest(str(n)) for n in range(40)]
    acknowledged: list[tuple[float, set[bytes]]] = []
    """What the queue heard, and when."""
    now_ms, number, delivered = 0.0, 0, 0
    counted: list[bytes] = []
    durable: tuple[str, list[bytes]] = ("", [])
    known, at_barrier = ids(), dict[int, tuple[str, list[bytes], set[bytes]]]()
    since, ever = set[bytes](), set[bytes]()
    """What was delivered and is not acknowledged, and what ever was."""
    while len(durable[1]) < len(queue):
        now_ms += chance.randrange(1, 400)
        gone = {each for _, heard in acknowledged for each in heard}
        match chance.randrange(6):
            case 0 | 1:
                for each in queue[delivered : delivered + chance.randrange(20)]:
                    delivered += 1
                    if each in gone:
                        continue
                    since.add(each)
                    if known.add(each, is_redelivered=each in ever):
                        counted.append(each)
                    ever.add(each)
            case 2:
                number += 1
                known.forget(now_ms, now_ms)
                known.on_barrier(number)
                at_barrier[number] = known.packed(), list(counted), set(since)
            case 3 if number in at_barrier:
                packed, durable_rows, heard = at_barrier[number]
                durable = packed, durable_rows
                if chance.random() < 0.8:  # else the reader dies before it is told
                    known.acknowledged(number, now_ms, is_told=True)
                    acknowledged.append((now_ms, heard))
                    since -= heard
                at_barrier.clear()
            case 4:  # the server is killed: it has forgotten what it heard last, and delivers again
                acknowledged = [(at, heard) for at, heard in acknowledged if now_ms - at >= REMEMBER_MS]
                known.reconnected(now_ms)
                delivered, since = 0, set()
                at_barrier.clear()
            case 5 if chance.random() < 0.3:  # the reader dies
                known, counted = ids(durable[0], now_ms), list(durable[1])
                delivered, since = 0, set()
                at_barrier.clear()
    assert sorted(durable[1]) == sorted(queue)


def test_a_server_that_may_be_dead_is_no_proof_that_it_has_kept_an_acknowledgement() -> None:
    known = ids()
    known.add(A, False)
    known.on_barrier(1)
    known.acknowledged(1, 100, is_told=True)
    known.forget(alive_ms=900, now_ms=5_000)
    known.reconnected(6_000)
    assert not known.add(A, True)


def test_what_the_server_was_not_told_comes_again_however_late() -> None:
    known = ids()
    known.add(A, False)
    known.on_barrier(1)
    known.reconnected(50)
    known.acknowledged(1, 100, is_told=False)
    known.forget(100 + REMEMBER_MS, 100 + REMEMBER_MS)
    assert not known.add(A, True)
