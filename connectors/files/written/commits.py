"""OutputCommits: carries the plan of a commit out, and is its ledger.

    totals-0000000012-0001-000-3f2a9c01.parquet   a file that is whole, and committed
    .onceflow/<lineage>.<uid>/                    what nobody reads: files that are written, and the ledger

Names are made of uid, checkpoint, subtask, number and lineage, so a repeated commit shows the same names. The
order of a commit, and what a crash leaves in each gap:

1. All parts of the checkpoint are found. One that is not: it was lost, or the slot wrote to a folder of
   another machine. Nothing has happened, and the job ends with a sentence.
2. The ledger says that the checkpoint is being committed. Crash: the next attempt comes here again, with the
   same plan; from now on a part that is not found has been shown, and perhaps taken away by whoever reads.
   It says which small files are joined, so that all attempts join the same ones.
3. Each part is shown, or put among the small files that wait; those that are joined are shown as one (see
   joining); then each success marker. Crash: as after 2.
4. The ledger says that the checkpoint is committed, which parts stay open, and which files wait. Crash: it is
   asked before each commit, and says so.
5. What the ledger said before, what was joined, and what earlier attempts have left, is deleted. Crash: the
   next commit does.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence

from onceflow.connectors.files.written.compaction import Group
from onceflow.connectors.files.written.joining import JOINED, Joins, SmallFiles
from onceflow.connectors.files.written.output_store import OutputStore
from onceflow.connectors.files.written.part import attempt_of
from onceflow.connectors.files.written.plan import Ledger, Plan, Promise, plan_commit
from onceflow.connectors.files.written.taking_back import BegunAt, take_back
from onceflow.runtime.errors import DataLossError, Fenced

_DONE, _BEGUN = "committed-", "committing-"


class OutputCommits:
    """The commits of one attempt. One thread calls them, in the driver."""

    def __init__(self, store: OutputStore, attempt: int, marker: str | None, small_files: SmallFiles) -> None:
        """`marker`: the name of success markers; None: there are none. Opened before any slot of the attempt
        is started."""
        self._store = store
        self._attempt = attempt
        self._marker = marker
        self._joining = (small_files.policy, small_files.form_name)
        self._joins = Joins(store, attempt, small_files, self._check_current)
        self._seen: int | None = None
        store.prove_creates()
        self._leftovers = store.leftovers()

    def last_committed(self) -> int | None:
        """The latest checkpoint that is committed, by the ledger; None: none."""
        self._seen = _last_committed(self._store.notes())
        return self._seen

    def commit(self, checkpoint_id: int, promises: Sequence[Promise]) -> None:
        """Show what these promise. May be called again for the same ones, by a later attempt too.

        Raises Fenced if somebody has committed since `last_committed`, DataLossError, OSError: then it may
        have happened.
        """
        notes = self._check_current()
        before = self._ledger()
        begun = f"{_BEGUN}{checkpoint_id:010d}"
        arguments = (before, promises, self._attempt, checkpoint_id, self._joining)
        if begun not in notes:
            plan = plan_commit(*arguments)
            if not (plan.whole or plan.left or plan.complete or plan.after != before):
                return
            self._refuse_lost(checkpoint_id, plan)
            content = json.dumps([group.as_json() for group in plan.groups]).encode()
            with contextlib.suppress(FileExistsError):  # a frozen attempt's, which wakes up
                self._store.create_note(begun, content)
        groups = [Group.from_json(each) for each in json.loads(self._store.read_note(begun) or b"[]")]
        self._carry_out(checkpoint_id, plan_commit(*arguments, groups), notes)
        self._seen = checkpoint_id

    def take_back(self, checkpoint_id: int, to: int, promises: Sequence[Promise], begun_at: BegunAt) -> None:
        """What was committed after checkpoint `to` is seen no more, and the ledger says `checkpoint_id`.
        `promises`: those of `to`, which are committed. May be called again; raises what `commit` raises. Not
        with joined files."""
        self._check_current()
        ledger = take_back(self._store, self._ledger(), promises, to, begun_at, self._marker)
        self._write_done(checkpoint_id, ledger)
        self._seen = checkpoint_id
        self._sweep(checkpoint_id, Plan((), (), (), (), ledger, ()), self._store.notes())

    def _ledger(self) -> Ledger:
        """What was said with the latest commit."""
        if self._seen is not None and (content := self._store.read_note(_done(self._seen))):
            return Ledger.from_json(json.loads(content))
        return Ledger()

    def _check_current(self) -> list[str]:
        """The names of all hidden files. Raises Fenced if somebody has committed since `last_committed`."""
        notes = self._store.notes()
        if (last_id := _last_committed(notes)) != self._seen:
            raise Fenced(f"a newer attempt has committed checkpoint {last_id}")
        return notes

    def _refuse_lost(self, checkpoint_id: int, plan: Plan) -> None:
        if (lost := self._store.missing([*plan.whole, *plan.left])) is not None:
            where = self._store.describe(lost.name)
            raise DataLossError(
                f"what a slot wrote for {where} in checkpoint {checkpoint_id} is not there "
                f"({lost.upload or lost.hidden}): if slots run on other machines, they have to see the "
                "same folder as the driver; uploads that are not completed must outlive a restart"
            )

    def _carry_out(self, checkpoint_id: int, plan: Plan, notes: Sequence[str]) -> None:
        self._store.show(plan.whole)
        for part in plan.left:
            self._store.show_left(part)
        self._store.show(self._joins.make(checkpoint_id, plan.groups, notes))
        for folder in plan.complete if self._marker else ():
            self._store.mark(folder, str(self._marker))
        self._store.make_names_durable()
        self._write_done(checkpoint_id, plan.after)
        self._sweep(checkpoint_id, plan, self._store.notes())

    def _write_done(self, checkpoint_id: int, ledger: Ledger) -> None:
        """Raises Fenced if another attempt has done so: it knows better which parts are still open."""
        content = json.dumps({"attempt": self._attempt, **ledger.as_json()}).encode()
        try:
            self._store.create_note(_done(checkpoint_id), content)
        except FileExistsError:
            if self._store.read_note(_done(checkpoint_id)) != content:  # else it is ours, and nobody told us
                raise Fenced(f"a newer attempt has committed checkpoint {checkpoint_id}") from None

    def _sweep(self, checkpoint_id: int, plan: Plan, notes: Sequence[str]) -> None:
        """All that earlier attempts have left is part of no checkpoint: what was restored is shown first."""
        stale = [name for name in notes if (of := attempt_of(name)) is not None and of < self._attempt]
        told = [name for name in notes if name.startswith((_DONE, _BEGUN, JOINED))]
        told = [name for name in told if _of(name) <= checkpoint_id and name != _done(checkpoint_id)]
        self._store.delete_notes([*stale, *told, *plan.gone])
        self._store.abandon(self._leftovers)
        self._leftovers = ()

    def close(self) -> None:
        self._store.close()


def _done(checkpoint_id: int) -> str:
    return f"{_DONE}{checkpoint_id:010d}"


def _of(note: str) -> int:
    """The checkpoint of a note. Later ones are left: an attempt that was frozen may wake up and sweep."""
    return int(note.split("-")[1])


def _last_committed(notes: Sequence[str]) -> int | None:
    return max((int(name.removeprefix(_DONE)) for name in notes if name.startswith(_DONE)), default=None)
