"""Lane: a partition that is read from its broker directly, and how far that has come."""

from __future__ import annotations

from dataclasses import dataclass

from onceflow.connectors.kafka.fetch.checked_assignment import NO_EPOCH
from onceflow.connectors.kafka.protocol.fetch_messages import FetchedPartition
from onceflow.connectors.kafka.protocol.wire import ProtocolError


@dataclass(slots=True, eq=False)
class Lane:
    """A partition that is read directly. Its offsets only go forward."""

    split: int
    """The split's number in the SplitTable."""
    topic_id: bytes
    partition: int
    next_offset: int
    """All before it has been handed on, or is no record."""
    stop_offset: int
    """The first that is not wanted."""
    ask_offset: int
    """What the next request asks for."""
    epoch: int = NO_EPOCH
    """The leader's epoch of the batch before next_offset."""
    ask_epoch: int = NO_EPOCH
    """The epoch of the batch before ask_offset: a broker whose log differs there says so (KIP-595)."""
    trouble: str = ""
    """Why it can't be read on directly; the other lanes can."""
    is_at_end: bool = False
    """The broker had nothing more for it that may be read."""
    is_open: bool = True
    """False: whatever still comes is not wanted any more."""

    @property
    def key(self) -> tuple[bytes, int]:
        return self.topic_id, self.partition

    @property
    def is_to_be_asked(self) -> bool:
        return self.ask_offset < self.stop_offset and not self.is_at_end and not self.trouble

    def go_on(self, offset: int, epoch: int) -> None:
        """All before this offset has been handed on, and the last of it is of this epoch."""
        if offset > self.next_offset:
            self.next_offset, self.epoch = offset, epoch


def check_answer(partition: FetchedPartition, lane: Lane) -> None:
    """Raises ProtocolError for an answer without records. What it means is for librdkafka to find out: this
    broker may be the leader no longer, and lag behind."""
    if partition.error:
        raise ProtocolError(f"offset {lane.ask_offset} is answered with error {partition.error}")
    if partition.diverging is not None:
        end = partition.diverging
        raise ProtocolError(
            f"the batch before offset {lane.ask_offset} was of leader epoch {lane.ask_epoch}, and this "
            f"broker's log has no more than epoch {end.epoch}, up to {end.end_offset}"
        )
