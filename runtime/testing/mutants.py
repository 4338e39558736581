"""Deliberate mutants of the protocol, and the run that kills each.

    python -m onceflow.runtime.testing.mutants

A test that no mutant fails proves nothing. Each mutant replaces one function of the real code (or of
the simulated sink) by a wrong one; the simulation must notice from outside, and notice what it breaks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.checkpoint import recovery
from onceflow.runtime.checkpoint.alignment import Alignment, Decision
from onceflow.runtime.checkpoint.coordinator import Coordinator
from onceflow.runtime.checkpoint.log import CheckpointLog, LogEntry
from onceflow.runtime.checkpoint.manifest import CheckpointManifest, SlotSnapshot
from onceflow.runtime.checkpoint.pending import PendingCheckpoint
from onceflow.runtime.checkpoint.recovery import SlotRestore
from onceflow.runtime.checkpoint.retention import Retention
from onceflow.runtime.contracts import PreCommit, SplitState
from onceflow.runtime.control.messages import Acked, Hello, ToDriver
from onceflow.runtime.errors import Fenced, Indeterminate, Retryable
from onceflow.runtime.exchange.channel_watermarks import ChannelWatermarks
from onceflow.runtime.operators.operator import FrozenState, Operator
from onceflow.runtime.records import Barrier, Watermark
from onceflow.runtime.slot import assignments, tasks
from onceflow.runtime.slot.group import SlotGroup
from onceflow.runtime.slot.tasks import SlotBuilder
from onceflow.runtime.state.key_groups import key_group_range
from onceflow.runtime.testing import sim_slot
from onceflow.runtime.testing.firing_mutants import snapshot_without_what_is_due
from onceflow.runtime.testing.mutation import SEEDS_MAX, Mutant, hunt
from onceflow.runtime.testing.retention_mutants import (
    discard_unasked,
    discard_what_none_names,
    drop_all_but_named,
)
from onceflow.runtime.testing.sim_broker import SimSinkWriter, _SimPreCommit
from onceflow.runtime.testing.sim_job import SimReader
from onceflow.runtime.testing.sim_rows import Row
from onceflow.runtime.testing.sim_tally import Tally, _table
from onceflow.runtime.testing.violations import Breach

# --- The mutants ------------------------------------------------------------------------------------


def _commit_before_persist(self: Coordinator, pending: PendingCheckpoint, now_ms: int) -> None:
    self._emit(ev.Commit(pending.attempt, pending.checkpoint_id))
    _original_persist(self, pending, now_ms)


_original_persist = Coordinator._persist


def _forget_committables(manifest: CheckpointManifest, parallelism: int) -> list[SlotRestore]:
    slots = recovery.assign(manifest, parallelism)
    for slot in slots:
        slot.committables.clear()
    return slots


def _ledger_before_init(
    self: SimSinkWriter, transactional_id: str, checkpoint_id: int, rows: Sequence[Row]
) -> None:
    for _ in range(10):
        try:
            if self._broker.read_ledger(transactional_id) >= checkpoint_id:
                return
            epoch = self._producer(transactional_id)
            self._broker.produce(transactional_id, epoch, rows)
            self._broker.add_ledger(transactional_id, epoch, checkpoint_id)
            if self._broker.commit(transactional_id, epoch):
                self._doubt(transactional_id)
            return
        except Indeterminate:
            self._doubt(transactional_id)


def _never_aligned(channels: int, is_aligned: bool, in_order: Collection[int]) -> Alignment:
    return Alignment(channels, is_aligned=False)


def _blocks_the_latest_only(self: Alignment, channel: int, barrier: Barrier) -> Decision:
    decision = _original_on_barrier(self, channel, barrier)
    if len(self.blocked) > 1:
        self.blocked = frozenset({channel})
    return decision


_original_on_barrier = Alignment.on_barrier


def _highest(self: ChannelWatermarks) -> Watermark | None:
    highest_ms = max(self._time_ms)
    if highest_ms <= self._current_ms:
        return None
    self._current_ms = highest_ms
    return Watermark(highest_ms)


def _offsets_of_the_batch_before(self: SimReader) -> Sequence[SplitState]:
    """What was read since the last poll is not in the offsets, but sent on."""
    return [SplitState(split, {"next_offset": max(0, n - 1)}) for split, n in self._next.items()]


def _ack_without_the_last(self: PendingCheckpoint, slot: int, snapshot: SlotSnapshot) -> bool:
    self._snapshots[slot] = snapshot
    return len(self._snapshots) >= max(1, self.slots - 1)


def _manifest_of_some(self: PendingCheckpoint, *arguments: Any) -> CheckpointManifest:
    for slot in range(self.slots):
        self._snapshots.setdefault(slot, SlotSnapshot())
    return _original_build_manifest(self, *arguments)


_original_build_manifest = PendingCheckpoint.build_manifest


def _restore_off_by_one(self: SlotBuilder, uid: str, operator: Operator) -> None:
    key_groups = range(self._key_groups.start + 1, self._key_groups.stop)
    handles = [handle for handle in self._assignment.states if handle.uid == uid]
    states = self._environment.read_states([(handle, key_groups) for handle in handles])
    if states:
        operator.restore(states)


_slot_of_peer: dict[int, int] = {}


def _hear_every_attempt(self: SlotGroup, peer: int, message: ToDriver, now_ms: float) -> list[ev.Event]:
    if isinstance(message, Hello):
        _slot_of_peer[peer] = message.spark_partition
    if isinstance(message, Acked) and _slot_of_peer[peer] < self.parallelism:
        return [ev.SlotAcked(self.attempt, message.checkpoint_id, _slot_of_peer[peer], message.snapshot)]
    return _original_on_message(self, peer, message, now_ms)


_original_on_message = SlotGroup.on_message


def _ack_twice(self: PendingCheckpoint, slot: int, snapshot: SlotSnapshot) -> bool:
    self._snapshots.setdefault(slot, snapshot)
    return len(self._snapshots) == self.slots


def _no_doubt(self: SimSinkWriter, transactional_id: str) -> None:
    pass


def _snapshot_without_timers(self: Tally) -> FrozenState | None:
    state = _original_snapshot(self)
    assert state is not None
    return FrozenState(state.key_groups, {**state.tables, "timers": _table("key end", [])})


_original_snapshot = Tally.snapshot


class _LiveState:
    """A snapshot that goes on changing until it is written."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self.key_groups = tally._context.key_groups
        self.meta: dict[str, Any] = {}

    @property
    def tables(self) -> Any:
        state = _original_snapshot(self._tally)
        assert state is not None
        return state.tables


def _live_state(self: Tally) -> _LiveState:
    return _LiveState(self)


def _append_after_the_newer(self: CheckpointLog, entry: LogEntry) -> int:
    while True:
        try:
            return _original_append(self, entry)
        except Fenced:
            self.next_position += 1


_original_append = CheckpointLog.append


def _unknown_is_not_done(self: CheckpointLog, entry: LogEntry) -> int:
    try:
        return _original_append(self, entry)
    except Indeterminate as error:
        raise Retryable(str(error)) from error


def _one_before_the_latest(log: Any, completed: Sequence[CheckpointManifest]) -> CheckpointManifest | None:
    return completed[-2] if len(completed) > 1 else _original_latest(log, completed)


_original_latest = recovery._latest


def _rows_since_the_last_barrier(self: SimSinkWriter, checkpoint_id: int) -> PreCommit:
    before = max(self._frozen.values(), default=0)
    self._frozen[checkpoint_id] = len(self._rows)
    return _SimPreCommit(self._context, checkpoint_id, self._rows[before:])


def _own_state_only(manifest: CheckpointManifest, parallelism: int) -> list[SlotRestore]:
    slots = recovery.assign(manifest, parallelism)
    for number, slot in enumerate(slots):
        slot.states = {
            uid: [h for h in handles if h.subtask == number] for uid, handles in slot.states.items()
        }
    return slots


def _shifted_range(max_parallelism: int, parallelism: int, subtask: int) -> range:
    key_groups = key_group_range(max_parallelism, parallelism, subtask)
    return range(key_groups.start, key_groups.stop - 1) if len(key_groups) > 1 else key_groups


LOST, DOUBLED, WRONG, EARLY, STATE, PLACE, OFFSETS, LOG, FILES, STUCK = Breach
STALE = (
    (SlotGroup, "on_message", _hear_every_attempt),
    (PendingCheckpoint, "ack", _ack_twice),
)
MUTANTS: Sequence[Mutant] = (
    Mutant("commit before persist", [(Coordinator, "_persist", _commit_before_persist)], {EARLY}, False),
    Mutant("no re-commit after recovery", [(assignments, "assign", _forget_committables)], {LOST}),
    Mutant("ledger read before init", [(SimSinkWriter, "_commit_once", _ledger_before_init)], {DOUBLED}),
    Mutant("no alignment", [(sim_slot, "Alignment", _never_aligned)], {LOST, DOUBLED, STATE}, False),
    Mutant(
        "a channel unblocked too early",
        [(Alignment, "on_barrier", _blocks_the_latest_only)],
        {LOST, DOUBLED, STATE},
    ),
    Mutant(
        "watermark maximum instead of minimum",
        [(ChannelWatermarks, "_lowest", _highest)],
        {WRONG, LOST, STATE},
        False,
    ),
    Mutant(
        "offsets noted after the batch was sent on",
        [(SimReader, "snapshot", _offsets_of_the_batch_before)],
        {DOUBLED},
        False,
    ),
    Mutant(
        "persist before all acks",
        [
            (PendingCheckpoint, "ack", _ack_without_the_last),
            (PendingCheckpoint, "build_manifest", _manifest_of_some),
        ],
        {OFFSETS, LOST, STATE},
        False,
    ),
    Mutant(
        "key-group range off by one at restore", [(SlotBuilder, "_restore", _restore_off_by_one)], {STATE}
    ),
    Mutant(
        "key-group range of a subtask too short",
        [(tasks, "key_group_range", _shifted_range)],
        {PLACE},
        False,
    ),
    Mutant("a stale attempt's ack accepted", STALE, {LOST, DOUBLED, STATE, OFFSETS}),
    Mutant("late EndTxn of an old writer", [(SimSinkWriter, "_doubt", _no_doubt)], {DOUBLED}),
    Mutant("timers not in the snapshot", [(Tally, "snapshot", _snapshot_without_timers)], {STATE}, False),
    Mutant("state goes on changing while it is written", [(Tally, "snapshot", _live_state)], {STATE}, False),
    Mutant(
        "what is due is recorded as fired",
        [(Tally, "snapshot", snapshot_without_what_is_due)],
        {STATE},
        False,
    ),
    Mutant("an old attempt is not fenced", [(CheckpointLog, "append", _append_after_the_newer)], {LOG}),
    Mutant(
        "an unknown outcome taken for not done", [(CheckpointLog, "append", _unknown_is_not_done)], {FILES}
    ),
    Mutant(
        "retention deletes what is still named", [(Retention, "subsume", drop_all_but_named)], {FILES}, False
    ),
    Mutant("a discard asks nobody", [(Retention, "discard", discard_unasked)], {FILES}),
    Mutant(
        "a discard asks the kept manifests only", [(Retention, "discard", discard_what_none_names)], {FILES}
    ),
    Mutant(
        "restore from the last but one checkpoint",
        [(recovery, "_latest", _one_before_the_latest)],
        {LOST, DOUBLED, OFFSETS},
    ),
    Mutant("state not redistributed at a rescale", [(assignments, "assign", _own_state_only)], {STATE}),
    Mutant(
        "output of an aborted checkpoint dropped",
        [(SimSinkWriter, "pre_commit", _rows_since_the_last_barrier)],
        {LOST},
    ),
)


def main(
    only: str = typer.Option("", help="Part of a title: hunt these only."),
    seeds: int = typer.Option(SEEDS_MAX, help="How many seeds to try on each."),
) -> None:
    """Hunt the mutants; exit code 1 if one survives."""
    table = Table("mutant", "killed by", "because", "s")
    survivors = 0
    for mutant in (m for m in MUTANTS if only in m.title):
        verdict = hunt(mutant, seeds)
        survivors += not verdict.by
        table.add_row(verdict.title, verdict.by or "SURVIVED", verdict.because[:70], f"{verdict.seconds:.1f}")
    Console(width=170).print(table)
    if survivors:
        raise SystemExit(1)


if __name__ == "__main__":
    typer.run(main)
