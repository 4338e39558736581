"""TargetKit: a test for each sentence of the contract of Targets."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from onceflow.connectors.staged_commits.target import TransactionalStore
from onceflow.runtime.contracts import Json
from onceflow.testing.kit.kit import Kit, add_tests, die
from onceflow.testing.kit.target_checks import SCENARIOS, TARGET_CHECKS, PlayedStore


class TargetKit(Kit):
    """Tests of the Target of a TransactionalStore. Its TransactionalSink passes SinkKit as well."""

    schema: pa.Schema = pa.schema([("n", pa.int64())])

    def store(self) -> TransactionalStore:
        """The store, whose output is where `folder` and `settings` say. Called in every process."""
        raise NotImplementedError(f"{type(self).__qualname__}.store() has to give the store under test")

    def visible(self) -> Sequence[int]:
        """The `n` of all rows that a careful reader sees now; none where there is no output yet."""
        raise NotImplementedError(f"{type(self).__qualname__}.visible() has to give what a reader sees")

    def row(self, n: int) -> Mapping[str, Any]:
        """A row of `schema` that only n has."""
        return {"n": n}

    def played(self) -> PlayedStore:
        """The store for the checks."""
        return PlayedStore(
            store=self.store(),
            schema=self.schema,
            batch=lambda n: pa.RecordBatch.from_pylist([dict(self.row(n))], self.schema),
            visible=self.visible,
            lineage=hashlib.sha256(self.folder.encode()).hexdigest()[:16],
            elsewhere=self.elsewhere if self.in_new_processes else None,
            calls=self.calls,
        )

    def do_in_new_process(self, scenario: str, arguments: Mapping[str, Json]) -> Json:
        self.calls.crash = die
        return SCENARIOS[scenario](self.played(), arguments)


def _run(kit: TargetKit, check: Callable[..., None]) -> None:
    __tracebackhide__ = True
    kit.run_check(check, TargetKit.played)


add_tests(TargetKit, TARGET_CHECKS, _run)
