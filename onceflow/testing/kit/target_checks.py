"""What every Target must do: the place of an owner in a system that commits rows and a ledger in one step."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from unittest import SkipTest

import pyarrow as pa

from onceflow.connectors.staged_commits.owner import OwnerCommits
from onceflow.connectors.staged_commits.target import Target, TargetContext, TransactionalStore
from onceflow.runtime.contracts import Json
from onceflow.runtime.errors import Fenced, Indeterminate, OnceflowError, Retryable
from onceflow.runtime.testing.conformance import quotations
from onceflow.runtime.testing.conformance.played_engine import JOB, UID, Elsewhere
from onceflow.runtime.testing.conformance.recorded_calls import Calls

PASSING = (Retryable, Indeterminate)
MEANWHILE_S = 0.3
"""How long a claim is waited for that may have to wait itself, for a commit that is under way."""


@dataclass
class PlayedStore:
    """A store with a fresh output. `batch(n)`: one row that only n has; `visible()`: as in PlayedSink."""

    store: TransactionalStore
    schema: pa.Schema
    batch: Callable[[int], pa.RecordBatch]
    visible: Callable[[], Sequence[int]]
    lineage: str
    elsewhere: Elsewhere | None = None
    calls: Calls = field(default_factory=Calls)

    def open(self, attempt: int, owner: str = "0", uid: str = UID) -> Target:
        who = f"attempt {attempt}, owner {owner} of {uid}"
        target = self.store.open_target(TargetContext(JOB, self.lineage, uid, owner, attempt, self.schema))
        watched: Target = self.calls.watch(target, "Target", who)
        return watched

    def rows(self, *numbers: int) -> Iterator[pa.RecordBatch]:
        """A batch for each."""
        return iter([self.batch(n) for n in numbers])

    def expect(self, rows: Sequence[int], why: str) -> None:
        seen = sorted(self.visible())
        assert seen == sorted(rows), f"{why}: expected to see {sorted(rows)}, and there is {seen}"


def claimed(target: Target) -> int:
    """What the ledger says, asked until it is told; a claim may have to wait."""
    for _ in range(100):
        with contextlib.suppress(*PASSING):
            return target.claim()
    return target.claim()


@quotations.of(Target.claim, "0: nothing is, also where there was no ledger until now.")
def a_new_ledger_says_nothing_is_committed(case: PlayedStore) -> None:
    target = case.open(1)
    assert target.claim() == 0, "nothing was committed under this ledger"
    case.expect([], "nothing was written")
    target.close()


@quotations.of(Target.commit, "Make these rows visible, and the ledger say `checkpoint_id`, in one step.")
def a_commit_makes_rows_visible_and_the_ledger_know_it(case: PlayedStore) -> None:
    target = case.open(1)
    target.claim()
    target.commit(1, case.rows(1, 2, 3))
    case.expect([1, 2, 3], "checkpoint 1 is committed")
    target.commit(4, case.rows(4))
    case.expect([1, 2, 3, 4], "checkpoint 4 is committed")
    assert target.claim() == 4, "the ledger is at checkpoint 4"
    assert case.open(2).claim() == 4, "a later attempt reads the same ledger"


@quotations.of(Target.commit, "the ledger say `checkpoint_id`")
def a_commit_without_rows_is_in_the_ledger(case: PlayedStore) -> None:
    target = case.open(1)
    target.claim()
    target.commit(1, case.rows())
    assert case.open(2).claim() == 1, "checkpoint 1 is committed, and had no rows"
    case.expect([], "it had no rows")


@quotations.of(Target, "No two jobs, no two sinks of a job and no two owners share one.")
def each_owner_has_a_ledger_of_its_own(case: PlayedStore) -> None:
    one, two = case.open(1, "0"), case.open(1, "1")
    other = case.open(1, "0", "another sink")
    assert [one.claim(), two.claim(), other.claim()] == [0, 0, 0]
    one.commit(1, case.rows(1))
    assert [two.claim(), other.claim()] == [0, 0], "somebody else's commit is in this ledger"
    two.commit(2, case.rows(2))
    other.commit(3, case.rows(3))
    case.expect([1, 2, 3], "three owners have committed")
    assert [case.open(2, "0").claim(), case.open(2, "1").claim()] == [1, 2]
    assert case.open(2, "0", "another sink").claim() == 3


@quotations.of(Target.claim, "Fence whoever wrote under this ledger before")
def an_older_attempt_can_not_commit(case: PlayedStore) -> None:
    zombie = case.open(1)
    zombie.claim()
    newer = case.open(2)
    assert newer.claim() == 0
    with contextlib.suppress(Fenced, *PASSING):
        zombie.commit(1, case.rows(9))
    case.expect([], "attempt 2 has claimed the ledger, and attempt 1 must not write")
    newer.commit(1, case.rows(1))
    with contextlib.suppress(Fenced, *PASSING):
        zombie.commit(2, case.rows(9))
    case.expect([1], "attempt 2 has claimed the ledger, and attempt 1 must not write")
    assert case.open(3).claim() == 1, "what an older attempt has tried is not in the ledger"


@quotations.of(Target.claim, "Raises Fenced if a newer attempt has claimed the ledger")
def an_older_attempt_can_not_claim(case: PlayedStore) -> None:
    zombie = case.open(1)
    case.open(2).claim()
    try:
        said = zombie.claim()
    except Fenced:
        return
    raise AssertionError(f"attempt 2 has claimed the ledger, and the claim of attempt 1 said {said}")


@quotations.of(
    Target.claim, "nothing that an earlier attempt began, or an earlier call of this one whose answer"
)
def a_claim_ends_a_commit_that_is_under_way_or_waits_for_it(case: PlayedStore) -> None:
    """The newer attempt claims while the older one is between two rows of its commit."""
    zombie, newer = case.open(1), case.open(2)
    zombie.claim()
    said: list[int] = []
    claiming = threading.Thread(target=lambda: said.append(claimed(newer)))

    def rows() -> Iterator[pa.RecordBatch]:
        yield case.batch(1)
        claiming.start()
        claiming.join(MEANWHILE_S)
        yield case.batch(2)

    with contextlib.suppress(OnceflowError):
        zombie.commit(1, rows())
    claiming.join()
    if not said:
        said.append(newer.claim())
    case.expect([1, 2] if said[0] == 1 else [], f"the claim of attempt 2 said {said[0]}")


@quotations.of(Target.claim, "then it is called again")
def a_claim_may_be_repeated(case: PlayedStore) -> None:
    target = case.open(1)
    assert [target.claim(), target.claim()] == [0, 0]
    target.commit(1, case.rows(1))
    assert [target.claim(), target.claim()] == [1, 1]
    target.commit(2, case.rows(2))
    case.expect([1, 2], "two checkpoints are committed")


class RowsBrokenError(Exception):
    """The staged rows can't be read to their end."""


@quotations.of(Target, "an error leaves nothing open.")
def a_commit_that_fails_half_way_leaves_nothing(case: PlayedStore) -> None:
    """The rows come from a file, and it can't be read to its end."""

    def rows() -> Iterator[pa.RecordBatch]:
        yield case.batch(1)
        raise RowsBrokenError

    target = case.open(1)
    target.claim()
    with contextlib.suppress(RowsBrokenError, OnceflowError):
        target.commit(1, rows())
    case.expect([], "the commit has failed half way")
    assert claimed(target) == 0, "the commit has failed, and the ledger says it was done"
    target.commit(1, case.rows(1, 2))
    case.expect([1, 2], "it was tried again")


@quotations.of(Target.close, "what is not committed stays invisible.")
def what_was_closed_connects_anew(case: PlayedStore) -> None:
    target = case.open(1)
    target.claim()
    target.commit(1, case.rows(1))
    target.close()
    again = case.open(1)
    assert claimed(again) == 1
    again.commit(2, case.rows(2))
    case.expect([1, 2], "two checkpoints are committed")
    again.close()


class Unanswered:
    """A Target whose calls are not done, or are and nobody is told."""

    def __init__(self, target: Target, fates: Sequence[str]) -> None:
        self._target = target
        self._fates = list(fates)

    def claim(self) -> int:
        return self._target.claim()

    def commit(self, checkpoint_id: int, rows: Iterator[pa.RecordBatch]) -> None:
        fate = self._fates.pop(0) if self._fates else "done"
        if fate != "lost":
            self._target.commit(checkpoint_id, rows)
        if fate != "done":
            raise Indeterminate(f"no answer (injected, {fate}): ask the ledger")

    def close(self) -> None:
        self._target.close()


class NoPause:
    """Patience that tries again at once."""

    def wait(self, error: OnceflowError) -> None:
        pass

    def reset(self) -> None:
        pass


@quotations.of(Target.commit, "Indeterminate if nobody knows (`claim` is asked before the next try)")
def the_ledger_tells_what_a_lost_answer_did_not(case: PlayedStore) -> None:
    for number, fates in enumerate((["unanswered"], ["lost"], ["lost", "unanswered"]), 1):
        case.calls.say(f"the commits of checkpoint {number} are {' and then '.join(fates)}")
        commits = OwnerCommits("owner 0", Unanswered(case.open(number), fates), NoPause(), None)
        commits.commit(number, lambda n=number: case.rows(n))  # type: ignore[misc]
        case.expect(range(1, number + 1), "each commit is done once")
        commits.close()


@quotations.of(Target.commit, "in one step.")
def a_process_that_is_killed_inside_a_commit_leaves_nothing(case: PlayedStore) -> None:
    killed(case, "inside")
    case.expect([], "the process was killed between two rows of its commit")
    target = case.open(2)
    assert claimed(target) == 0, "the process was killed before its commit was done"
    target.commit(1, case.rows(1, 2))
    case.expect([1, 2], "attempt 2 has committed the same again")


@quotations.of(Target.commit, "in one step.")
def a_process_that_is_killed_behind_a_commit_has_done_it(case: PlayedStore) -> None:
    killed(case, "behind")
    case.expect([1, 2], "the process was killed behind its commit")
    assert claimed(case.open(2)) == 1, "the rows are there, and the ledger does not know"


TARGET_CHECKS: Sequence[Callable[[PlayedStore], None]] = (
    a_new_ledger_says_nothing_is_committed,
    a_commit_makes_rows_visible_and_the_ledger_know_it,
    a_commit_without_rows_is_in_the_ledger,
    each_owner_has_a_ledger_of_its_own,
    an_older_attempt_can_not_commit,
    an_older_attempt_can_not_claim,
    a_claim_ends_a_commit_that_is_under_way_or_waits_for_it,
    a_claim_may_be_repeated,
    a_commit_that_fails_half_way_leaves_nothing,
    what_was_closed_connects_anew,
    the_ledger_tells_what_a_lost_answer_did_not,
    a_process_that_is_killed_inside_a_commit_leaves_nothing,
    a_process_that_is_killed_behind_a_commit_has_done_it,
)


def killed(case: PlayedStore, where: str) -> None:
    if case.elsewhere is None:
        raise SkipTest("the output is in the memory of this process")
    case.calls.say(f"a new process is attempt 1, claims, and is killed {where} its commit of rows 1 and 2")
    assert case.elsewhere("commit_and_die", {"where": where}) is None, "it was not killed"


def commit_and_die(case: PlayedStore, arguments: Mapping[str, Json]) -> Json:
    """In another process: it dies inside of a commit, or behind it."""

    def rows() -> Iterator[pa.RecordBatch]:
        yield case.batch(1)
        if arguments["where"] == "inside":
            case.calls.crash()
        yield case.batch(2)

    target = case.open(1)
    target.claim()
    target.commit(1, rows())
    case.calls.crash()


SCENARIOS: Mapping[str, Callable[[PlayedStore, Mapping[str, Json]], Json]] = {
    commit_and_die.__name__: commit_and_die
}
