"""Batches for a service that takes ten readings at a time; what is not full yet survives."""

from collections.abc import Iterator
from dataclasses import dataclass

from onceflow import (
    InitializationContext,
    Job,
    OperatorListState,
    SnapshotContext,
    UnionListState,
)


@dataclass(frozen=True)
class Reading:
    sensor: str
    celsius: float


@dataclass(frozen=True)
class Batch:
    sensors: list[str]
    highest: float


class InTens:
    """Each reading goes out in one batch. All subtasks begin with the highest value of all."""

    waiting = OperatorListState("waiting", Reading)
    highest = UnionListState("highest", float)

    def initialize_state(self, ctx: InitializationContext) -> None:
        self.rows = self.waiting.get()
        self.most = max(self.highest.get(), default=-273.15)

    def snapshot_state(self, ctx: SnapshotContext) -> None:
        self.waiting.update(self.rows)
        self.highest.update([self.most])

    def __call__(self, reading: Reading) -> Iterator[Batch]:
        self.rows.append(reading)
        self.most = max(self.most, reading.celsius)
        if len(self.rows) >= 10:
            yield Batch([each.sensor for each in self.rows], self.most)
            self.rows.clear()


job = Job("in-tens")
readings = job.from_elements(*(Reading(f"room {n}", n / 2) for n in range(25)))
batches = readings.flat_map(InTens(), uid="in-tens").collect()

if __name__ == "__main__":
    job.run(master="threads[1]")
    assert [len(batch.sensors) for batch in batches] == [10, 10]
