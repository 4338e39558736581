"""How much memory one slot of a wide job holds: a real slot in a process of its own, all others are played.

    python -m benchmarks.wide_slot --parallelism 2 128

The slot runs the main job (examples/windowed_totals.py) with its own source and sink on the embedded Kafka,
as one of `p` slots. Two more processes play the driver (a checkpoint each second) and the other p - 1 slots:
each of those has a connection to the slot and one from it, sends the slot its share of batches of 40,000 rows
as fast as the slot takes them, and reads what it sends. So gates and sockets are as full as they get. The
players keep the slot's event time, so that state is that of windows that are open. `--keys` are those of the
slot alone. Prints the slot's resident memory, MB: before its tasks are made, with all connections made, and
the most while records flow. What the kernel keeps in socket buffers belongs to no process and is not in it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import queue
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.played_slots import HOST, Setting, be_others
from benchmarks.workload import Purchases, load
from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import SplitProgress
from onceflow.runtime.control.message import Message
from onceflow.runtime.control.messages import (
    Acked,
    Assignment,
    Commit,
    Committed,
    Failed,
    Hello,
    Running,
    Shutdown,
    Trigger,
)
from onceflow.runtime.control.server import ControlServer
from onceflow.runtime.graph.job_graph import SourceNode
from onceflow.runtime.slot.process import SlotLaunch, run_slot
from onceflow.runtime.sockets.credentials import Credentials

CHECKPOINT_EVERY_S = 1.0
LOOK_S = 0.05


# --- The slot -------------------------------------------------------------------------------------


def be_slot(setting: Setting, control: tuple[str, int]) -> None:
    url = f"{setting.folder}/checkpoints-{setting.parallelism}"
    launch = SlotLaunch(
        1, 1, setting.graph(), control, Credentials(setting.secret), url, checkpoint_interval_ms=1_000
    )
    run_slot(launch, 0, HOST, end_process=lambda: os._exit(1))


# --- The driver -----------------------------------------------------------------------------------


class Driver:
    """Plays the driver of an attempt with one slot that is real."""

    def __init__(self, setting: Setting, split: SplitProgress, source: str) -> None:
        self._setting = setting
        self._split = split
        self._source = source
        self._heard: queue.SimpleQueue[tuple[int, Message]] = queue.SimpleQueue()
        self._server = ControlServer(Credentials(setting.secret), HOST, self._on_messages, lambda peer: None)
        self._peer = 0
        self.address = self._server.address
        self.completed = 0

    def wait(self, kind: type[Any], timeout_s: float = 120.0) -> Any:
        """The next message of this kind; what comes before it is dropped, but for a failure."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._peer, message = self._heard.get(timeout=max(0.0, deadline_s - time.monotonic()))
            if isinstance(message, Failed):
                raise SystemExit(f"the slot failed: {message.reason}\n{message.detail}")
            if isinstance(message, kind):
                return message

    def assign(self, own: tuple[str, int], others: tuple[str, int]) -> None:
        p = self._setting.parallelism
        splits = {self._source: [self._split]}
        self._send(Assignment(1, 0, p, f"wide{p}", 0, [own] + [others] * (p - 1), splits, [], {}))

    def checkpoint(self) -> None:
        self.completed += 1
        self._send(Trigger(self.completed, False))
        self.wait(Acked)
        self._send(Commit(self.completed))
        self.wait(Committed)

    def end(self) -> None:
        self._send(Shutdown("it was measured"))
        self._server.close()

    def _send(self, message: Message) -> None:
        self._server.send(self._peer, message)

    def _on_messages(self, messages: Sequence[tuple[int, Any]]) -> None:
        for each in messages:
            self._heard.put(each)


# --- The measurement ------------------------------------------------------------------------------


def measure(setting: Setting, seconds: float) -> None:
    processes = multiprocessing.get_context("spawn")
    [source] = [n for n in setting.graph().chains[0].nodes.values() if isinstance(n, SourceNode)]
    enumerator = source.source.open_enumerator("wide", SystemClock())
    [split] = enumerator.initial_splits()
    enumerator.close()
    driver = Driver(setting, SplitProgress(split), source.uid)
    slot = processes.Process(target=be_slot, args=(setting, driver.address))
    slot.start()
    hello = driver.wait(Hello)
    memory = psutil.Process(slot.pid)
    before = memory.memory_info().rss
    with socket.create_server((HOST, 0), backlog=512) as listener:
        others = processes.Process(target=be_others, args=(setting, hello.data_address, listener))
        others.start()
        driver.assign(hello.data_address, listener.getsockname()[:2])
        driver.wait(Running)
    seen = [memory.memory_info().rss]
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(LOOK_S):
            seen.append(memory.memory_info().rss)

    looking = threading.Thread(target=look)
    looking.start()
    until_s = time.monotonic() + seconds
    try:
        while time.monotonic() < until_s:
            next_s = time.monotonic() + CHECKPOINT_EVERY_S
            driver.checkpoint()
            time.sleep(max(0.0, next_s - time.monotonic()))
    finally:
        is_over.set()
        looking.join()
        driver.end()
        slot.join(10)
        for process in (slot, others):
            process.kill()
            process.join()
    print(
        f"p={setting.parallelism}, {setting.keys:,} keys: {before >> 20} MB before its tasks, "
        f"{seen[0] >> 20} with {2 * (setting.parallelism - 1)} connections, at most {max(seen) >> 20}, "
        f"{seen[-1] >> 20} after {seconds:.0f} s and {driver.completed} checkpoints",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parallelism", type=int, nargs="+", default=[2, 128])
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--records", type=int, default=8_000_000, help="in the slot's own split")
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="onceflow-bench-") as folder,
        EmbeddedKafka(Path(folder) / "kafka") as kafka,
    ):
        kafka.create_topic("purchases", 1)
        load(kafka.bootstrap_servers, "purchases", Purchases(options.records, 1), lambda done: None)
        for parallelism in options.parallelism:
            output = kafka.create_topic(f"totals-{parallelism}", 4)
            measure(
                Setting(
                    parallelism, options.keys, secrets.token_bytes(32), kafka.bootstrap_servers,
                    "purchases", output, folder,
                ),
                options.seconds,
            )  # fmt: skip


if __name__ == "__main__":
    main()
