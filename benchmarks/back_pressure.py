"""How long checkpoints take while a job can't keep up, and how many records it gets through meanwhile.

    python -m benchmarks.back_pressure --master 'threads[2]' --seconds 60
    python -m benchmarks.back_pressure --master 'local[2]' --seconds 60 -- --unaligned

The job (jobs/slow_step.py): a source that has ten times as many records a second as the function behind a
keyed exchange gets through, which waits for a millisecond for each. So every channel is as full as it gets,
and a barrier waits behind what is in it. What stands behind `--` goes to `onceflow run`. Everything is from
the job's own events: `duration` of a checkpoint from its trigger to the last commit, `alignment` the longest
time that a barrier took through a slot, `records` what came out of the slow function, a second. The first
`--warm-up` seconds behind the first record are left out.

A checkpoint that is not done when the time is over counts with the time it has had so far: else the slowest
ones were not in the figure.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

ONCEFLOW = str(Path(sys.executable).with_name("onceflow"))
JOB = Path(__file__).with_name("jobs") / "slow_step.py"
PATIENCE_S = 30.0
START_S = 300.0


@dataclass(slots=True)
class Seen:
    """What the job said while it was measured."""

    completed: list[Mapping[str, Any]] = field(default_factory=list)
    from_ms: float = float("inf")
    """What came before is left out."""
    records: list[tuple[int, int]] = field(default_factory=list)
    """(time in ms, records that came out so far)."""
    last_end_ms: float = 0.0
    """When the last checkpoint was done; before that, when the first record was read."""
    has_record: threading.Event = field(default_factory=threading.Event)

    def take(self, line: str, warm_up_s: float) -> None:
        """A line of the job's output."""
        event = json.loads(line)
        at_ms = event["ts_ms"]
        match event["event"]:
            case "first_record":
                self.from_ms = at_ms + warm_up_s * 1_000
                self.last_end_ms = at_ms
                self.has_record.set()
            case "checkpoint_completed":
                self.last_end_ms = at_ms
                if at_ms >= self.from_ms:
                    self.completed.append(event)
            case "progress" if at_ms >= self.from_ms:
                self.records.append((at_ms, event["records_out"]))

    @property
    def rate(self) -> float:
        """Records a second."""
        if len(self.records) < 2:
            return 0.0
        (first_ms, first), (last_ms, last) = self.records[0], self.records[-1]
        return (last - first) / (last_ms - first_ms) * 1_000


def measure(
    command: Sequence[str], warm_up_s: float, seconds: float, interval_ms: float
) -> tuple[Seen, list[float]]:
    """Run the job; what it said, and the durations of its checkpoints in ms."""
    seen = Seen()
    job = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None

    def read(lines: IO[str]) -> None:
        for line in lines:
            seen.take(line, warm_up_s)

    reading = threading.Thread(target=read, args=(job.stdout,))
    reading.start()
    try:
        if not seen.has_record.wait(START_S):
            raise SystemExit(f"the job read no record within {START_S:.0f} s")
        time.sleep(warm_up_s + seconds)
        now_ms = time.time() * 1_000
        durations = [float(event["duration_ms"]) for event in list(seen.completed)]
        waited_ms = now_ms - seen.last_end_ms - interval_ms
        if waited_ms > max(durations, default=0.0):
            durations.append(waited_ms)
    finally:
        job.send_signal(signal.SIGTERM)
        try:
            job.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            job.kill()
        reading.join()
    return seen, durations


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--master", default="threads[2]")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--ms", type=float, default=1.0, help="of the function, for a record")
    parser.add_argument("--times", type=float, default=10.0, help="how much faster the source is")
    parser.add_argument("--interval-ms", type=int, default=1_000, help="of checkpoints")
    parser.add_argument("--warm-up", type=float, default=20.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    own, theirs = parser.parse_known_args()
    theirs = [argument for argument in theirs if argument != "--"]
    rate = own.times * own.parallelism * 1_000 / own.ms
    with tempfile.TemporaryDirectory(prefix="onceflow-bench-") as folder:
        command = [ONCEFLOW, "run", f"{JOB}:build", "--master", own.master, "--json"]
        command += ["--parallelism", str(own.parallelism), "--checkpoint-dir", folder]
        command += ["--checkpoint-interval", f"{own.interval_ms} ms", *theirs]
        command += ["--", "--rate", str(rate), "--ms", str(own.ms)]
        seen, durations = measure(command, own.warm_up, own.seconds, own.interval_ms)
    report(own.master, theirs, seen, durations)


def report(master: str, options: Sequence[str], seen: Seen, durations: Sequence[float]) -> None:
    print(f"{master} {' '.join(options) or 'as it is'}: {len(seen.completed)} checkpoints")
    print(f"  records          {seen.rate:8,.0f} /s")
    _show("duration", durations, "ms")
    _show("alignment", [event["alignment_ms"] for event in seen.completed], "ms")
    in_flight = [event.get("in_flight_bytes", 0) / 1_000 for event in seen.completed]
    _show("in flight", in_flight, "KB")


def _show(what: str, values: Sequence[float], unit: str) -> None:
    if values:
        middle, high = np.percentile(values, [50, 99], method="higher")
        print(f"  {what:10} p50 {middle:9,.0f} {unit}   p99 {high:9,.0f} {unit}", flush=True)


if __name__ == "__main__":
    main()
