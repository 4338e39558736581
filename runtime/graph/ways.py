"""Ways: the edges on which barriers may overtake rows, and what is in flight on them, by uid."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from onceflow.runtime.graph.job_graph import ByKey, Edge, JobGraph, OperatorNode, Rebalance, SinkNode, ToEdge
from onceflow.runtime.operators.operator import MAIN
from onceflow.runtime.state.description import RECORD, KeyColumn, StateDescription, StatePart, type_text
from onceflow.runtime.state.in_flight import TABLE, way_uid


def may_be_overtaken(edge: Edge) -> bool:
    """Whether a barrier may overtake rows here.

    Broadcast rows are the same in all channels, and each subtask must have had the same ones when its state
    is frozen. Rows of a forward edge have no key that says who gets them after a rescale, and keep the order
    of their split only where they are. So these two wait for their barrier.
    """
    return isinstance(edge.partitioning, ByKey | Rebalance)


def ways(graph: JobGraph) -> dict[int, str]:
    """The uid of what is in flight on each edge where something may be."""
    found: dict[int, str] = {}
    for edge in graph.edges:
        if may_be_overtaken(edge):
            end = graph.chain(edge.downstream).head + (" right" if edge.input else "")
            uid = way_uid(_start(graph, edge), end)
            count = sum(1 for other in found.values() if other == uid or other.startswith(f"{uid} #"))
            found[edge.edge_id] = f"{uid} #{count + 1}" if count else uid
    return found


def described_ways(graph: JobGraph) -> Mapping[str, StateDescription]:
    """What the rows on each way are, as a manifest says it."""
    uids = ways(graph)
    return {uids[edge.edge_id]: _description(edge) for edge in graph.edges if edge.edge_id in uids}


def restored_uids(graph: JobGraph) -> set[str]:
    """The uids under which something may be restored: operators, and rows in flight."""
    nodes = (node for chain in graph.chains for node in chain.nodes.values())
    return {node.uid for node in nodes if isinstance(node, OperatorNode)} | set(ways(graph).values())


def _start(graph: JobGraph, edge: Edge) -> str:
    for node in graph.chain(edge.upstream).nodes.values():
        outputs = {} if isinstance(node, SinkNode) else node.outputs
        for tag, targets in outputs.items():
            if ToEdge(edge.edge_id) in targets:
                return node.uid if tag == MAIN else f"{node.uid} {tag}"
    raise AssertionError(f"no node sends to edge {edge.edge_id}")


def _description(edge: Edge) -> StateDescription:
    kind = "rows in flight" + (" with event time" if edge.has_event_time else "")
    kind += " and kinds" if edge.has_kinds else ""
    keys: tuple[KeyColumn, ...] = ()
    if isinstance(edge.partitioning, ByKey):
        names = edge.partitioning.columns
        keys = tuple(KeyColumn(name, type_text(edge.schema.field(name).type)) for name in names)
    part = StatePart(RECORD, TABLE, type_text(pa.struct(list(edge.schema))))
    return StateDescription(kind, TABLE, keys, (part,))
