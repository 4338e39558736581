"""Sources that are given an end, and those that can't be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from onceflow.runtime.api.job import Job
from onceflow.runtime.errors import OptionError
from onceflow.runtime.graph.ended import ended

SOURCE = ("is_bounded", "schema", "record_type", "open_enumerator", "open_reader")
SCHEMA = pa.schema([("n", pa.int64())])


@dataclass(frozen=True)
class Endless:
    until: Any = None
    schema: pa.Schema = SCHEMA
    record_type: type | None = None

    @property
    def is_bounded(self) -> bool:
        return self.until is not None

    def ended(self, until: Any) -> Endless:
        if until == "never":
            raise OptionError("until='never': write another")
        return replace(self, until=until)

    def open_enumerator(self, job: str, clock: Any) -> Any: ...

    def open_reader(self, context: Any) -> Any: ...


def graph_of(**sources: Any) -> Any:
    job = Job("j")
    for uid, source in sources.items():
        job.source(source, uid=uid).print(uid=f"out-{uid}")
    return job.build()


def test_each_source_without_an_end_gets_its_own() -> None:
    graph = ended(graph_of(a=Endless(), b=Endless("here"), c=Endless()), lambda uid: {f"{uid}-0": 7})
    assert {node.uid: node.source.until for node in graph.sources()} == {
        "a": {"a-0": 7},
        "b": "here",
        "c": {"c-0": 7},
    }


def test_what_has_no_end_and_knows_none_is_refused_by_name() -> None:
    made = SimpleNamespace(**{name: getattr(Endless(), name) for name in SOURCE})
    with pytest.raises(OptionError, match=r"source 'made' is a .*, which can't be given an end.*: bound it"):
        ended(graph_of(made=made), lambda uid: "latest")
    with pytest.raises(OptionError, match="--until, source 'a': until='never': write another"):
        ended(graph_of(a=Endless()), lambda uid: "never")
