"""From the SIGKILL of a slot, or from `onceflow rescale`, to the first new output, with many keys in state.

    python benchmarks/recovery.py --keys 1000000 --kills 5
    python benchmarks/recovery.py --keys 1000000 --rescales 9 --master 'local[4]'
    python benchmarks/recovery.py --keys 1000000 --rescales 9 --master 'local[4]' --state-backend rocksdb

The job holds a sum per key and copies its input to the output. When all keys are in a checkpoint, records
go on coming, 200 a second; the slot's process is killed; what counts is when a read_committed consumer
sees the first record that was *produced after the kill*. Events of the job tell where the time went;
`forked` is when the process of the new slot began, so what lies between it and `attempt_started` is Spark's.

With `--rescales` the job goes from one slot to two, to four and back, and what counts is the longest time
in which a reader of its output saw nothing, from the request on: the last checkpoint, the start of the next
attempt, and its first checkpoint. The output is looked at, not the job's own events.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from onceflow.connectors.kafka.embedded import EmbeddedKafka

ONCEFLOW = str(Path(sys.executable).with_name("onceflow"))
JOB = Path(__file__).with_name("jobs") / "many_keys.py"
PARTITIONS = 4
TIMEOUT_S = 240.0
RESCALE_STEPS = (
    "warmed",
    "last_checkpoint",
    "rescaled",
    "attempt_started",
    "slots_started",
    "first_record",
    "first_output",
)


class Feed:
    """Purchases: one for each key, and then 200 a second until it is closed."""

    def __init__(self, servers: str, topic: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": servers, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000}
        )
        self._topic = topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._trickle, daemon=True)

    def load(self, keys: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        for n in range(keys):
            self._send(n, now_ms)
        self._producer.flush(60)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _trickle(self) -> None:
        n = 0
        while not self._over.wait(0.005):
            self._send(n, time.time_ns() // 1_000_000)
            self._producer.flush(1)
            n += 1

    def _send(self, n: int, ts: int) -> None:
        value = b'{"user":"u%07d","amount":%d,"ts":%d}' % (n, n % 1_000, ts)
        while True:
            try:
                self._producer.produce(self._topic, value, partition=n % PARTITIONS)
                break
            except BufferError:
                self._producer.poll(0.05)
        if n % 5_000 == 0:
            self._producer.poll(0)


def first_after(consumer: Consumer, moment_ms: float) -> float:
    """When the first record that is younger was seen."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        for message in consumer.consume(10_000, 0.02):
            if message.error() is None and json.loads(message.value())["ts"] > moment_ms:
                return time.time()
    raise SystemExit("no new output")


def longest_silence(consumer: Consumer, since_s: float, until_ms: float) -> float:
    """The longest time without new records, from a moment on until one comes that is younger than another."""
    last_s, longest_s, deadline = since_s, 0.0, time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        messages = consumer.consume(10_000, 0.02)
        if not messages:
            continue
        longest_s, last_s = max(longest_s, time.time() - last_s), time.time()
        if any(m.error() is None and json.loads(m.value())["ts"] > until_ms for m in messages):
            return longest_s
    raise SystemExit("no new output")


def wait_any(events: queue.SimpleQueue[dict[str, Any]]) -> dict[str, Any]:
    return events.get(timeout=TIMEOUT_S)


def wait_event(events: queue.SimpleQueue[dict[str, Any]], name: str, **fields: Any) -> dict[str, Any]:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        event = events.get(timeout=max(0.1, deadline - time.monotonic()))
        if event["event"] == name and all(event[field] >= value for field, value in fields.items()):
            return event


def forked_s(pid: int) -> float:
    """When the process began, since the machine started."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(after_name[19]) / os.sysconf("SC_CLK_TCK")


def open_consumer(servers: str, topic: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "recovery",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    return consumer


def kill(kills: int, pid: int, events: queue.SimpleQueue[dict[str, Any]], consumer: Consumer) -> list[float]:
    """Seconds from each kill to the first new output."""
    took: list[float] = []
    for _ in range(kills):
        checkpoint = [wait_event(events, "checkpoint_completed") for _ in range(3)][-1]
        first_after(consumer, time.time() * 1000)
        os.kill(pid, signal.SIGKILL)
        killed_s, killed_at_s = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)
        seen_s = first_after(consumer, killed_s * 1000)
        took.append(seen_s - killed_s)
        steps = {"state_mb": round(checkpoint["bytes"] / 1e6, 1)}
        for step in ("attempt_failed", "attempt_started", "slots_started", "first_record", "restarted"):
            event = wait_event(events, step)
            if step == "slots_started":
                pid = event["slots"][0]["pid"]
                steps["forked"] = round(forked_s(pid) - killed_at_s, 2)
            steps[step] = round(event["ts_ms"] / 1000 - killed_s, 2)
        print(f"{took[-1]:.2f} s to the first new output; {json.dumps(steps)}", flush=True)
    return took


def rescale(
    rescales: int, folder: Path, events: queue.SimpleQueue[dict[str, Any]], consumer: Consumer
) -> list[float]:
    """The longest silence of the output at each."""
    took: list[float] = []
    for number in range(rescales):
        slots = (2, 4, 1)[number % 3]
        wait_event(events, "checkpoint_completed")
        first_after(consumer, time.time() * 1000)
        asked_s = since_s = time.time()
        command = subprocess.Popen([ONCEFLOW, "rescale", str(folder), str(slots), "--no-wait"])
        steps: dict[str, float] = {}
        started = threading.Thread(target=note_steps, args=(events, asked_s, steps))
        started.start()
        longest_s = 0.0
        while started.is_alive():
            longest_s = max(longest_s, longest_silence(consumer, since_s, since_s * 1000))
            since_s = time.time()
        longest_s = max(longest_s, longest_silence(consumer, since_s, time.time() * 1000))
        took.append(longest_s)
        if command.wait(60):
            raise SystemExit("onceflow rescale was refused")
        print(f"to {slots} slots: {longest_s:.2f} s without output; {json.dumps(steps)}", flush=True)
    return took


def note_steps(events: queue.SimpleQueue[dict[str, Any]], asked_s: float, steps: dict[str, float]) -> None:
    """Seconds from the request to each step of a rescale, until the first checkpoint behind it."""
    while "first_output" not in steps:
        event = wait_any(events)
        name = event["event"]
        if name == "checkpoint_completed":
            name = "last_checkpoint" if "rescaled" not in steps else "first_output"
        if name in RESCALE_STEPS:
            steps[name] = round(event["ts_ms"] / 1000 - asked_s, 2)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--rescales", type=int, default=0, help="so many instead of kills")
    parser.add_argument("--master", default="local[1]")
    parser.add_argument("--checkpoint-interval", default="1 s")
    parser.add_argument("--state-backend", default="heap")
    parser.add_argument("--state-memory", help="of a slot's state; as it is without the option")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="onceflow-bench-") as name, EmbeddedKafka(Path(name)) as kafka:
        topics = {role: kafka.create_topic(role, PARTITIONS) for role in ("input", "totals", "output")}
        feed = Feed(kafka.bootstrap_servers, topics["input"])
        feed.load(options.keys)
        command = [
            ONCEFLOW, "run", str(JOB), "--master", options.master, "--parallelism", "1",
            "--checkpoint-dir", str(Path(name) / "checkpoints"),
            "--checkpoint-interval", options.checkpoint_interval, "--json",
            "--state-backend", options.state_backend,
            *(["--state-memory", options.state_memory] if options.state_memory else []),
            "--", "--bootstrap-servers", kafka.bootstrap_servers,
            *(part for role, topic in topics.items() for part in (f"--{role}", topic)),
        ]  # fmt: skip
        job = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        lines = job.stdout
        assert lines is not None

        def read() -> None:
            for line in lines:
                if line.startswith("{"):
                    events.put(json.loads(line))

        threading.Thread(target=read, daemon=True).start()
        consumer = open_consumer(kafka.bootstrap_servers, topics["output"])
        pid = wait_event(events, "slots_started")["slots"][0]["pid"]
        wait_event(events, "progress", records_in=options.keys)
        feed.start()
        if options.rescales:
            took = rescale(options.rescales, Path(name) / "checkpoints", events, consumer)
        else:
            took = kill(options.kills, pid, events, consumer)
        what = f"{len(took)} {'rescales' if options.rescales else 'kills'}, {options.keys:,} keys"
        print(f"median {statistics.median(took):.2f} s, longest {max(took):.2f} s of {what}")
        feed.close()
        consumer.close()
        job.terminate()
        job.wait(60)


if __name__ == "__main__":
    main()
