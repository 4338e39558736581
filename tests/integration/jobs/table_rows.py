"""Made-up records into tables, whose small files are joined meanwhile: each record is appended to one, and a
count for each user kept in another.

onceflow run table_rows.py ... -- delta|iceberg FOLDER RECORDS RATE [WHAT NTH TABLE]: what goes wrong at which
commit of a table
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onceflow import Job
from onceflow.runtime.errors import Indeterminate
from onceflow.sinks.delta import DeltaSink
from onceflow.sinks.iceberg import IcebergSink

USERS = 50
JOINED: dict[str, Any] = {"compact_every": 3}


@dataclass(frozen=True)
class Seen:
    number: int
    user: str
    times: int
    part: int


def seen(n: int) -> Seen:
    return Seen(n, f"u{n % USERS}", 1, n % 2)


def add(so_far: Seen, one: Seen) -> Seen:
    return Seen(max(so_far.number, one.number), so_far.user, so_far.times + one.times, one.part)


@dataclass(frozen=True)
class Troubled:
    """A sink whose committer meets trouble at its `nth` commit."""

    sink: Any
    what: str
    nth: int
    stopped: str
    """A file that says that the driver stands still."""

    @property
    def takes_kinds(self) -> bool:
        return bool(self.sink.takes_kinds)

    @property
    def partition_columns(self) -> Any:
        return self.sink.partition_columns

    def check(self, schema: Any, uid: str) -> None:
        self.sink.check(schema, uid)

    def open_writer(self, context: Any) -> Any:
        return self.sink.open_writer(context)

    def open_committer(self, context: Any) -> Any:
        return TroubledCommitter(self, self.sink.open_committer(context))


class TroubledCommitter:
    def __init__(self, plan: Troubled, committer: Any) -> None:
        self._plan = plan
        self._committer = committer
        self._commits = 0

    def last_committed(self) -> int | None:
        last: int | None = self._committer.last_committed()
        return last

    def commit(self, checkpoint_id: int, committables: Any) -> None:
        self._commits += 1
        what = self._plan.what if self._commits == self._plan.nth else ""
        if what == "exit before":
            os._exit(137)
        if what == "stop before":  # it has asked what is there, and wakes up when others have gone on
            for thread in threading.enumerate():
                if thread.name == "table-upkeep":
                    thread.join()  # it may hold SQLite's lock, with which nobody else gets on
            Path(self._plan.stopped).touch()
            os.kill(os.getpid(), signal.SIGSTOP)
        self._committer.commit(checkpoint_id, committables)
        if what == "exit after":
            os._exit(137)
        if what == "lost answer":
            raise Indeterminate("no answer (injected, done)")

    def close(self) -> None:
        self._committer.close()


def delta(folder: str) -> dict[str, Any]:
    return {
        "appended": DeltaSink(f"{folder}/appended", create_table=True, partition_by="part", **JOINED),
        "counted": DeltaSink(f"{folder}/counted", key="user", create_table=True, **JOINED),
    }


def iceberg(folder: str) -> dict[str, Any]:
    catalog = catalog_in(folder)
    return {
        "appended": IcebergSink(catalog, "t.appended", create_table=True, partition_by="part", **JOINED),
        "counted": IcebergSink(catalog, "t.counted", key="user", create_table=True, **JOINED),
    }


def catalog_in(folder: str) -> dict[str, str]:
    Path(folder).mkdir(parents=True, exist_ok=True)
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}


def build(arguments: list[str]) -> Job:
    kind, folder, records, rate, *trouble = arguments
    what, nth, table = trouble or ("", "0", "")
    job = Job("table-rows")
    rows = job.data_generator(seen, rate=float(rate), count=int(records), uid="seen")
    counts = rows.key_by("user").reduce(add, uid="counts")
    sinks = delta(folder) if kind == "delta" else iceberg(folder)
    for stream, name in ((rows, "appended"), (counts, "counted")):
        plan = Troubled(sinks[name], what if name == table else "", int(nth), f"{folder}/stopped")
        stream.sink_to(plan, uid=name)
    return job
