"""From produce to visible for a read_committed consumer: milliseconds, and the CPU that each process takes.

    python benchmarks/latency.py --rate 10000 --checkpoint-interval '100 ms'

Runs the pass-through job on the embedded broker with the settings that a user gets. Each record carries
the time at which it was given to its producer; the consumer, on the same machine, notes when it has it.
The first `--warm-up` seconds are left out. `--rate 20` is an idle job's latency. All on one machine: what
the producer and the consumer take, they take from the job.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np
import psutil
import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA
from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.produce.route import open_route

ONCEFLOW = str(Path(sys.executable).with_name("onceflow"))
JOB = Path(__file__).with_name("jobs") / "pass_through.py"
PARTITIONS = 4
TICK_S = 0.005
SAMPLES_PER_S = 10_000
STEPS = ("duration_ms", "write_ms", "commit_ms")
"""The times of a checkpoint: all of it; of the slots' part from the snapshot until it is durable; the
commit."""


def produce(servers: str, rate: float, seconds: float, topic: str) -> None:
    """A process of its own: `rate` records of 100 bytes a second, with librdkafka's (and Kafka's) own
    linger of 5 ms: without it the broker is busy with requests of a few records, and that is measured. In
    bulk, as our sink does, so that at high rates this process is not what is measured either."""
    producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 1_000_000})
    quiet: Callable[[object], None] = lambda _: None  # noqa: E731
    route = open_route(producer, KafkaOptions(servers), quiet, quiet, is_bulk=True)
    route.begin()
    began = time.monotonic()
    sent = 0
    while (passed := time.monotonic() - began) < seconds:
        if (due := int(passed * rate) - sent) > 0:
            route.send(records(topic, sent, due), wait_sent)
            sent += due
        route.poll(0)
        time.sleep(TICK_S)
    deadline = time.monotonic() + 30
    while not route.is_flushed(0.1) and time.monotonic() < deadline:
        pass
    route.close()


def records(topic: str, first: int, count: int) -> pa.RecordBatch:
    """Spread over the partitions; each carries the time at which it was made."""
    value = b"%019d%81s" % (time.time_ns(), b"")
    columns = [
        pa.repeat(topic, count),
        pa.array(np.sort(np.arange(first, first + count, dtype=np.int64) % PARTITIONS).astype(np.int32)),
        pa.nulls(count, pa.large_binary()),
        pa.repeat(pa.scalar(value, pa.large_binary()), count),
        pa.nulls(count, PRODUCE_SCHEMA.field("headers").type),
        pa.nulls(count, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=PRODUCE_SCHEMA)


def wait_sent(is_sent: Callable[[], bool]) -> None:
    while not is_sent():
        pass


class Arrivals:
    """Reads the output as it becomes visible."""

    def __init__(self, servers: str, topic: str, every: int = 1) -> None:
        """`every`: of so many records one is looked at, since at high rates this process would be busy with
        it."""
        self.records = 0
        self._every = every
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "latency",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                # Not a second of pause whenever its queue is full: that, not the job, would be measured.
                "fetch.queue.backoff.ms": 10,
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        self.sent_ns: list[int] = []
        self.seen_ns: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._over.is_set():
            messages = self._consumer.consume(1, 0.1)
            messages += self._consumer.consume(9_999, 0) if messages else []
            now_ns = time.time_ns()
            looked_at = messages[-self.records % self._every :: self._every]
            self.records += len(messages)
            sent = [int(message.value()[:19]) for message in looked_at if message.error() is None]
            self.sent_ns += sent
            self.seen_ns += [now_ns] * len(sent)


def cpu_of(root: psutil.Process) -> dict[str, float]:
    """CPU seconds so far by part of the job."""
    found: dict[str, float] = {}
    for process in [root, *root.children(recursive=True)]:
        try:
            line, times = " ".join(process.cmdline()), process.cpu_times()
        except psutil.Error:
            continue
        part = "JVM" if "java" in line.split(" ")[0] else "slots" if "spark.daemon" in line else "driver"
        found[part] = found.get(part, 0.0) + times.user + times.system
    return found


def read_checkpoints(lines: IO[str], checkpoints: list[dict[str, float]]) -> None:
    """Read what the job's events say of where the time of a checkpoint goes, until it ends."""
    for line in lines:
        if line.startswith("{") and (event := json.loads(line))["event"] == "checkpoint_completed":
            checkpoints.append({part: event[part] for part in STEPS})


def measure(options: argparse.Namespace, kafka: EmbeddedKafka, rate: int, folder: Path) -> dict[str, object]:
    # An input of its own: the records of another rate would be read, and be as old as they are.
    source = kafka.create_topic(f"input-{time.time_ns()}", PARTITIONS)
    output = kafka.create_topic(f"output-{time.time_ns()}", PARTITIONS)
    command = [
        ONCEFLOW, "run", str(JOB), "--master", options.master, "--parallelism", "1",
        "--checkpoint-dir", str(folder / output), "--checkpoint-interval", options.checkpoint_interval,
        "--guarantee", options.guarantee, "--json",
        "--", "--bootstrap-servers", kafka.bootstrap_servers, "--input", source, "--output", output,
    ]  # fmt: skip
    every = max(1, rate // SAMPLES_PER_S)
    arrivals = Arrivals(kafka.bootstrap_servers, output, every)
    job = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    ready = next(
        (line for line in job.stdout if '"job_running"' in line or '"checkpoint_completed"' in line), ""
    )
    assert ready, "the job did not start"
    checkpoints: list[dict[str, float]] = []
    threading.Thread(target=read_checkpoints, args=(job.stdout, checkpoints), daemon=True).start()
    seconds = options.warm_up + options.seconds
    began_ns = time.time_ns()
    load = multiprocessing.get_context("spawn").Process(
        target=produce, args=(kafka.bootstrap_servers, rate, seconds, source)
    )
    load.start()
    time.sleep(options.warm_up)
    before, before_s = cpu_of(psutil.Process(job.pid)), time.monotonic()
    checkpoints.clear()
    time.sleep(options.seconds)
    after, took_s = cpu_of(psutil.Process(job.pid)), time.monotonic() - before_s
    made = list(checkpoints)
    load.join()
    time.sleep(1.0)
    arrivals.close()
    job.terminate()
    job.wait(60)
    sent, seen = np.array(arrivals.sent_ns), np.array(arrivals.seen_ns)
    first_ns = sent.min() + int(options.warm_up * 1e9) if len(sent) else began_ns
    kept = sent >= first_ns
    seen_records = int(kept.sum()) * every
    if seen_records <= 0.8 * rate * options.seconds:
        raise SystemExit(
            f"{seen_records:,} of {rate * options.seconds:,.0f} records were visible in time: the job, or "
            "the broker and the producer beside it, don't keep up with this rate"
        )
    latency_ms = (seen - sent)[kept] / 1e6
    return {
        "rate": rate,
        "records": seen_records,
        **{f"p{q}_ms": round(float(np.percentile(latency_ms, q)), 1) for q in (50, 90, 99)},
        "max_ms": round(float(latency_ms.max()), 1),
        "checkpoints": len(made),
        **{
            f"{part}_p{q}": round(float(np.percentile([c[part] for c in made], q)))
            for part in STEPS
            for q in (50, 99)
        },
        "cpu_cores": {part: round((after[part] - before.get(part, 0.0)) / took_s, 3) for part in after},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=int, action="append", help="records per second; may be repeated")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--warm-up", type=float, default=10.0)
    parser.add_argument("--master", default="local[1]")
    parser.add_argument("--guarantee", default="exactly-once")
    parser.add_argument("--checkpoint-interval", default="100 ms")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="onceflow-bench-") as name, EmbeddedKafka(Path(name)) as kafka:
        for rate in options.rate or [20, 10_000]:
            print(json.dumps(measure(options, kafka, rate, Path(name))), flush=True)


if __name__ == "__main__":
    main()
