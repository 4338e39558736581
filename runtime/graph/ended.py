"""The graph of a job whose sources have been given an end: what `--until` makes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from onceflow.runtime.contracts import EndableSource, Json
from onceflow.runtime.errors import OptionError, UsageError
from onceflow.runtime.graph.job_graph import JobGraph, Node, SourceNode


def ended(graph: JobGraph, until: Callable[[str], Json]) -> JobGraph:
    """`until(uid)`: where a source ends, as an EndableSource takes it; asked for those that have no end of
    their own. Raises OptionError if one of them does not know how, or not this end."""

    def placed(node: Node) -> Node:
        if not isinstance(node, SourceNode) or node.source.is_bounded:
            return node
        if not isinstance(node.source, EndableSource):
            kind = type(node.source).__name__
            raise OptionError(
                f"--until: source {node.uid!r} is a {kind}, which can't be given an end from outside: "
                "bound it in the program, or stop the job when it has read enough"
            )
        try:
            return replace(node, source=node.source.ended(until(node.uid)))
        except UsageError as error:
            raise OptionError(f"--until, source {node.uid!r}: {error}") from error

    chains = [
        replace(chain, nodes={uid: placed(node) for uid, node in chain.nodes.items()})
        for chain in graph.chains
    ]
    return replace(graph, chains=chains)
