"""Sources of the runtime as streams of Spark: what is read over several runs and kills; what is refused."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onceflow.runtime.errors import OptionError
from onceflow.structured_streaming.any_source.batch_reading import check_kinds
from onceflow.structured_streaming.any_source.formats import OnceflowKinesis, OnceflowPostgresCdc
from onceflow.structured_streaming.any_source.source_format import read_options
from tests.cdc_tables import MANY_SLOTS, make_table
from tests.integration.killed_query import KilledQuery
from tests.kinesis_server import WHY_NOT, KinesisServer
from tests.postgres_server import PostgresServer
from tests.rabbitmq_server import WHY_NOT as NO_RABBITMQ
from tests.rabbitmq_server import RabbitServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def in_files(folder: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(folder.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def run(spark: Any, folder: Path, source: str, schema: str | None, **options: Any) -> None:
    """Copy into onceflow-files what there is."""
    reader = spark.readStream.format(source).options(**options)
    rows = (reader if schema is None else reader.schema(schema)).load()
    given = {"uid": "copy", "checkpointLocation": str(folder / "checkpoint"), "path": str(folder / "out")}
    query = rows.writeStream.format("onceflow-files").options(**given).trigger(availableNow=True).start()
    assert query.awaitTermination(200), "the query does not end"


def batches(folder: Path) -> int:
    return len([path for path in (folder / "checkpoint/offsets").iterdir() if path.name.isdecimal()])


# --- Streams of RabbitMQ ---------------------------------------------------------------------------------


@pytest.mark.rabbitmq
@pytest.mark.skipif(bool(NO_RABBITMQ), reason=NO_RABBITMQ)
def test_a_stream_of_rabbitmq_is_read_on_where_it_was_left(spark: Any, tmp_path: Path) -> None:
    with RabbitServer() as server:
        options = {
            "streams": "payments",
            "url": server.url,
            "maxRecordsPerTrigger": 30,
            "offset_column": "at",
        }
        for first in (0, 50):
            with closing(server.connect()) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                channel.queue_declare("payments", durable=True, arguments={"x-queue-type": "stream"})
                for n in range(first, first + 50):
                    channel.basic_publish("", "payments", json.dumps({"n": n}).encode())
            run(spark, tmp_path, "onceflow-rabbitmq-stream", "n BIGINT, at BIGINT", **options)
            rows = sorted(in_files(tmp_path / "out"), key=lambda row: row["n"])
            assert rows == [{"n": n, "at": row["at"]} for n, row in enumerate(rows)]
            assert len(rows) == first + 50
            assert len({row["at"] for row in rows}) == first + 50
        assert batches(tmp_path) >= 4


# --- Files ----------------------------------------------------------------------------------------------


def test_a_folder_is_read_on_where_it_was_left(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    options = {"path": str(tmp_path / "in"), "format": "jsonl", "maxFilesPerTrigger": 2, "split_size": "60 B"}
    for run_number in range(2):
        for file in range(5):
            first = 50 * run_number + 10 * file
            write_lines(tmp_path / f"in/{first:03}.jsonl", [{"n": first + n, "at": 1.5} for n in range(10)])
        run(spark, tmp_path, "onceflow-files", "n BIGINT, at DOUBLE", **options)
        assert sorted(row["n"] for row in in_files(tmp_path / "out")) == list(range(50 * run_number + 50))
    assert batches(tmp_path) >= 6
    run(spark, tmp_path, "onceflow-files", "n BIGINT, at DOUBLE", **options)
    assert len(in_files(tmp_path / "out")) == 100


def test_parquet_says_its_columns_and_csv_takes_a_delimiter(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    table = pa.table({"n": [1, 2], "at": pa.array([0, 1_000], pa.timestamp("ns", "UTC")), "s": ["a", None]})
    pq.write_table(table, tmp_path / "in/a.parquet")
    run(spark, tmp_path, "onceflow-files", None, path=str(tmp_path / "in/*.parquet"))
    assert [(row["n"], row["s"]) for row in in_files(tmp_path / "out")] == [(1, "a"), (2, None)]
    (tmp_path / "in/a.csv").write_text("s;n\nx;3\n")
    (tmp_path / "csv").mkdir()
    options = {"path": str(tmp_path / "in/*.csv"), "delimiter": ";"}
    run(spark, tmp_path / "csv", "onceflow-files", "n BIGINT, s STRING", **options)
    assert in_files(tmp_path / "csv/out") == [{"n": 3, "s": "x"}]


def test_what_can_not_be_decoded_stops_the_query_or_is_in_a_column_of_its_own(
    spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text('{"n":1}\nno\n{"n":3}\n')
    options = {"path": str(tmp_path / "in")}
    for wanted in ({}, {"errors_tolerance": "none"}, {"mode": "failfast"}):
        with pytest.raises(Exception, match=r"a\.jsonl: the record at byte 8 can't be decoded"):
            run(spark, tmp_path / "strict", "onceflow-files", "n BIGINT", format="jsonl", **options, **wanted)
    schema = "n BIGINT, _corrupt_record STRING"
    run(spark, tmp_path, "onceflow-files", schema, format="jsonl", errors_tolerance="all", **options)
    rows = in_files(tmp_path / "out")
    assert [(row["n"], row["_corrupt_record"]) for row in rows] == [(1, None), (3, None), (None, "no")]


@pytest.mark.parametrize(
    ("schema", "options", "sentence"),
    [
        ("n BIGINT", {"format": "jsonl", "mode": "permissive"}, "needs a column '_corrupt_record'"),
        ("n BIGINT", {"maxFilesPerTriger": 1}, "no option 'maxfilespertriger' .*did you mean 'max_files"),
        ("n BIGINT", {"format": "orc"}, "format='orc' is none of"),
        (None, {"format": "jsonl"}, "needs the columns, which only Parquet and Avro say"),
        ("n BIGINT", {"format": "jsonl", "delimiter": ";"}, "is for format csv"),
        ("n BIGINT", {"format": "csv", "split_size": "1 MiB"}, "CSV can't be cut"),
        ("n BIGINT", {"format": "jsonl", "max_bytes_per_trigger": "many"}, "is no size"),
    ],
)
def test_what_is_wrong_is_said(
    spark: Any, tmp_path: Path, schema: str | None, options: dict[str, Any], sentence: str
) -> None:
    write_lines(tmp_path / "a", [{"n": 1}])
    with pytest.raises(Exception, match=sentence):
        run(spark, tmp_path, "onceflow-files", schema, path=str(tmp_path / "a"), **options)


def test_nexmark_and_made_up_records(spark: Any, tmp_path: Path) -> None:
    run(spark, tmp_path, "onceflow-nexmark", None, kind="bid", events=1_000, max_records_per_trigger=300)
    assert len(in_files(tmp_path / "out")) == 920
    assert batches(tmp_path) == 4
    other = tmp_path / "generator"
    run(spark, other, "onceflow-generator", "user STRING, n BIGINT", count=500)
    assert len(in_files(other / "out")) == 500


# --- Kills ----------------------------------------------------------------------------------------------


class KilledCopy(KilledQuery):
    """A query from a source of ours to files."""

    def __init__(
        self,
        folder: Path,
        source: str = "onceflow-files",
        schema: str = "id long, user string",
        **options: str,
    ) -> None:
        files = {"path": str(folder / "input"), "format": "jsonl", "maxFilesPerTrigger": "2"}
        super().__init__(
            folder,
            {
                "format": "onceflow-files",
                "options": {"path": str(folder / "out")},
                "source": {"format": source, "schema": schema, "options": options or files},
            },
        )

    def kill(self, whom: str, window: str) -> None:
        """Add a batch, hit it in this window, and let it end."""
        self.add_batch()
        self.set_gate(window)
        self.start()
        pid = self.wait_gate(window)
        if whom == "driver":
            self.kill_driver()
        else:
            os.kill(pid, signal.SIGKILL)
            assert self.wait_end()["event"] == "failed"
        for left in self.gates.iterdir():
            left.unlink()
        self.kills.append(f"{whom} | {window}")
        self.start()
        ended = self.wait_end()
        assert ended["event"] == "done", f"{self.kills}: {ended['error'][-4_000:]}"


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[KilledCopy]:
    query = KilledCopy(tmp_path)
    yield query
    query.close()


def test_each_record_of_files_is_written_once_whoever_is_killed(killed: KilledCopy) -> None:
    """In the middle of reading, and after the sink's commit, before Spark knows of it."""
    killed.kill("driver", "mid-stage")
    killed.kill("worker", "mid-stage")
    killed.kill("driver", "after-commit")
    killed.check(in_files(killed.folder / "out"))


KILLS = (("driver", "after-commit"), ("driver", "mid-stage"), ("worker", "mid-stage"))
BY_SOURCE = pytest.mark.parametrize(
    "kills", [pytest.param(KILLS[:1], id="once"), pytest.param(KILLS, id="each", marks=pytest.mark.soak)]
)
"""What a kill in the middle of reading leaves is the same code for all sources, which files are killed in; a
batch that is read again after its commit is each source's own."""


class KilledStream(KilledCopy):
    """A query from Kinesis to files; the stream is resharded before each kill."""

    def __init__(self, folder: Path, server: KinesisServer) -> None:
        self.server = server
        self.stream = server.new_stream(2)
        self.sent = 0
        super().__init__(folder, "onceflow-kinesis", stream=self.stream, **server.place)

    def add_batch(self) -> None:
        for reshard in (self.server.split, self.server.merge):
            numbers = range(self.sent, self.sent + 100)
            rows = [{"id": n, "user": f"u{n % 17}"} for n in numbers]
            self.server.put_many(self.stream, [(row["user"], json.dumps(row).encode()) for row in rows])
            self.sent += 100
            reshard(self.stream, 0)


@pytest.mark.kinesis
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
@BY_SOURCE
def test_each_record_of_kinesis_is_written_once_whoever_is_killed(kills: Any, tmp_path: Path) -> None:
    with KinesisServer(reshards=True) as server:
        query = KilledStream(tmp_path, server)
        try:
            for whom, window in kills:
                query.kill(whom, window)
        finally:
            query.close()
        ids = [row["id"] for row in in_files(tmp_path / "out")]
        assert sorted(ids) == list(range(query.sent))


class KilledChanges(KilledCopy):
    """A query from the changes of a table to files."""

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        self.table = make_table(server, 'id bigint PRIMARY KEY, "user" text')
        name = self.table.name
        server.execute(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")
        options = {"url": server.url, "table": name, "slot": name, "publication": name, "kind_column": "kind"}
        schema = "id long, user string, kind string"
        super().__init__(folder, "onceflow-postgres-cdc", schema, max_bytes_per_trigger="8 KiB", **options)
        self.sent = 0

    def add_batch(self) -> None:
        for _ in range(10):
            rows = ", ".join(f"({n}, 'u')" for n in range(self.sent, self.sent + 20))
            self.table.server.execute(f"INSERT INTO {self.table.name} VALUES {rows}")
            self.sent += 20
        self.table.server.execute(f"UPDATE {self.table.name} SET \"user\" = 'w' WHERE id = {self.sent - 1}")


@pytest.mark.postgres
@BY_SOURCE
def test_each_change_of_a_table_is_written_once_whoever_is_killed(kills: Any, tmp_path: Path) -> None:
    with PostgresServer(MANY_SLOTS) as server:
        query = KilledChanges(tmp_path, server)
        try:
            for whom, window in kills:
                query.kill(whom, window)
        finally:
            query.close()
        found = [(row["id"], row["user"], row["kind"]) for row in in_files(tmp_path / "out")]
        updated = range(199, query.sent, 200)
        assert sorted(found) == sorted(
            [(n, "u", "insert") for n in range(query.sent)]
            + [(n, "u", "update_before") for n in updated]
            + [(n, "w", "update_after") for n in updated]
        )
        assert batches(tmp_path) > 2 * len(kills)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, r'needs \.option\("stream"'),
        ({"stream": "s", "start": "soon"}, "write earliest, latest, or a time"),
        ({"stream": "s", "shard_column": "shard"}, "column 'shard' is not in the schema"),
        ({"stream": "s", "until": "latest"}, "no option 'until'"),
    ],
)
def test_what_is_wrong_with_kinesis_is_said(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        OnceflowKinesis.reading.make(
            read_options(OnceflowKinesis.reading, options).given, pa.schema([("n", pa.int64())])
        )


def test_changes_need_a_column_that_says_what_they_are() -> None:
    given = {"url": "u", "table": "t", "slot": "s", "publication": "p"}
    with pytest.raises(OptionError, match=r'needs \.option\("kind_column"'):
        read_options(OnceflowPostgresCdc.reading, given)
    asked = read_options(OnceflowPostgresCdc.reading, {**given, "kind_column": "kind"})
    assert asked.kind_column == "kind"
    with pytest.raises(OptionError, match="kind_column='kind' is no STRING column"):
        check_kinds(pa.schema([("kind", pa.int64())]), asked.kind_column)
