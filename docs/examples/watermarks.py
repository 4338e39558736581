"""A watermark that a producer sends, and a rule of the user's own."""

from dataclasses import dataclass

import numpy as np
from onceflow import Job, WatermarkGenerator, WatermarkStrategy, count, tumbling


@dataclass(frozen=True)
class Click:
    page: str
    ts: int
    complete_until: int | None = None


class Patient(WatermarkGenerator):
    """The lowest time of the last batch: no click is later than those that came with it."""

    def on_records(self, event_times: np.ndarray) -> int | None:
        return int(event_times.min()) - 1


CLICKS = [Click("/", 1_000), Click("/", 12_000, complete_until=10_000), Click("/", 500)]
job = Job("clicks")
found = []
for uid, times in {
    "sent": WatermarkStrategy.punctuated("complete_until", event_time="ts"),
    "own": WatermarkStrategy.generated(Patient, event_time="ts"),
}.items():
    clicks = job.from_elements(*CLICKS, watermarks=times, uid=uid)
    found.append(
        clicks.key_by("page").window(tumbling("10 s")).aggregate(n=count()).collect()
    )
# Splits of the two, and of other sources with the same group, wait for the slowest one.
aligned = WatermarkStrategy.monotonous("ts").with_watermark_alignment("1 h", "clicks")
both = [job.from_elements(*CLICKS, watermarks=aligned, uid=uid) for uid in "ab"]
together = both[0].union(both[1]).collect()

if __name__ == "__main__":  # and not where `onceflow plan` looks at the job
    job.run(master="threads[1]")
    assert len(together) == 6
    assert [[row["n"] for row in rows] for rows in found] == [[2, 1], [2, 1]]
