"""The slots of a wide job that are played around one that is real: see wide_slot.py."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.workload import START_MS
from examples.windowed_totals import build
from onceflow.runtime.exchange.channel import capacity_of
from onceflow.runtime.exchange.channel_bound import ChannelBound
from onceflow.runtime.exchange.key_groups import Partitioner
from onceflow.runtime.exchange.remote_channel import PeerLostError, RemoteInput, RemoteOutput
from onceflow.runtime.exchange.transport import SOCKET_BUFFER_BYTES
from onceflow.runtime.exchange.wiring import codec_of
from onceflow.runtime.graph.job_graph import ByKey, Edge, JobGraph
from onceflow.runtime.records import Barrier, Records, Watermark
from onceflow.runtime.sockets.handshake import answer, call

HOST = "127.0.0.1"
BATCH_ROWS, ROWS_PER_MS, DISORDER_MS = 40_000, 100, 2_000
"""What an upstream slot reads at once, and how much of it is a millisecond of event time."""
AHEAD_MS = 4_000
"""How far the played slots may be ahead of the real one's own source, in event time."""
QUEUED_BYTES = 64 << 10


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
    return RemoteOutput(connection, codec_of(edge), selector, "the slot", ChannelBound(QUEUED_BYTES, None))


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
