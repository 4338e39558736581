"""What can't be sent to the slots is refused, with the operator that holds it."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pytest

from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.job_graph import Chain, JobGraph, OperatorNode
from onceflow.runtime.hosts.spark.shipping import pack_graph, unpack_graph
from onceflow.runtime.operators.stateless import Stateless, pass_on

SCHEMA = pa.schema([("x", pa.int64())])


def graph_with(held: object) -> JobGraph:
    def transform(uid: str, value: object) -> OperatorNode:
        return OperatorNode(uid, uid, lambda: Stateless(lambda records: value and records), SCHEMA, {})

    nodes = {"fine": OperatorNode("fine", "fine", lambda: Stateless(pass_on), SCHEMA, {})}
    return JobGraph("job", [Chain(0, "fine", {**nodes, "holds": transform("holds", held)})], [])


def test_a_graph_is_what_it_was() -> None:
    there = unpack_graph(pack_graph(graph_with("text"), None))
    assert there.chains[0].nodes["holds"].uid == "holds"


def test_a_function_that_holds_a_lock_is_refused_with_its_operator() -> None:
    with pytest.raises(
        GraphError, match=r"operator 'holds' holds something that can't be sent to the slots: .*lock"
    ):
        pack_graph(graph_with(threading.Lock()), None)


def test_a_class_that_msgspec_was_asked_for_travels() -> None:
    """msgspec leaves something on the class that no pickle takes."""

    @dataclass
    class Model:
        n: int

    decode = msgspec.json.Decoder(Model).decode
    assert decode(b'{"n": 1}') == Model(1)
    graph = graph_with(Model)
    there = unpack_graph(pack_graph(graph, None)).chains[0].nodes["holds"]
    (made,) = (each.cell_contents for each in there.create.__closure__ if each.cell_contents is not there)
    assert msgspec.json.encode(made(2)) == b'{"n":2}'
    assert decode(b'{"n": 3}') == Model(3), "it is still there here"
