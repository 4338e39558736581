"""What every Source must do when its splits go on elsewhere: with other readers, or in another process."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from unittest import SkipTest

from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import (
    Fetch,
    Json,
    ProjectableSource,
    Source,
    SourceReader,
    SplitEnumerator,
    SplitState,
)
from onceflow.runtime.testing.conformance import quotations
from onceflow.runtime.testing.conformance.checking import polled, through_json
from onceflow.runtime.testing.conformance.sources import initial_splits, open_reader, read


class ElsewhereReading(Protocol):
    """Runs one of READING_SCENARIOS on the same source in a process that knows nothing of this one."""

    def __call__(self, scenario: str, arguments: Mapping[str, Json]) -> Any:
        """What the scenario returns. Raises what it has raised."""
        ...


@dataclass(frozen=True)
class PlayedSource:
    """A bounded source with rows in two splits or more. `elsewhere`: None if what it reads is in the memory
    of this process only."""

    source: Source
    elsewhere: ElsewhereReading | None = None


@quotations.of(SourceReader.snapshot, "after exactly the rows that poll returned")
def splits_may_go_to_other_readers(case: PlayedSource) -> None:
    """Two subtasks read a part; then one reads on, or three do."""
    splits = initial_splits(case.source)
    whole, _, _ = read(open_reader(case.source), splits)
    for parallelism in (1, 3):
        before: Counter[str] = Counter()
        positions: list[SplitState] = []
        for part in dealt(splits, 2):
            reader = open_reader(case.source)
            rows, _, _ = read(reader, part, polls_max=2, is_closed=False)
            before += rows
            positions += [through_json(split) for split in reader.snapshot()]
            reader.close()
        after: Counter[str] = Counter()
        for part in dealt(positions, parallelism):
            rows, _, _ = read(open_reader(case.source), part)
            after += rows
        lost, more = whole - before - after, before + after - whole
        assert not lost, f"2 readers, then {parallelism}: lost are {dict(lost)}"
        assert not more, f"2 readers, then {parallelism}: doubled are {dict(more)}"


@quotations.of(SourceReader.snapshot, "Where to go on, for every split ever added")
def a_snapshot_does_not_change_afterwards(case: PlayedSource) -> None:
    """It is written to the manifest while the reader goes on."""
    reader = open_reader(case.source)
    reader.add_splits(initial_splits(case.source))
    for _ in range(4):
        taken = reader.snapshot()
        text = as_text(taken)
        reader.poll(100, 1)
        assert as_text(taken) == text, f"the snapshot was {text}, and after a poll it is {as_text(taken)}"
    reader.close()


@quotations.of(Fetch, "`records` has the source's schema.")
def all_rows_have_the_columns_of_the_source(case: PlayedSource) -> None:
    for columns in columns_of(fetches(case.source)):
        assert columns == case.source.schema, f"the source has {case.source.schema}, and rows have {columns}"


@quotations.of(ProjectableSource.project, "with only these columns in its schema, in the same order.")
def a_projection_has_the_same_rows(case: PlayedSource) -> None:
    source = case.source
    if not isinstance(source, ProjectableSource):
        raise SkipTest("the source is no ProjectableSource")
    rows = [row for fetch in fetches(source) for row in fetch.records.to_pylist()]
    for name in source.schema.names:
        fewer = source.project(frozenset({name}))
        assert fewer.schema.names == [name], f"project({name!r}) has the columns {fewer.schema.names}"
        found = Counter(repr(row) for fetch in fetches(fewer) for row in fetch.records.to_pylist())
        expected = Counter(repr({name: row[name]}) for row in rows)
        assert found == expected, f"project({name!r}) has other rows: {dict(expected - found)} are lost"


@quotations.of(SplitEnumerator.check_restored, "where reading can't go on exactly")
def what_was_just_read_can_be_restored(case: PlayedSource) -> None:
    reader = open_reader(case.source)
    read(reader, initial_splits(case.source), polls_max=2, is_closed=False)
    positions = [through_json(split) for split in reader.snapshot()]
    reader.close()
    enumerator = case.source.open_enumerator("conformance", SystemClock())
    enumerator.check_restored(positions)
    enumerator.close()


@quotations.of(SplitState, "`split_id` is unique within the source and stable for ever")
def a_new_process_finds_the_same_splits(case: PlayedSource) -> None:
    here = sorted(split.split_id for split in initial_splits(case.source))
    there = elsewhere(case)("find_splits", {})
    assert there == here, f"here the splits are {here}, and in a new process {there}"


@quotations.of(SplitState, "this is the split's whole state.")
def a_new_process_reads_on(case: PlayedSource) -> None:
    """It knows the description of the source and the manifest, and nothing of the process that read."""
    splits = initial_splits(case.source)
    whole, _, _ = read(open_reader(case.source), splits)
    reader = open_reader(case.source)
    before, _, _ = read(reader, splits, polls_max=3, is_closed=False)
    positions = [[split.split_id, dict(split.position)] for split in reader.snapshot()]
    reader.close()
    after = Counter(elsewhere(case)("read_on", {"splits": positions}))
    lost, more = whole - before - after, before + after - whole
    assert not lost, f"a new process reads on, and lost are {dict(lost)}"
    assert not more, f"a new process reads on, and doubled are {dict(more)}"


MOVED_SPLITS_CHECKS: Sequence[Callable[[PlayedSource], None]] = (
    splits_may_go_to_other_readers,
    a_snapshot_does_not_change_afterwards,
    all_rows_have_the_columns_of_the_source,
    a_projection_has_the_same_rows,
    what_was_just_read_can_be_restored,
    a_new_process_finds_the_same_splits,
    a_new_process_reads_on,
)


# --- In another process ---------------------------------------------------------------------------------


def find_splits(source: Source, arguments: Mapping[str, Json]) -> Json:
    """The names of the splits, sorted."""
    return sorted(split.split_id for split in initial_splits(source))


def read_on(source: Source, arguments: Mapping[str, Json]) -> Json:
    """The rows from these positions on, as text."""
    given: Any = arguments["splits"]
    rows, _, _ = read(open_reader(source), [SplitState(name, position) for name, position in given])
    return sorted(rows.elements())


READING_SCENARIOS: Mapping[str, Callable[[Source, Mapping[str, Json]], Json]] = {
    each.__name__: each for each in (find_splits, read_on)
}
"""What an ElsewhereReading may be asked to run, by name."""


def elsewhere(case: PlayedSource) -> ElsewhereReading:
    if case.elsewhere is None:
        raise SkipTest("what it reads is in the memory of this process")
    return case.elsewhere


def dealt(splits: Sequence[SplitState], parallelism: int) -> list[Sequence[SplitState]]:
    return [splits[subtask::parallelism] for subtask in range(parallelism)]


def as_text(splits: Sequence[SplitState]) -> str:
    return json.dumps([[split.split_id, dict(split.position)] for split in splits])


def fetches(source: Source) -> list[Fetch]:
    """All that it reads."""
    reader = open_reader(source)
    splits = initial_splits(source)
    reader.add_splits(splits)
    found: list[Fetch] = []
    left = {split.split_id for split in splits}
    while left:
        if (fetch := polled(reader, 1_000)) is not None:
            found.append(fetch)
            left -= fetch.finished
    reader.close()
    return found


def columns_of(found: Sequence[Fetch]) -> list[Any]:
    return [fetch.records.schema for fetch in found]
