"""QueueReader: reads queues whose messages are acknowledged when the checkpoint is complete that counts
them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from onceflow.connectors.acknowledged.delivered_ids import DeliveredIds, digest
from onceflow.connectors.acknowledged.messages import Deliveries, Message
from onceflow.connectors.message_rows import Letter, MessageRows
from onceflow.connectors.reconnects import Reconnects
from onceflow.runtime.contracts import Fetch, ReaderContext, SplitState
from onceflow.runtime.errors import Fatal, Retryable

_SHOWN_BYTES = 100
RESTORED_MS = 3_600_000
_QUIET_MS = 1_000
"""A queue that has brought nothing for so long has nothing for now: its watermark may be idle."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """How queues are read."""

    is_bounded: bool
    remember_ms: int
    """How long the server may forget an acknowledgement, in ms."""
    give_up_ms: int
    """How long the server may be away before the attempt fails."""
    unacknowledged_ms: int
    """How long a message may be unacknowledged before the server gives it to somebody else."""
    what_to_do: str
    """What helps if that is too short."""

    def check_interval(self, uid: str, interval_ms: int | None) -> None:
        """Raises Fatal if checkpoints are meant to come too rarely for messages to be acknowledged in
        time."""
        if interval_ms is not None and interval_ms >= self.unacknowledged_ms / 2:
            raise Fatal(
                f"source {uid!r}: messages are acknowledged with checkpoints, which are "
                f"{interval_ms / 1000:g} s apart, and may be unacknowledged for "
                f"{self.unacknowledged_ms / 1000:g} s: let the checkpoint interval be less than half of it, "
                f"or {self.what_to_do}"
            )


class _Queue:
    """One split, and what is known of its messages. `lock` is around what the commit thread uses too."""

    def __init__(self, state: SplitState, ids: DeliveredIds, reconnects: Reconnects) -> None:
        self.split_id = state.split_id
        self.count = int(state.position["count"])
        """How many messages of it have counted."""
        self.ids = ids
        self.reconnects = reconnects
        self.deliveries: Deliveries | None = None
        self.connection = 0
        """Which connection it is: tags of an earlier one mean nothing."""
        self.last_tag = 0
        self.tags: dict[int, tuple[int, int]] = {}
        """The connection and the last tag at each barrier."""
        self.waiting_since_ms: float | None = None
        """Since when there is a message that no complete checkpoint counts."""
        self.barriers_ms: dict[int, float] = {}
        self.quiet_since_ms: float | None = None
        """Since when nothing comes."""
        self.is_told_quiet = False
        """Whether that was said."""
        self.is_finished = False

    def state(self) -> SplitState:
        return SplitState(self.split_id, {"count": self.count, "ids": self.ids.packed()})


class QueueReader:
    """A SourceReader and an AcknowledgingReader. Each queue is a split, read by one reader at a time: what is
    delivered again comes to the one that knows its ids."""

    def __init__(
        self,
        connect: Callable[[str], Deliveries],
        rows: MessageRows,
        columns: Sequence[str],
        settings: QueueSettings,
        context: ReaderContext,
    ) -> None:
        """`connect(split_id)` begins a connection, on a thread of its own. `columns`: what is known of a
        message beside its body, "id" or one of its attributes, in the order in which the rows have it."""
        self._connect = connect
        self._rows = rows
        self._columns = columns
        self._settings = settings
        self._context = context
        self._queues: dict[str, _Queue] = {}
        self._turn = 0
        self._lock = threading.Lock()
        settings.check_interval(context.uid, context.checkpoint_interval_ms)

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        context, settings = self._context, self._settings
        for split in splits:
            now_ms = context.clock.monotonic_ms()
            ids = DeliveredIds(split.position["ids"], now_ms, settings.remember_ms, RESTORED_MS)
            reconnects = Reconnects(context.clock, context.on_wait, settings.give_up_ms)
            with self._lock:
                self._queues[split.split_id] = _Queue(split, ids, reconnects)

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        """The next messages of one queue; there is no waiting."""
        open_queues = [queue for queue in self._queues.values() if not queue.is_finished]
        for _ in open_queues:
            self._turn += 1
            queue = open_queues[self._turn % len(open_queues)]
            try:
                fetch = self._poll(queue, records_max)
            except Retryable as error:
                self._let_go(queue)
                queue.reconnects.failed(error)
                continue
            if fetch is not None:
                return fetch
        return None

    def snapshot(self) -> Sequence[SplitState]:
        with self._lock:
            return [queue.state() for queue in self._queues.values()]

    def on_barrier(self, checkpoint_id: int) -> None:
        """See AcknowledgingReader."""
        now_ms = self._context.clock.monotonic_ms()
        with self._lock:
            for queue in self._queues.values():
                if queue.deliveries is not None:
                    queue.ids.forget(queue.deliveries.alive_ms, now_ms)
                queue.ids.on_barrier(checkpoint_id)
                queue.tags[checkpoint_id] = queue.connection, queue.last_tag
                queue.barriers_ms[checkpoint_id] = now_ms

    def on_completed(self, checkpoint_id: int) -> None:
        """See AcknowledgingReader. The ids stay known for a while: a server that is killed may not have heard
        it."""
        now_ms = self._context.clock.monotonic_ms()
        with self._lock:
            for queue in self._queues.values():
                connection, tag = queue.tags.get(checkpoint_id, (0, 0))
                queue.tags = {n: at for n, at in queue.tags.items() if n > checkpoint_id}
                at_ms = queue.barriers_ms.get(checkpoint_id, now_ms)
                queue.barriers_ms = {n: at for n, at in queue.barriers_ms.items() if n > checkpoint_id}
                is_same = queue.deliveries is not None and connection == queue.connection
                if queue.deliveries is not None and is_same and tag:
                    queue.deliveries.acknowledge(tag)
                queue.ids.acknowledged(checkpoint_id, now_ms, is_same)
                queue.waiting_since_ms = at_ms if queue.last_tag > tag else None

    def publish_offsets(self, splits: Sequence[SplitState]) -> None:
        """The queue's own counts are what monitors look at."""

    def close(self) -> None:
        for queue in self._queues.values():
            self._let_go(queue)

    # --- Parts ---

    def _poll(self, queue: _Queue, records_max: int) -> Fetch | None:
        if queue.deliveries is None:
            if not queue.reconnects.is_time:
                return None
            with self._lock:
                queue.connection += 1
                queue.last_tag = 0
                queue.deliveries = self._connect(queue.split_id)
        self._check_waiting(queue)
        messages = queue.deliveries.take(records_max)
        if messages:
            queue.reconnects.worked()
            queue.quiet_since_ms, queue.is_told_quiet = None, False
            return self._fetch(queue, self._new(queue, messages))
        if self._settings.is_bounded and queue.deliveries.is_empty:
            queue.is_finished = True
            return self._fetch(queue, [])
        if queue.is_told_quiet or not self._is_quiet(queue, queue.deliveries):
            return None
        queue.is_told_quiet = True
        return replace(self._fetch(queue, []), at_end=frozenset({queue.split_id}))

    def _is_quiet(self, queue: _Queue, deliveries: Deliveries) -> bool:
        """Whether nothing has come for a while although the server is there."""
        now_ms = self._context.clock.monotonic_ms()
        if queue.quiet_since_ms is None:
            queue.quiet_since_ms = now_ms
        since_ms = queue.quiet_since_ms
        return now_ms - since_ms >= _QUIET_MS and deliveries.alive_ms >= since_ms

    def _new(self, queue: _Queue, messages: Sequence[Message]) -> list[Message]:
        """The messages that did not count before; all of them are held."""
        new = []
        with self._lock:
            for message in messages:
                if message.id is None:
                    raise Fatal(
                        f"{queue.split_id}: a message has no id, so it could not be known when it is "
                        f"delivered again; it begins with {message.body[:_SHOWN_BYTES]!r}. Let its producer "
                        "set one, the same when it sends again"
                    )
                if queue.ids.add(digest(message.id), message.is_redelivered):
                    new.append(message)
                queue.last_tag = message.tag
            if queue.waiting_since_ms is None:
                queue.waiting_since_ms = self._context.clock.monotonic_ms()
        return new

    def _check_waiting(self, queue: _Queue) -> None:
        """Raises Fatal before the server takes messages away that no checkpoint has counted yet."""
        since_ms, most_ms = queue.waiting_since_ms, self._settings.unacknowledged_ms
        if since_ms is None or self._context.clock.monotonic_ms() - since_ms < most_ms / 2:
            return
        raise Fatal(
            f"{queue.split_id}: for {most_ms / 2000:.0f} s no checkpoint was completed that acknowledges its "
            f"messages, and the server waits for {most_ms / 1000:.0f} s: make the checkpoint interval "
            f"shorter, or {self._settings.what_to_do}"
        )

    def _let_go(self, queue: _Queue) -> None:
        with self._lock:
            deliveries, queue.deliveries = queue.deliveries, None
            queue.quiet_since_ms, queue.is_told_quiet = None, False
            queue.ids.reconnected(self._context.clock.monotonic_ms())
            queue.waiting_since_ms = None
        if deliveries is not None:
            deliveries.close()

    def _fetch(self, queue: _Queue, messages: Sequence[Message]) -> Fetch:
        first = queue.count
        queue.count += len(messages)

        def letter(number: int) -> Letter:
            message = messages[number]
            what = f"message {message.id!r} of {queue.split_id}"
            return Letter(what, queue.split_id, 0, first + number, (message.id or "").encode())

        made = self._rows.of(
            [message.body for message in messages],
            lambda kept: self._beside([messages[number] for number in kept]),
            letter,
        )
        return Fetch(
            made.batch,
            np.zeros(made.batch.num_rows, np.uint16),
            (queue.split_id,),
            made.kept + first if self._context.with_origin else None,
            dead_letters=made.dead_letters,
            kind=made.kinds,
            finished=frozenset({queue.split_id}) if queue.is_finished else frozenset(),
        )

    def _beside(self, messages: Sequence[Message]) -> list[pa.Array]:
        count = len(self._columns)
        types = self._rows.schema.types[-count:] if count else []
        return [
            pa.array([m.id if what == "id" else m.attributes.get(what) for m in messages], of)
            for what, of in zip(self._columns, types, strict=True)
        ]
