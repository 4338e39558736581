"""What every sink that upserts into a store has to do right, whichever store it is: played call by call on a
real one, with a proxy of ours before it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.staged_files import AttemptStagedFiles
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import SinkContext, SinkWriter
from onceflow.runtime.errors import Fenced
from onceflow.runtime.records import Records, RowKind
from onceflow.runtime.testing.conformance import SinkUnderTest
from tests.answer_proxy import AnswerProxy

NUMBERS = pa.schema([("n", pa.int64())])
CHANGES = pa.schema([("k", pa.string()), ("v", pa.int64())])
WAIT_S = 240


def open_writer(
    sink: Any,
    lineage: str,
    store: MemoryStore,
    schema: pa.Schema = NUMBERS,
    attempt: int = 1,
    restored: int = 0,
    subtask: int = 0,
    parallelism: int = 1,
) -> SinkWriter:
    files = AttemptStagedFiles(store, attempt, "out", subtask)
    where = ("job", lineage, "out", subtask, parallelism, attempt, restored)
    writer: SinkWriter = sink.open_writer(SinkContext(*where, files, SystemClock(), schema))
    return writer


def keeps_the_contract(
    check: Callable[[SinkUnderTest], None], sink: Any, lineage: str, visible: Callable[[], list[int]]
) -> None:
    """One check of the suite, with a sink of rows of NUMBERS, whose key is n."""
    store = MemoryStore()
    writers: list[SinkWriter] = []

    def opened(subtask: int, parallelism: int, attempt: int, restored: int) -> SinkWriter:
        where = (NUMBERS, attempt, restored, subtask, parallelism)
        writers.append(open_writer(sink, lineage, store, *where))
        return writers[-1]

    try:
        check(SinkUnderTest(opened, number, visible))
    finally:
        for writer in writers:
            writer.close()


def number(n: int) -> Records:
    return Records(pa.record_batch({"n": [n]}))


def checkpoint(writer: SinkWriter, checkpoint_id: int, records: Records) -> None:
    writer.write(records)
    writer.pre_commit(checkpoint_id).stage()
    writer.commit(checkpoint_id)


def changes_are_applied(
    sink: Any, lineage: str, values: Callable[[], dict[str, int | None]]
) -> list[dict[str, int | None]]:
    """Three checkpoints of CHANGES by k, and what is seen after each: the last row of a key counts, deletes
    delete, updates that move a row to another key take the old one away, and what was deleted can come back.
    """
    writer = open_writer(sink, lineage, MemoryStore(), CHANGES)
    writer.recover([])
    new, before, after, gone = RowKind
    checkpoints: list[Sequence[tuple[int, str, int | None]]] = [
        [(new, "x", 1), (new, "y", 2), (new, "x", 3), (new, "z", 4), (gone, "z", 4)],
        [(before, "y", 2), (after, "w", 5), (before, "x", 3), (after, "x", None)],
        [(gone, "w", 5), (new, "w", 7), (gone, "q", 0)],
    ]
    seen = []
    for n, rows in enumerate(checkpoints, 1):
        kinds, *columns = zip(*rows, strict=True)
        batch = pa.record_batch([pa.array(column) for column in columns], schema=CHANGES)
        checkpoint(writer, n, Records(batch, kind=np.array(kinds, np.int8)))
        seen.append(values())
    writer.close()
    return seen


CHANGES_SEEN = [{"x": 3, "y": 2}, {"x": None, "w": 5}, {"x": None, "w": 7}]


def overtaken(make_sink: Callable[[int], Any], port: int, lineage: str, word: bytes) -> type[BaseException]:
    """A writer is held inside its commit of row 1 to 10, in checkpoint 1; a newer attempt commits the same,
    and checkpoint 2, which has 20 in the place of 1. Then the held request lands. Gives what the old writer
    ended with.

    `make_sink`: of a port. `word`: is in each request that writes rows.
    """
    store = MemoryStore()
    with AnswerProxy(port) as proxy:
        zombie = open_writer(make_sink(proxy.port), lineage, store, CHANGES)
        zombie.recover([])
        zombie.write(_change("k", 10))
        promised = zombie.pre_commit(1).stage()
        outcome: list[type[BaseException]] = []

        def commit() -> None:
            try:
                zombie.commit(1)
            except Fenced as error:
                outcome.append(type(error))

        proxy.hold(word)
        thread = threading.Thread(target=commit)
        thread.start()
        assert proxy.holds.wait(WAIT_S)
        newer = open_writer(make_sink(port), lineage, store, CHANGES, attempt=2, restored=1)
        newer.recover([promised])
        checkpoint(newer, 2, _change("k", 20))
        proxy.let_go()
        thread.join(WAIT_S)
        newer.close()
        zombie.close()
    return outcome[0]


def goes_back(make_sink: Callable[[], Any], lineage: str) -> None:
    """Checkpoints 1 to 3 are committed with 10, 20, 30; a new attempt starts from 1, and writes 21 in its
    second checkpoint."""
    store = MemoryStore()
    first = open_writer(make_sink(), lineage, store, CHANGES)
    first.recover([])
    for n in (1, 2, 3):
        checkpoint(first, n, _change("k", 10 * n))
    first.close()
    again = open_writer(make_sink(), lineage, store, CHANGES, attempt=2, restored=1)
    again.recover([])
    checkpoint(again, 2, _change("k", 21))
    again.close()


def without_an_answer(
    make_sink: Callable[[int], Any], port: int, lineage: str, word: bytes, nth: int, is_done: bool
) -> None:
    """Checkpoints 1 and 2 with rows 1 and 2; the nth request with the word in it is lost, or its answer."""
    with AnswerProxy(port) as proxy:
        writer = open_writer(make_sink(proxy.port), lineage, MemoryStore())
        writer.recover([])
        proxy.swallow(word, nth, is_done)
        for n in (1, 2):
            checkpoint(writer, n, number(n))
        writer.close()
        assert proxy.has_swallowed


def server_is_killed(sink: Any, lineage: str, kill: Callable[[], None], start: Callable[[], None]) -> None:
    """Checkpoints 1 and 2 with rows 1 and 2; before each commit the server is killed, and comes back."""
    writer = open_writer(sink, lineage, MemoryStore())
    writer.recover([])
    for n in (1, 2):
        writer.write(number(n))
        writer.pre_commit(n).stage()
        kill()
        restarting = threading.Thread(target=start)
        restarting.start()
        writer.commit(n)
        restarting.join(WAIT_S)
    writer.close()


def _change(key: str, value: int) -> Records:
    return Records(pa.record_batch([pa.array([key]), pa.array([value], pa.int64())], schema=CHANGES))
