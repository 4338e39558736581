"""A job graph told as plain data: what `onceflow plan` shows, and `--json` prints."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from onceflow.runtime.contracts import Noted, WatermarkStrategy
from onceflow.runtime.functions.parameters import shown
from onceflow.runtime.graph.job_graph import (
    Broadcast,
    ByKey,
    Chain,
    Edge,
    Forward,
    InChain,
    JobGraph,
    Node,
    SinkNode,
    SourceNode,
)
from onceflow.runtime.operators.operator import MAIN

SIDES = ("left", "right")
"""The inputs of an operator that has two."""


IN_MEMORY = (
    "keeps its state in memory: of --state-backend rocksdb process functions, rolling reduces, windows, "
    'joins and loops make use (see the page "State larger than memory")'
)
UNNAMED = "keeps state, and has no uid= of yours: a program that has changed may not find the state again"


def warnings(graph: JobGraph, backend: str) -> list[str]:
    """What whoever runs the job with this state backend should know before it starts."""
    in_memory = [] if backend == "heap" else graph.states_in_memory()
    found = (graph.unnamed_states(), UNNAMED), (in_memory, IN_MEMORY)
    return [f"{', '.join(map(repr, uids))} {said}" for uids, said in found if uids]


def describe(graph: JobGraph, parallelism: int | None = None) -> dict[str, Any]:
    """Operators with uids and columns by chain, the exchanges between chains, and the parallelism.

    JSON throughout. Every chain runs as `parallelism` subtasks, slot i runs subtask i of each chain; None
    is what the master offers.
    """
    return {
        "job": graph.job,
        "parallelism": parallelism,
        "max_parallelism": graph.max_parallelism,
        "params": {name: shown(declared) for name, declared in graph.params.items()},
        "chains": [
            {
                "chain": chain.chain_id,
                "parallelism": parallelism,
                "operators": [_operator(graph, chain, node) for node in chain.nodes.values()],
            }
            for chain in graph.chains
        ],
        "exchanges": [_exchange(graph, edge) for edge in graph.edges],
    }


def _operator(graph: JobGraph, chain: Chain, node: Node) -> dict[str, Any]:
    described: dict[str, Any] = {"uid": node.uid, "name": node.name, "kind": "operator"}
    match node:
        case SourceNode(source=source, watermarks=watermarks):
            described |= {"kind": "source", "bounded": source.is_bounded, "columns": _columns(source.schema)}
            if node.rate_per_s is not None:
                described["rate_limit_per_s"] = node.rate_per_s
            if watermarks is not None:
                described |= _event_time(watermarks)
        case SinkNode():
            described["kind"] = "sink"
        case _:
            described["columns"] = _columns(node.schema)
    end: Any = getattr(node, "source", None) or getattr(node, "sink", None)
    if isinstance(end, Noted) and end.plan_note:
        described["note"] = end.plan_note
    if node.uid in graph.unnamed_states():
        described["warning"] = UNNAMED
    if not isinstance(node, SinkNode):
        described["to"] = [
            target.uid if isinstance(target, InChain) else {"exchange": target.edge_id}
            for target in node.outputs.get(MAIN, ())
        ]
        described["side_outputs"] = {
            tag: [t.uid if isinstance(t, InChain) else {"exchange": t.edge_id} for t in targets]
            for tag, targets in node.outputs.items()
            if tag != MAIN
        }
    return described


def _event_time(watermarks: WatermarkStrategy) -> dict[str, Any]:
    described: dict[str, Any] = {
        "event_time": "the clock when it is read"
        if watermarks.is_ingestion_time
        else watermarks.event_time or "record timestamp",
        "out_of_orderness_ms": watermarks.out_of_orderness_ms,
        "idle_after_ms": watermarks.idle_after_ms,
    }
    if watermarks.marker is not None:
        described["watermark_column"] = watermarks.marker
    if watermarks.generator is not None:
        described["watermark_generator"] = getattr(watermarks.generator, "__name__", "own")
    if (alignment := watermarks.alignment) is not None:
        described |= {"alignment_group": alignment.group, "max_drift_ms": alignment.max_drift_ms}
    return described


def _exchange(graph: JobGraph, edge: Edge) -> dict[str, Any]:
    described: dict[str, Any] = {
        "exchange": edge.edge_id,
        "from_chain": edge.upstream,
        "to_chain": edge.downstream,
        "to": graph.chain(edge.downstream).head,
        "columns": _columns(edge.schema),
    }
    if any(other.input for other in graph.edges_into(edge.downstream)):
        described["input"] = SIDES[edge.input]
    match edge.partitioning:
        case ByKey(columns):
            return described | {"partitioning": "by key", "key": list(columns)}
        case Forward():
            return described | {"partitioning": "forward"}
        case Broadcast():
            return described | {"partitioning": "broadcast"}
        case _:
            return described | {"partitioning": "rebalance"}


def _columns(schema: pa.Schema) -> dict[str, str]:
    return {field.name: f"{field.type}" + ("" if field.nullable else " not null") for field in schema}
