"""Who coordinates transactions, as each broker sees itself: whether all coordinators have been asked.

A listing of transactions is put together from the answers of all brokers. Each names what it coordinates,
and none says what is missing: while a partition of `__transaction_state` moves, the new leader may not know
yet that it leads, and its transactions are in no answer. Whoever took them for forgotten would end
transactions that their writers still commit. So the brokers are asked before and after whom they take for
the leaders, and a listing counts only if nothing moved and every leader knew of itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kafka.errors import CoordinatorNotAvailableError  # pyright: ignore[reportAttributeAccessIssue]
from kafka.protocol.metadata import MetadataRequest

TRANSACTIONS_TOPIC = "__transaction_state"


class Leader(NamedTuple):
    """A partition's leader in the eyes of some broker. A higher epoch is newer."""

    partition: int
    epoch: int
    node: int


def settled(views: Mapping[int, Iterable[Leader]]) -> frozenset[Leader] | None:
    """The leader of each partition, from what each broker says of all of them. None: somebody does not know
    yet that it leads, or a partition has no leader. Pure."""
    newest: dict[int, Leader] = {}
    for view in views.values():
        for leader in view:
            newest[leader.partition] = max(leader, newest.get(leader.partition, leader))
    leaders = frozenset(newest.values())
    knows = all(leader.node in views and leader in views[leader.node] for leader in leaders)
    return leaders if knows else None


def list_all_transactions(admin: Any) -> list[Any]:
    """The transactions that any coordinator knows, of a KafkaAdminClient. Raises CoordinatorNotAvailableError
    while coordinators move; ask again then."""
    brokers, before = _coordinators(admin)
    listed = admin.list_transactions(broker_ids=brokers)
    if (brokers, before) != _coordinators(admin):
        raise CoordinatorNotAvailableError("coordinators of transactions moved while they were asked")
    return [row for rows in listed.values() for row in rows]


def _coordinators(admin: Any) -> tuple[list[int], frozenset[Leader]]:
    async def ask() -> Any:
        anybodys = await admin._manager.send(_request())
        nodes = sorted(broker.node_id for broker in anybodys.brokers)
        return {node: await admin._manager.send(_request(), node_id=node) for node in nodes}

    answers: Mapping[int, Any] = admin._manager.run(ask)
    leaders = settled({node: _leaders(answer) for node, answer in answers.items()})
    if leaders is None:
        raise CoordinatorNotAvailableError(f"a partition of {TRANSACTIONS_TOPIC} has no leader yet")
    return sorted(answers), leaders


def _request() -> Any:
    topic = MetadataRequest.MetadataRequestTopic(name=TRANSACTIONS_TOPIC)
    return MetadataRequest(topics=[topic], allow_auto_topic_creation=False)


def _leaders(answer: Any) -> set[Leader]:
    """Empty where there has never been a transaction, and where the topic may not be described: then a
    listing can't be checked, and counts as it is."""
    (topic,) = answer.topics
    return {Leader(p.partition_index, p.leader_epoch, p.leader_id) for p in topic.partitions}
