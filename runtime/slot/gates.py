"""Gates: the gate of a chain that is no source, what is restored into it, and how barriers overtake there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from onceflow.runtime.checkpoint.alignment import Alignment
from onceflow.runtime.checkpoint.options import BarrierOptions
from onceflow.runtime.exchange.channel import InputChannel
from onceflow.runtime.exchange.input_gate import InputGate
from onceflow.runtime.graph.job_graph import Chain, Edge, JobGraph
from onceflow.runtime.graph.ways import ways
from onceflow.runtime.operators.operator import FrozenState, RestoredState
from onceflow.runtime.records import Records
from onceflow.runtime.slot.chain_body import ChainBody
from onceflow.runtime.slot.task import Overtaking
from onceflow.runtime.state.in_flight import frozen_in_flight, in_flight_rows

Channels = Sequence[tuple[Edge, InputChannel]]
MakeAlignment = Callable[[int, bool, Collection[int]], Alignment]


class Gates:
    """Makes the gates of one slot."""

    def __init__(
        self,
        graph: JobGraph,
        key_groups: range,
        barriers: BarrierOptions,
        states_of: Callable[[str], Sequence[RestoredState]],
    ) -> None:
        """`states_of(uid)`: what is restored, cut down to these key groups."""
        self._ways = ways(graph)
        self._max_parallelism = graph.max_parallelism
        self._key_groups = key_groups
        self._barriers = barriers
        self._states_of = states_of

    def gate(self, channels: Channels, make_alignment: MakeAlignment) -> InputGate:
        """A gate over these channels, with the rows that were in flight on their edges."""
        in_order = [n for n, (edge, _) in enumerate(channels) if edge.edge_id not in self._ways]
        is_timed = [edge.has_event_time for edge, _ in channels]
        gate = InputGate(
            [channel for _, channel in channels],
            make_alignment(len(channels), self._barriers.is_aligned, in_order),
            [edge.input for edge, _ in channels],
            is_timed if any(is_timed) else None,
        )
        restored = set[int]()
        for number, (edge, _) in enumerate(channels):
            if edge.edge_id in self._ways and edge.edge_id not in restored:
                restored.add(edge.edge_id)
                states = self._states_of(self._ways[edge.edge_id])
                gate.restore(number, in_flight_rows(states, edge.schema, edge.with_origin))
        return gate

    def overtaking(self, channels: Channels) -> Overtaking | None:
        """How barriers overtake what is on these channels. None: they don't."""
        after_ms = self._barriers.overtake_after_ms
        if after_ms is None:
            return None

        def freeze(rows: Sequence[Sequence[Records]]) -> Mapping[str, FrozenState]:
            of_edge: dict[int, tuple[Edge, list[Records]]] = {}
            for (edge, _), records in zip(channels, rows, strict=True):
                of_edge.setdefault(edge.edge_id, (edge, []))[1].extend(records)
            return {
                self._ways[edge_id]: frozen_in_flight(
                    records, edge.schema, self._key_groups, self._max_parallelism
                )
                for edge_id, (edge, records) in of_edge.items()
                if records
            }

        return Overtaking(after_ms, freeze)


def head_of(gate: InputGate, body: ChainBody, chain: Chain) -> Callable[[Records], None]:
    """Where the rows go that the gate gives: with two inputs, to the one that they came from."""
    left = body.entrance(chain.head)
    if not gate.has_right_input:
        return left
    entrances = (left, body.entrance(chain.head, 1))
    return lambda records: entrances[gate.input](records)
