"""How far event time is for each key group, across restores at another parallelism."""

from __future__ import annotations

from typing import Any

import numpy as np

from onceflow.runtime.operators.windows.lateness import Lateness

GROUPS = 8
HASHES = np.arange(1_000, dtype=np.uint64) * np.uint64(0x9E37_79B9_7F4A_7C15)


def restored(key_groups: range, *metas: dict[str, Any]) -> Lateness:
    lateness = Lateness(GROUPS, key_groups)
    lateness.restore(metas)
    return lateness


def fired(*runs: list[int]) -> dict[str, Any]:
    return {"watermarks": list(runs)}


def advance(lateness: Lateness, to_ms: int) -> Lateness:
    lateness.reached_ms = to_ms
    lateness.note_all_fired()
    return lateness


def test_without_a_restore_one_watermark_holds_for_all() -> None:
    lateness = advance(Lateness(GROUPS, range(4)), 70)
    assert not lateness.has_floors
    assert lateness.late_until(HASHES) == 70
    assert lateness.has_fired(HASHES, 10) is None
    assert lateness.as_meta() == fired([0, 4, 70])


def test_windows_that_have_not_fired_yet_are_told_from_event_time() -> None:
    lateness = advance(Lateness(GROUPS, range(4)), 70)
    lateness.reached_ms = 90
    assert lateness.late_until(HASHES) == 90
    assert lateness.as_meta() == {**fired([0, 4, 70]), "reached": [[0, 4, 90]]}
    again = restored(range(4), lateness.as_meta())
    assert set(np.asarray(again.late_until(HASHES)).tolist()) >= {90}
    has_fired = again.has_fired(HASHES, 80)
    assert has_fired is not None
    assert not has_fired.any()


def test_each_key_is_held_against_what_fired_for_its_group() -> None:
    lateness = restored(range(8), fired([0, 4, 100], [4, 8, 50]))
    lateness.reached_ms = 60
    late = np.asarray(lateness.late_until(HASHES))
    assert set(late.tolist()) == {100, 60}
    has_fired = lateness.has_fired(HASHES, 80)
    assert has_fired is not None
    assert (has_fired == (late == 100)).all()


def test_of_two_floors_the_later_counts_and_those_of_others_do_not() -> None:
    lateness = restored(range(2, 6), fired([0, 8, 10]), fired([0, 4, 30]))
    assert lateness.as_meta() == fired([2, 4, 30], [4, 6, 10])


def test_floors_are_forgotten_once_the_watermark_is_past_them_and_no_earlier() -> None:
    lateness = advance(restored(range(8), fired([0, 8, 100])), 99)
    assert lateness.has_floors
    assert not advance(lateness, 100).has_floors


def test_what_is_written_is_restored_in_parts() -> None:
    whole = restored(range(8), fired([0, 3, 100], [3, 8, 50])).as_meta()
    parts = [restored(part, whole).as_meta() for part in (range(2), range(2, 8))]
    assert parts == [fired([0, 2, 100]), fired([2, 3, 100], [3, 8, 50])]
