"""The graph of a dry run."""

from __future__ import annotations

from typing import Any

from onceflow.runtime.api.job import Job
from onceflow.runtime.graph.dry_run import dry_run_of
from onceflow.runtime.graph.job_graph import SinkNode, SourceNode


def test_all_but_sinks_and_traces_stays_as_it_is() -> None:
    job = Job("j")
    job.from_elements(1, 2, uid="src").print(uid="out")
    graph = job.build()
    asked: list[tuple[Any, str]] = []

    def stands_for(sink: Any, uid: str) -> Any:
        asked.append((sink, uid))
        return sink

    dry = dry_run_of(graph, stands_for)
    assert dry.job == "j-dry-run"
    assert [uid for _, uid in asked] == ["out"]
    nodes = {uid: node for chain in dry.chains for uid, node in chain.nodes.items()}
    sources = [(uid, n.leaves_traces) for uid, n in nodes.items() if isinstance(n, SourceNode)]
    assert sources == [("src", False)]
    assert [uid for uid, node in nodes.items() if isinstance(node, SinkNode)] == ["out"]
    assert dry.edges == graph.edges
