"""Who may write, and under which generation."""

from __future__ import annotations

import pytest

from onceflow.connectors.versioned_upserts.ledger import Ledger, Writer
from onceflow.runtime.errors import Fenced, Retryable
from tests.simulated_store import SimulatedBackend, SimulatedStore


def ledger(
    store: SimulatedStore, attempt: int, owner: str = "0", lineage: str = "l", restored: int = 9
) -> Ledger:
    return Ledger(SimulatedBackend(store), Writer("job", lineage, "out", owner, attempt, restored))


@pytest.fixture
def store() -> SimulatedStore:
    return SimulatedStore(lambda n: 0, goes_wrong=False)


def test_each_attempt_has_a_generation_and_all_its_owners_the_same(store: SimulatedStore) -> None:
    writers = [ledger(store, 1, "0"), ledger(store, 1, "1"), ledger(store, 2, "1"), ledger(store, 2, "0")]
    assert [each.claim() for each in writers] == [0, 0, 0, 0]
    assert [each.generation for each in writers] == [1, 1, 2, 2]


def test_a_new_checkpoint_folder_is_above_all_that_was_written(store: SimulatedStore) -> None:
    old, new = ledger(store, 7), ledger(store, 1, lineage="another")
    old.claim()
    new.claim()
    assert new.generation > old.generation


def test_an_overtaken_attempt_can_change_nothing(store: SimulatedStore) -> None:
    older, newer = ledger(store, 1), ledger(store, 2)
    older.claim()
    older.advance(1)
    assert newer.claim() == 1
    with pytest.raises(Fenced, match="a newer attempt writes the output of sink 'out', subtask 0"):
        older.check()
    with pytest.raises(Retryable):
        older.advance(2)
    with pytest.raises(Fenced):
        older.claim()
    newer.advance(2)
    assert ledger(store, 2).claim() == 2


def test_a_ledger_that_is_ahead_is_taken_back_once(store: SimulatedStore) -> None:
    """It goes to the checkpoint that the attempt starts from. What is committed later stays."""
    older = ledger(store, 1)
    older.claim()
    older.advance(7)
    newer = ledger(store, 2, restored=5)
    assert newer.claim() == 5
    newer.advance(8)
    assert ledger(store, 2, restored=5).claim() == 8


def test_a_ledger_that_is_not_as_it_was_left_is_claimed_again(store: SimulatedStore) -> None:
    """A change of ours came late: its answer was lost."""
    one, same = ledger(store, 1), ledger(store, 1)
    one.claim()
    same.claim()
    same.advance(1)
    with pytest.raises(Retryable, match="it is claimed again"):
        one.check()
    with pytest.raises(Retryable, match="it is claimed again"):
        one.advance(1)
    assert one.claim() == 1
    one.check()
