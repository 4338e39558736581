"""What encryption costs on the way between two slots: one channel between two processes, plain and with TLS.

    python -m benchmarks.encrypted_exchange --rows 20000000 --rounds 5 --job-records 4000000

Records as the main job has them behind its filter (user, amount, ts, event time and key hash) go in batches
of 20,000 rows over loopback, as fast as the receiver takes them; both kinds take turns. CPU is that of both
processes, from the first batch to the last one's arrival, handshakes apart. Encoding and decoding of frames
is part of it, since it is part of every exchange. With `--job-records` also the main job with two slots,
whose outputs are judged: half of what passes its filter goes from slot to slot.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.kept_results import keep
from benchmarks.main_job import EXAMPLE, PARTITIONS, REPOSITORY, run_once
from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.runtime.exchange.frames import FrameCodec
from onceflow.runtime.exchange.transport import Network
from onceflow.runtime.records import EndOfInput, Records
from onceflow.runtime.sockets.certificate import new_identity
from onceflow.runtime.sockets.credentials import Credentials

sys.path.insert(0, str(REPOSITORY / "scripts"))
from purchases import Purchases, load

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.int64()), ("ts", pa.int64())])
CODEC = FrameCodec(SCHEMA, has_event_time=True, has_key_hash=True, with_origin=False)
ROWS = 20_000
WAIT_MS = 100.0


def batch() -> Records:
    """One that is sent again and again: making it is not measured."""
    numbers = np.arange(ROWS, dtype=np.int64)
    users = pa.array([f"u{number % 100_000:06d}" for number in range(ROWS)])
    columns = [users, pa.array(numbers), pa.array(numbers)]
    return Records(pa.record_batch(columns, schema=SCHEMA), numbers, numbers.astype(np.uint64))


def send(credentials: Credentials, address: tuple[str, int], batches: int, told: Connection) -> None:
    """In a process of its own; tells its CPU seconds."""
    network = Network(credentials, 1, "127.0.0.1")
    network.slot = 0
    output = network.connect(address, 1, CODEC, 1)
    records = batch()
    began_s = time.process_time()
    for _ in range(batches):
        while not output.has_room:
            network.pump(WAIT_MS)
        output.send(records)
    output.send(EndOfInput())
    while output.unsent_bytes:
        network.pump(WAIT_MS)
    told.send(time.process_time() - began_s)
    told.recv()  # the other side has it all
    network.close()


def measure(credentials: Credentials, batches: int) -> dict[str, float]:
    """One run over one channel."""
    network = Network(credentials, 1, "127.0.0.1")
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    sender = context.Process(target=send, args=(credentials, network.address, batches, theirs), daemon=True)
    sender.start()
    channel = network.inputs({(1, 0): CODEC}, 60.0)[1, 0]
    while (element := channel.receive()) is None:
        network.pump(WAIT_MS)
    began_s, began_cpu_s, frame_bytes, rows = time.monotonic(), time.process_time(), 0, 0
    while not isinstance(element, EndOfInput):
        if isinstance(element, Records):
            rows += len(element)
            frame_bytes += element.nbytes
        while (element := channel.receive()) is None:
            network.pump(WAIT_MS)
    wall_s, cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
    cpu_s += ours.recv()
    ours.send(None)
    sender.join()
    network.close()
    assert rows == batches * ROWS
    return {
        "k_per_cpu_s": rows / cpu_s / 1_000,
        "mb_per_s": frame_bytes / wall_s / 1e6,
        "cpu_ms_per_gb": cpu_s * 1_000 / (frame_bytes / 1e9),
    }


def measure_job(records: int, rounds: int) -> dict[str, list[float]]:
    """The main job with two slots, plain and with --tls in turns: k records per CPU-second of each run."""
    options = argparse.Namespace(
        master="local[2]", parallelism=2, guarantee="exactly-once", checkpoint_interval="1 s", profile=None
    )
    purchases = Purchases(records, PARTITIONS)
    runs: dict[str, list[float]] = {"plain": [], "tls": []}
    with tempfile.TemporaryDirectory(prefix="onceflow-bench-") as name:
        folder = Path(name)
        with EmbeddedKafka(folder / "kafka") as kafka:
            options.kafka = kafka
            kafka.create_topic("purchases", PARTITIONS)
            load(kafka.bootstrap_servers, "purchases", purchases, lambda done: None)
            for _ in range(rounds):
                for kind, program in (("plain", (EXAMPLE, "--")), ("tls", (EXAMPLE, "--tls", "--"))):
                    run = run_once(options, kafka.bootstrap_servers, purchases, folder, program=program)
                    runs[kind].append(round(run.k_per_cpu_s, 1))
    return runs


def measure_channel(rows: int, rounds: int) -> dict[str, list[dict[str, float]]]:
    secret = b"s" * 32
    kinds = {"plain": Credentials(secret), "tls": Credentials(secret, new_identity())}
    runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, credentials in kinds.items():
            runs[kind].append(measure(credentials, rows // ROWS))
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--job-records", type=int, default=0, help="for the main job; 0: without it")
    options = parser.parse_args()
    channel = measure_channel(options.rows, options.rounds)
    medians = {
        kind: {name: round(statistics.median(run[name] for run in runs), 1) for name in runs[0]}
        for kind, runs in channel.items()
    }
    for kind, median in medians.items():
        print(kind, *(f"{name} {value:,}" for name, value in median.items()), sep=", ")
    kept: dict[str, Any] = {"rows": options.rows, "channel": medians}
    kept["ratio"] = round(medians["tls"]["k_per_cpu_s"] / medians["plain"]["k_per_cpu_s"], 2)
    print(f"one channel with TLS: {kept['ratio']} times as many records per CPU-second")
    if options.job_records:
        job = measure_job(options.job_records, options.rounds)
        kept |= {"job_records": options.job_records, "job_k_per_cpu_s": job}
        kept["job_ratio"] = round(statistics.median(job["tls"]) / statistics.median(job["plain"]), 3)
        print(f"the main job with two slots: {job}, {kept['job_ratio']} times as many with TLS")
    keep("encrypted-exchange", kept)


if __name__ == "__main__":
    main()
