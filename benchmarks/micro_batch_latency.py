"""Spark Structured Streaming from Kafka to Kafka: from produce to visible for a read_committed consumer.

    python benchmarks/micro_batch_latency.py --rate 0.5 --rate 50000 --seconds 30

Runs the pass-through of compare.py with Spark's own source and sink (at least once) and with ours (exactly
once), in turns, each as fast as its batches follow each other. Each record carries the time at which it was
given to its producer; the consumer, on the same machine, notes when it has it (benchmarks/latency.py).
`--rate 0.5` is an idle query's latency: each record finds it waiting. A batch's duration is that from its
offsets to its commit, by the times of the two files that Spark writes into the checkpoint. The first
`--warm-up` seconds after the first record that came through are left out: a JVM is still compiling then,
so a short warm-up shows more of that than of the batches. One record waits for each query when it is
started: `first_output_s` is the time from its start, as its checkpoint tells, until that is visible,
`start_s` the same from the start of the program. `--rounds` repeats all in turns and prints the medians,
since a machine that others use is another one a minute later.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import signal
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.engine_run import running
from benchmarks.environments import cache_dir
from benchmarks.latency import PARTITIONS, Arrivals, produce
from benchmarks.peers import onceflow_spark, spark
from benchmarks.peers.peer import PASS_THROUGH, Assignment, Launch, Peer
from benchmarks.sampler import CpuSampler
from onceflow.connectors.kafka.embedded import EmbeddedKafka

PEERS = {peer.name: peer for peer in (*spark.PEERS, *onceflow_spark.PEERS)}
STARTED_TIMEOUT_S = 240.0
_LOOK_S = 0.05


class Batches:
    """When each micro-batch was planned and done: files of the query's checkpoint."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def started_s(self) -> float:
        """When the query was started, wall-clock."""
        (metadata,) = self._folder.glob("checkpoint*/metadata")
        return metadata.stat().st_mtime

    def durations_ms(self, start_s: float, end_s: float) -> list[float]:
        """How long each batch took that was done between two wall-clock times."""
        planned, done = self._times("offsets"), self._times("commits")
        return [
            (done[number] - planned[number]) * 1000
            for number in sorted(done)
            if number in planned and start_s <= done[number] < end_s
        ]

    def _times(self, kind: str) -> dict[int, float]:
        files = self._folder.glob(f"checkpoint*/{kind}/*")
        return {int(file.name): file.stat().st_mtime for file in files if file.name.isdigit()}


def measure(
    peer: Peer, launch: Launch, assignment: Assignment, rate: float, options: argparse.Namespace
) -> dict[str, object]:
    log_folder = cache_dir() / "logs"
    log_folder.mkdir(parents=True, exist_ok=True)
    arrivals = Arrivals(assignment.bootstrap_servers, assignment.output)
    produce(assignment.bootstrap_servers, 1.0, 1.1, assignment.input)
    launched_s = time.time()
    with (
        (log_folder / f"{peer.name}-micro-batches.log").open("wb") as log,
        running(launch, log.fileno()) as (job, sampler),
    ):
        give_up_s = time.monotonic() + STARTED_TIMEOUT_S
        while not arrivals.seen_ns:
            assert job.poll() is None, f"{peer.name} ended, see {log.name}"
            assert time.monotonic() < give_up_s, f"{peer.name} wrote nothing, see {log.name}"
            time.sleep(_LOOK_S)
        first_s = arrivals.seen_ns[0] / 1e9
        batches = Batches(assignment.folder)
        starting = {
            "start_s": round(first_s - launched_s, 2),
            "first_output_s": round(first_s - batches.started_s, 2),
        }
        load = multiprocessing.get_context("spawn").Process(
            target=produce,
            args=(
                assignment.bootstrap_servers,
                rate,
                options.warm_up + options.seconds,
                assignment.input,
            ),
        )
        load.start()
        time.sleep(options.warm_up)
        start_s = time.time()
        time.sleep(options.seconds)
        end_s = time.time()
        load.join()
        time.sleep(options.drain)
        arrivals.close()
        figures = _figures(arrivals, sampler, batches, start_s, end_s)
    return {"engine": peer.name, "rate": rate, **starting, **figures}


def _figures(
    arrivals: Arrivals, sampler: CpuSampler, batches: Batches, start_s: float, end_s: float
) -> dict[str, object]:
    """The figures of the records that were sent between the two times."""
    sent, seen = np.array(arrivals.sent_ns), np.array(arrivals.seen_ns)
    kept = (sent >= start_s * 1e9) & (sent < end_s * 1e9)
    assert kept.any(), "no record came through: the query does not keep up"
    latency_ms = (seen - sent)[kept] / 1e6
    durations_ms = batches.durations_ms(start_s, end_s)
    cpu_s = sampler.cpu_between(start_s, end_s)
    return {
        "records": int(kept.sum()),
        **{f"p{q}_ms": round(float(np.percentile(latency_ms, q))) for q in (50, 99)},
        "max_ms": round(float(latency_ms.max())),
        "batches": len(durations_ms),
        **{f"batch_p{q}_ms": round(float(np.percentile(durations_ms or [0.0], q))) for q in (50, 99)},
        "cpu_cores": round(cpu_s / (end_s - start_s), 2),
        "cpu_ms_per_batch": round(cpu_s * 1000 / max(1, len(durations_ms))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=float, action="append", help="records per second; may be repeated")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--warm-up", type=float, default=20.0)
    parser.add_argument("--drain", type=float, default=5.0, help="seconds for the last records to come")
    parser.add_argument("--engines", default=",".join(PEERS), help="comma-separated")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # or the broker and a query would go on
    engines = [PEERS[name] for name in options.engines.split(",")]
    ready = {peer.name: peer.prepare(print) for peer in engines}
    with tempfile.TemporaryDirectory(prefix="onceflow-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with EmbeddedKafka(folder / "kafka") as kafka:
            found: list[dict[str, object]] = []
            for _ in range(options.rounds):
                for rate in options.rate or [0.5, 50_000.0]:
                    for peer in engines:
                        assignment = _assignment(kafka, folder, peer)
                        launch = ready[peer.name](assignment)
                        found.append(measure(peer, launch, assignment, rate, options))
                        print(json.dumps(found[-1]), flush=True)
        if options.rounds > 1:
            _print_medians(found)


def _assignment(kafka: EmbeddedKafka, folder: Path, peer: Peer) -> Assignment:
    """Topics and a folder of its own for one run."""
    run = f"{peer.name}-{time.time_ns()}"
    source = kafka.create_topic(f"{run}-in", PARTITIONS)
    target = kafka.create_topic(f"{run}-out", PARTITIONS)
    (folder / run).mkdir()
    return Assignment(PASS_THROUGH, kafka.bootstrap_servers, source, target, PARTITIONS, folder / run)


def _print_medians(found: list[dict[str, object]]) -> None:
    """One line for each engine and rate: the median over the rounds of each figure."""
    kinds = dict.fromkeys((each["engine"], each["rate"]) for each in found)
    for engine, rate in kinds:
        rounds = [each for each in found if (each["engine"], each["rate"]) == (engine, rate)]
        names = [name for name in rounds[0] if name not in ("engine", "rate")]
        medians = {name: float(np.median([float(str(each[name])) for each in rounds])) for name in names}
        print(json.dumps({"engine": engine, "rate": rate, "rounds": len(rounds), **medians}))


if __name__ == "__main__":
    main()
