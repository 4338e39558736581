"""What must hold, seen from outside: only from what is durable and what consumers see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from onceflow.runtime.checkpoint.log import (
    LOG_FOLDER,
    AttemptStarted,
    CheckpointCompleted,
    JobFinished,
    decode_entry,
)
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.state_files import StateFiles
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.errors import CorruptCheckpointError
from onceflow.runtime.state.in_flight import in_flight_rows, way_uid
from onceflow.runtime.state.key_groups import key_groups_of
from onceflow.runtime.testing.sim_job import (
    RECORD_SCHEMA,
    SimInput,
    SimRecord,
    expected_raw,
    expected_running,
    window_sums,
)
from onceflow.runtime.testing.sim_rows import RAW, RUNNING, WINDOW, Row
from onceflow.runtime.testing.violations import Breach, Violation

TO_TALLY = way_uid("src", "tally")

Promised = Callable[[CheckpointManifest], Counter[Row]]


def rows_in_payloads(manifest: CheckpointManifest) -> Counter[Row]:
    """What the simulated sink promises."""
    return Counter(tuple(row) for c in manifest.committables for row in c.payload["rows"])


class Checker:
    """Hears of every log entry and of every row that becomes visible. Raises Violation."""

    def __init__(
        self,
        input: SimInput,
        store: CheckpointStore,
        is_exactly_once: bool = True,
        has_real_windows: bool = False,
        promised: Promised | None = None,
    ) -> None:
        """`promised(manifest)`: the rows that its committables will make visible; None: can't be told."""
        self._input = input
        self._store = store
        self._is_exactly_once = is_exactly_once
        self._promised = promised
        self._has_real_windows = has_real_windows
        self._expected = input.expected(has_real_windows)
        self._visible: Counter[Row] = Counter()
        self._next_position = 0
        self._entries: list[bytes] = []
        self._dropped: set[int] = set()
        """Positions whose entries were deleted."""
        self.attempt = 0
        """The latest in the log."""
        self._has_finished = False
        self._next_offsets: dict[str, int] = {}
        self._counted: list[SimRecord] = []
        """The records that are in the tally's state at the latest checkpoint."""
        self._covered: Counter[Row] = Counter()
        """Rows that may be visible: those of records under a durable checkpoint."""
        self.latest: CheckpointManifest | None = None
        self._named: dict[str, set[str]] = {}
        """The files that each log entry's manifest names."""

    def on_log_entry(self, path: str, content: bytes) -> None:
        """An entry was created just now."""
        if not path.startswith(f"{LOG_FOLDER}/"):
            return
        position = _position(path)
        if position < self._next_position:  # put back, or a zombie's, which has to learn that it is fenced
            self._check(
                self._entries[position] == content or position in self._dropped,
                Breach.LOG,
                f"log entry {position} was put back altered",
            )
            return
        self._entries.append(content)
        self._check(
            position == self._next_position, Breach.LOG, f"log entry {position}, not {self._next_position}"
        )
        self._next_position += 1
        entry = decode_entry(content, position, path)
        match entry:
            case AttemptStarted(attempt=attempt):
                self._check(attempt > self.attempt, Breach.LOG, f"attempt {attempt} after {self.attempt}")
                self._check(not self._has_finished, Breach.LOG, "an attempt after the job has finished")
                self.attempt = attempt
            case CheckpointCompleted(manifest=manifest):
                self._check(
                    manifest.attempt == self.attempt, Breach.LOG, "a stale attempt completed a checkpoint"
                )
                self._named[path] = manifest.paths()
                self._on_manifest(manifest)
            case JobFinished():
                self._has_finished = True
                self.check_complete()

    def on_delete(self, path: str) -> None:
        """A file is about to be deleted."""
        if path.startswith(f"{LOG_FOLDER}/"):
            self._dropped.add(_position(path))
        self._named.pop(path, None)
        for entry, paths in self._named.items():
            self._check(path not in paths, Breach.FILES, f"{path} is deleted, which {entry} names")

    def on_visible(self, rows: Sequence[Row]) -> None:
        """These rows became visible to read_committed consumers just now."""
        for row in rows:
            self._visible[row] += 1
            if not self._is_exactly_once:
                continue
            self._check(row in self._expected, Breach.WRONG, f"wrong row {row}")
            self._check(self._visible[row] == 1, Breach.DOUBLED, f"doubled row {row}")
            if row[0] in (RAW, RUNNING):
                self._check(
                    row in self._covered,
                    Breach.EARLY,
                    f"row {row} is visible before its checkpoint is durable",
                )

    def check_complete(self) -> None:
        """At the end: everything is visible."""
        missing = self._expected - self._visible
        if not self._is_exactly_once:
            missing = Counter(row for row in missing if row[0] == RAW)
        self._check(not missing, Breach.LOST, f"missing rows {sorted(missing)[:5]}")

    def _on_manifest(self, manifest: CheckpointManifest) -> None:
        n = manifest.checkpoint_id
        before = -1 if self.latest is None else self.latest.checkpoint_id
        self._check(n > before, Breach.LOG, f"checkpoint {n} after {before}")
        offsets: dict[str, int] = {}
        for progress in manifest.splits["src"]:
            split = progress.split.split_id
            self._check(split not in offsets, Breach.OFFSETS, f"checkpoint {n} has {split} twice")
            offsets[split] = progress.split.position["next_offset"]
        pruned = manifest.finished.get("src", {})
        twice = sorted(offsets.keys() & pruned.keys())
        self._check(not twice, Breach.OFFSETS, f"checkpoint {n} has {twice}, which are pruned")
        offsets |= pruned
        self._check(
            set(offsets) == set(self._input.splits),
            Breach.OFFSETS,
            f"checkpoint {n} has splits {sorted(offsets)} only",
        )
        for split, before_offset in self._next_offsets.items():
            self._check(
                offsets[split] >= before_offset,
                Breach.OFFSETS,
                f"checkpoint {n}: {split} goes back to {offsets[split]}",
            )
        self._next_offsets, self.latest = offsets, manifest
        if not self._is_exactly_once:
            return
        prefix = self._input.prefix(offsets)
        self._counted = self._without_in_flight(manifest, prefix)
        self._covered = expected_raw(prefix) + expected_running(self._counted)
        if self._promised is None:
            self._check_state(manifest, None)
            return
        found = self._promised(manifest) + self._visible
        plain = Counter({row: count for row, count in found.items() if row[0] in (RAW, RUNNING)})
        if plain != self._covered:  # the message is long in the making
            lost, too_many = sorted(self._covered - plain)[:5], sorted(plain - self._covered)[:5]
            raise Violation(
                Breach.LOST if lost else Breach.DOUBLED,
                f"checkpoint {n}: visible and promised rows are not those of the records below its offsets: "
                f"lost {lost}, too many {too_many}",
            )
        self._check_state(manifest, {row for row in found if row[0] == WINDOW})

    def _without_in_flight(
        self, manifest: CheckpointManifest, prefix: Sequence[SimRecord]
    ) -> list[SimRecord]:
        """The records below the offsets that the tally has had: all but those that are on their way to it."""
        files = StateFiles(self._store, manifest.attempt)
        ids: list[int] = []
        for handle in (h for h in manifest.states if h.uid == TO_TALLY):
            for rows in in_flight_rows([files.read(handle, handle.key_groups)], RECORD_SCHEMA, False):
                assert rows.key_hash is not None, "the way is keyed"
                groups = set(key_groups_of(rows.key_hash, manifest.max_parallelism).tolist())
                self._check(groups <= set(handle.key_groups), Breach.PLACE, f"rows of {groups}: {handle}")
                ids += rows.batch.column("id").to_pylist()
        known, n = {record.id for record in prefix}, manifest.checkpoint_id
        self._check(
            len(ids) == len(set(ids)) and known >= set(ids),
            Breach.DOUBLED,
            f"checkpoint {n}: in flight are {sorted(ids)}, and read were {sorted(known)}",
        )
        return [record for record in prefix if record.id not in set(ids)]

    def _check_state(self, manifest: CheckpointManifest, fired: set[Row] | None) -> None:
        """State equals a replay of the input below the offsets."""
        n = manifest.checkpoint_id
        prefix = self._counted
        files = StateFiles(self._store, manifest.attempt)
        tables: dict[str, list[Row]] = {"counts": [], "windows": [], "timers": []}
        for handle in (h for h in manifest.states if h.uid == "tally"):
            try:
                read = files.read(handle, handle.key_groups)
                for name in read.tables:
                    for batch in read.batches(name):
                        tables[name] += zip(
                            *(column.to_pylist() for column in batch.columns[1:]), strict=True
                        )
            except CorruptCheckpointError as error:
                raise Violation(Breach.FILES, f"checkpoint {n} can't be read: {error}") from error
        counts = Counter(r.key for r in prefix)
        self._check(
            sorted(tables["counts"]) == sorted(counts.items()),
            Breach.STATE,
            f"checkpoint {n}: counts {tables['counts']}",
        )
        windows = window_sums(prefix)
        in_state = {(key, end): (count, total) for key, end, count, total in tables["windows"]}
        self._check(
            in_state.items() <= windows.items(),
            Breach.STATE,
            f"checkpoint {n}: windows {in_state} not {windows}",
        )
        if fired is not None:
            gone = {(row[1], row[2]): (row[3], row[4]) for row in fired}
            self._check(
                not in_state.keys() & gone.keys(),
                Breach.STATE,
                f"checkpoint {n}: windows in state that have fired",
            )
            self._check(
                {**in_state, **gone} == windows, Breach.STATE, f"checkpoint {n}: {in_state} and fired {gone}"
            )
        timers = {(key, end) for key, end in tables["timers"]}
        self._check(
            timers == set(in_state),
            Breach.STATE,
            f"checkpoint {n}: timers {timers} of windows {set(in_state)}",
        )

    def _check(self, holds: bool, breach: Breach, otherwise: str) -> None:
        if not holds:
            raise Violation(breach, otherwise)


def _position(path: str) -> int:
    return int(path[len(LOG_FOLDER) + 1 : -len(".json")])
