"""Windows of one's own: the shifts of a factory, each of which overlaps with the next."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from onceflow import Job, WatermarkStrategy, WindowAssigner, count

HOUR = 3_600_000


@dataclass(frozen=True)
class Piece:
    line: str
    ts: int  # event time, ms


class Shifts(WindowAssigner):
    """From 6 to 15 and from 14 to 23 o'clock; nothing is made at night."""

    def assign(
        self, batch: pa.RecordBatch, event_time: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        day = event_time // (24 * HOUR) * 24 * HOUR
        hour = (event_time - day) // HOUR
        early = np.flatnonzero((hour >= 6) & (hour < 15))
        late = np.flatnonzero((hour >= 14) & (hour < 23))
        places = np.append(early, late)
        starts = np.append(day[early] + 6 * HOUR, day[late] + 14 * HOUR)
        return places, starts, starts + 9 * HOUR


job = Job("shifts")
pieces = job.from_elements(
    *[Piece("a", hour * HOUR) for hour in (2, 7, 14, 15)],
    watermarks=WatermarkStrategy.monotonous("ts"),
)
made = pieces.key_by("line").window(Shifts()).aggregate(pieces=count()).collect()
job.run(master="threads[1]")
assert [(row["window_start"] // HOUR, row["pieces"]) for row in made] == [
    (6, 2),
    (14, 2),
]
