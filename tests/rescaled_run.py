"""A run of a job in one thread that gets other numbers of slots and of key groups, by every way there is."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from onceflow.runtime.api.job import Job
from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.checkpoint.driver import CheckpointIO
from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.savepoints.folder import SavepointFolder
from onceflow.runtime.checkpoint.savepoints.starting import Origin
from onceflow.runtime.checkpoint.savepoints.taking import copy_savepoint
from onceflow.runtime.checkpoint.staged_files import PromisedStagedFiles
from onceflow.runtime.driver.committers import Committers
from onceflow.runtime.driver.enumerators import Enumerators
from onceflow.runtime.driver.graph_program import program_of
from onceflow.runtime.functions.parameters import NO_PARAMS
from onceflow.runtime.state.overflow import StateBackend
from onceflow.testing.job_run import JobRun
from onceflow.testing.stage import stage_of


class RescaledRun(JobRun):
    """`crash` and `restart` take another parallelism; `start_from_savepoint` another number of key groups."""

    def __init__(self, job: Job, splits: dict[str, list[str]], state: StateBackend, slots: int) -> None:
        """`splits`: their names, by the uid of the source."""
        self._state = state
        stage = stage_of(job.build(), {})
        for uid, names in splits.items():
            stage.script(uid).splits = {name: [] for name in names}
        super().__init__(stage, slots, NO_PARAMS)

    def start_from_savepoint(self, slots: int, max_parallelism: int) -> None:
        """Take a savepoint, and begin with it in a folder of its own, as another job would."""
        self.checkpoint()
        saved, began = MemoryStore("savepoint"), MemoryStore("began")
        [*_, (_, newest)] = read_log(self._store).completed()
        copy_savepoint(self._store, saved, self.clock, newest.checkpoint_id)
        graph = replace(self._stage.graph, max_parallelism=max_parallelism)
        io = CheckpointIO(
            began,
            self.clock,
            Enumerators(graph, self.clock),
            Committers(graph, self.clock, PromisedStagedFiles(began)),
            program_of(graph),
            slots,
        )
        io.origin = Origin(SavepointFolder(saved))
        opened = io.execute(ev.OpenAttempt())
        assert isinstance(opened, ev.AttemptOpened), opened
        for output in self._stage.outputs.values():
            output.attempt = 0  # the other job counts its own
        self._stage, self._store = replace(self._stage, graph=graph), began
        self.crash(slots)

    def output(self) -> dict[str, Counter[str]]:
        """What each sink has in the end: rows that were taken back as often as they came are not there."""
        self.finish()
        found: dict[str, Counter[str]] = {}
        for uid, output in self._stage.outputs.items():
            rows = found[uid] = Counter()
            for records in output.committed:
                kinds = [0] * len(records) if records.kind is None else records.kind.tolist()
                for kind, row in zip(kinds, records.batch.to_pylist(), strict=True):
                    rows[str(row)] += -1 if kind in TAKEN_BACK else 1
            found[uid] = Counter({row: count for row, count in rows.items() if count})
        return found


TAKEN_BACK = (1, 3)
