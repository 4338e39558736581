"""The whole job with crashes everywhere, one of its sinks a table that the driver commits to.

Beside it another sink commits in each slot, so both ways are under the same crashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.checkpoint.coordinator import Coordinator
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.pending import PendingCheckpoint
from onceflow.runtime.contracts import Committable, PreCommit, SinkCommitter
from onceflow.runtime.driver import committers
from onceflow.runtime.driver.committers import Committers
from onceflow.runtime.errors import Indeterminate
from onceflow.runtime.testing.mutation import Mutant, hunt, killed_by, wrong_on_fair_days
from onceflow.runtime.testing.sim_table import SimTableWriter, table_graph
from onceflow.runtime.testing.simulation import run_exhaustive, run_seeds
from onceflow.runtime.testing.violations import Breach

SEEDS = 600
RARE_MOVES = {"sinks not known to be committed", "sinks' answer of a failed attempt"}


def test_every_crash_at_every_point_of_the_tiny_job() -> None:
    report = run_exhaustive(deviations_max=0, graph=table_graph)
    assert not report.failure
    assert report.runs > 400


@pytest.mark.parametrize("seeds", [200, pytest.param(SEEDS, marks=pytest.mark.soak)])
def test_seeds_with_crashes_and_lost_answers(seeds: int) -> None:
    report = run_seeds(range(seeds), table_graph)
    assert report.failed_seed is None, f"{report.failure}; seed {report.failed_seed} with table_graph"
    assert set(report.marks) >= RARE_MOVES, f"never reached: {RARE_MOVES - set(report.marks)}"


# --- Mutants ------------------------------------------------------------------------------------------


def commit_without_asking(
    committer: SinkCommitter, uid: str, checkpoint_id: int, promised: Sequence[Committable]
) -> None:
    """A commit on a fresh handle, whatever its ledger says."""
    committer.last_committed()
    committer.commit(checkpoint_id, promised)


def unknown_is_done(
    committer: SinkCommitter, uid: str, checkpoint_id: int, promised: Sequence[Committable]
) -> None:
    """No answer is taken for a good one."""
    try:
        original_commit_once(committer, uid, checkpoint_id, promised)
    except Indeterminate:
        return


original_commit_once = committers.commit_once


def restore_without_commit(
    self: Committers, attempt: int, manifest: CheckpointManifest
) -> CheckpointManifest:
    """What the restored checkpoint promised is taken for committed."""
    original_restore(self, attempt, replace(manifest, committables=[]))
    return replace(manifest, committables=[c for c in manifest.committables if c.uid not in self._sinks])


original_restore = Committers.restore


def commit_before_persist(self: Coordinator, pending: PendingCheckpoint, now_ms: int) -> None:
    """The sinks are told before the manifest is durable."""
    original_persist(self, pending, now_ms)
    assert pending.manifest is not None
    self._effects.insert(-1, ev.CommitSinks(pending.manifest))


original_persist = Coordinator._persist


def rows_since_the_last_barrier(self: SimTableWriter, checkpoint_id: int) -> PreCommit:
    """Output of an aborted checkpoint is left out of the next one."""
    before = max(self._frozen.values(), default=0)
    made = original_pre_commit(self, checkpoint_id)
    made._rows = made._rows[before:]  # type: ignore[attr-defined]
    return made


original_pre_commit = SimTableWriter.pre_commit


LOST, DOUBLED, EARLY = {Breach.LOST}, {Breach.DOUBLED}, {Breach.EARLY}
UNASKED = (committers, "commit_once", commit_without_asking)
BELIEVED = (committers, "commit_once", unknown_is_done)
NOT_RESTORED = (Committers, "restore", restore_without_commit)
TOO_EARLY = (Coordinator, "_persist", commit_before_persist)
LEFT_OUT = (SimTableWriter, "pre_commit", rows_since_the_last_barrier)
MUTANTS = (
    Mutant("commits again without asking", [UNASKED], DOUBLED, graph=table_graph),
    Mutant("no answer is taken for a good one", [BELIEVED], LOST, graph=table_graph),
    Mutant("no commit at the restore", [NOT_RESTORED], LOST, graph=table_graph),
    Mutant("commit before persist", [TOO_EARLY], EARLY, is_right_on_fair_days=False, graph=table_graph),
    Mutant("aborted output dropped", [LEFT_OUT], LOST, graph=table_graph),
)


KNOWN_SEEDS = {"no answer is taken for a good one": 22, "no commit at the restore": 44}
"""Each the first to kill its mutant when somebody looked last; seed 0 kills the others, or the hunt."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_mutant_is_killed(mutant: Mutant) -> None:
    is_killed = killed_by(mutant, KNOWN_SEEDS.get(mutant.title, 0)) or hunt(mutant, SEEDS).by
    assert is_killed, f"{mutant.title} survived"
    assert not wrong_on_fair_days(mutant, range(5))
