"""A world for writers of Kafka's transactions: attempts of a tiny job on the broker in memory, with crashes,
lost and late requests and zombies where a chooser wants them. The checker looks at what a read_committed
reader sees."""

from __future__ import annotations

import contextlib
import functools
import io
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import pyarrow as pa

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA, TopicDescription
from onceflow.connectors.kafka.testing.fake import FakeClient, FakeNetwork, Impatience, ProcessCrash
from onceflow.connectors.kafka.testing.fake_broker import FakeKafka
from onceflow.connectors.kafka.transactions.staged_writer import StagedSettings, StagedWriter
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import Committable, SinkContext
from onceflow.runtime.errors import Fenced, Retryable
from onceflow.runtime.testing.choices import Choices, SeededChoices
from onceflow.runtime.testing.violations import Breach, Violation

ATTEMPTS_MAX = 12


class Files:
    """StagedFiles in memory: a file is durable once it is closed."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def create(self, name: str) -> tuple[str, BinaryIO]:
        path = f"{len(self.content)}-{name}"
        self.content[path] = b""
        return path, File(functools.partial(self.content.__setitem__, path))

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO(self.content[path])


class File(io.BytesIO):
    def __init__(self, keep: Callable[[bytes], None]) -> None:
        super().__init__()
        self._keep = keep

    def close(self) -> None:
        self._keep(self.getvalue())
        super().close()


@dataclass(frozen=True)
class Manifest:
    checkpoint_id: int
    next_row: int
    committables: Sequence[Committable] = ()


@dataclass
class World:
    """Attempts of a tiny job: each checkpoint adds a row per subtask; rows are 0, 1, 2, ..."""

    choices: Choices
    writer_type: type[Any] = StagedWriter
    """A SinkWriter with `write_rows` and `send_ahead`."""
    rows_total: int = 3
    crashes: int = 1
    faults: int = 1
    zombies: int = 0
    aborts: int = 1
    parallelisms: Sequence[int] = (1,)
    ahead: int = 0
    """Rows are sent ahead of their barrier (1), of their manifest (2), both (3), or where it is chosen (4).
    From 2 on, rows behind a barrier are there before its commit."""
    broker: FakeKafka = field(default_factory=lambda: FakeKafka({"out": TopicDescription(1)}))
    files: Files = field(default_factory=Files)
    manifests: list[Manifest] = field(default_factory=lambda: [Manifest(0, 0)])
    attempt: int = 0

    def run(self) -> None:
        for _ in range(ATTEMPTS_MAX):
            self.run_attempt()
            if self.manifests[-1].next_row >= self.rows_total:
                break
        else:
            raise Violation(Breach.STUCK, f"no end after {ATTEMPTS_MAX} attempts")
        # Heal: what is promised must become visible, and what is late must change nothing.
        self.crashes = self.faults = self.zombies = 0
        self.run_attempt()
        for arrives in self.broker.late:
            with contextlib.suppress(Fenced):
                arrives()
        self.check(is_complete=True)

    def run_attempt(self) -> None:
        self.attempt += 1
        try:
            self._live(self.attempt, self.parallelisms[(self.attempt - 1) % len(self.parallelisms)])
        except ProcessCrash:
            pass
        except (Retryable, Fenced):
            pass  # the coordinator starts the next attempt
        self.check(is_complete=False)

    def _live(self, attempt: int, parallelism: int) -> None:
        network = FakeNetwork(self.broker, self.choices, self.crashes, self.faults)
        if self.zombies:
            network.on_pause = self._another_attempt
        restored = self.manifests[-1]
        try:
            writers = [self._open(attempt, i, parallelism, restored, network) for i in range(parallelism)]
            for i, writer in enumerate(writers):
                writer.recover([c for c in restored.committables if int(c.owner) % parallelism == i])
            self._run_checkpoints(attempt, writers, restored, network)
        finally:
            self.crashes, self.faults = network.crashes_max, network.faults_max

    def _run_checkpoints(
        self, attempt: int, writers: Sequence[Any], restored: Manifest, network: FakeNetwork
    ) -> None:
        row = written = restored.next_row
        checkpoint_id = restored.checkpoint_id
        while row < self.rows_total:
            checkpoint_id += 1
            if written == row:
                written = self._write(writers, row)
            row = written
            committables = [writer.pre_commit(checkpoint_id).stage() for writer in writers]
            if self.ahead >= 2:
                written = self._write(writers, row)
            for writer in writers:
                self._send_ahead(writer, 2)
            if self.attempt != attempt:
                return  # the conditional create fails: a newer attempt owns the job
            if self.aborts and row < self.rows_total and self.choices.choose(2, "the checkpoint is aborted"):
                self.aborts -= 1
                continue
            self.manifests.append(Manifest(checkpoint_id, row, committables))
            if network.crashes_max and self.choices.choose(2, "crash after persist"):
                network.crashes_max -= 1
                raise ProcessCrash("after persist")
            for writer in writers:
                writer.commit(checkpoint_id)
            self.check(is_complete=False)

    def _write(self, writers: Sequence[Any], row: int) -> int:
        """A row to each, from this one on; the next one's number."""
        for number, writer in enumerate(writers, row):
            writer.write_rows(one_row(number))
            self._send_ahead(writer, 1)
        return row + len(writers)

    def _send_ahead(self, writer: Any, when: int) -> None:
        if self.ahead & when or (self.ahead == 4 and self.choices.choose(2, "send ahead")):
            writer.send_ahead()

    def _open(
        self, attempt: int, subtask: int, parallelism: int, restored: Manifest, network: FakeNetwork
    ) -> Any:
        context = SinkContext(
            "job",
            "l",
            "out",
            subtask,
            parallelism,
            attempt,
            restored.checkpoint_id,
            self.files,
            ManualClock(),
            PRODUCE_SCHEMA,
        )
        return self.writer_type(context, FakeClient(network), StagedSettings(["out"]), Impatience())

    def _another_attempt(self) -> None:
        """The running attempt stands still, a new one takes over, then the old one wakes up."""
        self.zombies -= 1
        self.run_attempt()

    def check(self, *, is_complete: bool) -> None:
        seen = Counter(int(row["value"]) for row in self.broker.visible)
        durable = set(range(self.manifests[-1].next_row))
        if max(seen.values(), default=0) > 1:
            raise Violation(Breach.DOUBLED, f"doubled: {self.broker.visible}")
        if not set(seen) <= durable:
            raise Violation(Breach.EARLY, f"visible before its checkpoint was durable: {set(seen) - durable}")
        if is_complete and set(seen) != durable:
            raise Violation(Breach.LOST, f"lost: {durable - set(seen)}")


@functools.cache  # a sixth of a run otherwise
def one_row(number: int) -> pa.RecordBatch:
    row = {"topic": "out", "partition": 0, "value": str(number).encode()}
    return pa.RecordBatch.from_pylist([row], PRODUCE_SCHEMA)


class Rare:
    """Mostly the fair course: else all faults are spent in the first steps."""

    def __init__(self, choices: SeededChoices) -> None:
        self._choices = choices

    def choose(self, n: int, what: str = "") -> int:
        if what != "a late request arrives" and self._choices.choose(6, what):
            return 0
        return self._choices.choose(n, what)
