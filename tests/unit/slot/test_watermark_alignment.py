"""Who waits for whom, and who is told what: slots and the driver of one attempt, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow import Job
from onceflow.runtime.contracts import WatermarkStrategy
from onceflow.runtime.contracts.watermarks import WatermarkAlignment
from onceflow.runtime.control.heartbeat import alignment_pause_ms
from onceflow.runtime.errors import GraphError, OptionError
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS
from onceflow.runtime.slot import watermark_alignment
from onceflow.runtime.slot.watermark_alignment import AlignedSplits, GroupsOfAttempt, SlotReports, lowest
from onceflow.runtime.testing.mutation import Mutant, mutated

DRIFT_MS = 100
ALIGNMENT = WatermarkAlignment(DRIFT_MS, "orders")


def splits_at(lowest_ms: int | None) -> AlignedSplits:
    splits = AlignedSplits(ALIGNMENT)
    splits.lowest_ms = lowest_ms
    return splits


def test_a_split_waits_beyond_the_drift_and_goes_on_at_half_of_it() -> None:
    splits = splits_at(0)
    assert splits.turn({"a": 0, "b": DRIFT_MS}) == (frozenset(), frozenset())
    assert splits.turn({"a": 0, "b": DRIFT_MS + 1}) == ({"b"}, frozenset())
    assert splits.turn({"a": 0, "b": DRIFT_MS + 1}) == (frozenset(), frozenset()), "told once"
    splits.lowest_ms = 50
    assert splits.turn({"a": 50, "b": DRIFT_MS + 1}) == (frozenset(), frozenset())
    splits.lowest_ms = 51
    assert splits.turn({"a": 51, "b": DRIFT_MS + 1}) == (frozenset(), {"b"})


def test_before_anything_is_known_of_the_others_nobody_runs_ahead() -> None:
    splits = AlignedSplits(ALIGNMENT)
    assert splits.turn({"old": WATERMARK_MIN_MS, "new": -1_000}) == ({"new"}, frozenset())


def test_if_nobody_counts_elsewhere_the_own_splits_wait_for_each_other() -> None:
    splits = splits_at(None)
    assert splits.turn({"a": 0, "b": 1_000}).pause == {"b"}
    assert splits.turn({"b": 1_000}).resume == {"b"}, "the other has finished, or is idle"
    assert splits.turn({}) == (frozenset(), frozenset())


def test_what_the_slot_sees_itself_is_newer_than_what_it_is_told() -> None:
    assert splits_at(5_000).turn({"back": 0, "b": 5_000}).pause == {"b"}, "one began to count again"


def test_the_end_of_time_is_ahead_and_no_number_is_too_large() -> None:
    splits = splits_at(WATERMARK_MAX_MS - 1)
    assert splits.turn({"a": WATERMARK_MAX_MS - 1}) == (frozenset(), frozenset())


def test_people_hear_which_splits_wait_and_not_of_hundreds() -> None:
    splits = splits_at(0)
    assert splits.describe("src") == ""
    splits.turn({"a": 0, **{f"t-{n}": 1_000 for n in range(5)}})
    assert splits.describe("src") == (
        "source 'src': t-0, t-1, t-2 and 2 more paused: more than 0.1 s ahead of the slowest split of "
        "watermark alignment group 'orders'"
    )


def test_a_slot_reports_changes_and_not_too_often() -> None:
    reports = SlotReports(50)
    assert reports.is_due({"g": None}, False, now_ms=0)
    assert not reports.is_due({"g": None}, False, now_ms=1_000), "nothing new"
    assert reports.is_due({"g": 5}, False, now_ms=1_000)
    assert not reports.is_due({"g": 6}, False, now_ms=1_049)
    assert reports.is_due({"g": 6}, False, now_ms=1_050)
    assert reports.is_due({"g": 6}, True, now_ms=1_100), "it wants to hear of every change now"


def test_many_slots_report_less_often() -> None:
    assert [alignment_pause_ms(slots) for slots in (1, 5, 200)] == [50, 50, 2_000]


def test_the_lowest_of_a_group_is_known_once_all_slots_have_spoken() -> None:
    groups = GroupsOfAttempt(slots=2)
    assert groups.report(0, {"g": 7}, False) == [0]
    assert groups.lowest == {"g": WATERMARK_MIN_MS}
    assert groups.report(1, {"g": 5}, False) == [1]
    assert groups.lowest == {"g": 5}
    assert groups.report(0, {"g": None}, False) == [0], "it had not heard of the five yet"
    assert groups.report(0, {"g": None}, True) == []
    assert groups.report(1, {"g": None}, False) == [0, 1], "the one that waits hears, too"
    assert groups.lowest == {"g": None}


def test_groups_do_not_wait_for_each_other() -> None:
    groups = GroupsOfAttempt(slots=2)
    groups.report(0, {"a": 1, "b": 100}, False)
    groups.report(1, {"a": 2, "b": 200}, False)
    assert groups.lowest == {"a": 1, "b": 100}


def test_a_drift_needs_a_length_and_a_group_a_name() -> None:
    times = WatermarkStrategy.monotonous("ts")
    assert times.with_watermark_alignment("5 min").alignment == WatermarkAlignment(300_000, "job")
    for drift, group, said in (
        (0, "g", "max_drift=0: give 1 ms or more"),
        (5, "", "group='': give the group"),
    ):
        with pytest.raises(OptionError, match=said):
            times.with_watermark_alignment(drift, group)


@dataclass(frozen=True)
class Unpausable:
    """A source whose readers can't pause."""

    schema: pa.Schema = pa.schema([("ts", pa.int64())])  # noqa: RUF009 - it does not change
    record_type: type | None = None
    is_bounded: bool = False

    def open_enumerator(self, job: str, clock: Any) -> Any: ...

    def open_reader(self, context: Any) -> Any: ...


def test_a_source_that_cannot_wait_is_refused_when_the_graph_is_built() -> None:
    times = WatermarkStrategy.monotonous("ts")
    Job("j").source(Unpausable(), watermarks=times, uid="s")
    said = r"source 's': watermark alignment leaves splits unread .* the readers of Unpausable can't"
    with pytest.raises(GraphError, match=said):
        Job("j").source(Unpausable(), watermarks=times.with_watermark_alignment("1 h"), uid="s")


# --- A model of many slots ---


@dataclass
class ModelSlot:
    """Splits that read what they have as soon as they may, and what is on its way to and from the driver."""

    left: dict[str, list[int]]
    aligned: AlignedSplits = field(default_factory=lambda: AlignedSplits(ALIGNMENT))
    reports: SlotReports = field(default_factory=lambda: SlotReports(0))
    at: dict[str, int] = field(default_factory=dict)
    told: list[int | None] = field(default_factory=list)

    def watermarks(self) -> dict[str, int]:
        return {name: self.at.get(name, WATERMARK_MIN_MS) for name, times in self.left.items() if times}

    def readable(self) -> list[str]:
        self.aligned.turn(self.watermarks())
        return [name for name in self.watermarks() if name not in self.aligned.paused]


class Model:
    """One attempt; what happens next is a choice."""

    def __init__(self, slots: list[list[list[int]]]) -> None:
        self.slots = [
            ModelSlot({f"{n}-{i}": sorted(times) for i, times in enumerate(splits)})
            for n, splits in enumerate(slots)
        ]
        self.driver = GroupsOfAttempt(len(slots))
        self.mail: list[tuple[int, int | None, bool]] = []
        self.ahead_ms = 0
        """The most that a split was ahead of the slowest of all when it was read."""

    def moves(self) -> Iterator[tuple[str, int, str]]:
        for number, slot in enumerate(self.slots):
            yield from (("read", number, name) for name in slot.readable())
            if slot.told:
                yield "hear", number, ""
            own = lowest([*slot.watermarks().values()])
            if slot.reports._said != ({"orders": own}, bool(slot.aligned.paused)):
                yield "report", number, ""
        if self.mail:
            yield "mail", 0, ""

    def do(self, what: str, number: int, name: str) -> None:
        slot = self.slots[number]
        match what:
            case "read":
                slowest = lowest([ms for each in self.slots for ms in each.watermarks().values()])
                assert slowest is not None
                if slowest > WATERMARK_MIN_MS:
                    self.ahead_ms = max(self.ahead_ms, slot.watermarks()[name] - slowest)
                slot.at[name] = slot.left[name].pop(0)
            case "report":
                own, waits = lowest([*slot.watermarks().values()]), bool(slot.aligned.paused)
                assert slot.reports.is_due({"orders": own}, waits, 0)
                self.mail.append((number, own, waits))
            case "mail":
                sender, own, waits = self.mail.pop(0)
                for untold in self.driver.report(sender, {"orders": own}, waits):
                    self.slots[untold].told.append(self.driver.lowest["orders"])
            case "hear":
                slot.aligned.lowest_ms = slot.told.pop(0)


TIMES = st.lists(st.integers(0, 1_000), max_size=6)
SLOTS = st.lists(st.lists(TIMES, max_size=3), min_size=1, max_size=4)


def run(slots: list[list[list[int]]], choose: Callable[[int], int]) -> Model:
    """All that there is to do, in any order."""
    model = Model(slots)
    for _ in range(2_000):
        moves = list(model.moves())
        if not moves:
            return model
        model.do(*moves[choose(len(moves))])
    raise AssertionError("it does not come to an end")


@given(SLOTS, st.data())
def test_everything_is_read_in_the_end_and_no_split_runs_ahead(
    slots: list[list[list[int]]], choose: st.DataObject
) -> None:
    model = run(slots, lambda n: choose.draw(st.integers(0, n - 1)))
    assert all(not left for slot in model.slots for left in slot.left.values()), "somebody waits for ever"
    assert model.ahead_ms <= DRIFT_MS


def _told_the_highest(said: list[int | None]) -> int | None:
    return max((each for each in said if each is not None), default=None)


def test_a_group_that_goes_by_its_fastest_split_is_found() -> None:
    slow, quick = list(range(0, 1_000, 10)), list(range(0, 1_000, 200))
    assert run([[slow], [quick]], random.Random(1).randrange).ahead_ms <= DRIFT_MS
    with mutated(Mutant("fastest", [(watermark_alignment, "lowest", _told_the_highest)])):
        assert run([[slow], [quick]], random.Random(1).randrange).ahead_ms > DRIFT_MS
