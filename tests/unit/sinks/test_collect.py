"""collect(): all rows once, or a sentence on why they are not there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from onceflow import Job, Retryable
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import CommitterContext
from onceflow.runtime.errors import GraphError, JobFailedError, UsageError
from onceflow.runtime.testing.connectors.folder_source import FolderSource
from onceflow.sinks.collect import CollectSink


@dataclass(frozen=True)
class Purchase:
    user: str
    amount: int


ROWS = [Purchase("ann", 1), Purchase("bob", 2)]


def test_rows_are_records_of_the_stream_and_equal_a_list() -> None:
    job = Job("collected")
    purchases = job.from_records(ROWS)
    records, amounts = purchases.collect(), purchases.select("amount").collect()
    job.run(master="threads[2]")
    assert records == ROWS
    assert records[1] == Purchase("bob", 2)
    assert records[:1] == ROWS[:1]
    assert (len(records), list(records)) == (2, ROWS)
    assert amounts == [{"amount": 1}, {"amount": 2}]
    assert amounts.to_arrow() == pa.table({"amount": [1, 2]}, amounts.to_arrow().schema)
    assert amounts.to_polars()["amount"].to_list() == [1, 2]
    assert "ann" in str(records._repr_html_())
    assert repr(amounts) == "[{'amount': 1}, {'amount': 2}]"


def test_a_look_before_the_run_says_what_to_do() -> None:
    job = Job("collected")
    rows = job.from_records(ROWS).collect(uid="rows")
    sentence = (
        "collect() 'rows' has no rows yet: run the job 'collected' first, as in job.run(); in a test by "
        "onceflow.testing.run the rows are in its .rows('rows')"
    )
    assert repr(rows) == f"<{sentence}>"
    assert rows._repr_html_() is None
    for look in (lambda: rows[0], lambda: len(rows), lambda: list(rows), rows.to_arrow, lambda: rows == []):
        with pytest.raises(UsageError) as refusal:
            look()
        assert str(refusal.value) == sentence


def test_an_endless_input_is_refused_when_it_is_written(tmp_path: Path) -> None:
    job = Job("collected")
    endless = job.source(FolderSource(str(tmp_path), pa.schema([("n", pa.int64())])), uid="endless")
    with pytest.raises(GraphError, match=r"collect\(\) has the rows when .* source 'endless' has no end"):
        endless.union(job.from_records([{"n": 1}], pa.schema([("n", pa.int64())]))).collect()


def test_more_rows_than_the_memory_may_hold_end_the_job() -> None:
    job = Job("collected")
    job.from_records(pa.table({"n": list(range(10_000))})).collect(bytes_max=1 << 10, uid="rows")
    with pytest.raises(JobFailedError, match=r"sink 'rows': collect\(\) holds all rows in memory.*to_files"):
        job.run(master="threads[1]")


def test_rows_are_there_once_when_an_attempt_fails_between_two_checkpoints() -> None:
    tries: list[int] = []

    def numbers() -> Iterator[int]:
        tries.append(len(tries))
        for n in range(400):
            if n == 200 and len(tries) == 1:
                raise Retryable("the service is busy")
            yield n

    job = Job("collected")
    rows = job.from_records(numbers, type=int).collect()
    job.run(master="threads[1]", checkpoint_interval="1 ms", restart="fixed:1 ms")
    assert len(tries) == 2
    assert [row["value"] for row in rows] == list(range(400))


def test_the_job_may_run_again_and_has_the_rows_of_the_last_run() -> None:
    job = Job("collected")
    rows = job.from_records(ROWS).collect()
    for _ in range(2):
        job.run(master="threads[1]")
        assert rows == ROWS


def test_rows_that_went_to_another_process_are_not_missing_in_silence(tmp_path: Path) -> None:
    def job() -> Job:
        made = Job("collected")
        made.from_records(ROWS).collect(uid="rows")
        return made

    job().run(str(tmp_path), master="threads[1]")
    again = job()
    again.run(str(tmp_path), master="threads[1]")
    with pytest.raises(UsageError, match="had finished before, in another process"):
        len(again.collected[0])


def test_a_job_that_goes_on_from_a_checkpoint_of_another_process_is_refused() -> None:
    job = Job("collected")
    job.from_records(ROWS).collect(uid="rows")
    (node,) = job.build().sinks()
    assert isinstance(node.sink, CollectSink)
    context = CommitterContext("collected", "beef", "rows", 2, 7, node.schema, ManualClock())
    with pytest.raises(
        UsageError, match="gives the rows of a whole run, and this job goes on from checkpoint 7"
    ):
        node.sink.open_committer(context)
