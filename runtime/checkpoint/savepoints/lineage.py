"""Which savepoints there are below a folder, and which of them was started from which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from onceflow.runtime.checkpoint.savepoints.pins import ABANDONED, PIN_NAME
from onceflow.runtime.checkpoint.savepoints.savepoint import RECORD_NAME, Savepoint, decode_savepoint
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.errors import CorruptCheckpointError, UsageError


@dataclass(slots=True)
class FoundSavepoint:
    """A savepoint of a search, and those that were taken of jobs that were started from it."""

    where: str
    taken: Savepoint
    children: list[FoundSavepoint] = field(default_factory=list)


def find_savepoints(store: CheckpointStore) -> tuple[list[FoundSavepoint], list[str]]:
    """All savepoints in this folder, however deep, pinned or copied; and what is wrong with others, as
    sentences. Their state is not looked at. Raises OSError."""
    there = {status.path for status in store.list("")}
    found, problems = [], []
    for path in sorted(there):
        folder = path.removesuffix(RECORD_NAME).rstrip("/")
        if path != f"{folder}/{RECORD_NAME}".lstrip("/"):
            continue
        try:
            content = store.read(path)
            taken = None if content == ABANDONED else decode_savepoint(content, store.describe(path))
        except FileNotFoundError:
            continue  # deleted since
        except (CorruptCheckpointError, UsageError) as error:
            problems.append(str(error))
            continue
        if taken is None:
            continue
        if taken.is_pinned and f"{folder}/{PIN_NAME}" not in there:
            problems.append(f"{store.describe(folder)} has lost its pin, or was moved without its state")
            continue
        found.append(FoundSavepoint(store.describe(folder).rstrip("/"), taken))
    return found, problems


def lineage(found: Iterable[FoundSavepoint]) -> Sequence[FoundSavepoint]:
    """Pure: the roots, oldest first, with all others below their parents. What has no parent here is a root;
    one that is there twice has its children where it is found first."""
    ordered = sorted(found, key=lambda each: (each.taken.taken_ms, each.where))
    by_id: dict[str, FoundSavepoint] = {}
    for each in ordered:
        by_id.setdefault(each.taken.savepoint_id, each)
    roots: list[FoundSavepoint] = []
    for each in ordered:
        parent = by_id.get(each.taken.parent)
        (roots if parent is None else parent.children).append(each)
    return roots
