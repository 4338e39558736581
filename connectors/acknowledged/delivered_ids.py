"""DeliveredIds: which messages of a queue count already, until they can't be delivered again. Pure.

A message is acknowledged when the checkpoint that counts it is complete. Until then, and for a while after,
it may be delivered again: the consumer died, or the acknowledgement was lost with it or with the server. So
the ids of what was delivered belong to the position, as 16 bytes each.
"""

from __future__ import annotations

import base64
import collections
import hashlib
from collections.abc import Iterable

_BYTES = 16
Digest = bytes


def digest(message_id: str) -> Digest:
    """An id in 16 bytes; two that are the same there are the same."""
    return hashlib.blake2b(message_id.encode(), digest_size=_BYTES).digest()


class DeliveredIds:
    """The ids of one split. Its owner calls it under a lock of its own."""

    def __init__(self, packed: str, now_ms: float, remember_ms: int, restored_ms: int) -> None:
        """`packed`: those of the checkpoint. `remember_ms`: for how long the server may forget an
        acknowledgement; `restored_ms`: for how long what was delivered to an earlier reader may come
        again."""
        whole = base64.b85decode(packed)
        self._restored = {whole[at : at + _BYTES] for at in range(0, len(whole), _BYTES)}
        self._restored_until_ms = now_ms + restored_ms
        self._restored_ms = restored_ms
        self._remember_ms = remember_ms
        self._held: dict[Digest, int] = {}
        """What was delivered and not acknowledged, with its number, in order."""
        self._count = 0
        self._at_barrier: dict[int, int] = {}
        """How many were delivered when the barrier of each checkpoint came."""
        self._gone: collections.deque[tuple[float, list[Digest]]] = collections.deque()
        """What was acknowledged, and when."""
        self._gone_ids: dict[Digest, float] = {}
        """When each was, the last time: it may have been delivered, and acknowledged, a second time."""
        self._has_seen_new = False

    def add(self, each: Digest, is_redelivered: bool) -> bool:
        """A message was delivered: whether it counts, and did not before. It is held from now on."""
        is_new = each not in self._held and each not in self._gone_ids and each not in self._restored
        self._restored.discard(each)
        self._count += 1
        self._held[each] = self._count
        self._has_seen_new = self._has_seen_new or not is_redelivered
        return is_new

    def on_barrier(self, checkpoint_id: int) -> None:
        """All that was delivered so far is part of this checkpoint."""
        self._at_barrier[checkpoint_id] = self._count

    def acknowledged(self, checkpoint_id: int, now_ms: float, is_told: bool) -> None:
        """This checkpoint is complete; `is_told`: and the server was told so on the connection that delivered
        what is part of it. Else all of it comes again, to the next connection."""
        count = self._at_barrier.get(checkpoint_id, 0)
        self._at_barrier = {number: at for number, at in self._at_barrier.items() if number > checkpoint_id}
        done = [each for each, number in self._held.items() if number <= count]
        for each in done:
            del self._held[each]
        if not is_told:
            self._restored.update(done)
            return
        self._gone.append((now_ms, done))
        self._gone_ids.update(dict.fromkeys(done, now_ms))

    def reconnected(self, now_ms: float) -> None:
        """The connection was lost, maybe with the server and what it had not yet kept: all that is known may
        come again, from here on."""
        self._restored.update(self._gone_ids)
        self._gone.clear()
        self._gone_ids.clear()
        self._has_seen_new = False
        self._restored_until_ms = now_ms + self._restored_ms

    def forget(self, alive_ms: float, now_ms: float) -> None:
        """Let go of what can't come again: acknowledged long enough before the server, which has heard it,
        last answered (`alive_ms`); or delivered by an earlier connection, where the queue has been read
        beyond what it gave back, and for long enough."""
        while self._gone and alive_ms - self._gone[0][0] >= self._remember_ms:
            at_ms, done = self._gone.popleft()
            for each in done:
                if self._gone_ids.get(each) == at_ms:
                    del self._gone_ids[each]
        if self._has_seen_new and now_ms >= self._restored_until_ms:
            self._restored.clear()

    def packed(self) -> str:
        """All of them, for a position."""
        return pack(dict.fromkeys([*self._restored, *self._gone_ids, *self._held]))

    def __len__(self) -> int:
        return len(self._restored) + len(self._gone_ids) + len(self._held)


def pack(ids: Iterable[Digest]) -> str:
    """The ids as one text."""
    return base64.b85encode(b"".join(ids)).decode()
