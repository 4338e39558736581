"""From a job graph to what it says of itself to its checkpoint folder."""

from __future__ import annotations

from onceflow.runtime.checkpoint.state_fits import Program
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.graph.ways import described_ways


def program_of(graph: JobGraph, allows_dropped_state: bool = False) -> Program:
    """`allows_dropped_state`: what the program has no place for is dropped, not refused."""
    ways = described_ways(graph)
    sources = frozenset(node.uid for node in graph.sources())
    states = graph.states()
    readers = {uid: graph.readers(uid) for uid in states}
    return Program(graph.job, graph.max_parallelism, states, allows_dropped_state, sources, ways, readers)
