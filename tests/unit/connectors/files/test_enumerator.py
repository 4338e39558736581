"""Finding files: all of a bounded input at once, new ones of a watched folder when they are whole."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from onceflow.connectors.files.enumerator import SETTLED_AFTER_MS, FileEnumerator
from onceflow.connectors.files.place import Place
from onceflow.connectors.files.source import files_source
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import Json, ReaderContext, SplitState
from onceflow.runtime.errors import DataLossError, OptionError, UsageError

LONG_AGO_S = 1_000_000
SCHEMA = pa.schema([("n", pa.int64())])


@pytest.fixture
def clock() -> ManualClock:
    made = ManualClock()
    made.advance(LONG_AGO_S * 1_000)
    return made


def write(path: Path, at_s: float, text: str = '{"n":1}\n') -> None:
    path.write_text(text)
    os.utime(path, (at_s, at_s))


def names(splits: list[SplitState] | tuple[SplitState, ...]) -> list[str]:
    return [Path(split.split_id).name for split in splits]


def watching(folder: Path, clock: ManualClock) -> FileEnumerator:
    return FileEnumerator(Place(f"{folder}/*.jsonl"), 10_000, clock, lambda path, size: [])


def test_a_watched_folder_that_is_given_an_end_is_read_once(tmp_path: Path, clock: ManualClock) -> None:
    """From a savepoint, too, what is known by a split, or is only remembered, does not come again."""
    source = files_source(f"{tmp_path}/*.jsonl", SCHEMA, watch="10 s").ended("latest")
    assert source.is_bounded
    enumerator = source.open_enumerator("job", clock)
    assert enumerator.discovery_interval_ms is None
    assert names(list(enumerator.initial_splits())) == []
    for name in "abc":
        write(tmp_path / f"{name}.jsonl", LONG_AGO_S - 10)
    write(tmp_path / "written-now.jsonl", LONG_AGO_S)
    first, second, third = enumerator.initial_splits()
    assert names([first, second, third]) == ["a.jsonl", "b.jsonl", "c.jsonl"]
    remembered = source.add_finished(None, [first])
    found = source.open_enumerator("job", clock).bounded([second], remembered)
    assert names(list(found)) == ["b.jsonl", "c.jsonl"]
    assert enumerator.discover_unfinished(frozenset(), remembered) == [], "what comes later is not read"
    assert watching(tmp_path, clock).bounded([second], remembered) == [second], "it has no end"
    with pytest.raises(OptionError, match=r"files have no offsets, and no time .*: write latest"):
        files_source(f"{tmp_path}/*.jsonl", SCHEMA, watch="10 s").ended("timestamp:5")


def test_bounded_input_is_all_that_is_there(tmp_path: Path, clock: ManualClock) -> None:
    enumerator = FileEnumerator(Place(f"{tmp_path}/*.jsonl"), None, clock, lambda path, size: [])
    with pytest.raises(UsageError, match=r"there is no file at .*\*.jsonl: nothing is to be read.*watch="):
        enumerator.initial_splits()
    write(tmp_path / "b.jsonl", clock.now_ms() / 1_000)
    write(tmp_path / "a.jsonl", clock.now_ms() / 1_000)
    assert names(list(enumerator.initial_splits())) == ["a.jsonl", "b.jsonl"]
    write(tmp_path / "c.jsonl", 1)
    assert enumerator.discover(frozenset()) == []
    assert enumerator.discovery_interval_ms is None


def test_a_file_that_may_still_be_written_is_left_alone(tmp_path: Path, clock: ManualClock) -> None:
    now_s = clock.now_ms() / 1_000
    write(tmp_path / "old.jsonl", now_s - SETTLED_AFTER_MS / 1_000 - 1)
    write(tmp_path / "new.jsonl", now_s)
    enumerator = watching(tmp_path, clock)
    assert names(list(enumerator.initial_splits())) == ["old.jsonl"]
    known = frozenset({str(tmp_path / "old.jsonl")})
    write(tmp_path / "new.jsonl", now_s + 0.5, '{"n":1}\n{"n":2}\n')
    assert enumerator.discover(known) == [], "it has grown"
    assert names(list(enumerator.discover(known))) == ["new.jsonl"], "it is the same as at the last look"
    write(tmp_path / "third.jsonl", now_s)
    clock.advance(SETTLED_AFTER_MS + 1_000)
    known |= {str(tmp_path / "new.jsonl")}
    assert names(list(enumerator.discover(known))) == ["third.jsonl"], "it was written long enough ago"


def test_a_file_that_is_changed_after_it_was_read_is_refused(tmp_path: Path, clock: ManualClock) -> None:
    source = files_source(f"{tmp_path}/*.jsonl", SCHEMA, None, "10 s", None)
    write(tmp_path / "a.jsonl", 5)
    enumerator = source.open_enumerator("job", clock)
    finished: Json = source.add_finished(None, list(enumerator.initial_splits()))
    assert enumerator.discover_unfinished(frozenset(), finished) == []
    write(tmp_path / "a.jsonl", 6)
    (changed,) = enumerator.discover_unfinished(frozenset(), finished)
    assert enumerator.discover_unfinished(frozenset({changed.split_id}), finished) == [], "it is told once"
    reader = source.open_reader(ReaderContext("job", "files", 0, 1, clock))
    reader.add_splits([changed])
    sentence = "a.jsonl was read to its end, and was changed since: files have to stay as they are"
    for meet in (lambda: reader.poll(0, 1), lambda: enumerator.check_restored([changed])):
        with pytest.raises(DataLossError, match=sentence):
            meet()
    write(tmp_path / "a.jsonl", 5)
    enumerator.check_restored([changed])
    fetch = reader.poll(0, 1)
    assert fetch is not None
    assert (fetch.finished, fetch.records.num_rows) == ({changed.split_id}, 0), "it was put back"
    assert source.add_finished(finished, [changed]) == finished
