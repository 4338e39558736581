"""What a thousand slots cost the driver: CPU of a checkpoint's bookkeeping, and of signs of life.

    python benchmarks/coordinator.py --slots 1000 --operators 10

The driver is the real one: control server, coordinator, checkpoint log on disk. The slots are played by
another process: each has its own connection, acks a state handle for every operator, reports progress
once a heartbeat. Measured is the CPU of the driver's process: while only signs of life come in, then
while checkpoints are made one after another.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psutil
from rich.console import Console
from rich.progress import track
from rich.table import Table

from onceflow.runtime.checkpoint.manifest import SlotSnapshot, StateHandle, TableFile
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import Json
from onceflow.runtime.control.client import ControlClient
from onceflow.runtime.control.heartbeat import heartbeat_ms
from onceflow.runtime.control.messages import (
    Acked,
    Assignment,
    Commit,
    Committed,
    Hello,
    Progress,
    Running,
    Shutdown,
    ToSlot,
    Trigger,
)
from onceflow.runtime.driver import JobDriver
from onceflow.runtime.graph import Chain, JobGraph, SinkNode
from onceflow.runtime.job import run_options
from onceflow.runtime.report import JobProgress
from onceflow.runtime.slot_process import SlotLaunch
from onceflow.runtime.version import VERSION

REPOSITORY = Path(__file__).resolve().parent.parent
COUNTERS = ("records_in", "records_out", "late_records", "dead_letters", "watermark_ms", "max_event_time_ms")


class PlayedSlot:
    """Says what a slot says, when a slot says it."""

    def __init__(self, launch: SlotLaunch, number: int, operators: int) -> None:
        self._launch = launch
        self._number = number
        self._operators = operators
        self._control = ControlClient(launch.control_address, launch.secret, SystemClock())
        address = ("127.0.0.1", 1)
        self._control.send(Hello(launch.attempt, number, number, "played", address, VERSION))
        self._heard = threading.Event()

    def run(self) -> None:
        """Until the driver ends it."""
        assignment = self._control.wait_assignment(300.0)
        assert isinstance(assignment, Assignment)
        over = threading.Event()
        self._control.listen(self._heard.set, over.set)
        self._control.send(Running(self._launch.attempt))
        pause_s = heartbeat_ms(assignment.parallelism) / 1000
        progress_at = time.monotonic() + pause_s * (self._number % 97) / 97
        while not over.is_set():
            self._heard.wait(max(0.0, progress_at - time.monotonic()))
            self._heard.clear()
            while (command := self._control.poll()) is not None:
                if isinstance(command, Shutdown):
                    return
                self._answer(command)
            if time.monotonic() >= progress_at:
                progress_at += pause_s
                self._control.send(self._progress())

    def _answer(self, command: ToSlot) -> None:
        attempt = self._launch.attempt
        if isinstance(command, Trigger):
            snapshot = SlotSnapshot([self._state(command.checkpoint_id, i) for i in range(self._operators)])
            self._control.send(Acked(attempt, command.checkpoint_id, snapshot))
        elif isinstance(command, Commit):
            self._control.send(Committed(attempt, command.checkpoint_id))

    def _state(self, checkpoint_id: int, operator: int) -> StateHandle:
        path = f"state/{checkpoint_id}/operator-{operator}-{self._number}.arrows"
        table = TableFile("windows", path, 0, 123_456, "crc32:01234567", [4_321])
        meta = {"watermarks": [[self._number, self._number + 1, 1_700_000_000_000]]}
        return StateHandle(
            f"operator-{operator}", self._number, self._number, self._number + 1, [table], meta
        )

    def _progress(self) -> Progress:
        counters = dict.fromkeys(COUNTERS, 1_700_000_000_000)
        tasks = {f"operator-{i}": counters for i in range(self._operators)}
        return Progress(self._launch.attempt, tasks, (), 1, 0.5, 500 << 20)


def play_slots(launch: SlotLaunch, slots: int, operators: int) -> None:
    """In a process of its own, so that its CPU is not the driver's."""
    threading.stack_size(256 << 10)
    played = [PlayedSlot(launch, number, operators) for number in range(slots)]
    threads = [threading.Thread(target=slot.run) for slot in played]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@dataclass(slots=True)
class PlayedLauncher:
    """SlotLauncher that starts the playing process."""

    slots_max: int
    operators: int
    driver_host: str = "127.0.0.1"
    _process: multiprocessing.process.BaseProcess | None = None

    def launch(self, launch: SlotLaunch, parallelism: int, on_ended: Callable[[str | None], None]) -> None:
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(
            target=play_slots, args=(launch, parallelism, self.operators), daemon=True
        )
        self._process.start()

    def cancel(self) -> None:
        pass

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()


@dataclass(slots=True)
class Events:
    """Reporter that keeps what was told."""

    checkpoints: list[Mapping[str, Json]] = field(default_factory=list)
    is_running: threading.Event = field(default_factory=threading.Event)

    def event(self, name: str, fields: Mapping[str, Json]) -> None:
        if name == "checkpoint_completed":
            self.checkpoints.append(fields)
        elif name == "slots_started":
            self.is_running.set()

    def progress(self, progress: JobProgress) -> None:
        pass

    def close(self) -> None:
        pass


def measure(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """One job: signs of life for a while, then checkpoints as fast as they go."""
    uids = [f"operator-{i}" for i in range(options.operators)]
    chain = Chain(0, uids[0], {uid: SinkNode(uid, None) for uid in uids})  # type: ignore[arg-type]
    graph = JobGraph("played", [chain], [], max_parallelism=max(options.slots, 1024))
    run = run_options(str(folder), parallelism=options.slots, checkpoint_interval=f"{options.interval_s} s")
    launcher = PlayedLauncher(options.slots, options.operators)
    events = Events()
    driver = JobDriver(graph, run, launcher, SystemClock(), events)
    thread = threading.Thread(target=driver.run)
    thread.start()
    assert events.is_running.wait(300), "the played slots did not start"
    process = psutil.Process()

    def cpu_s() -> float:
        times = process.cpu_times()
        return times.user + times.system

    def wait_checkpoints(count: int) -> None:
        while len(events.checkpoints) < count:
            time.sleep(0.05)

    wait_checkpoints(1)
    start_cpu, start_s = cpu_s(), time.monotonic()
    for _ in track(range(10), "signs of life", console=Console(stderr=True)):
        time.sleep(options.interval_s / 12)
    alive_share = (cpu_s() - start_cpu) / (time.monotonic() - start_s)
    assert len(events.checkpoints) == 1, "a checkpoint fell into the quiet time: raise --interval-s"
    costs = []
    for number in range(2, 2 + options.checkpoints):
        wait_checkpoints(number - 1)
        before_cpu, before_s = cpu_s(), time.monotonic()
        wait_checkpoints(number)
        took_s = time.monotonic() - before_s
        costs.append(1000 * (cpu_s() - before_cpu - alive_share * took_s))
    driver.request_cancel()
    thread.join()
    launcher.close()
    wall = [float(fields["duration_ms"]) for fields in events.checkpoints[1:]]
    return {
        "slots": options.slots,
        "operators": options.operators,
        "checkpoint_cpu_ms": round(statistics.median(costs), 1),
        "checkpoint_wall_ms": round(statistics.median(wall), 1),
        "alive_percent_of_a_core": round(100 * alive_share, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slots", type=int, default=1_000)
    parser.add_argument("--operators", type=int, default=10)
    parser.add_argument("--checkpoints", type=int, default=3)
    parser.add_argument(
        "--interval-s", type=int, default=15, help="of checkpoints; as long is the quiet time"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="onceflow-bench-") as folder:
        result = measure(options, Path(folder))
    table = Table(*result)
    table.add_row(*(f"{value:,}" for value in result.values()))
    Console().print(table)
    name = f"coordinator-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    (REPOSITORY / "benchmarks" / "results" / name).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
