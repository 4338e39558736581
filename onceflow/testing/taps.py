"""Taps: a sink behind each node of a graph, so that the first one whose rows differ can be named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from onceflow.runtime.graph.job_graph import (
    Chain,
    InChain,
    JobGraph,
    Node,
    OperatorNode,
    SinkNode,
    SourceNode,
    Target,
)
from onceflow.runtime.operators.operator import MAIN
from onceflow.testing.collecting_sink import CollectingSink, SinkRows

_TAP = "tap of "


def tapped(graph: JobGraph) -> JobGraph:
    """The same graph with a sink more behind each source and operator."""
    return replace(graph, chains=[_tapped(chain) for chain in graph.chains])


def first_difference(
    graph: JobGraph, one: Mapping[str, Counter[str]], other: Mapping[str, Counter[str]]
) -> str | None:
    """The uid of the first node, in the order of the graph, behind which the rows of two runs of a tapped
    graph differ. None: of none."""
    for chain in graph.chains:
        for uid in chain.nodes:
            if uid.startswith(_TAP) and one[uid] != other[uid]:
                return uid.removeprefix(_TAP)
    return None


def _tapped(chain: Chain) -> Chain:
    nodes: dict[str, Node] = {}
    for uid, node in chain.nodes.items():
        if isinstance(node, SinkNode):
            nodes[uid] = node
            continue
        tap = f"{_TAP}{uid}"
        outputs = {**node.outputs, MAIN: [*node.outputs.get(MAIN, ()), InChain(tap)]}
        schema = node.source.schema if isinstance(node, SourceNode) else node.schema
        nodes[uid] = _with_outputs(node, outputs)
        nodes[tap] = SinkNode(tap, CollectingSink(SinkRows(tap, schema)), schema)
    return replace(chain, nodes=nodes)


def _with_outputs(node: SourceNode | OperatorNode, outputs: Mapping[str, Sequence[Target]]) -> Node:
    return replace(node, outputs=outputs)
