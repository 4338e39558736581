"""Memory that is used again: never while somebody has bytes of it."""

from __future__ import annotations

import gc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.runtime.arrays.recycled_memory import BLOCK_BYTES, KEPT_MS, Bytes, NewMemory, RecycledMemory

MB = 1 << 20


def claim(memory: RecycledMemory | NewMemory, size: int, fill: int, spare: int = 0) -> Bytes:
    memory.reserve(size + spare)[:] = fill
    return memory.claim(size)


@pytest.mark.parametrize("make", [RecycledMemory, NewMemory])
@given(
    steps=st.lists(
        st.tuples(st.sampled_from([0, 1, 63, 64, 1000, 3 * MB, BLOCK_BYTES, 9 * MB]), st.integers(0, 9)),
        max_size=25,
    )
)
def test_bytes_stay_as_they_are_while_anybody_has_them(
    make: type[RecycledMemory | NewMemory], steps: list[tuple[int, int]]
) -> None:
    memory = make()
    held: list[tuple[pa.Buffer, int]] = []
    for number, (size, dropped) in enumerate(steps):
        fill = number % 251 + 1
        held.append((pa.py_buffer(claim(memory, size, fill, spare=size % 7)), fill))
        assert held[-1][0].size == size
        assert held[-1][0].address % 8 == 0
        del held[: dropped - 5 if dropped > 5 else 0]
        for buffer, expected in held:
            content = np.frombuffer(buffer, np.uint8)
            assert (content == expected).all()


def test_a_block_is_used_again_once_nobody_has_bytes_of_it() -> None:
    memory = RecycledMemory()
    first = claim(memory, 5 * MB, 1)
    address = first.ctypes.data
    second = claim(memory, 5 * MB, 2)
    assert second.ctypes.data not in range(address, address + 5 * MB)
    kept = pa.py_buffer(first).slice(7, 1)  # a single byte, out of Arrow
    del first
    third = claim(memory, 5 * MB, 3)
    assert third.ctypes.data != address
    assert kept.to_pybytes() == b"\x01"
    del kept
    gc.collect()
    assert claim(memory, 5 * MB, 4).ctypes.data == address
    assert (second == 2).all()
    assert (third == 3).all()


def test_when_all_is_dropped_the_same_bytes_are_used_again() -> None:
    memory = RecycledMemory()
    addresses = {claim(memory, 1000, n).ctypes.data for n in range(100)}
    assert len(addresses) == 1


def test_what_was_not_claimed_is_reserved_again() -> None:
    memory = RecycledMemory()
    kept = claim(memory, 100, 1, spare=5000)
    behind = claim(memory, 100, 2)
    assert 100 <= behind.ctypes.data - kept.ctypes.data < 100 + 64
    memory.reserve(700)[:] = 9  # and then something went wrong
    memory.reserve(2 * BLOCK_BYTES)[:] = 9  # and again
    assert (claim(memory, 10, 3) == 3).all()
    assert (kept == 1).all()
    assert (behind == 2).all()


def test_idle_blocks_are_let_go_and_others_are_not() -> None:
    memory = RecycledMemory()
    held = [claim(memory, 5 * MB, n) for n in range(4)]
    addresses = {bytes_.ctypes.data for bytes_ in held}
    del held[:2]
    memory.let_go(0.0)
    memory.let_go(KEPT_MS - 1)
    assert len(memory._others) == 3, "two are free, for less than that time"
    memory.let_go(KEPT_MS)
    assert len(memory._others) == 1
    assert (held[0] == 2).all()
    more = [claim(memory, 5 * MB, 9) for _ in range(3)]
    assert (held[0] == 2).all()
    assert (held[1] == 3).all()
    del more, held, addresses


def test_a_block_that_was_needed_in_between_is_not_idle() -> None:
    memory = RecycledMemory()
    held = [claim(memory, 5 * MB, n) for n in range(2)]
    del held[0]
    memory.let_go(0.0)
    held.append(claim(memory, 5 * MB, 5))  # in the first block again
    held.append(claim(memory, 5 * MB, 6))
    del held[:]
    memory.let_go(KEPT_MS)
    assert len(memory._others) == 2
