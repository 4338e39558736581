"""A tiny job with a real KafkaSink, to be killed: one subtask, its checkpoints are files of a folder.

Run as a program with one argument, JSON: bootstrap_servers, topic, folder, rows (per checkpoint),
checkpoints (how many in all), kill (null, or method, after, nth: SIGKILL itself there),
transaction_timeout, delivery_timeout, second_topic (null, or: rows go to both topics, every other one to
each, and every fifth is a delete), two_phase (rows are written once, and prepared). Prints a line after each
step.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
import pyarrow as pa

from onceflow.connectors.kafka.client import KafkaClient, LedgerKey
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.transactions.librdkafka_client import LibrdkafkaClient
from onceflow.connectors.kafka.transactions.prepared_writer import PreparedWriter
from onceflow.connectors.kafka.transactions.producer_settings import ProducerSettings
from onceflow.connectors.kafka.transactions.sink_writer import CommittingWriter, KafkaSinkWriter
from onceflow.connectors.kafka.transactions.staged_writer import StagedSettings, StagedWriter
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import Committable, SinkContext
from onceflow.runtime.records import Records, RowKind
from onceflow.runtime.testing.faults import CrashAt
from onceflow.sinks.kafka import KafkaSink


def kill_self() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


class Files:
    """StagedFiles in a folder; names are unique per attempt."""

    def __init__(self, folder: Path, attempt: int) -> None:
        self._folder = folder
        self._attempt = attempt
        self._count = 0

    def create(self, name: str) -> tuple[str, BinaryIO]:
        self._count += 1
        path = f"{self._attempt}-{self._count}-{name}"
        return path, (self._folder / path).open("xb")

    def open(self, path: str) -> BinaryIO:
        return (self._folder / path).open("rb")


class KillingClient:
    """Counts a method's calls over the client and all its producers; the process dies at the nth. From the
    second checkpoint of an attempt on, rows are sent ahead: before the manifest."""

    def __init__(self, client: KafkaClient, kill: dict[str, Any]) -> None:
        self._client: Any = CrashAt(client, crash=kill_self, **kill)
        self._kill = kill
        self._calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def open_producer(self, ledger: LedgerKey) -> Any:
        return _CountingProducer(self._client.open_producer(ledger), self)

    def wrap(self, call: Any) -> Any:
        def killing(*arguments: Any) -> Any:
            self._calls += 1
            if self._calls == self._kill["nth"] and not self._kill["after"]:
                kill_self()
            result = call(*arguments)
            if self._calls == self._kill["nth"]:
                kill_self()
            return result

        return killing


class _CountingProducer:
    def __init__(self, producer: object, client: KillingClient) -> None:
        self._producer = producer
        self._client = client

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._producer, name)
        return self._client.wrap(attribute) if name == self._client._kill["method"] else attribute


class Checkpoints:
    """Manifests in a folder: N.json, made by link, which fails if it is there (conditional create)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def latest(self) -> dict[str, Any]:
        ids = sorted(int(path.stem) for path in self.folder.glob("*.json"))
        if not ids:
            return {"checkpoint_id": 0, "next_row": 0, "committable": None}
        content: dict[str, Any] = json.loads((self.folder / f"{ids[-1]}.json").read_text())
        return content

    def persist(self, checkpoint_id: int, next_row: int, committable: Committable) -> None:
        temporary = self.folder / f"tmp-{uuid.uuid4().hex}"
        manifest = {"checkpoint_id": checkpoint_id, "next_row": next_row, "committable": asdict(committable)}
        temporary.write_text(json.dumps(manifest))
        os.link(temporary, self.folder / f"{checkpoint_id}.json")

    def next_attempt(self) -> int:
        attempt = 1
        while True:
            try:
                (self.folder / f"attempt-{attempt}").touch(exist_ok=False)
            except FileExistsError:
                attempt += 1
            else:
                return attempt


def main(config: dict[str, Any]) -> None:
    checkpoints: Any = Checkpoints(Path(config["folder"]))
    kill = config.get("kill")
    attempt = checkpoints.next_attempt()
    latest = checkpoints.latest()
    context = SinkContext(
        job="kills",
        lineage=Path(config["folder"]).name,
        uid="out",
        subtask=0,
        parallelism=1,
        attempt=attempt,
        restored_checkpoint_id=latest["checkpoint_id"],
        files=Files(Path(config["folder"]), attempt),
        clock=SystemClock(),
        schema=pa.schema([]),
        on_wait=lambda reason: print("wait", reason, flush=True),
    )
    output = open_output(config, context, kill)
    writer = KafkaSinkWriter(sink_of(config).rows_to_topics, context, output)
    if kill and kill["method"] in ("persist",):
        checkpoints = CrashAt(checkpoints, crash=kill_self, **kill)
    restored = latest["committable"]
    writer.recover([Committable(**restored)] if restored else [])
    print("recovered", flush=True)
    row, checkpoint_id = latest["next_row"], latest["checkpoint_id"]
    while checkpoint_id < config["checkpoints"]:
        checkpoint_id += 1
        numbers = list(range(row, row + config["rows"]))
        writer.write(rows_of(config, numbers))
        row += config["rows"]
        pre_commit: Any = writer.pre_commit(checkpoint_id)
        # Here and not on a thread, so that a window is always the same.
        output.send() if isinstance(output, PreparedWriter) else output.send_ahead()
        if kill and kill["method"] == "stage" and checkpoint_id == latest["checkpoint_id"] + kill["nth"]:
            pre_commit = CrashAt(pre_commit, "stage", after=kill["after"], crash=kill_self)
        checkpoints.persist(checkpoint_id, row, pre_commit.stage())
        print("persisted", checkpoint_id, flush=True)
        writer.commit(checkpoint_id)
        print("committed", checkpoint_id, flush=True)
    writer.close()


def sink_of(config: dict[str, Any]) -> KafkaSink:
    servers = config["bootstrap_servers"]
    if config.get("second_topic"):
        return KafkaSink(servers, key="user", topic_column="to", upsert=True)
    return KafkaSink(servers, config["topic"], key="user")


def rows_of(config: dict[str, Any], numbers: list[int]) -> Records:
    second = config.get("second_topic")
    if not second:
        users = [f"u{n % 7}" for n in numbers]
        return Records(pa.RecordBatch.from_pydict({"user": users, "n": numbers}))
    to = [second if n % 2 else config["topic"] for n in numbers]
    batch = pa.RecordBatch.from_pydict({"user": [f"u{n}" for n in numbers], "n": numbers, "to": to})
    kinds = np.array([RowKind.INSERT if n % 5 else RowKind.DELETE for n in numbers], np.int8)
    return Records(batch, kind=kinds)


def open_output(
    config: dict[str, Any], context: SinkContext, kill: dict[str, Any] | None
) -> CommittingWriter:
    servers, topic = config["bootstrap_servers"], config["topic"]
    client: Any = LibrdkafkaClient(
        KafkaOptions(servers), ProducerSettings(int(config.get("transaction_timeout", 60_000)))
    )
    if kill:
        client = KillingClient(client, kill)
    topics = [] if config.get("second_topic") else [topic]
    settings = StagedSettings(topics, delivery_timeout_ms=int(config.get("delivery_timeout", 60_000)))
    if config.get("two_phase"):
        return PreparedWriter(context, client, settings)
    return StagedWriter(context, client, settings)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
