"""HybridEnumerator: when the next source's turn has come, and where it begins then."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from onceflow.connectors.collections.fixed_splits import FixedSplits
from onceflow.connectors.hybrid.enumerator import HybridEnumerator
from onceflow.connectors.hybrid.source import HybridSource
from onceflow.connectors.hybrid.stages import inner, number_of
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import Json, SplitState, WaitingEnumerator
from onceflow.runtime.errors import DataLossError
from onceflow.runtime.testing.connectors.folder_source import FolderSource, add_file

SCHEMA = pa.schema([("n", pa.int64())])


class Reading:
    """A folder that is read to its end, then a folder that grows; with the driver's part of the engine."""

    def __init__(self, path: Path) -> None:
        self.history, self.live = path / "history", path / "live"
        for folder in (self.history, self.live):
            folder.mkdir()
        self.clock = ManualClock()
        self.source = HybridSource(
            [
                FolderSource(str(self.history), SCHEMA, is_bounded=True),
                FolderSource(str(self.live), SCHEMA, look_every_ms=500),
            ]
        )
        self.known: dict[str, SplitState] = {}
        self.finished: Json = None

    def add(self, folder: Path, n: int) -> None:
        add_file(folder, n, [{"n": n}])

    def begin(self) -> list[str]:
        return self._take(self.enumerator().initial_splits())

    def look(self, enumerator: HybridEnumerator) -> list[str]:
        return self._take(enumerator.discover_unfinished(frozenset(self.known), self.finished))

    def finish(self, *split_ids: str) -> None:
        done = [self.known.pop(split_id) for split_id in split_ids]
        self.finished = self.source.add_finished(self.finished, done)

    def enumerator(self) -> HybridEnumerator:
        return self.source.open_enumerator("job", self.clock)

    def _take(self, splits: object) -> list[str]:
        assert isinstance(splits, list)
        self.known |= {split.split_id: split for split in splits}
        return [split.split_id for split in splits]


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    return Reading(tmp_path)


def test_the_second_begins_when_all_of_the_first_is_read_where_it_was_at_the_very_first_start(
    reading: Reading,
) -> None:
    for n in (1, 2):
        reading.add(reading.history, n)
    reading.add(reading.live, 1)
    first, second = reading.begin()
    assert {number_of(first), number_of(second)} == {0}
    enumerator = reading.enumerator()
    reading.finish(first)
    assert reading.look(enumerator) == []
    reading.add(reading.live, 2)
    reading.finish(second)
    (live,) = reading.look(enumerator)
    assert number_of(live) == 1
    assert inner(reading.known[live]).split_id.endswith("1.jsonl")
    reading.clock.advance(500)
    (new,) = reading.look(enumerator)
    assert inner(reading.known[new]).split_id.endswith("2.jsonl"), "what came since is discovered"


def test_a_restart_between_the_two_goes_on_with_the_second(reading: Reading) -> None:
    reading.add(reading.history, 1)
    reading.add(reading.live, 1)
    (only,) = reading.begin()
    reading.finish(only)
    assert [number_of(found) for found in reading.look(reading.enumerator())] == [1]
    assert reading.look(reading.enumerator()) == [], "they are known now"


def test_what_the_second_has_finished_is_not_read_again(reading: Reading) -> None:
    reading.add(reading.history, 1)
    reading.add(reading.live, 1)
    reading.finish(*reading.begin())
    enumerator = reading.enumerator()
    reading.finish(*reading.look(enumerator))
    reading.clock.advance(500)
    assert reading.look(enumerator) == []
    reading.add(reading.live, 2)
    reading.clock.advance(499)
    assert reading.look(enumerator) == [], "as often as the source asks for"
    reading.clock.advance(1)
    assert [number_of(found) for found in reading.look(enumerator)] == [1]


def test_where_there_is_no_history_the_second_begins_at_once(reading: Reading) -> None:
    reading.add(reading.live, 1)
    assert [number_of(found) for found in reading.begin()] == [1]


def test_where_there_is_nothing_yet_the_second_is_looked_at(reading: Reading) -> None:
    assert reading.begin() == []
    enumerator = reading.enumerator()
    reading.add(reading.live, 1)
    reading.clock.advance(500)
    assert [number_of(found) for found in reading.look(enumerator)] == [1]


def test_what_is_lost_before_its_time_comes_is_told_at_the_next_start(reading: Reading) -> None:
    reading.add(reading.history, 1)
    reading.add(reading.live, 1)
    reading.begin()
    reading.enumerator().check_restored([*reading.known.values()])
    for file in reading.live.iterdir():
        file.unlink()
    with pytest.raises(DataLossError):
        reading.enumerator().check_restored([*reading.known.values()])


class Slow(FixedSplits):
    """An enumerator whose calls wait for something."""

    def __init__(self, reason: str | None) -> None:
        super().__init__([])
        self.reason = reason

    def waiting_for(self) -> str | None:
        return self.reason


def test_what_one_of_the_sources_waits_for_is_told() -> None:
    first, second = Slow(None), Slow(None)
    hybrid = HybridEnumerator([FixedSplits([]), first, second], ManualClock())
    assert isinstance(hybrid, WaitingEnumerator)
    assert hybrid.waiting_for() is None
    second.reason = "the broker does not answer"
    assert hybrid.waiting_for() == "the broker does not answer"
