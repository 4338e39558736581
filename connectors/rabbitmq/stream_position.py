"""StreamPosition: how far a stream of RabbitMQ was read; and when what follows is gone. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from onceflow.runtime.contracts import SplitState
from onceflow.runtime.errors import DataLossError

_BYTES = 16
_START_ANEW = "start the job anew, with another checkpoint folder"


class Found(NamedTuple):
    """A message that a stream has."""

    offset: int
    digest: str
    """Its body in 16 bytes, as hexadecimal digits."""


def digest(body: bytes) -> str:
    """A body in 16 bytes; two that are the same there are the same."""
    return hashlib.blake2b(body, digest_size=_BYTES).hexdigest()


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """Where to go on in a stream: the whole state of a split."""

    next_offset: int
    until_offset: int | None = None
    """The first offset that is not read. None: there is no end."""
    digest: str | None = None
    """The digest of the message before `next_offset`, so that a stream which was made anew is known. None:
    no message was read yet."""

    def state(self, stream: str) -> SplitState:
        """The split that the checkpoint has."""
        return SplitState(stream, asdict(self))

    @staticmethod
    def of(split: SplitState) -> StreamPosition:
        """The position that a checkpoint has."""
        return StreamPosition(**split.position)

    @property
    def is_finished(self) -> bool:
        """Whether its bound is reached."""
        return self.until_offset is not None and self.next_offset >= self.until_offset

    @property
    def before(self) -> int:
        """The offset of the message that was read last; the first one if none was."""
        return max(self.next_offset - 1, 0)

    def skipped_to(self, offset: int) -> StreamPosition:
        """The same stream, from another offset on."""
        return replace(self, next_offset=offset, digest=None)

    def check(self, stream: str, found: Found | None, first: Found | None, last: Found | None) -> int | None:
        """The offset of the first message that is there, if messages from `next_offset` on are not there any
        more; None: all are. `found`: the first message that is there from `before` on; `first` and `last`:
        those of the whole stream. Raises DataLossError if this is another stream than the one that was read.

        Offsets have holes that were never messages (the server's own notes are numbered too), so a hole
        says nothing: messages are gone if the stream begins behind what is to be read.
        """
        if found is None:
            if self.next_offset == 0 and last is None:
                return None
            end = "it has no message" if last is None else f"its last message is at {last.offset}"
            raise self._made_anew(stream, end)
        if self.digest is not None and found.offset == self.before and found.digest != self.digest:
            raise self._made_anew(stream, f"another message is at {self.before}")
        if found.offset <= self.next_offset or first is None or first.offset <= self.next_offset:
            return None
        return first.offset

    def _made_anew(self, stream: str, what: str) -> DataLossError:
        return DataLossError(
            f"stream {stream!r} has to go on at offset {self.next_offset}, and {what}: it was deleted and "
            f"made anew, or has lost its end: {_START_ANEW}, or give a start= that is there"
        )


def truncated(stream: str, position: StreamPosition, first: int) -> DataLossError:
    """The error for messages that retention has taken away before they were read."""
    return DataLossError(
        f"stream {stream!r} has to go on at offset {position.next_offset}, and its first message is at "
        f"{first}: retention has deleted what was between. Raise the stream's max-age or max-length-bytes "
        f'above the longest stop, and {_START_ANEW}; or write if_truncated="skip" if it may be left out'
    )
