"""`make demo`: the main job on a real Kafka, killed three times, judged by an auditor.

Starts the embedded broker in a fresh ./.demo, loads it, runs examples/windowed_totals.py, and while
the job writes its output kills one Python slot, then the whole driver, then the broker. The job is
told nothing; the driver is brought back by the same command. Then `onceflow verify` recomputes the
answer from the input. Exit code 0 if nothing is missing, doubled or wrong. Leaves nothing running.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import psutil
from output_watch import OutputWatch
from purchases import Purchases, load
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.embedded.jars import MAVEN_CENTRAL, PINNED_VERSION, JarCache
from onceflow.connectors.kafka.embedded.process import stop_broker
from onceflow.runtime.errors import OnceflowError

REPOSITORY = Path(__file__).resolve().parent.parent
FOLDER = Path(".demo")
ONCEFLOW = [str(Path(sys.executable).with_name("onceflow"))]
INPUT, OUTPUT, PARTITIONS = "purchases", "totals", 4
STEP_TIMEOUT_S = 180.0
RECORDS = 12_000_000
"""Twelve windows: two slots read four million records in less than a second."""
TRIES = 3
"""A kill waits for a transaction that is being written. A machine may be through before one is seen."""
BROKER_AWAY_S = 1.0
CHECKPOINT_INTERVAL = "100 ms"
"""Many windows are to have a transaction of their own: one to be committed, and three kills."""


class DemoFailed(Exception):
    """Something the demo promises did not happen: says what, and where to look."""


class TooQuick(DemoFailed):
    """The job was through before it could be killed: a fast machine, and nothing that is wrong."""


class JobProcess:
    """`onceflow run` in a session of its own, and the events it prints."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self.slot_pids: list[int] = []
        self.attempts = 0
        self.attempts_killed = 0
        self._log = log
        threading.Thread(target=self._read, name="job events", daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._log.with_suffix(".events").open("ab") as kept:
            for line in self._process.stdout:
                kept.write(line)
                with contextlib.suppress(json.JSONDecodeError):
                    self._events.put(json.loads(line))

    def look(self) -> None:
        """Take note of the events that came since the last look."""
        with contextlib.suppress(queue.Empty):
            while True:
                event = self._events.get_nowait()
                if event["event"] == "slots_started":
                    self.slot_pids = [slot["pid"] for slot in event["slots"]]
                    self.attempts += 1

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def kill_slot(self) -> None:
        self.attempts_killed = self.attempts
        os.kill(self.slot_pids[0], signal.SIGKILL)

    def kill_all(self) -> None:
        """The driver and its JVM, which are one process group; the slots end with those."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        """No process of the job is left afterwards, slots included."""
        slots = []
        with contextlib.suppress(psutil.NoSuchProcess):
            slots = psutil.Process(self._process.pid).children(recursive=True)
        self.kill_all()
        for slot in slots:
            with contextlib.suppress(psutil.NoSuchProcess):
                slot.kill()
        psutil.wait_procs(slots, timeout=10)


class Demo:
    """One run. The three kills each wait for a transaction that is being written."""

    def __init__(self, purchases: Purchases, kafka: EmbeddedKafka, progress: Progress) -> None:
        self._purchases = purchases
        self._kafka = kafka
        self._progress = progress
        self._job: JobProcess | None = None
        self._committed_at_kill = 0
        self.kills = 0

    def prepare(self) -> None:
        self._kafka.start()
        for topic in (INPUT, OUTPUT):
            self._kafka.create_topic(topic, PARTITIONS)
        bar = self._progress.add_task("loading", total=self._purchases.total)
        load(
            self._kafka.bootstrap_servers,
            INPUT,
            self._purchases,
            lambda done: self._progress.update(bar, completed=done),
        )

    def run_and_kill(self) -> None:
        bar = self._progress.add_task("running", total=self._purchases.window_rows())
        watch = OutputWatch(self._kafka.bootstrap_servers, OUTPUT, PARTITIONS)
        job = self._job = self._start_job()
        self._wait_until_it_writes(job, watch, bar)
        self._killed("a Python slot", watch, job.kill_slot)
        self._wait_until_it_writes(job, watch, bar)
        self._killed("the whole driver", watch, job.kill_all)
        job = self._job = self._start_job()
        self._wait_until_it_writes(job, watch, bar)
        self._killed("the broker", watch, self._kafka.kill)
        time.sleep(BROKER_AWAY_S)  # the job is to notice, and to wait
        self._kafka.start()
        self._wait(job, watch, bar, "it ended", lambda: job.exit_code is not None)
        if job.exit_code != 0:
            self._give_up(f"the job ended with exit code {job.exit_code}")
        self._progress.update(bar, completed=self._purchases.window_rows())

    def _wait_until_it_writes(self, job: JobProcess, watch: OutputWatch, bar: TaskID) -> None:
        """Wait until a transaction is being written that follows newly committed output: so that a kill has
        something to lose, and something to double."""
        seen = job.attempts_killed
        self._wait(job, watch, bar, "its slots started", lambda: job.attempts > seen)
        enough = self._committed_at_kill + self._purchases.window_rows() // 5
        self._wait(job, watch, bar, "it committed new output", lambda: watch.committed > enough)
        self._wait(job, watch, bar, "it wrote output", lambda: watch.is_writing)

    def _killed(self, victim: str, watch: OutputWatch, kill: Callable[[], None]) -> None:
        kill()
        self.kills += 1
        self._committed_at_kill = watch.committed
        so_far = f"{watch.committed:,} output records were committed before"
        self._progress.console.print(f"killed {victim} in the middle of a transaction; {so_far}")

    def _wait(
        self, job: JobProcess, watch: OutputWatch, bar: TaskID, what: str, is_so: Callable[[], bool]
    ) -> None:
        deadline = time.monotonic() + STEP_TIMEOUT_S
        while True:
            job.look()
            watch.look()
            self._progress.update(bar, completed=watch.committed)
            if is_so():
                return
            if job.exit_code == 0:
                raise TooQuick(f"the job was through before {what}")
            if job.exit_code is not None:
                self._give_up(f"the job ended (exit code {job.exit_code}) before {what}")
            if time.monotonic() > deadline:
                self._give_up(f"{STEP_TIMEOUT_S:.0f} s passed before {what}")
            time.sleep(0.002)

    def audit(self) -> dict[str, Any]:
        command = [*ONCEFLOW, "verify", "--bootstrap-servers", self._kafka.bootstrap_servers, "--json"]
        command += ["--input", INPUT, "--output", OUTPUT, "--group-by", "user", "--time", "ts"]
        command += ["--window", "10 s", "--count", "count", "--sum", "total=amount"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode not in (0, 1):
            raise DemoFailed("the auditor failed")
        (FOLDER / "audit.json").write_text(done.stdout, encoding="utf-8")
        findings: dict[str, Any] = json.loads(done.stdout)
        return findings

    def end(self) -> None:
        """Leave nothing running, whatever happened."""
        if self._job is not None:
            self._job.end()
        self._kafka.stop()

    def _start_job(self) -> JobProcess:
        command = [*ONCEFLOW, "run", str(REPOSITORY / "examples" / "windowed_totals.py")]
        command += ["--master", "local[2]", "--parallelism", "2", "--json"]
        command += [
            "--checkpoint-dir",
            str((FOLDER / "checkpoints").absolute()),
            "--checkpoint-interval",
            CHECKPOINT_INTERVAL,
        ]
        command += ["--", "--bootstrap-servers", self._kafka.bootstrap_servers]
        command += ["--input", INPUT, "--output", OUTPUT, "--until", "latest"]
        return JobProcess(command, FOLDER / "job.log")

    def _give_up(self, reason: str) -> NoReturn:
        log = FOLDER / "job.log"
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:]
        raise DemoFailed("\n".join([f"{reason}; its log is {log} and ends with:", *last]))


def run(records: int, kafka: EmbeddedKafka, console: Console) -> int:
    """The demo on a broker of its own, which it ends. Returns the exit code."""
    bars = TextColumn("{task.description:8}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    with Progress(*bars, console=console) as progress:
        demo = Demo(Purchases(records, PARTITIONS), kafka, progress)
        try:
            demo.prepare()
            demo.run_and_kill()
            found = demo.audit()
        finally:
            before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing may keep it from ending all
            demo.end()
            signal.signal(signal.SIGINT, before)
    faults = found["missing"], found["doubled"], found["wrong"] + found["unreadable"]
    read = found["input_records"]
    print(f"{read} records, {demo.kills} kills: {faults[0]} missing, {faults[1]} doubled, {faults[2]} wrong")
    return 0 if not any(faults) and read == records + PARTITIONS else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=RECORDS, help="at least 3,500,000: four windows")
    options = parser.parse_args()
    console = Console(stderr=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    version = os.environ.get("ONCEFLOW_KAFKA_VERSION", PINNED_VERSION)
    cache = JarCache(maven_mirror=os.environ.get("ONCEFLOW_MAVEN_MIRROR", MAVEN_CENTRAL))
    if not cache.has(version):
        console.print(f"downloading Kafka {version}, once")
    try:
        for tries_left in reversed(range(TRIES)):
            stop_broker(FOLDER / "broker")  # of a demo that was killed itself
            shutil.rmtree(FOLDER, ignore_errors=True)
            try:
                kafka = EmbeddedKafka(FOLDER / "broker", version=version, jar_cache=cache)
                return run(options.records, kafka, console)
            except TooQuick as error:
                if not tries_left:
                    raise
                console.print(f"[yellow]demo:[/yellow] {error}: once more", highlight=False)
    except (DemoFailed, OnceflowError) as error:
        console.print(f"[red]demo:[/red] {error}", highlight=False)
    except KeyboardInterrupt:
        return 130
    return 1


if __name__ == "__main__":
    sys.exit(main())
