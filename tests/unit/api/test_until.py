"""What a user gives as `until=`, and what it is for each source."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from onceflow.runtime.api.until import ended_at, given_until
from onceflow.runtime.checkpoint.log import CheckpointCompleted, JobCreated, encode_entry, entry_path
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.savepoints.taking import copy_savepoint
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import SplitProgress, SplitState
from onceflow.runtime.errors import OptionError
from tests.unit.graph.test_ended import Endless, graph_of


def test_a_time_and_a_place_are_told_apart() -> None:
    assert given_until(None) is None
    assert given_until("latest") == "latest"
    assert given_until("1700000000000") == "timestamp:1700000000000"
    assert given_until("2023-11-14T22:13:20Z") == "timestamp:2023-11-14T22:13:20+00:00"
    assert given_until(dt.datetime(2023, 11, 14, tzinfo=dt.UTC)) == "timestamp:2023-11-14T00:00:00+00:00"
    assert given_until("./checkpoints") == "./checkpoints"
    with pytest.raises(OptionError, match="'2023-11-14T22:13:20' has no time zone: add Z"):
        given_until("2023-11-14T22:13:20")


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A job that has read 12 records of `a`, and so much of `b` as only `b` knows."""
    store = open_store(str(tmp_path / "job"))
    splits = {
        "a": [SplitProgress(SplitState("a-0", {"next_offset": 12}))],
        "b": [SplitProgress(SplitState("b-0", {"place": "there"}))],
    }
    manifest = CheckpointManifest("j", "lineage", 1, 3, 0, 0, 1, 8, splits=splits, is_last=True)
    for n, entry in enumerate((JobCreated("j", "lineage", 0), CheckpointCompleted(manifest))):
        store.create(entry_path(n), encode_entry(n, entry))
    return str(tmp_path / "job")


def untils(graph: Any) -> dict[str, Any]:
    return {node.uid: node.source.until for node in graph.sources()}


def test_sources_end_where_a_job_or_a_savepoint_has_come(folder: str, tmp_path: Path) -> None:
    graph = graph_of(a=Endless())
    assert untils(ended_at(graph, folder)) == {"a": {"a-0": 12}}
    copy_savepoint(open_store(folder), open_store(str(tmp_path / "saved")), ManualClock(), 3)
    assert untils(ended_at(graph, str(tmp_path / "saved"))) == {"a": {"a-0": 12}}
    assert untils(ended_at(graph, "latest")) == {"a": "latest"}


@pytest.mark.parametrize("uid", ["b", "c"])
def test_a_folder_that_does_not_know_the_source_is_no_end(folder: str, uid: str) -> None:
    with pytest.raises(OptionError, match=f"source '{uid}': .* has no offsets of it: use a uid .*: a, b"):
        ended_at(graph_of(**{uid: Endless()}), folder)


def test_a_folder_without_a_checkpoint_is_no_end(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="there is no checkpoint: write latest, a time"):
        ended_at(graph_of(a=Endless()), str(tmp_path / "none"))
