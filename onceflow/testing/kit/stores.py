"""StoreKit: a test for each sentence of the contract of checkpoint stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.contracts import Json
from onceflow.runtime.testing.conformance.shared_stores import (
    SHARED_STORE_CHECKS,
    SharedStore,
    create_again,
    create_and_die,
)
from onceflow.runtime.testing.conformance.stores import STORE_CHECKS
from onceflow.testing.kit.kit import Kit, add_tests, die


class StoreKit(Kit):
    """Tests of a checkpoint store: a file system on which checkpoints may lie."""

    def store(self) -> CheckpointStore:
        """The store, empty, where `folder` and `settings` say. Called in every process."""
        raise NotImplementedError(f"{type(self).__qualname__}.store() has to give the store under test")

    def shared(self) -> SharedStore:
        """The store, for checks with several processes."""
        return SharedStore(self.store(), self.elsewhere if self.in_new_processes else None)

    def do_in_new_process(self, scenario: str, arguments: Mapping[str, Json]) -> Json:
        if scenario == "create_and_die":
            return create_and_die(self.store(), die)
        return create_again(self.store(), str(arguments["path"]))


def _run_store(kit: StoreKit, check: Callable[..., None]) -> None:
    __tracebackhide__ = True
    kit.run_check(check, lambda kit: kit.store())


def _run_shared(kit: StoreKit, check: Callable[..., None]) -> None:
    __tracebackhide__ = True
    kit.run_check(check, lambda kit: kit.shared())


add_tests(StoreKit, STORE_CHECKS, _run_store)
add_tests(StoreKit, SHARED_STORE_CHECKS, _run_shared)
