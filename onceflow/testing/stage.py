"""A job's graph with the test in the place of its sources and sinks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from onceflow.runtime.errors import UsageError
from onceflow.runtime.graph.job_graph import Chain, JobGraph, Node, SinkNode, SourceNode
from onceflow.runtime.nearest import nearest
from onceflow.testing.collecting_sink import CollectingSink, SinkRows
from onceflow.testing.script import Rows, Script
from onceflow.testing.scripted_source import Choose, ScriptedSource


@dataclass(frozen=True, slots=True)
class Stage:
    """A graph that is ready to run: sources read scripts, and what comes to a sink is collected."""

    graph: JobGraph
    scripts: Mapping[str, Script]
    outputs: Mapping[str, SinkRows]

    def script(self, uid: str) -> Script:
        """Raises UsageError if there is no source of this uid."""
        if uid not in self.scripts:
            raise UsageError(f"job {self.graph.job!r} has no source {uid!r}{_offered(uid, self.scripts)}")
        return self.scripts[uid]

    def by_uid(self, rows: Mapping[str, Rows]) -> dict[str, Rows]:
        """Rows by the names of arguments, in which `-` is `_`, by the uids of their sources."""
        names = {uid.replace("-", "_"): uid for uid in self.scripts}
        return {names.get(name, name): its for name, its in rows.items()}

    def output(self, uid: str) -> SinkRows:
        """Raises UsageError if there is no sink of this uid."""
        if uid not in self.outputs:
            raise UsageError(f"job {self.graph.job!r} has no sink {uid!r}{_offered(uid, self.outputs)}")
        return self.outputs[uid]


def stage_of(graph: JobGraph, inputs: Mapping[str, Rows], choose: Choose | None = None) -> Stage:
    """Put the test into a graph: neither its brokers nor its files are touched. Raises UsageError for an
    input that names no source or has a row that is none of it."""
    scripts = {n.uid: Script(n.uid, n.source.schema, n.source.record_type) for n in graph.sources()}
    outputs = {n.uid: SinkRows(n.uid, n.schema) for n in graph.sinks()}

    def staged(node: Node) -> Node:
        match node:
            case SourceNode():
                return replace(node, source=ScriptedSource(scripts[node.uid], choose), rate_per_s=None)
            case SinkNode():
                return replace(node, sink=CollectingSink(outputs[node.uid]))
            case _:
                return node

    def restaged(chain: Chain) -> Chain:
        return replace(chain, nodes={uid: staged(node) for uid, node in chain.nodes.items()})

    stage = Stage(replace(graph, chains=[restaged(c) for c in graph.chains]), scripts, outputs)
    for uid, rows in inputs.items():
        stage.script(uid).add(rows)
    for script in scripts.values():
        script.splits.setdefault("0", [])
    return stage


def _offered(uid: str, there: Iterable[str]) -> str:
    names = sorted(there)
    return f"{nearest(uid, names)}: there are {', '.join(names) or 'none'}"
