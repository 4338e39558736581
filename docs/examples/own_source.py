"""A source from scratch: the lines of the text files in a folder. A file is a split, a byte its position."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import Fetch, ReaderContext, SplitState
from onceflow.runtime.errors import DataLossError
from onceflow.testing.kit import SourceKit


@dataclass(frozen=True)
class Lines:
    folder: str
    schema = pa.schema([("line", pa.string())])
    record_type = None
    is_bounded = True

    def open_enumerator(self, job: str, clock: Clock) -> "LinesEnumerator":
        return LinesEnumerator(Path(self.folder))

    def open_reader(self, context: ReaderContext) -> "LinesReader":
        return LinesReader(Path(self.folder))


@dataclass
class LinesEnumerator:
    folder: Path
    discovery_interval_ms = None  # no new files are looked for

    def initial_splits(self) -> Sequence[SplitState]:
        names = sorted(path.name for path in self.folder.glob("*.txt"))
        return [SplitState(name, {"byte": 0}) for name in names]

    def discover(self, known: frozenset[str]) -> Sequence[SplitState]:
        return []

    def check_restored(self, splits: Sequence[SplitState]) -> None:
        for split in splits:
            path, byte = self.folder / split.split_id, int(split.position["byte"])
            if not path.exists() or path.stat().st_size < byte:
                raise DataLossError(f"{path} ends before byte {byte}, to go on from")

    def close(self) -> None:
        pass


@dataclass
class LinesReader:
    folder: Path
    bytes: dict[str, int] = field(default_factory=dict)  # where to go on, by file
    finished: set[str] = field(default_factory=set)

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        self.bytes.update({s.split_id: int(s.position["byte"]) for s in splits})

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        for name in sorted(self.bytes.keys() - self.finished):
            with (self.folder / name).open("rb") as file:
                file.seek(self.bytes[name])
                lines = [line for _ in range(records_max) if (line := file.readline())]
                self.bytes[name] = file.tell()
            if len(lines) < records_max:
                self.finished.add(name)
            texts = [line.decode().rstrip("\n") for line in lines]
            batch = pa.record_batch({"line": texts}, Lines.schema)
            return Fetch.from_split(batch, name, is_finished=name in self.finished)
        return None

    def snapshot(self) -> Sequence[SplitState]:
        return [SplitState(name, {"byte": at}) for name, at in self.bytes.items()]

    def publish_offsets(self, splits: Sequence[SplitState]) -> None:
        pass

    def close(self) -> None:
        pass


# --- The test of it: a file of its own, run by pytest ---


class TestLines(SourceKit):
    def prepare(self) -> None:
        for number, count in enumerate((3, 0, 40)):
            lines = "".join(f"line {n} of file {number}\n" for n in range(count))
            Path(self.folder, f"{number}.txt").write_text(lines)

    def source(self) -> Lines:
        return Lines(self.folder)
