"""KeptCommits: what a process that commits keeps from one micro-batch to the next.

Spark keeps the Python process in which a writer commits, and makes a new writer in it for each batch. To open
connections, find the coordinator and fence the producer before takes several times as long as the transaction
of a small batch, so the producer stays, with what is known of the topics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from onceflow.connectors.kafka.client import KafkaClient, LedgerKey, TopicDescription
from onceflow.connectors.kafka.transactions.producer_settings import RouteName
from onceflow.connectors.waiting import Patience
from onceflow.runtime.errors import OnceflowError, Retryable
from onceflow.structured_streaming.micro_batches import BatchCommits
from onceflow.structured_streaming.sink_options import SinkOptions

_KEPT_MAX = 4
_KEPT_S = 60.0
_TOPICS_KNOWN_S = 10.0
"""How long a number of partitions is believed. Nothing rests on it but that new ones are used soon."""


@dataclass(slots=True)
class Committer:
    """The open connections of one query's sink in this process. `close` it after an error."""

    options: SinkOptions
    route: RouteName
    client: KafkaClient
    commits: BatchCommits
    patience: Patience
    used_at_s: float = 0.0
    _topics: dict[str, TopicDescription] = field(default_factory=dict)
    _topics_at_s: float = 0.0

    def topics(self, names: set[str]) -> Mapping[str, TopicDescription]:
        """These topics, as they were some seconds ago at the most; one that does not exist is missing. Waits
        for the broker."""
        now_s = time.monotonic()
        if now_s - self._topics_at_s > _TOPICS_KNOWN_S or not names <= self._topics.keys():
            self._topics = {**described(self.client, names, self.patience)}
            self._topics_at_s = now_s
        return self._topics

    def close(self) -> None:
        """Ends what is open; what is not committed stays invisible."""
        self.commits.close()
        self.client.close()


def described(client: KafkaClient, names: set[str], patience: Patience) -> Mapping[str, TopicDescription]:
    """These topics as they are now; one that does not exist is missing. Waits for the broker."""
    while True:
        try:
            found = client.describe_topics(sorted(names))
        except Retryable as e:
            patience.wait(e)
        else:
            patience.reset()
            return found


class KeptCommits:
    """The committers of this process that wait for their next batch. One thread uses it."""

    def __init__(self) -> None:
        self.opened = 0
        """How many were opened so far."""
        self._kept: dict[tuple[LedgerKey, str], Committer] = {}

    def take(
        self,
        options: SinkOptions,
        ledger: LedgerKey,
        query_id: str,
        route: RouteName,
        open_client: Callable[[RouteName], tuple[KafkaClient, Patience]],
    ) -> Committer:
        """The one of this query, as it asks for it now, or a new one. It is in here again once it is given
        back. `route`: what the batch is worth; one that was opened for more serves too."""
        self._drop_old()
        found = self._kept.pop((ledger, query_id), None)
        if found is not None and (found.options != options or route not in ("bulk", found.route)):
            _close(found)
            found = None
        if found is None:
            self.opened += 1
            client, patience = open_client(route)
            commits = BatchCommits(client, ledger, query_id, patience)
            found = Committer(options, route, client, commits, patience)
        return found

    def give_back(self, ledger: LedgerKey, query_id: str, committer: Committer) -> None:
        """Keep it for the next batch; only one whose batch is committed."""
        committer.used_at_s = time.monotonic()
        self._kept[ledger, query_id] = committer
        while len(self._kept) > _KEPT_MAX:
            oldest = min(self._kept, key=lambda key: self._kept[key].used_at_s)
            _close(self._kept.pop(oldest))

    def close(self) -> None:
        """Close all that wait for a batch."""
        while self._kept:
            _close(self._kept.popitem()[1])

    def _drop_old(self) -> None:
        now_s = time.monotonic()
        for key in [k for k, kept in self._kept.items() if now_s - kept.used_at_s > _KEPT_S]:
            _close(self._kept.pop(key))


def _close(committer: Committer) -> None:
    """One that is not needed any more: nothing it says matters."""
    try:
        committer.close()
    except OnceflowError:
        return


COMMITS = KeptCommits()
"""The committers that this process keeps."""
