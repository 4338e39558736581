"""How far event time is for each key group, across restores at another parallelism."""

from __future__ import annotations

import numpy as np

from onceflow.runtime.operators.lateness import Lateness
from onceflow.runtime.records import WATERMARK_MIN_MS

GROUPS = 8
HASHES = np.arange(1_000, dtype=np.uint64) * np.uint64(0x9E37_79B9_7F4A_7C15)


def restored(key_groups: range, *watermarks: tuple[int, int, int]) -> Lateness:
    lateness = Lateness(GROUPS, key_groups)
    lateness.restore(watermarks)
    return lateness


def test_without_a_restore_one_watermark_holds_for_all() -> None:
    lateness = Lateness(GROUPS, range(4))
    lateness.watermark_ms = 70
    assert not lateness.has_floors
    assert lateness.fired_ms(HASHES) == 70
    assert lateness.as_json() == [[0, 4, 70]]


def test_each_key_is_held_against_what_fired_for_its_group() -> None:
    lateness = restored(range(8), (0, 4, 100), (4, 8, 50))
    lateness.watermark_ms = 60
    assert set(lateness.floors(HASHES).tolist()) == {100, 50}
    fired = np.asarray(lateness.fired_ms(HASHES))
    assert set(fired.tolist()) == {100, 60}
    assert (fired == np.maximum(lateness.floors(HASHES), 60)).all()
    assert lateness.as_json() == [[0, 4, 100], [4, 8, 60]]


def test_of_two_floors_the_later_counts_and_those_of_others_do_not() -> None:
    lateness = restored(range(2, 6), (0, 8, 10), (0, 4, 30))
    assert lateness.as_json() == [[2, 4, 30], [4, 6, 10]]


def test_floors_are_forgotten_once_the_watermark_is_past_them_and_no_earlier() -> None:
    lateness = restored(range(8), (0, 8, 100))
    lateness.watermark_ms = 99
    lateness.forget_passed()
    assert lateness.has_floors
    lateness.watermark_ms = 100
    lateness.forget_passed()
    assert not lateness.has_floors
    assert set(lateness.floors(HASHES).tolist()) == {WATERMARK_MIN_MS}


def test_what_is_written_is_restored_in_parts() -> None:
    whole = restored(range(8), (0, 3, 100), (3, 8, 50)).as_json()
    parts = [restored(part, *whole).as_json() for part in (range(2), range(2, 8))]  # type: ignore[arg-type]
    assert parts == [[[0, 2, 100]], [[2, 3, 100], [3, 8, 50]]]
