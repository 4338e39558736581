"""What the tests of the running engine share: a job as a process, a feed of input, a judge of output.

The judge shares no code with the engine: it reads input and output from the topics themselves.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import polars as pl
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from onceflow.connectors.kafka.testing.fault_proxy import Api, Course, FaultProxy
from tests.integration.forks import Fork, Forks
from tests.integration.job_process import JobProcess
from tests.state_backend import with_backend

JOBS = Path(__file__).parent / "jobs"
ONCEFLOW = [sys.executable, "-c", "from onceflow.cli.app import main; main()"]
CLOSING = "closing"
"""The user of the records that close all windows before them; the judge leaves it out."""


# --- The job --------------------------------------------------------------------------------------


def manifests(checkpoint_dir: Path) -> list[dict[str, Any]]:
    """The durable checkpoints, oldest first, as they are on disk."""
    found = []
    for file in sorted((checkpoint_dir / "log").glob("[0-9]*.json")):
        with suppress(FileNotFoundError):  # retention was faster
            entry = json.loads(file.read_text())["entry"]
            if entry["kind"] == "checkpoint_completed":
                found.append({**entry["manifest"], "file": file})
    return found


def promised(manifest: Mapping[str, Any]) -> int:
    """Rows of output that the manifest promises."""
    return sum(o["rows"] for c in manifest["committables"] for o in c["payload"]["outputs"])


def holds_promise(proxy: FaultProxy, checkpoint_dir: Path) -> bool:
    """The newest checkpoint promises output that is held up. What is held alone may be no checkpoint's yet:
    rows are sent ahead."""
    durable = manifests(checkpoint_dir) if proxy.held else []
    return bool(durable) and promised(durable[-1]) > 0


def wait_for(condition: Callable[[], Any], job: JobProcess, timeout: float = 240) -> Any:
    """What the condition gives, once it is true."""
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {timeout} s\n{job.story()}"
        time.sleep(0.03)
    return found


StartJob = Callable[..., JobProcess]


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks | None]:
    """Where jobs and commands come from. A file of tests for which new interpreters matter, to start in or to
    go on in, has a fixture of this name that gives None."""
    forks = Forks()
    yield forks
    forks.close()


@pytest.fixture
def start_process(tmp_path: Path) -> Iterator[StartJob]:
    """`start_process(command, env, cwd)`: any command that runs a job, as a new process. Or with a function
    that starts it with two descriptors for its output."""
    with ExitStack() as stack:

        def start(command: Any, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> JobProcess:
            def run(stdout: int, stderr: int) -> subprocess.Popen[bytes] | Fork:
                if callable(command):
                    return command(stdout, stderr)
                environment = {**os.environ, **(env or {})}
                pipes: Any = {"stdout": stdout, "stderr": stderr}
                return subprocess.Popen(command, env=environment, cwd=cwd, start_new_session=True, **pipes)

            job = JobProcess(run, tmp_path / "job-errors.log")
            stack.callback(job.close)
            return job

        yield start


@pytest.fixture
def start_job(start_process: StartJob, forks: Forks | None) -> StartJob:
    """`start_job(checkpoint_dir, "--input", ..., parallelism=2)` runs tests/integration/jobs/totals.py.

    `threads[N]` is there at once; Spark where processes matter. A job with variables of its own in its
    environment (`env`) or behind another command (`on`) is a new interpreter.
    """

    def start(
        checkpoint_dir: Path,
        *arguments: str,
        program: Path = JOBS / "totals.py",
        master: str = "threads[2]",
        parallelism: int = 2,
        interval: str = "200 ms",
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        on: Sequence[str] = (),
    ) -> JobProcess:
        command = ["run", str(program), "--master", master, "--parallelism", str(parallelism)]
        command += ["--checkpoint-dir", str(checkpoint_dir), "--checkpoint-interval", interval, "--json"]
        command += [*with_backend(options), "--", *arguments]
        if forks is None or env or on:
            return start_process([*on, *ONCEFLOW, *command], env)
        return start_process(
            lambda stdout, stderr: forks.start(command, stdout=stdout, stderr=stderr, new_session=True)
        )

    return start


@pytest.fixture
def onceflow(forks: Forks | None) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`onceflow("status", DIR)`: another command, to its end."""

    def run(*arguments: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
        if forks is not None:
            return forks.run(arguments, timeout)
        command = [*ONCEFLOW, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)

    return run


# --- The input ------------------------------------------------------------------------------------


class Feed:
    """Purchases of random users, as JSON on a topic. Each partition's event times are at most
    `disorder_ms` out of order."""

    def __init__(self, servers: str, topic: str, partitions: int, seed: int, disorder_ms: int = 100) -> None:
        self.topic = topic
        self._partitions = partitions
        self._random = random.Random(seed)
        self._disorder_ms = disorder_ms
        self._sent = 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 100,  # at a few ms nearly every record is a request, of a broker on a busy core
                "message.timeout.ms": 300_000,
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,
                "error_cb": lambda _: None,
            }
        )

    def send(self, user: str, amount: int, ts: int, partition: int) -> None:
        value = b'{"user":"%s","amount":%d,"ts":%d}' % (user.encode(), amount, ts)
        while True:
            try:
                self._producer.produce(self.topic, value, partition=partition)
                break
            except BufferError:
                self._producer.poll(0.05)
        self._sent += 1
        if self._sent % 5_000 == 0:
            self._producer.poll(0)

    def load(
        self, count: int, start_ms: int, per_ms: float = 10, users: int = 1_000, partition: int | None = None
    ) -> int:
        """`count` records at once, `per_ms` of them per ms of event time; the event time they reach."""
        pick = self._random.randrange
        for i in range(count):
            at = start_ms + int(i / per_ms) - pick(self._disorder_ms)
            where = i % self._partitions if partition is None else partition
            self.send(f"u{pick(users):06d}", pick(1, 20_000), at, where)
        self._producer.flush()
        return start_ms + int(count / per_ms)

    def run(self, per_second: int, users: int = 1_000) -> None:
        """Go on in the background, with the wall clock as event time, until `close`."""

        def produce() -> None:
            began = time.monotonic()
            done = 0
            while not self._over.wait(0.02):
                now_ms = time.time_ns() // 1_000_000
                due = int((time.monotonic() - began) * per_second)
                pick = self._random.randrange
                for i in range(done, due):
                    ts = now_ms - pick(self._disorder_ms)
                    self.send(f"u{pick(users):06d}", pick(1, 20_000), ts, i % self._partitions)
                done = due
                self._producer.poll(0)

        self._thread = threading.Thread(target=produce, daemon=True)
        self._thread.start()

    def close(self, at_ms: int | None = None) -> None:
        """The end: two records per partition that close every window before them."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        at_ms = (at_ms or time.time_ns() // 1_000_000) + 7_200_000
        for partition in range(self._partitions):
            self.send(CLOSING, 0, at_ms, partition)
        self.flush()

    def flush(self) -> None:
        assert self._producer.flush(60) == 0, "the broker does not take the input"


@pytest.fixture
def feed() -> Iterator[Callable[..., Feed]]:
    """`feed(servers, topic, partitions, seed=1)`."""
    feeds: list[Feed] = []

    def make(servers: str, topic: str, partitions: int, seed: int = 1, **options: Any) -> Feed:
        feeds.append(Feed(servers, topic, partitions, seed, **options))
        return feeds[-1]

    yield make
    for each in feeds:
        each._over.set()


# --- The judge ------------------------------------------------------------------------------------


class _Purchase(msgspec.Struct):
    user: str
    amount: int
    ts: int


class _Total(msgspec.Struct):
    user: str
    window_end: int
    count: int
    total: int


def _frame(values: Sequence[bytes], kind: type[msgspec.Struct]) -> pl.DataFrame:
    rows = list(map(msgspec.json.Decoder(kind).decode, values))
    schema = {f.name: pl.String if f.type is str else pl.Int64 for f in msgspec.structs.fields(kind)}
    return pl.DataFrame({name: [getattr(row, name) for row in rows] for name in schema}, schema=schema)


def read_topic(servers: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """All values of a topic, up to its end now."""
    return [message.value() for message in read_messages(servers, topic, isolation)]


def read_messages(servers: str, topic: str, isolation: str = "read_committed") -> list[Message]:
    """All records of a topic, up to its end now, each partition in order. No offset comes twice: a client
    that went back would look like a job that wrote twice."""
    with ExitStack() as stack:
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "log_level": 0,
                "group.id": "judge",
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        stack.callback(consumer.close)
        partitions = consumer.list_topics(topic, timeout=240).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found: list[Message] = []
        read_to = dict.fromkeys(partitions, -1)
        at_end: set[int] = set()
        while len(at_end) < len(partitions):
            for message in consumer.consume(10_000, 0.2):
                error = message.error()
                if error is None:
                    where, offset = message.partition(), message.offset()
                    assert offset > read_to[where], f"the reader of {topic}-{where} went back to {offset}"
                    read_to[where] = offset
                    found.append(message)
                    at_end.discard(where)
                elif error.code() == KafkaError._PARTITION_EOF:
                    at_end.add(message.partition())
                elif not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:
                    raise AssertionError(f"the judge can't read {topic}: {error}")
        return found


@dataclass(frozen=True)
class Verdict:
    """What the judge says; `is_exact` is what every test wants."""

    rows: int
    missing: int
    doubled: int
    wrong: int
    places: str = ""
    """Where rows stand that are there twice: partition, and the offsets of the first and the last of a run,
    for each copy."""

    @property
    def is_exact(self) -> bool:
        return self.rows > 0 and self.missing == self.doubled == self.wrong == 0


class Judge:
    """Reads the topics of one broker."""

    def __init__(self, servers: str) -> None:
        self.servers = servers

    def purchases(self, *topics: str) -> pl.DataFrame:
        values = [v for topic in topics for v in read_topic(self.servers, topic, "read_uncommitted")]
        return _frame(values, _Purchase)

    def expected(self, *topics: str, window_ms: int = 500) -> pl.DataFrame:
        """The right answer: user, window_end, count, total."""
        rows = self.purchases(*topics).filter(pl.col("user") != CLOSING)
        return totals_of(rows, window_ms)

    def output(self, topic: str) -> pl.DataFrame:
        """What a read_committed consumer sees, the closing records' windows left out."""
        return self._placed(topic).drop("partition", "offset")

    def _placed(self, topic: str) -> pl.DataFrame:
        messages = read_messages(self.servers, topic)
        rows = _frame([m.value() for m in messages], _Total)
        places = [pl.Series("partition", [m.partition() for m in messages], pl.Int64)]
        places += [pl.Series("offset", [m.offset() for m in messages], pl.Int64)]
        return rows.with_columns(places).filter(pl.col("user") != CLOSING)

    def verdict(self, expected: pl.DataFrame, topic: str) -> Verdict:
        found = self._placed(topic)
        by = ["user", "window_end"]
        first = found.unique(by, keep="first")
        wrong = first.join(expected, on=[*by, "count", "total"], how="anti")
        missing = expected.join(first, on=by, how="anti")
        return Verdict(
            len(found), len(missing), len(found) - len(first), len(wrong), places_of_copies(found, by)
        )


def places_of_copies(found: pl.DataFrame, by: list[str]) -> str:
    copies = found.filter(pl.col("offset").count().over(by) > 1).with_columns(
        copy=pl.col("offset").rank("ordinal").over(by)
    )
    runs = copies.group_by("partition", "copy").agg(
        first=pl.col("offset").min(), last=pl.col("offset").max(), rows=pl.len()
    )
    return "\n".join(
        f"partition {r['partition']}, copy {r['copy']}: {r['rows']} rows at {r['first']} to {r['last']}"
        for r in runs.sort("partition", "copy").iter_rows(named=True)
    )


def totals_of(rows: pl.DataFrame, window_ms: int) -> pl.DataFrame:
    end = ((pl.col("ts") // window_ms + 1) * window_ms).alias("window_end")
    return rows.group_by("user", end).agg(count=pl.len().cast(pl.Int64), total=pl.col("amount").sum())


class Follower:
    """Reads an output topic as it becomes visible, and notes when."""

    def __init__(self, servers: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "follower",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                # Ten answers a second of each broker, however many batches come.
                "fetch.wait.max.ms": 100,
                "fetch.min.bytes": 1_000_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                "error_cb": lambda _: None,
            }
        )
        partitions = self._consumer.list_topics(topic, timeout=240).topics[topic].partitions
        self._consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        self.arrivals: list[float] = []
        """Monotonic times, one per row."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        while not self._over.is_set():
            messages = self._consumer.consume(5_000, 0.05)
            now = time.monotonic()
            self.arrivals += [now for m in messages if m.error() is None]

    def wait_rows(self, count: int, job: JobProcess, timeout: float = 240) -> None:
        """Wait until that many rows are visible."""
        deadline = time.monotonic() + timeout
        while len(self.arrivals) < count:
            assert job.is_running, f"the job ended\n{job.story()}"
            missing = f"{len(self.arrivals)} of {count} rows within {timeout} s"
            assert time.monotonic() < deadline, f"{missing}\n{job.story()}"
            self._over.wait(0.02)

    def wait_some(self, seconds: float) -> None:
        """A moment drawn by the test's seed: what is hit within it is chance, and meant to be."""
        self._over.wait(seconds)

    def first_after(self, moment: float, job: JobProcess, timeout: float = 240) -> float:
        """When the first row after this moment arrived."""
        deadline = time.monotonic() + timeout
        while not (self.arrivals and self.arrivals[-1] > moment):
            assert time.monotonic() < deadline, f"no row within {timeout} s\n{job.story()}"
            self._over.wait(0.01)
        return next(at for at in self.arrivals if at > moment)

    def close(self) -> None:
        """Ask for no more; what has arrived stays. May be called again."""
        if not self._over.is_set():
            self._over.set()
            self._thread.join()
            self._consumer.close()


@pytest.fixture
def judge() -> Callable[[str], Judge]:
    return Judge


@pytest.fixture
def follow() -> Iterator[Callable[[str, str], Follower]]:
    followers: list[Follower] = []

    def make(servers: str, topic: str) -> Follower:
        followers.append(Follower(servers, topic))
        return followers[-1]

    yield make
    for follower in followers:
        follower.close()


@contextmanager
def holding_commits(servers: str) -> Iterator[FaultProxy]:
    """A way to the broker that keeps every Produce request: a checkpoint whose output takes it becomes
    durable, and its commit hangs."""
    with FaultProxy(servers) as proxy:
        proxy.on_request = lambda request: Course.HOLD if request.api == Api.PRODUCE else Course.PASS
        yield proxy


ENGINE = SimpleNamespace(
    manifests=manifests,
    promised=promised,
    holds_promise=holds_promise,
    wait_for=wait_for,
    holding_commits=holding_commits,
    read_topic=read_topic,
    totals_of=totals_of,
    jobs=JOBS,
)


@pytest.fixture
def engine() -> SimpleNamespace:
    """The functions of this file, for tests."""
    return ENGINE
