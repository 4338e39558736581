"""Sinks whose rows are handed on in the driver pass the kit of sinks that commit there."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cached_property
from typing import Any

from onceflow.runtime.api.collected import Collected
from onceflow.runtime.checkpoint.events import Outcome
from onceflow.runtime.contracts import Sink
from onceflow.runtime.graph.steps import Rows
from onceflow.sinks.collect import CollectSink
from onceflow.sinks.print import PrintSink
from onceflow.testing.kit import CommittingSinkKit
from onceflow.testing.kit.sinks import SinkTests

SHOWN = io.StringIO()


class TestPrint(CommittingSinkKit):
    in_new_processes = False

    def run_check(self, check: Callable[[Any], None], case: Callable[[SinkTests], Any]) -> None:
        with redirect_stdout(SHOWN):
            super().run_check(check, case)

    def prepare(self) -> None:
        SHOWN.seek(0)
        SHOWN.truncate()

    def sink(self) -> Sink:
        return PrintSink()

    def visible(self) -> list[int]:
        return [json.loads(line)["n"] for line in SHOWN.getvalue().splitlines()]


class TestCollect(CommittingSinkKit):
    in_new_processes = False

    @cached_property
    def rows(self) -> Collected[Any]:
        return Collected("job", "out", Rows(self.schema, None, False))

    def sink(self) -> Sink:
        return CollectSink(self.rows, 1 << 20)

    def visible(self) -> list[int]:
        self.rows.on_end(Outcome.FINISHED)
        return [row["n"] for row in self.rows]
