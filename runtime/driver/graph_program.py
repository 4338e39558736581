"""From a job graph to what it says of itself to its checkpoint folder."""

from __future__ import annotations

from onceflow.runtime.checkpoint.state_fits import Program
from onceflow.runtime.contracts.going_back import GoingBack, TakingSource, TracedSink, is_doubled
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.graph.ways import described_ways


def program_of(graph: JobGraph, allows_dropped_state: bool = False) -> Program:
    """`allows_dropped_state`: what the program has no place for is dropped, not refused."""
    ways = described_ways(graph)
    sources = frozenset(node.uid for node in graph.sources())
    states = graph.states()
    readers = {uid: graph.readers(uid) for uid in states}
    return Program(graph.job, graph.max_parallelism, states, allows_dropped_state, sources, ways, readers)


def going_back_of(graph: JobGraph, accepted: int | None) -> GoingBack:
    """`accepted`: the checkpoint after which the user accepts duplicates."""
    doubling = {node.uid: node.sink for node in graph.sinks() if is_doubled(node.sink)}
    sources = ((node.uid, node.source) for node in graph.sources() if node.leaves_traces)
    return GoingBack(
        doubling=sorted(doubling),
        taking=[uid for uid, each in sources if isinstance(each, TakingSource) and each.takes_what_it_reads],
        traced={uid: sink for uid, sink in doubling.items() if isinstance(sink, TracedSink)},
        accepted=accepted,
    )
