"""What every CheckpointStore must do that several processes share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from unittest import SkipTest

from onceflow.runtime.checkpoint.store import AlreadyExists, CheckpointStore
from onceflow.runtime.contracts import Json
from onceflow.runtime.testing.conformance import quotations
from onceflow.runtime.testing.conformance.checking import raises


class ElsewhereStoring(Protocol):
    """Runs one of STORING_SCENARIOS on the same store in a process that knows nothing of this one."""

    def __call__(self, scenario: str, arguments: Mapping[str, Json]) -> Any:
        """What the scenario returns. Raises what it has raised."""
        ...


@dataclass(frozen=True)
class SharedStore:
    """An empty store. `elsewhere`: None if it is in the memory of this process only."""

    store: CheckpointStore
    elsewhere: ElsewhereStoring | None = None


@quotations.of(CheckpointStore.create, "every later `read` and `list`, from anywhere, sees the file.")
def what_another_process_has_created_is_there(case: SharedStore) -> None:
    """It is killed when `create` and `close` have returned."""
    assert elsewhere(case)("create_and_die", {}) is None, "it was to be killed"
    assert case.store.read("log/0.json") == b"theirs"
    assert [(file.path, file.size) for file in case.store.list("log")] == [("log/0.json", 6)]
    with case.store.open("state/a/rows") as file:
        assert file.read() == b"0123456789", "a file that was closed is not whole"


@quotations.of(CheckpointStore.create, "whole or not at all, one caller wins.")
def what_another_process_has_created_is_not_created_again(case: SharedStore) -> None:
    elsewhere(case)("create_and_die", {})
    assert raises(AlreadyExists, lambda: case.store.create("log/0.json", b"ours")), "it was created twice"
    assert case.store.read("log/0.json") == b"theirs", "a file that was there has changed"
    case.store.create("log/1.json", b"ours")
    there = elsewhere(case)("create_again", {"path": "log/1.json"})
    assert there == "AlreadyExists", f"another process has created log/1.json again: {there}"
    assert case.store.read("log/1.json") == b"ours", "a file that was there has changed"


SHARED_STORE_CHECKS: Sequence[Callable[[SharedStore], None]] = (
    what_another_process_has_created_is_there,
    what_another_process_has_created_is_not_created_again,
)


def elsewhere(case: SharedStore) -> ElsewhereStoring:
    if case.elsewhere is None:
        raise SkipTest("the store is in the memory of this process")
    return case.elsewhere


def create_and_die(store: CheckpointStore, die: Callable[[], Any]) -> Json:
    """In another process: an entry of the log, and a file that is written and closed; then a kill."""
    store.create("log/0.json", b"theirs")
    with store.create_file("state/a/rows") as file:
        file.write(b"0123456789")
    die()
    return "alive"


def create_again(store: CheckpointStore, path: str) -> Json:
    """In another process: what comes of creating a file that is there."""
    try:
        store.create(path, b"theirs")
    except AlreadyExists as error:
        return type(error).__name__
    return "created"
