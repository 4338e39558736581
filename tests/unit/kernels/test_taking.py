"""Texts by number: what is read, and what is written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.runtime.kernels.ops import ops
from tests.unit.guarded_memory import before_closed_page

if not ops().are_compiled:
    pytest.skip("needs numba", allow_module_level=True)

from onceflow.runtime.kernels.taking import SLACK, copy_texts, measure_texts, place_texts

TEXTS = st.lists(st.binary(max_size=70), min_size=1, max_size=12)


@given(TEXTS, st.data(), st.sampled_from([np.int32, np.int64]))
def test_texts_lie_one_after_the_other_and_nothing_behind_the_source_is_read(
    texts: list[bytes], data: st.DataObject, width: type[np.integer]
) -> None:
    slots = data.draw(st.lists(st.integers(0, len(texts) - 1), min_size=1, max_size=20))
    bounds = np.cumsum([0, *map(len, texts)], dtype=width)
    new_bounds = np.zeros(len(slots) + 1, np.int64)
    total = measure_texts(bounds, np.array(slots), new_bounds)
    assert total == sum(len(texts[slot]) for slot in slots)
    target = np.full(total + SLACK + 64, 7, np.uint8)
    with before_closed_page() as put:
        source = put(b"".join(texts))
        end = source.address + source.size
        copy_texts(bounds, source.address, end, np.array(slots), new_bounds, target.ctypes.data)
        del source
    assert target[:total].tobytes() == b"".join(texts[slot] for slot in slots)
    assert (target[total + SLACK :] == 7).all()


@given(TEXTS, st.data(), st.sampled_from([np.int32, np.int64]), st.integers(-3, 3))
def test_texts_are_placed_in_one_pass_if_there_is_room(
    texts: list[bytes], data: st.DataObject, width: type[np.integer], spare: int
) -> None:
    """Goal: where two passes are too many, the room is a bound and no promise."""
    slots = data.draw(st.lists(st.integers(0, len(texts) - 1), min_size=1, max_size=20))
    before = data.draw(st.integers(0, 9))
    bounds = np.cumsum([0, *map(len, texts)], dtype=width)
    expected = b"".join(texts[slot] for slot in slots)
    new_bounds = np.full(len(slots) + 1, before, np.int64)
    room = max(0, before + len(expected) + spare)
    target = np.full(room + SLACK + 64, 7, np.uint8)
    with before_closed_page() as put:
        source = put(b"".join(texts))
        end = source.address + source.size
        placed = place_texts(
            bounds, source.address, end, np.array(slots), new_bounds, target.ctypes.data, room
        )
        del source
    assert (target[room + SLACK :] == 7).all()
    assert (target[:before] == 7).all()
    if before + len(expected) > room:
        assert placed == -1
    else:
        assert placed == new_bounds[-1] == before + len(expected)
        assert target[before:placed].tobytes() == expected
        assert np.diff(new_bounds).tolist() == [len(texts[slot]) for slot in slots]
