"""Staged files, the checkpoint's record and the sweep: on local files and on a store of objects."""

from __future__ import annotations

import json
import pickle
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from onceflow.connectors.kafka.client import LedgerEntry, LedgerKey
from onceflow.connectors.kafka.transactions.owner import Claimant
from onceflow.runtime.errors import CorruptCheckpointError, Fatal, UsageError
from onceflow.structured_streaming.query_record import QueryRecord, Tie, check_tie
from onceflow.structured_streaming.shared_staging import (
    batch_folder,
    check_sign,
    end_staging,
    put_sign,
    sweep,
)
from onceflow.structured_streaming.sink_options import SinkOptions, sink_options
from onceflow.structured_streaming.staged_files import Staged, delete_files, files_of, restored, stage
from onceflow.structured_streaming.staging import Folder
from onceflow.structured_streaming.whole_writes import check_unwritten, sweep_abandoned, write_folder


@pytest.fixture(params=["local path", "file URL", "objects"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    urls = {
        "local path": str(tmp_path),
        "file URL": f"file:{tmp_path}",
        "objects": f"memory://{uuid.uuid4()}",
    }
    return Folder.at(f"{urls[request.param]}/some folder")


def options() -> SinkOptions:
    return sink_options({"bootstrap_servers": "b:1", "topic": "t", "format": "json"}, "write")


def rows(count: int = 3, batches: int = 2) -> Iterator[pa.RecordBatch]:
    for _ in range(batches):
        yield pa.RecordBatch.from_pydict({"id": list(range(count))})


def staged(folder: Folder, batch_id: int = 0, batches: int = 2) -> Staged:
    put_sign(folder)
    content = rows(batches=batches)
    return stage(content, options(), folder, batch_folder(batch_id), "q", batch_id, batch_id + 1)


def test_what_a_task_stages_is_what_the_driver_reads(folder: Folder) -> None:
    message: Staged = pickle.loads(pickle.dumps(staged(folder)))
    assert message.topics == {"t"}
    (file,) = files_of([message], "q", 0)
    output = restored(file, folder)
    values = [json.loads(row["value"]) for batch in output.batches() for row in batch.to_pylist()]
    assert values == [{"id": n} for n in (0, 1, 2, 0, 1, 2)]
    assert output.checkpoint_id == 1
    assert [batch.num_rows for batch in output.batches()] == [3, 3], "it is read as it was written, in parts"


def test_a_task_without_rows_leaves_no_file(folder: Folder) -> None:
    message = staged(folder, batches=0)
    assert message.file is None
    assert folder.names() == ["driver.json"]
    assert files_of([message], "q", 0) == []


def test_two_attempts_never_share_a_file(folder: Folder) -> None:
    first, second = staged(folder), staged(folder)
    assert first.file is not None
    assert second.file is not None
    assert first.file.path != second.file.path
    delete_files([first, None], folder)
    assert list(restored(second.file, folder).batches())


def test_a_damaged_file_is_found_before_its_first_row_is_sent(folder: Folder) -> None:
    file = staged(folder).file
    assert file is not None
    inside, name = file.path.split("/")
    content = folder.child(inside).read(name)
    assert content is not None
    folder.child(inside).put(name, content[:-9] + b"x" + content[-8:])
    with pytest.raises(CorruptCheckpointError, match="is damaged"):
        next(iter(restored(file, folder).batches()))
    folder.delete(file.path)
    with pytest.raises(CorruptCheckpointError, match="is not there"):
        next(iter(restored(file, folder).batches()))


def test_a_folder_that_is_not_the_drivers_is_said_before_anything_is_staged(folder: Folder) -> None:
    with pytest.raises(Fatal, match=r"is not shared: this executor.*give \.option\(\"staging\", URL\)"):
        stage(rows(), options(), folder, "batch-0", "q", 0, 1)
    assert folder.names() == []
    put_sign(folder)
    put_sign(folder)
    check_sign(folder)


def test_a_task_that_runs_on_after_the_write_was_given_up_leaves_nothing(folder: Folder) -> None:
    def rows_with_an_end(and_more: int) -> Iterator[pa.RecordBatch]:
        end_staging(folder)
        yield from rows(batches=and_more)
        if and_more > 2:
            raise EOFError("Spark has hung up")

    for and_more in (0, 2, 3):
        put_sign(folder)
        with pytest.raises(Fatal, match=r"was given up, since another of its tasks has failed"):
            stage(rows_with_an_end(and_more), options(), folder, "rows", "q", 0, 1)
        assert folder.names() == []
    end_staging(folder)


def test_missing_and_foreign_messages_are_refused(folder: Folder) -> None:
    message = staged(folder)
    with pytest.raises(Fatal, match="a task of batch 0 has staged nothing"):
        files_of([message, None], "q", 0)
    for query_id, batch_id in (("other", 0), ("q", 1)):
        with pytest.raises(Fatal, match="got a file of batch 0 of query q"):
            files_of([message], query_id, batch_id)


def test_the_sweep_takes_finished_batches_and_only_those(folder: Folder) -> None:
    for batch_id in (3, 9, 10, 11):
        staged(folder, batch_id)
    folder.put("batch-x", b"somebody's")
    sweep(folder, 10)
    assert folder.names() == ["batch-11", "batch-x", "driver.json"]
    sweep(folder, 10)


def test_marks_outlive_the_process_and_go_when_a_later_batch_is_done(folder: Folder) -> None:
    record = QueryRecord(folder)
    assert not record.has(4)
    for batch_id in (2, 9, 10):
        record.add(batch_id)
    assert QueryRecord(folder).has(10)
    record.forget_before(10)
    assert [record.has(n) for n in (2, 9, 10)] == [False, False, True]


def test_the_query_is_who_the_checkpoint_says(folder: Folder) -> None:
    with pytest.raises(UsageError, match="finds no checkpoint of this query in"):
        QueryRecord(folder).query_id()
    folder.put("metadata", b'{"id":"abc"}')
    assert QueryRecord(folder).query_id() == "abc"


def test_a_checkpoint_is_tied_to_query_uid_and_ledger(folder: Folder) -> None:
    record, ledger = QueryRecord(folder), LedgerKey("onceflow.u", "ledger")
    assert record.tie() is None
    record.put_tie(Tie("q", "u", "onceflow.u", "ledger", "x"))
    found = record.tie()
    assert found is not None
    check_tie(found, "q", "u", ledger, "here")
    with pytest.raises(UsageError, match=r"used with uid 'u' .*not 'v'"):
        check_tie(found, "q", "v", LedgerKey("onceflow.v", "ledger"), "here")
    with pytest.raises(UsageError, match=r"onceflow.u on other"):
        check_tie(found, "q", "u", LedgerKey("onceflow.u", "other"), "here")
    with pytest.raises(UsageError, match="was written by query q"):
        check_tie(found, "r", "u", ledger, "here")
    folder.child("onceflow").put("sink.json", b"{")
    with pytest.raises(UsageError, match=r"sink\.json can't be read"):
        record.tie()


def test_any_bit_of_the_tie_may_flip_and_the_query_is_refused_or_the_broker_asked_again(
    tmp_path: Path,
) -> None:
    """The file needs no checksum: nothing in it is believed that is not compared with the query's own, and
    `checked` decides only whether the broker is asked again, for what is asked before each write anyway."""
    folder, ledger = Folder.at(str(tmp_path)), LedgerKey("onceflow.totals", "__onceflow_ledger")
    record, query_id = QueryRecord(folder), str(uuid.UUID(int=7))
    tie = Tie(query_id, "totals", ledger.transactional_id, ledger.topic, "127.0.0.1:9092 totals")
    record.put_tie(tie)
    whole = folder.child("onceflow").read("sink.json")
    assert whole is not None
    refused = 0
    for bit in range(8 * len(whole)):
        altered = bytearray(whole)
        altered[bit // 8] ^= 1 << bit % 8
        folder.child("onceflow").put("sink.json", bytes(altered))
        try:
            found = record.tie()
            assert found is not None
            check_tie(found, query_id, "totals", ledger, folder.url)
        except UsageError:
            refused += 1
        else:
            assert replace(found, checked=tie.checked) == tie
    assert refused > 0.75 * 8 * len(whole)


def test_a_file_system_that_is_not_installed_is_named() -> None:
    with pytest.raises(UsageError, match="folder nonsense://x can't be used"):
        Folder.at("nonsense://x").read("a")


# --- Whole writes -------------------------------------------------------------------------------------


def test_a_uid_names_one_write() -> None:
    ledger = LedgerKey("onceflow.u", "ledger")
    check_unwritten(LedgerEntry(0, Claimant("other", 0).metadata()), ledger, "mine")  # it came to nothing
    check_unwritten(LedgerEntry(1, Claimant("mine", 0).metadata()), ledger, "mine")
    with pytest.raises(UsageError, match=r"onceflow.u is written already, by other"):
        check_unwritten(LedgerEntry(1, Claimant("other", 0).metadata()), ledger, "mine")


def test_writes_that_were_abandoned_a_week_ago_are_swept_and_only_those(folder: Folder) -> None:
    week_ms = 7 * 24 * 3600 * 1000
    old = f"write-{int(time.time() * 1000) - week_ms - 1_000}-dead"
    recent = f"write-{int(time.time() * 1000) - week_ms + 60_000}-alive"
    for name in (old, recent, write_folder("mine"), "write-other", "theirs"):
        folder.child(name).put("driver.json", b"")
    sweep_abandoned(folder)
    assert old not in folder.names()
    assert len(folder.names()) == 4
