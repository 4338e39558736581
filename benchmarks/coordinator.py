"""What a thousand slots cost the driver: CPU of a checkpoint's bookkeeping, and of signs of life.

    python benchmarks/coordinator.py --slots 1000 --operators 10

The driver is the real one: control server, coordinator, checkpoint log on disk. The slots are played by
one thread of another process: each has its own connection, acks a state handle for every operator, and
reports progress once a heartbeat. Measured is the CPU of the driver's process: in one job while only signs
of life come in, in another while there is a checkpoint each second. That one keeps all its checkpoints; what
it costs to delete the files of one, nearly all of it the file system's, is measured apart, on empty files.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import selectors
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.kept_results import keep
from onceflow.runtime.api.run_options import run_options
from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.manifest import SlotSnapshot, StateHandle, TableFile, meta_as_json
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import Json
from onceflow.runtime.control.connection import Connection, ConnectionLostError
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
from onceflow.runtime.driver.driver import JobDriver
from onceflow.runtime.errors import OnceflowError
from onceflow.runtime.graph.job_graph import Chain, JobGraph, SinkNode
from onceflow.runtime.report import JobProgress
from onceflow.runtime.slot.process import SlotLaunch
from onceflow.runtime.sockets.connect import connect
from onceflow.runtime.version import VERSION

REPOSITORY = Path(__file__).resolve().parent.parent
TIMEOUT_S = 120.0
WARM_UP = 3
"""Checkpoints that are not measured."""
COUNTERS = ("records_in", "records_out", "late_records", "dead_letters", "watermark_ms", "max_event_time_ms")


class PlayedSlot:
    """Says what a slot says, when a slot says it."""

    def __init__(self, launch: SlotLaunch, number: int, operators: int) -> None:
        self._attempt = launch.attempt
        self._number = number
        self._operators = operators
        self.is_over = False
        opened = connect(launch.control_address, launch.credentials, {"role": "slot"}, TIMEOUT_S)
        self.connection = Connection[ToSlot](opened, ToSlot)  # type: ignore[arg-type]  # a union
        address = ("127.0.0.1", 1)
        self.connection.send(Hello(launch.number, launch.attempt, number, number, "played", address, VERSION))

    def read(self) -> None:
        """Something has come in."""
        try:
            commands = self.connection.receive_ready()
        except ConnectionLostError:
            self.is_over = True
            return
        for command in commands:
            self._answer(command)

    def _answer(self, command: ToSlot) -> None:
        match command:
            case Assignment():
                self.connection.send(Running(self._attempt))
            case Trigger(checkpoint_id=checkpoint_id):
                states = [self._state(checkpoint_id, operator) for operator in range(self._operators)]
                self.connection.send(Acked(self._attempt, checkpoint_id, SlotSnapshot(tuple(states))))
            case Commit(checkpoint_id=checkpoint_id):
                self.connection.send(Committed(self._attempt, checkpoint_id))
            case Shutdown():
                self.is_over = True
            case _:
                pass

    def _state(self, checkpoint_id: int, operator: int) -> StateHandle:
        path = f"state/attempt-000001/{checkpoint_id:010d}.operator-{operator}.{self._number}.arrows"
        table = TableFile("windows", path, 0, 123_456, "crc32:01234567", (4_321,))
        meta = meta_as_json({"watermarks": [[self._number, self._number + 1, 1_700_000_000_000]]})
        return StateHandle(
            f"operator-{operator}", self._number, self._number, self._number + 1, (table,), meta
        )

    def say_progress(self) -> None:
        counters = dict.fromkeys(COUNTERS, 1_700_000_000_000)
        tasks = {f"operator-{i}": counters for i in range(self._operators)}
        self.connection.send(Progress(self._attempt, tasks, (), 1, 0.5, 500 << 20))


def play_slots(launch: SlotLaunch, slots: int, operators: int) -> None:
    """In a process of its own, so that its CPU is not the driver's."""
    selector = selectors.DefaultSelector()
    played = [PlayedSlot(launch, number, operators) for number in range(slots)]
    for slot in played:
        selector.register(slot.connection, selectors.EVENT_READ, slot)
    pause_s = heartbeat_ms(slots) / 1000 / slots
    turn, progress_at = 0, time.monotonic()
    with contextlib.suppress(ConnectionLostError):
        while not any(slot.is_over for slot in played):
            for key, _ in selector.select(max(0.0, progress_at - time.monotonic())):
                key.data.read()
            if time.monotonic() >= progress_at:
                played[turn].say_progress()
                turn, progress_at = (turn + 1) % slots, progress_at + pause_s


@dataclass(slots=True)
class PlayedLauncher:
    """SlotLauncher that starts the playing process."""

    slots_max: int
    operators: int
    driver_host: str = "127.0.0.1"
    encryption_asked_by: str | None = None
    listen_host: str = "127.0.0.1"
    _process: multiprocessing.process.BaseProcess | None = None

    def wait_ready(self, timeout_s: float) -> bool:
        return True

    def coming_up(self) -> str:
        return "nothing"

    def check_room(self, slots: int) -> None: ...

    def doing(self, parallelism: int, has_slots: bool) -> str:
        return "the playing process starts"

    def launch(
        self,
        launch: SlotLaunch,
        parallelism: int,
        on_ended: Callable[[OnceflowError | None], None],
        on_waiting: Callable[[str], None],
    ) -> Callable[[], None]:
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(
            target=play_slots, args=(launch, parallelism, self.operators), daemon=True
        )
        self._process.start()
        return lambda: None

    def has_room(self, slots: int) -> bool:
        return False

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()


@dataclass(slots=True)
class Events:
    """Reporter that keeps what was told."""

    checkpoints: list[Mapping[str, Json]] = field(default_factory=list)
    is_running: threading.Event = field(default_factory=threading.Event)
    another: threading.Condition = field(default_factory=threading.Condition)
    """A checkpoint was completed. Who waits for it takes no CPU: it would count as the driver's."""

    def event(self, name: str, fields: Mapping[str, Json]) -> None:
        if name == "checkpoint_completed":
            with self.another:
                self.checkpoints.append(fields)
                self.another.notify()
        elif name == "slots_started":
            self.is_running.set()

    def progress(self, progress: JobProgress) -> None:
        pass

    def close(self) -> None:
        pass


class PlayedJob:
    """A job whose slots are played, from its start to its end."""

    def __init__(self, options: argparse.Namespace, interval: str, folder: Path) -> None:
        uids = [f"operator-{i}" for i in range(options.operators)]
        chain = Chain(0, uids[0], {uid: SinkNode(uid, None, None) for uid in uids})  # type: ignore[arg-type]
        graph = JobGraph("played", [chain], [], max_parallelism=max(options.slots, 1024))
        run = run_options(
            str(folder), parallelism=options.slots, checkpoint_interval=interval, retained=1_000
        )
        self._launcher = PlayedLauncher(options.slots, options.operators)
        self._events = Events()
        self._driver = JobDriver(graph, run, self._launcher, SystemClock(), self._events)
        self._thread = threading.Thread(target=self._driver.run)

    def __enter__(self) -> PlayedJob:
        self._thread.start()
        assert self._events.is_running.wait(TIMEOUT_S), "the played slots did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._driver.request_cancel()
        self._thread.join()
        self._launcher.close()

    def wait_checkpoints(self, count: int) -> None:
        events = self._events
        with events.another:
            is_there = events.another.wait_for(lambda: len(events.checkpoints) >= count, TIMEOUT_S)
        assert is_there, f"{len(events.checkpoints)} checkpoints of {count}"

    def wall_ms(self) -> list[float]:
        """From trigger to the last commit, of each checkpoint."""
        return [float(fields["duration_ms"]) for fields in self._events.checkpoints]


def cpu_s() -> float:
    """CPU seconds of this process, so far."""
    return time.process_time()


def deletion_cpu_s(folder: Path, files: int) -> float:
    """CPU seconds for deleting the state files of one checkpoint."""
    paths = [f"operator-{number}.arrows" for number in range(files)]
    folder.mkdir()
    for path in paths:
        (folder / path).touch()
    store = LocalStore(str(folder))
    before_cpu = cpu_s()
    store.delete(paths)
    return cpu_s() - before_cpu


def measure(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Two jobs: signs of life alone, then with a checkpoint each second."""
    with PlayedJob(options, "1 h", folder / "quiet"):
        time.sleep(heartbeat_ms(options.slots) / 1000)  # until every slot has been heard
        before_cpu, before_s = cpu_s(), time.monotonic()
        time.sleep(options.quiet_s)
        alive_share = (cpu_s() - before_cpu) / (time.monotonic() - before_s)
    costs = []
    with PlayedJob(options, "1 s", folder / "busy") as job:
        job.wait_checkpoints(WARM_UP)
        for number in range(WARM_UP, WARM_UP + options.checkpoints):
            before_cpu, before_s = cpu_s(), time.monotonic()
            job.wait_checkpoints(number + 1)
            took_s = time.monotonic() - before_s
            costs.append(1000 * (cpu_s() - before_cpu - alive_share * took_s))
        wall = job.wall_ms()[WARM_UP:]
    deletion_s = deletion_cpu_s(folder / "state", options.slots * options.operators)
    return {
        "slots": options.slots,
        "operators": options.operators,
        "checkpoint_cpu_ms": round(statistics.median(costs), 1),
        "checkpoint_cpu_ms_max": round(max(costs), 1),
        "deletion_cpu_ms": round(1000 * deletion_s, 1),
        "checkpoint_wall_ms": round(statistics.median(wall), 1),
        "alive_percent_of_a_core": round(100 * alive_share, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slots", type=int, default=1_000)
    parser.add_argument("--operators", type=int, default=10)
    parser.add_argument("--checkpoints", type=int, default=15)
    parser.add_argument("--quiet-s", type=float, default=20.0, help="how long signs of life are measured")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="onceflow-bench-") as folder:
        result = measure(options, Path(folder))
    table = Table("measure", "value")
    for measure_name, value in result.items():
        table.add_row(measure_name.replace("_", " "), f"{value:,}")
    Console().print(table)
    keep("coordinator", result)


if __name__ == "__main__":
    main()
