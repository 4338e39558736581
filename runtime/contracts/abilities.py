"""What a source, its enumerator or its readers may be able to do beyond what each has to.

Each ability is a protocol of its own: whoever has the methods has the ability, and is asked for it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, runtime_checkable

from onceflow.runtime.contracts.json_values import Json
from onceflow.runtime.contracts.source import Source, SplitState


@runtime_checkable
class ChangelogSource(Protocol):
    """A source whose rows may update and delete earlier ones: change data capture, a compacted topic."""

    @property
    def has_kinds(self) -> bool:
        """Whether `Fetch.kind` may be there. Known when the graph is built, so that what does not know
        updates and deletes is refused then."""
        ...


@runtime_checkable
class StartingEnumerator(Protocol):
    """An enumerator that can begin elsewhere than the program says: what `--reset-offsets` asks for."""

    def splits_from(self, start: Json) -> Sequence[SplitState]:
        """The splits that `initial_splits` gives, from this start instead: a text such as "earliest", or an
        object of offsets by split id. Raises UsageError for one that it does not know."""
        ...


@runtime_checkable
class EndableSource(Protocol):
    """A source without an end that can be given one: what `onceflow run --until` asks for."""

    def ended(self, until: Json) -> Source:
        """The same source, which ends: at "latest", before what comes after the job has started; at
        "timestamp:" and a time in ISO 8601 or ms, before the first record of that time or later; or before
        these offsets, an object by split id. Raises OptionError for an end that it does not know."""
        ...


@runtime_checkable
class BoundingEnumerator(Protocol):
    """An enumerator of a source that ends, which can give an end to splits that were read without one."""

    def bounded(self, splits: Sequence[SplitState], finished: Json) -> Sequence[SplitState]:
        """The splits of a savepoint with the end that the source has now, and those that came since; the
        same ones if it has none. Those that have an end keep it. `finished`: what `add_finished` of a
        PruningSource remembers of others; None: nothing. Raises UsageError if an end is not possible."""
        ...


@runtime_checkable
class PartialChangelogSource(Protocol):
    """A ChangelogSource that may leave out what rows were: a sink by key can follow it, and a join can't."""

    @property
    def lacks_before(self) -> bool:
        """Whether an UPDATE_AFTER may come without its UPDATE_BEFORE, or a DELETE with no more than its row's
        key. Known when the graph is built."""
        ...


@runtime_checkable
class SkippingEnumerator(Protocol):
    """An enumerator that can leave out what is there: what at-most-once restarts with."""

    def skip_to_end(self, splits: Sequence[SplitState]) -> Sequence[SplitState]:
        """The same splits, positioned after the last record that is there now."""
        ...


@runtime_checkable
class WarningEnumerator(Protocol):
    """An enumerator that can tell what of its options does not apply to splits from a checkpoint."""

    def warnings(self, splits: Sequence[SplitState]) -> Sequence[str]:
        """What people should know of these splits, in sentences. Asks nobody."""
        ...


@runtime_checkable
class WaitingEnumerator(Protocol):
    """An enumerator that can tell what one of its calls waits for."""

    def waiting_for(self) -> str | None:
        """What a call that is under way waits for, in a sentence for people; None: for nothing that is worth
        a word. Called on another thread while the call is under way; never waits."""
        ...


@runtime_checkable
class PruningSource(Protocol):
    """A source whose splits finish while new ones come: a growing folder, shards that are closed.

    Every finished split would stay in every checkpoint for ever. So the engine takes them out, and keeps one
    value for all of them in the checkpoint: `finished`, None at first. Its form is the source's; it should
    stay small however many splits have finished. The enumerator of such a source is a PruningEnumerator.
    """

    def add_finished(self, finished: Json, splits: Sequence[SplitState]) -> Json:
        """The value with these splits added, which were read to their end. Pure: it asks nobody, and a split
        may come a second time. Called by the driver when a checkpoint is made durable."""
        ...


@runtime_checkable
class PruningEnumerator(Protocol):
    """The enumerator of a PruningSource."""

    def discover_unfinished(self, known: frozenset[str], finished: Json) -> Sequence[SplitState]:
        """Called instead of `discover`: splits that are not in `known` and were not added to `finished`.

        Splits that one call always finds together, as the pieces of a file, may all be left out once one of
        them has finished: the others are in `known` then, until they have.
        """
        ...


@runtime_checkable
class ForgettingReader(Protocol):
    """A reader that can let go of splits: one that keeps all of them grows for as long as the job runs."""

    def forget_splits(self, split_ids: Collection[str]) -> None:
        """These have finished, and a durable checkpoint knows it: leave them out of later snapshots."""
        ...


@runtime_checkable
class AcknowledgingReader(Protocol):
    """A reader of what is delivered again until it is acknowledged: a queue.

    What was delivered and is not acknowledged yet belongs into the positions (its message ids, say): after a
    restore it is delivered again, and the reader leaves out what the restored checkpoint already counts.
    """

    def on_barrier(self, checkpoint_id: int) -> None:
        """Right before `snapshot`, on the same thread: what `poll` has brought so far is part of this
        checkpoint; and of the next one too, should this one be aborted."""
        ...

    def on_completed(self, checkpoint_id: int) -> None:
        """The checkpoint is durable, and the sinks of this slot have committed it: acknowledge what is part
        of it. On the commit thread, while `poll` goes on on the slot's; checkpoints come in order.

        A crash before this call, or in it, costs nothing but deliveries that are left out. What it raises
        fails the attempt.
        """
        ...


@runtime_checkable
class PausableReader(Protocol):
    """A reader that can leave splits unread for a while, so that none runs far ahead of the others."""

    def pause_splits(self, split_ids: Collection[str]) -> None:
        """Bring no rows of these, and don't say that they are at their end or finished, until they are
        resumed. Their positions stay. Cheap; may be told twice."""
        ...

    def resume_splits(self, split_ids: Collection[str]) -> None:
        """Go on with these exactly where they were."""
        ...


@runtime_checkable
class PausableSource(Protocol):
    """A source whose readers can leave splits unread: what watermark alignment asks for."""

    @property
    def can_pause(self) -> bool:
        """Whether its readers are PausableReaders. Known when the graph is built, so that alignment of a
        source that can't wait is refused then."""
        ...


@runtime_checkable
class Noted(Protocol):
    """A source or a sink with a word on what it promises: the plan shows it."""

    @property
    def plan_note(self) -> str:
        """One sentence: how often a record counts or is seen after a failure, and on what that rests. "":
        there is nothing to say beyond what all sources and sinks promise."""
        ...
