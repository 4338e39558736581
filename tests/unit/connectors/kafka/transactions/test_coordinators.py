"""Whether all coordinators of transactions have been asked: a listing with a hole must not count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.errors import CoordinatorNotAvailableError  # pyright: ignore[reportAttributeAccessIssue]

from onceflow.connectors.kafka.transactions.coordinators import Leader, list_all_transactions, settled

OLD = Leader(0, 4, 1)
NEW = Leader(0, 5, 2)


def test_leaders_that_all_know_of_themselves_are_settled() -> None:
    other = Leader(1, 9, 1)
    assert settled({1: {NEW, other}, 2: {NEW, other}}) == {NEW, other}


def test_a_new_leader_that_has_not_heard_of_it_yet_is_waited_for() -> None:
    assert settled({1: {NEW}, 2: {OLD}}) is None


def test_a_leader_that_is_gone_and_a_partition_without_one_are_waited_for() -> None:
    assert settled({2: {OLD}, 3: {OLD}}) is None
    assert settled({2: {Leader(0, 5, -1)}}) is None


def test_who_has_not_heard_of_its_loss_holds_nobody_up() -> None:
    assert settled({1: {OLD}, 2: {NEW}}) == {NEW}


def test_without_the_topic_there_is_nothing_to_wait_for() -> None:
    assert settled({1: set(), 2: set()}) == frozenset()


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), max_size=12),
    st.lists(st.integers(0, 12), min_size=3, max_size=3),
)
def test_settled_leaders_are_those_of_the_newest_log_that_anybody_has_read(
    moves: list[tuple[int, int]], read: list[int]
) -> None:
    """Brokers have read the cluster's log of moves to different places. Where the answer is not None, each
    leader in it has itself read of its election: it lists what it coordinates."""
    log = [Leader(partition, epoch, node) for epoch, (partition, node) in enumerate(moves)]
    views = {node: latest(log[:end]) for node, end in enumerate(read, 1)}
    found = settled(views)
    if found is not None:
        assert found == latest(log[: max(read)])
        assert all(leader in views[leader.node] for leader in found)


def latest(log: Sequence[Leader]) -> set[Leader]:
    return set({leader.partition: leader for leader in log}.values())


class Cluster:
    """Answers like kafka-python's admin client. `moves` happen while the transactions are listed."""

    def __init__(self, views: dict[int, set[Leader]], move: Callable[[], None] = lambda: None) -> None:
        self.views = views
        self.move = move
        self._manager = self

    async def send(self, request: Any, node_id: int = 1) -> Any:
        assert request.topics[0].name == "__transaction_state"
        seen = self.views[node_id]
        partitions = [SimpleNamespace(partition_index=p, leader_epoch=e, leader_id=n) for p, e, n in seen]
        brokers = [SimpleNamespace(node_id=node) for node in self.views]
        return SimpleNamespace(topics=[SimpleNamespace(partitions=partitions)], brokers=brokers)

    def run(self, question: Callable[[], Any]) -> Any:
        try:
            question().send(None)
        except StopIteration as answer:
            return answer.value
        raise AssertionError("it waited")

    def list_transactions(self, broker_ids: Sequence[int]) -> dict[int, list[str]]:
        self.move()
        return {node: [f"by-{node}"] for node in broker_ids}


def test_all_brokers_are_asked_and_their_answers_put_together() -> None:
    assert list_all_transactions(Cluster({1: {NEW}, 2: {NEW}})) == ["by-1", "by-2"]


def test_a_listing_during_which_a_coordinator_moved_does_not_count() -> None:
    cluster = Cluster({1: {OLD}, 2: {OLD}})

    def move() -> None:
        cluster.views = {1: {NEW}, 2: {NEW}}

    cluster.move = move
    with pytest.raises(CoordinatorNotAvailableError, match="moved while they were asked"):
        list_all_transactions(cluster)


def test_nothing_is_listed_before_each_leader_knows_of_itself() -> None:
    with pytest.raises(CoordinatorNotAvailableError, match="has no leader yet"):
        list_all_transactions(Cluster({1: {NEW}, 2: {OLD}}))
