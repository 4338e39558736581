"""The channels that a slot's tasks have, and how they are made.

Channels within a slot hand elements over by reference; channels between slots of different processes
go through `exchange/transport.py`. In one process (LocalRunner, simulation) all are by reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from onceflow.runtime.clock import Clock
from onceflow.runtime.exchange.channel import (
    CAPACITY_BYTES,
    InputChannel,
    LocalChannel,
    OutputChannel,
    capacity_of,
)
from onceflow.runtime.exchange.frames import FrameCodec
from onceflow.runtime.exchange.record_writer import (
    BroadcastWriter,
    ForwardWriter,
    KeyedWriter,
    RebalanceWriter,
    RecordWriter,
)
from onceflow.runtime.exchange.transport import ChannelKey, Network
from onceflow.runtime.graph.job_graph import Broadcast, ByKey, Edge, Forward, JobGraph, Rebalance

CONNECT_TIMEOUT_S = 30.0


class Wiring(Protocol):
    """The channels of one slot."""

    def outputs(self, edge: Edge) -> Sequence[OutputChannel]:
        """The channels to each downstream subtask, by number; Forward: one, to the own."""
        ...

    def inputs(self, edge: Edge) -> Sequence[InputChannel]:
        """The channels from each upstream subtask, by number; Forward: one, from the own."""
        ...


def record_writer(edge: Edge, wiring: Wiring, slot: int, max_parallelism: int) -> RecordWriter:
    """The sending side of an edge for the upstream subtask in this slot."""
    channels, has = wiring.outputs(edge), edge.with_origin
    match edge.partitioning:
        case Forward():
            return ForwardWriter(channels[0], has)
        case Rebalance():
            return RebalanceWriter(channels, slot, has)
        case Broadcast():
            return BroadcastWriter(channels, has)
        case ByKey(columns):
            return KeyedWriter(channels, columns, max_parallelism, has)


class LocalWiring:
    """Channels between slots that live in one process and one thread."""

    def __init__(self) -> None:
        self._channels: dict[tuple[int, int, int], LocalChannel] = {}

    def slot(self, slot: int, parallelism: int) -> Wiring:
        """The channels as one of the slots sees them."""
        return _SlotOfLocalWiring(self, slot, parallelism)

    def channel(
        self, edge_id: int, upstream: int, downstream: int, capacity_bytes: int = CAPACITY_BYTES
    ) -> LocalChannel:
        """`capacity_bytes`: if it is not there yet."""
        return self._channels.setdefault((edge_id, upstream, downstream), LocalChannel(capacity_bytes))


class _SlotOfLocalWiring:
    def __init__(self, wiring: LocalWiring, slot: int, parallelism: int) -> None:
        self._wiring = wiring
        self._slot = slot
        self._parallelism = parallelism

    def outputs(self, edge: Edge) -> Sequence[OutputChannel]:
        others = self._others(edge)
        capacity_bytes = capacity_of(len(others))
        return [self._wiring.channel(edge.edge_id, self._slot, other, capacity_bytes) for other in others]

    def inputs(self, edge: Edge) -> Sequence[InputChannel]:
        others = self._others(edge)
        capacity_bytes = capacity_of(len(others))
        return [self._wiring.channel(edge.edge_id, other, self._slot, capacity_bytes) for other in others]

    def _others(self, edge: Edge) -> Sequence[int]:
        return (self._slot,) if isinstance(edge.partitioning, Forward) else range(self._parallelism)


class NetworkWiring:
    """Channels of a slot whose peers are other processes. Made once all slots are known."""

    def __init__(
        self,
        network: Network,
        graph: JobGraph,
        slot: int,
        peers: Sequence[tuple[str, int]],
        clock: Clock | None = None,
        goal_ms: float | None = None,
    ) -> None:
        """Connects to every peer and waits until every peer has connected. `goal_ms`, which needs a clock:
        for how long what is in a channel may keep its receiver busy; None: whatever it takes. Raises
        Retryable."""
        capacity_bytes = capacity_of(len(peers))
        self._local = {
            e.edge_id: LocalChannel(
                CAPACITY_BYTES if isinstance(e.partitioning, Forward) else capacity_bytes, clock, goal_ms
            )
            for e in graph.edges
        }
        self._slot = slot
        self._parallelism = len(peers)
        crossing = [e for e in graph.edges if not isinstance(e.partitioning, Forward)]
        others = [other for other in range(len(peers)) if other != slot]
        self._remote_outputs: Mapping[ChannelKey, OutputChannel] = {
            (edge.edge_id, other): network.connect(
                peers[other], edge.edge_id, codec_of(edge), other, capacity_bytes, goal_ms
            )
            for edge in crossing
            for other in others
        }
        expected = {(edge.edge_id, other): codec_of(edge) for edge in crossing for other in others}
        self._remote_inputs = network.inputs(expected, CONNECT_TIMEOUT_S, capacity_bytes, goal_ms, clock)

    def outputs(self, edge: Edge) -> Sequence[OutputChannel]:
        if isinstance(edge.partitioning, Forward):
            return (self._local[edge.edge_id],)
        return [
            self._local[edge.edge_id] if other == self._slot else self._remote_outputs[edge.edge_id, other]
            for other in range(self._parallelism)
        ]

    def inputs(self, edge: Edge) -> Sequence[InputChannel]:
        if isinstance(edge.partitioning, Forward):
            return (self._local[edge.edge_id],)
        return [
            self._local[edge.edge_id] if other == self._slot else self._remote_inputs[edge.edge_id, other]
            for other in range(self._parallelism)
        ]


def codec_of(edge: Edge) -> FrameCodec:
    """How the records of an edge look on the wire; the same for both of its ends."""
    return FrameCodec(
        edge.schema,
        has_event_time=edge.has_event_time,
        has_key_hash=isinstance(edge.partitioning, ByKey),
        with_origin=edge.with_origin,
        has_kinds=edge.has_kinds,
    )
