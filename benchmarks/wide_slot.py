"""How much memory one slot of a wide job holds: a real slot in a process of its own, all others are played.

    python -m benchmarks.wide_slot --parallelism 2 128

The slot runs the main job (examples/windowed_totals.py) with its own source and sink on the embedded Kafka,
as one of `p` slots. Two more processes play the driver (a checkpoint each second) and the other p - 1 slots:
each of those has a connection to the slot and one from it, sends the slot its share of batches of 40,000 rows
as fast as the slot takes them, and reads what it sends. So gates and sockets are as full as they get. The
players keep the slot's event time, so that state is that of windows that are open. `--keys` are those of the
slot alone. Prints the slot's resident memory, MB: before its tasks are made, with all connections made, and
the most while records flow. What the kernel keeps in socket buffers belongs to no process and is not in it.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import queue
import secrets
import selectors
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from benchmarks.workload import START_MS, Purchases, load
from examples.windowed_totals import build
from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import SplitProgress
from onceflow.runtime.control.messages import (
    Acked,
    Assignment,
    Commit,
    Committed,
    Failed,
    Hello,
    Message,
    Running,
    Shutdown,
    Trigger,
)
from onceflow.runtime.control.server import ControlServer
from onceflow.runtime.exchange.channel import capacity_of
from onceflow.runtime.exchange.handshake import answer, call
from onceflow.runtime.exchange.key_groups import Partitioner
from onceflow.runtime.exchange.transport import SOCKET_BUFFER_BYTES, PeerLostError, RemoteInput, RemoteOutput
from onceflow.runtime.exchange.wiring import codec_of
from onceflow.runtime.graph.job_graph import ByKey, Edge, JobGraph, SourceNode
from onceflow.runtime.records import Barrier, Records, Watermark
from onceflow.runtime.slot.process import SlotLaunch, run_slot

HOST = "127.0.0.1"
BATCH_ROWS, ROWS_PER_MS, DISORDER_MS = 40_000, 100, 2_000
"""What an upstream slot reads at once, and how much of it is a millisecond of event time."""
AHEAD_MS = 4_000
"""How far the played slots may be ahead of the real one's own source, in event time."""
QUEUED_BYTES = 64 << 10
CHECKPOINT_EVERY_S = 1.0
LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Setting:
    """What the processes share."""

    parallelism: int
    keys: int
    secret: bytes
    servers: str
    input: str
    output: str
    folder: str

    def graph(self) -> JobGraph:
        arguments = ["--bootstrap-servers", self.servers, "--input", self.input, "--output", self.output]
        return build(arguments).build()


# --- The slot -------------------------------------------------------------------------------------


def be_slot(setting: Setting, control: tuple[str, int]) -> None:
    url = f"{setting.folder}/checkpoints-{setting.parallelism}"
    launch = SlotLaunch(1, setting.graph(), control, setting.secret, url, checkpoint_interval_ms=1_000)
    run_slot(launch, 0, HOST, end_process=lambda: os._exit(1))


# --- The other slots ------------------------------------------------------------------------------


def be_others(setting: Setting, address: tuple[str, int], listener: socket.socket) -> None:
    """Play slots 1 to p - 1 until the real one closes its connections."""
    others = Others(setting, address, listener)
    with contextlib.suppress(PeerLostError):
        while True:
            others.hear()
            others.send()


class Others:
    """The connections of the played slots with the real one."""

    def __init__(self, setting: Setting, address: tuple[str, int], listener: socket.socket) -> None:
        graph = setting.graph()
        [edge] = [edge for edge in graph.edges if isinstance(edge.partitioning, ByKey)]
        self._selector = selectors.DefaultSelector()
        self._inputs: list[RemoteInput] = []
        arguments = (setting, listener, edge, self._selector, self._inputs)
        welcoming = threading.Thread(target=_welcome, args=arguments)
        welcoming.start()
        self._outputs = [
            _connected(setting, address, edge, self._selector, slot) for slot in range(1, setting.parallelism)
        ]
        welcoming.join()
        self._rounds = _rounds(setting, graph, edge)
        self._made: list[tuple[Records, Watermark]] = []
        self._sent = [0] * len(self._outputs)
        """How many rounds each has sent."""
        self._reached_ms = START_MS

    def hear(self) -> None:
        """Take what the real slot sends; its barrier goes back to it from each of us."""
        for key, events in self._selector.select(0.001):
            key.data.on_ready(events)
        for each in self._inputs:
            while (element := each.receive()) is not None:
                if isinstance(element, Watermark):
                    self._reached_ms = max(self._reached_ms, element.time_ms)
                elif isinstance(element, Barrier) and each is self._inputs[0]:
                    for output in self._outputs:
                        output.send(element)

    def send(self) -> None:
        """The next round on each connection that has room."""
        for number, output in enumerate(self._outputs):
            if self._sent[number] == len(self._made):
                self._made.append(next(self._rounds))
            records, watermark = self._made[self._sent[number]]
            if output.has_room and watermark.time_ms <= self._reached_ms + AHEAD_MS:
                output.send(records)
                output.send(watermark)
                self._sent[number] += 1


def _welcome(
    setting: Setting,
    listener: socket.socket,
    edge: Edge,
    selector: selectors.BaseSelector,
    inputs: list[RemoteInput],
) -> None:
    """The real slot's connections to the others."""
    for _ in range(setting.parallelism - 1):
        connection, _ = listener.accept()
        answer(connection, setting.secret)
        _as_a_slot_has_it(connection, setting.parallelism)
        inputs.append(RemoteInput(connection, codec_of(edge), selector, "the slot"))


def _connected(
    setting: Setting, address: tuple[str, int], edge: Edge, selector: selectors.BaseSelector, slot: int
) -> RemoteOutput:
    connection = socket.create_connection(address)
    call(connection, setting.secret, {"attempt": 1, "edge": edge.edge_id, "slot": slot})
    _as_a_slot_has_it(connection, setting.parallelism)
    return RemoteOutput(connection, codec_of(edge), selector, "the slot", QUEUED_BYTES)


def _as_a_slot_has_it(connection: socket.socket, parallelism: int) -> None:
    buffer_bytes = min(SOCKET_BUFFER_BYTES, capacity_of(parallelism) // 2)
    connection.setblocking(False)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)


def _rounds(setting: Setting, graph: JobGraph, edge: Edge) -> Iterator[tuple[Records, Watermark]]:
    """What one upstream slot sends to the real one, batch by batch."""
    assert isinstance(edge.partitioning, ByKey)
    partitioner = Partitioner(edge.partitioning.columns, graph.max_parallelism, setting.parallelism)
    users = _users(setting, partitioner)
    chance = np.random.default_rng(7)
    count, step_ms = BATCH_ROWS // setting.parallelism, BATCH_ROWS // ROWS_PER_MS
    time_ms = START_MS + DISORDER_MS
    while True:
        times = time_ms + np.sort(chance.integers(0, step_ms, count)) - chance.integers(0, DISORDER_MS, count)
        columns = {
            "user": users.take(pa.array(chance.integers(0, len(users), count))),
            "amount": pa.array(chance.integers(1, 20_000, count)),
        }
        batch = pa.RecordBatch.from_arrays([columns[name] for name in edge.schema.names], schema=edge.schema)
        [(_, records)] = partitioner.split(Records(batch, times))
        time_ms += step_ms
        yield records, Watermark(time_ms - DISORDER_MS - 1)


def _users(setting: Setting, partitioner: Partitioner) -> pa.Array:
    """The keys of subtask 0."""
    found: list[pa.Array] = []
    first, at_once = 0, 100_000
    while sum(map(len, found)) < setting.keys:
        batch = pa.record_batch({"user": [f"u{n:06d}" for n in range(first, first + at_once)]})
        found += [part.batch["user"] for subtask, part in partitioner.split(Records(batch)) if not subtask]
        first += at_once
    return pa.concat_arrays(found)[: setting.keys]


# --- The driver -----------------------------------------------------------------------------------


class Driver:
    """Plays the driver of an attempt with one slot that is real."""

    def __init__(self, setting: Setting, split: SplitProgress, source: str) -> None:
        self._setting = setting
        self._split = split
        self._source = source
        self._heard: queue.SimpleQueue[tuple[int, Message]] = queue.SimpleQueue()
        self._server = ControlServer(setting.secret, HOST, self._on_messages, lambda peer: None)
        self._peer = 0
        self.address = self._server.address
        self.completed = 0

    def wait(self, kind: type[Any], timeout_s: float = 120.0) -> Any:
        """The next message of this kind; what comes before it is dropped, but for a failure."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._peer, message = self._heard.get(timeout=max(0.0, deadline_s - time.monotonic()))
            if isinstance(message, Failed):
                raise SystemExit(f"the slot failed: {message.reason}\n{message.detail}")
            if isinstance(message, kind):
                return message

    def assign(self, own: tuple[str, int], others: tuple[str, int]) -> None:
        p = self._setting.parallelism
        splits = {self._source: [self._split]}
        self._send(Assignment(1, 0, p, f"wide{p}", 0, [own] + [others] * (p - 1), splits, [], {}))

    def checkpoint(self) -> None:
        self.completed += 1
        self._send(Trigger(self.completed, False))
        self.wait(Acked)
        self._send(Commit(self.completed))
        self.wait(Committed)

    def end(self) -> None:
        self._send(Shutdown("it was measured"))
        self._server.close()

    def _send(self, message: Message) -> None:
        self._server.send(self._peer, message)

    def _on_messages(self, messages: Sequence[tuple[int, Any]]) -> None:
        for each in messages:
            self._heard.put(each)


# --- The measurement ------------------------------------------------------------------------------


def measure(setting: Setting, seconds: float) -> None:
    processes = multiprocessing.get_context("spawn")
    [source] = [n for n in setting.graph().chains[0].nodes.values() if isinstance(n, SourceNode)]
    enumerator = source.source.open_enumerator("wide", SystemClock())
    [split] = enumerator.initial_splits()
    enumerator.close()
    driver = Driver(setting, SplitProgress(split), source.uid)
    slot = processes.Process(target=be_slot, args=(setting, driver.address))
    slot.start()
    hello = driver.wait(Hello)
    memory = psutil.Process(slot.pid)
    before = memory.memory_info().rss
    with socket.create_server((HOST, 0), backlog=512) as listener:
        others = processes.Process(target=be_others, args=(setting, hello.data_address, listener))
        others.start()
        driver.assign(hello.data_address, listener.getsockname()[:2])
        driver.wait(Running)
    seen = [memory.memory_info().rss]
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(LOOK_S):
            seen.append(memory.memory_info().rss)

    looking = threading.Thread(target=look)
    looking.start()
    until_s = time.monotonic() + seconds
    try:
        while time.monotonic() < until_s:
            next_s = time.monotonic() + CHECKPOINT_EVERY_S
            driver.checkpoint()
            time.sleep(max(0.0, next_s - time.monotonic()))
    finally:
        is_over.set()
        looking.join()
        driver.end()
        slot.join(10)
        for process in (slot, others):
            process.kill()
            process.join()
    print(
        f"p={setting.parallelism}, {setting.keys:,} keys: {before >> 20} MB before its tasks, "
        f"{seen[0] >> 20} with {2 * (setting.parallelism - 1)} connections, at most {max(seen) >> 20}, "
        f"{seen[-1] >> 20} after {seconds:.0f} s and {driver.completed} checkpoints",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parallelism", type=int, nargs="+", default=[2, 128])
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--records", type=int, default=8_000_000, help="in the slot's own split")
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="onceflow-bench-") as folder,
        EmbeddedKafka(Path(folder) / "kafka") as kafka,
    ):
        kafka.create_topic("purchases", 1)
        load(kafka.bootstrap_servers, "purchases", Purchases(options.records, 1), lambda done: None)
        for parallelism in options.parallelism:
            output = kafka.create_topic(f"totals-{parallelism}", 4)
            measure(
                Setting(
                    parallelism, options.keys, secrets.token_bytes(32), kafka.bootstrap_servers,
                    "purchases", output, folder,
                ),
                options.seconds,
            )  # fmt: skip


if __name__ == "__main__":
    main()
