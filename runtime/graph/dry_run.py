"""The graph of a dry run: the same computation, whose output and traces go elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from onceflow.runtime.contracts import Sink
from onceflow.runtime.graph.job_graph import JobGraph, Node, SinkNode, SourceNode

SUFFIX = "-dry-run"


def dry_run_of(graph: JobGraph, stands_for: Callable[[Sink, str], Sink]) -> JobGraph:
    """`stands_for(sink, uid)`: what stands in the place of a sink. Sources publish no offsets and acknowledge
    nothing. The job has another name, so that a folder of the one is never gone on with by the other: what
    the dry run has left out would be missing in the real output."""

    def placed(node: Node) -> Node:
        if isinstance(node, SinkNode):
            sink = stands_for(node.sink, node.uid)
            sink.check(node.schema, node.uid)
            return replace(node, sink=sink)
        return replace(node, leaves_traces=False) if isinstance(node, SourceNode) else node

    chains = [
        replace(chain, nodes={uid: placed(node) for uid, node in chain.nodes.items()})
        for chain in graph.chains
    ]
    return replace(graph, job=graph.job + SUFFIX, chains=chains)
