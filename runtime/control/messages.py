"""What the driver and the slots say to each other, and operators of the job to the driver.

JSON, one object a message, tagged by type. Every message of a slot carries its attempt, and the driver
drops what a stale attempt says: a slot that was frozen and wakes up is not heard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onceflow.runtime.checkpoint.manifest import AttemptEntry, SlotSnapshot, StateHandle
from onceflow.runtime.contracts import Committable, SplitProgress
from onceflow.runtime.contracts.sink import WentBack
from onceflow.runtime.control.live_messages import AskRows, AskState, RowsOfKeys
from onceflow.runtime.control.message import Message
from onceflow.runtime.functions.metrics import Reading

# --- a slot to the driver -----------------------------------------------------------------------


class Hello(Message):
    """First of all: I am here. `launch`: see SlotLaunch; `data_address`: where peers connect to;
    `stacks_fd`: see stalls.py."""

    launch: int
    attempt: int
    spark_partition: int
    pid: int
    host: str
    data_address: tuple[str, int]
    version: str
    stacks_fd: int | None = None


class Running(Message):
    """State is restored, records flow, and what the restored checkpoint promised is committed."""

    attempt: int


class Acked(Message):
    """Everything of this slot at the barrier is durable."""

    attempt: int
    checkpoint_id: int
    snapshot: SlotSnapshot


class Declined(Message):
    """This slot can't make the checkpoint; the job goes on without it."""

    attempt: int
    checkpoint_id: int
    reason: str
    is_unavailable: bool = False


class Committed(Message):
    """The output of this slot's sinks at the checkpoint is known to be visible."""

    attempt: int
    checkpoint_id: int


class Drained(Message):
    """All input has ended and went through."""

    attempt: int


class Healed(Message):
    """A damaged file of the restored checkpoint was read from its copy."""

    attempt: int
    problem: str


class Failed(Message):
    """The slot gives up. `is_fatal`: a restart would meet the same."""

    attempt: int
    reason: str
    is_fatal: bool
    is_fenced: bool = False
    kind: str = ""
    """The name of the error's class."""
    detail: str = ""
    """The traceback, for --debug."""
    is_unavailable: bool = False
    """Something outside could not be used."""
    is_consequence: bool = False
    """Another slot is gone: why is for that one to say."""
    fingerprints: tuple[str, ...] = ()
    """What it has in common with the same failure another time; none: it may pass by itself."""


class FunctionsOpened(Message):
    """Functions of the user's are open in this slot that want to be closed."""

    attempt: int


class FunctionsClosed(Message):
    """All of them were closed, or could not be: the slot's last word."""

    attempt: int


class Noticed(Message):
    """Something went wrong that changes no result and ends nothing, such as a close() that raised."""

    attempt: int
    reason: str


class Progress(Message):
    """Every heartbeat, and a sign of life: counters since the attempt began, by the task's head uid."""

    attempt: int
    tasks: Mapping[str, Mapping[str, int]]
    waiting: Sequence[str] = ()
    first_record_ms: int | None = None
    busy_ratio: float = 0.0
    rss_bytes: int = 0
    metrics: Sequence[Reading] = ()
    """The user's own."""


class LowestWatermarks(Message):
    """How far the slowest of this slot's splits is in each watermark alignment group."""

    attempt: int
    by_group: Mapping[str, int | None]
    has_paused: bool
    """Whether splits of it wait, so that it wants to hear of every change."""


# --- an operator of the job to the driver -------------------------------------------------------


class AskStatus(Message):
    """Ask for the job's status; answered with Status."""


class AskStop(Message):
    """A last checkpoint, then the end. Answered with Status once it is under way."""

    drains: bool = False
    """The sources end before, as if their input had: windows and timers fire."""


class AskRescale(Message):
    """A checkpoint, then so many slots. Answered with Status; `refused` in it says what is in the way."""

    slots: int


class AskCancel(Message):
    """The end at once, without a checkpoint."""


ToDriver = (
    Hello
    | Running
    | Acked
    | Declined
    | Committed
    | Drained
    | Healed
    | Failed
    | FunctionsOpened
    | FunctionsClosed
    | Noticed
    | Progress
    | LowestWatermarks
    | RowsOfKeys
    | AskState
    | AskStatus
    | AskStop
    | AskRescale
    | AskCancel
)

# --- the driver to a slot -----------------------------------------------------------------------


class Assignment(Message):
    """Who you are, who the others are, and what to start from."""

    attempt: int
    slot: int
    parallelism: int
    lineage: str
    restored_checkpoint_id: int
    peers: Sequence[tuple[str, int]]
    """The slots' addresses for data, by slot."""
    splits: Mapping[str, Sequence[SplitProgress]]
    states: Sequence[StateHandle]
    """All whose key groups overlap with this slot's."""
    committables: Mapping[str, Sequence[Committable]]
    """What the restored checkpoint promised and this slot has to commit, by the sink's uid."""
    attempt_entry: AttemptEntry | None = None
    """What the driver has written into the folder, to be seen by the slot. None: it is not looked for."""
    is_drained: bool = False
    """All has fired in it: sources read nothing, and end at once."""
    went_back: WentBack | None = None
    """See SinkContext."""


class Trigger(Message):
    """Sources: emit this barrier now."""

    checkpoint_id: int
    is_last: bool


class Resume(Message):
    """All slots have their snapshots: sources that stand still go on."""

    checkpoint_id: int


class Drain(Message):
    """Sources: end as if your input had."""


class Commit(Message):
    """The checkpoint is durable: commit."""

    checkpoint_id: int


class Abort(Message):
    """The checkpoint will not be."""

    checkpoint_id: int


class AddSplits(Message):
    """New splits were found."""

    uid: str
    splits: Sequence[SplitProgress]


class GroupWatermarks(Message):
    """How far the slowest split of all slots is in each watermark alignment group."""

    by_group: Mapping[str, int | None]


class Alive(Message):
    """Every heartbeat: the driver is there and this attempt is the current one."""


class Shutdown(Message):
    """End now: the job is done, or the attempt is over."""

    reason: str


ToSlot = (
    Assignment
    | Trigger
    | Resume
    | Drain
    | Commit
    | Abort
    | AddSplits
    | GroupWatermarks
    | AskRows
    | Alive
    | Shutdown
)

# --- the driver to an operator of the job -------------------------------------------------------


class Status(Message):
    """The job as it is now."""

    status: Mapping[str, Any]


class Ended(Message):
    """The job has ended, and how: for those who have asked for a stop. The driver's process ends next."""

    outcome: str
    reason: str
    checkpoint_id: int | None
