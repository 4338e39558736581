"""Jobs that write files are killed, here, on S3 and on HDFS, while somebody lists and opens all that is
there: he never sees half a file, or one that vanishes, and in the end each row is there once."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.file_lister import FileLister, judged_by_duckdb
from tests.hdfs_server import HdfsServer
from tests.integration.jobs.file_rows import HOUR_ROWS, KINDS
from tests.s3_server import S3Server, gateway

PROGRAM = Path(__file__).parent / "jobs" / "file_rows.py"
KILLS = ("slot", "driver and slots", "frozen slot")
Place = tuple[str, dict[str, Any]]
"""A URL, and the options of its file system."""


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server(gateway()) as server:
        yield server


@pytest.fixture(scope="module")
def hdfs() -> Iterator[HdfsServer]:
    with HdfsServer() as server:
        yield server


class KilledJob:
    """A job that writes some kinds of files below a place, and the listers of each."""

    def __init__(self, start_job: Any, folder: Path, place: Place, kinds: list[str], records: int) -> None:
        """`folder`: of its checkpoints."""
        self._start_job = start_job
        self._folder = folder
        self._url, self._options = place
        self._kinds = kinds
        self._records = records
        fs, root = fsspec.core.url_to_fs(self._url, **self._options)
        self._listers = [FileLister(fs, f"{root}/{kind}") for kind in kinds]

    def run(
        self, kills: list[str], rate: int, master: str, *, seed: int = 2, then: int | None = None
    ) -> None:
        """Each kill comes at any time after a checkpoint.

        `then`: the driver is killed once more and goes on at this rate, so that much more input can be there
        than the kills take. Without it the input may end before they are over, and nothing is judged.
        """
        chance = random.Random(seed)
        with contextlib.ExitStack() as stack:
            for lister in self._listers:
                stack.enter_context(lister)
            job = self._start(rate, master)
            for kind in kills:
                for _ in range(chance.randint(1, 4)):
                    job.wait_event("checkpoint_completed", after=job.mark)
                job = self._kill(kind, job, chance, lambda: self._start(rate, master))
            if then is not None:
                job = self._kill("driver and slots", job, chance, lambda: self._start(then, master))
            assert job.wait(600) == 0, job.story()
        self._check()

    def _start(self, rate: int, master: str) -> Any:
        arguments = (self._url, json.dumps(self._options), str(self._records), str(rate))
        settings = {"options": ["--slot-timeout", "3 s", "--restart", "fixed:200 ms"], "master": master}
        kinds = ",".join(self._kinds)
        return self._start_job(self._folder, *arguments, kinds, program=PROGRAM, **settings)

    def _kill(self, kind: str, job: Any, chance: random.Random, start: Callable[[], Any]) -> Any:
        mark = job.mark
        if kind == "driver and slots":
            job.kill_group()
            job.wait()
            job = start()
            job.wait_event("slots_started")
            return job
        slot = chance.choice(job.slots())
        os.kill(slot, signal.SIGKILL if kind == "slot" else signal.SIGSTOP)
        job.wait_event("restarted", after=mark, timeout=360)
        job.wait_event("checkpoint_completed", after=mark)
        return job

    def _check(self) -> None:
        expected = Counter(range(self._records))
        for lister in self._listers:
            assert not lister.problems, lister.problems
            assert lister.looks > 1
            found = lister.rows()
            assert found == expected, (found - expected, expected - found)


def check_folder(folder: Path, records: int) -> None:
    """DuckDB reads the same, and each hour has its marker."""
    whole = (records, records, 0, records - 1)
    assert judged_by_duckdb(str(folder), "lines/*.jsonl") == whole
    assert judged_by_duckdb(str(folder), "packed/**/*.jsonl.zst") == whole
    assert judged_by_duckdb(str(folder), "columns/**/*.parquet") == whole
    assert judged_by_duckdb(str(folder), "comma/**/*.csv.gz") == whole
    assert judged_by_duckdb(str(folder), "joined/**/*.parquet") == whole
    assert judged_by_duckdb(str(folder), "joined_lines/*.jsonl.zst") == whole
    assert judged_by_duckdb(str(folder), "joined_comma/**/*.csv") == whole
    joined, alone = (len(list(folder.glob(f"{kind}/**/*.parquet"))) for kind in ("joined", "columns"))
    assert joined < alone
    hours = -(-records // HOUR_ROWS)
    assert len(list(folder.glob("joined/*/*/_SUCCESS"))) == hours
    assert len(list(folder.glob("columns/*/*/_SUCCESS"))) == hours
    assert len(list(folder.glob("packed/*/*/_SUCCESS"))) == hours


def test_nobody_ever_sees_half_a_file_and_each_row_is_there_once(start_job: Any, tmp_path: Path) -> None:
    job = KilledJob(start_job, tmp_path / "ck", (str(tmp_path / "out"), {}), sorted(KINDS), 12_000)
    job.run(["driver and slots"] * 2, 1_000, "threads[2]")
    check_folder(tmp_path / "out", 12_000)


def test_the_same_on_s3(server: S3Server, start_job: Any, tmp_path: Path) -> None:
    bucket = server.new_bucket()
    place = (f"s3://{bucket}/out", server.options)
    job = KilledJob(start_job, tmp_path / "ck", place, ["columns", "packed", "joined"], 12_000)
    job.run(["driver and slots"] * 2, 1_000, "threads[2]")
    assert not server.uploads(bucket), "those of attempts that are gone were aborted"


def test_the_same_on_hdfs(hdfs: HdfsServer, start_job: Any, tmp_path: Path) -> None:
    kinds = ["columns", "lines", "joined"]
    job = KilledJob(start_job, tmp_path / "ck", (hdfs.new_folder(), {}), kinds, 12_000)
    job.run(["driver and slots"] * 2, 1_000, "threads[2]")


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_twenty_two_kills_on_hdfs(hdfs: HdfsServer, start_job: Any, tmp_path: Path) -> None:
    """Files as they are, and joined ones, in folders and not."""
    kinds = ["columns", "lines", "joined", "joined_lines", "joined_blocks"]
    job = KilledJob(start_job, tmp_path / "ck", (hdfs.new_folder(), {}), kinds, 900_000)
    job.run(["driver and slots"] * 22, 1_200, "threads[2]", then=10_000)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("where", ["here", "s3"])
def test_twenty_two_kills_of_driver_and_slots(
    where: str, server: S3Server, start_job: Any, tmp_path: Path
) -> None:
    bucket = server.new_bucket()
    place = (str(tmp_path / "out"), {}) if where == "here" else (f"s3://{bucket}/out", server.options)
    most = ["columns", "packed", "blocks", "joined", "joined_lines"]
    kinds = most if where == "here" else ["columns", "blocks", "joined_lines"]
    job = KilledJob(start_job, tmp_path / "ck", place, kinds, 600_000)
    job.run(["driver and slots"] * 22, 1_200, "threads[2]", then=10_000)
    assert not server.uploads(bucket)


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(3))
def test_twenty_one_kills_here(seed: int, start_job: Any, tmp_path: Path) -> None:
    job = KilledJob(start_job, tmp_path / "ck", (str(tmp_path / "out"), {}), sorted(KINDS), 450_000)
    job.run([*KILLS] * 7, 1_000, "local[2]", seed=seed, then=5_000)
    check_folder(tmp_path / "out", 450_000)


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(2_400)
def test_twenty_one_kills_on_s3(server: S3Server, start_job: Any, tmp_path: Path) -> None:
    bucket = server.new_bucket()
    place = (f"s3://{bucket}/out", server.options)
    kinds = ["columns", "packed", "joined", "joined_blocks"]
    job = KilledJob(start_job, tmp_path / "ck", place, kinds, 450_000)
    job.run([*KILLS] * 7, 1_000, "local[2]", then=3_000)
    assert not server.uploads(bucket)


def goes_back(start_job: Any, engine: Any, folder: Path, place: Place) -> None:
    """A job goes back twice, killed in between: files of the abandoned time are gone, and each row is there
    once in the end, with its marker."""
    url, options = place
    kinds, records = ["columns", "lines", "packed", "comma", "blocks"], 12_000

    def start(rate: int, *given: str) -> Any:
        arguments = (url, json.dumps(options), str(records), str(rate), ",".join(kinds))
        settings = {"program": PROGRAM, "master": "threads[2]", "options": ["--retained", "50", *given]}
        return start_job(folder, *arguments, **settings)

    job = start(300)  # there is input left, however long four checkpoints take
    for _ in range(4):
        since = job.mark
        job.wait_event("checkpoint_completed", after=since)
    job.kill_group()
    job.wait()
    ids = [manifest["checkpoint_id"] for manifest in engine.manifests(folder)]
    for to in (ids[-1] - 1, ids[-1] - 3):
        job = start(300, "--from", str(to))
        assert job.wait_event("went_back")["to"] == to
        job.wait_event("slots_started")
        job.kill_group()
        job.wait()
    again = start(6_000, "--from", str(to))
    assert again.wait(240) == 0, again.story()
    assert not again.named("went_back"), "the same command goes on"
    fs, root = fsspec.core.url_to_fs(url, **options)
    for kind in kinds:
        assert FileLister(fs, f"{root}/{kind}").rows() == Counter(range(records)), kind


def test_files_of_an_abandoned_time_are_taken_back(start_job: Any, engine: Any, tmp_path: Path) -> None:
    goes_back(start_job, engine, tmp_path / "ck", (str(tmp_path / "out"), {}))


def test_so_they_are_on_s3(server: S3Server, start_job: Any, engine: Any, tmp_path: Path) -> None:
    bucket = server.new_bucket()
    goes_back(start_job, engine, tmp_path / "ck", (f"s3://{bucket}/out", server.options))
