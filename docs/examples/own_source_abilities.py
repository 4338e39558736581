"""What a source may do beyond reading: each ability is a protocol, and whoever has its methods has it.

The sources are those of onceflow.runtime.testing.connectors, small and whole: a folder of files that grows,
and a queue that delivers again what is not acknowledged.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import (
    DEAD_LETTER_SCHEMA,
    AcknowledgingReader,
    BoundingEnumerator,
    ChangelogSource,
    DeadLetterSource,
    EndableSource,
    ForgettingReader,
    Json,
    PartialChangelogSource,
    PausableReader,
    PausableSource,
    PruningEnumerator,
    PruningSource,
    ReaderContext,
    Sink,
    SkippingEnumerator,
    SplitProgress,
    SplitState,
    StartingEnumerator,
    WaitingEnumerator,
    WarningEnumerator,
)
from onceflow.runtime.testing.conformance import (
    ACKNOWLEDGING_CHECKS,
    PAUSING_CHECKS,
    PRUNING_CHECKS,
    WAKING_CHECKS,
    QueueUnderTest,
    WakingSourceUnderTest,
)
from onceflow.runtime.testing.connectors.folder_queue import FolderQueue, add_message
from onceflow.runtime.testing.connectors.folder_source import FolderSource, add_file
from onceflow.testing.kit import QueueKit

schema = pa.schema([("n", pa.int64())])

# Splits that finish while new ones come leave the checkpoints; one value stands for all of them.
folder = Path(mkdtemp())
for number in (1, 2, 3):
    add_file(folder, number, [{"n": number}, {"n": -number}])
files = FolderSource(str(folder), schema, is_bounded=True)
assert isinstance(files, PruningSource)
assert isinstance(files, ChangelogSource)
assert not isinstance(files, PartialChangelogSource)
enumerator = files.open_enumerator("job", SystemClock())
assert isinstance(enumerator, PruningEnumerator)
reader = files.open_reader(ReaderContext("job", "files", 0, 1, SystemClock()))
assert isinstance(reader, ForgettingReader)
assert isinstance(reader, PausableReader)
assert isinstance(files, PausableSource)
assert files.can_pause
finished: Json = files.add_finished(
    None, [SplitState("0000000001.jsonl", {"next_byte": 20})]
)
assert finished == {"below": 2, "also": []}
for pruning in PRUNING_CHECKS:
    pruning(files)
for pausing in PAUSING_CHECKS:
    pausing(files)


def a_queue() -> QueueUnderTest:
    messages = Path(mkdtemp())
    for number in range(5):
        add_message(messages, f"m{number}", {"n": number})
    return QueueUnderTest(
        FolderQueue(str(messages), schema, is_bounded=True),
        lambda: len(list(messages.glob("*.json"))),
    )


queue_reader = a_queue().source.open_reader(
    ReaderContext("job", "queue", 0, 1, SystemClock())
)
assert isinstance(queue_reader, AcknowledgingReader)
for acknowledging in ACKNOWLEDGING_CHECKS:
    acknowledging(a_queue())


class TestQueue(QueueKit):
    """The same as tests, with those of every source."""

    def prepare(self) -> None:
        for number in range(5):
            add_message(Path(self.folder), f"m{number}", {"n": number})

    def source(self) -> FolderQueue:
        return FolderQueue(self.folder, schema, is_bounded=True)

    def waiting(self) -> int:
        return len(list(Path(self.folder).glob("*.json")))


class Offsets:
    """An enumerator that can skip, for at-most-once, begin elsewhere, and warn of an option."""

    def skip_to_end(self, splits: Sequence[SplitState]) -> Sequence[SplitState]:
        return [SplitState(split.split_id, {"next": 100}) for split in splits]

    def warnings(self, splits: Sequence[SplitState]) -> Sequence[str]:
        return [
            f"start= does not apply to {split.split_id}: it goes on from the checkpoint"
            for split in splits
        ]

    def splits_from(self, start: Json) -> Sequence[SplitState]:
        """For `--reset-offsets`: offsets by split."""
        assert isinstance(start, Mapping)
        return [SplitState(split, {"next": offset}) for split, offset in start.items()]

    def bounded(
        self, splits: Sequence[SplitState], finished: Json
    ) -> Sequence[SplitState]:
        """For `--until` in a job that begins with a savepoint: splits that have no end get one."""
        return [SplitState(s.split_id, {"stop": 100, **s.position}) for s in splits]

    def waiting_for(self) -> str | None:
        return "the server does not answer: connection refused"


offsets = Offsets()
assert isinstance(offsets, SkippingEnumerator)
assert isinstance(offsets, StartingEnumerator)
assert offsets.splits_from({"p0": 3}) == [SplitState("p0", {"next": 3})]
assert isinstance(offsets, BoundingEnumerator)
assert offsets.bounded([SplitState("p0", {"next": 3})], None)[0].position == {
    "stop": 100,
    "next": 3,
}
assert isinstance(offsets, WarningEnumerator)
assert isinstance(offsets, WaitingEnumerator)
progress = SplitProgress(
    offsets.skip_to_end([SplitState("p0", {"next": 3})])[0], max_event_time_ms=7
)
assert progress.split.position == {"next": 100}


class Endless:
    """A source that goes on for ever, unless `onceflow run --until` gives it an end."""

    def ended(self, until: Json) -> FolderSource:
        assert until == "latest", "or it raises OptionError"
        return FolderSource(str(folder), schema, is_bounded=True)


endless = Endless()
assert isinstance(endless, EndableSource)
assert endless.ended("latest").is_bounded


class Lenient:
    """A source whose bad records go to an output of their own, with the columns of DEAD_LETTER_SCHEMA."""

    def dead_letter_sink(self) -> Sink | None:
        return None  # none: a bad record fails the job


assert isinstance(Lenient(), DeadLetterSource)
assert "reason" in DEAD_LETTER_SCHEMA.names

# A reader with a thread of its own calls context.wake(); WAKING_CHECKS examine that it does.
wakes: Mapping[str, Collection[object]] = {
    "checks": WAKING_CHECKS,
    "of": [WakingSourceUnderTest(files, lambda: None)],
}
assert len(wakes["checks"]) == 1
