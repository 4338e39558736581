"""A source and a sink that exist only in a graph."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from onceflow.runtime.contracts import Sink
from onceflow.runtime.types.record_types import arrow_schema


@dataclass(frozen=True)
class ListSource:
    """Rows of a record type, never read: a projectable source, with dead letters if there is a sink."""

    record_type: type
    dead_letters: Any = None
    columns: frozenset[str] | None = None
    is_bounded: bool = True

    @property
    def schema(self) -> pa.Schema:
        schema = arrow_schema(self.record_type)
        return schema if self.columns is None else pa.schema([f for f in schema if f.name in self.columns])

    def project(self, columns: frozenset[str]) -> ListSource:
        return dataclasses.replace(self, columns=columns)

    def dead_letter_sink(self) -> Sink | None:
        return self.dead_letters  # type: ignore[no-any-return]

    def open_enumerator(self, job: str, clock: Any) -> Any: ...

    def open_reader(self, context: Any) -> Any: ...


class CheckedSink:
    """Remembers the columns that it was asked about."""

    def __init__(self) -> None:
        self.checked: dict[str, list[str]] = {}

    def check(self, schema: pa.Schema, uid: str) -> None:
        self.checked[uid] = schema.names

    def open_writer(self, context: Any) -> Any: ...


@pytest.fixture
def list_source() -> type[ListSource]:
    return ListSource


@pytest.fixture
def sink() -> CheckedSink:
    return CheckedSink()
