"""The main job with Avro in and out against the main job with JSON: the same purchases, side by side.

    python -m benchmarks.avro_job --records 2000000 --runs 3

Runs of both take turns on one embedded broker. The JSON job's output is judged by `onceflow verify`; the
Avro job's output has to have the same rows. Figures are records per CPU-second of all the job's processes
(see main_job.py); quote the ratio of the medians. Those of the latest call are in benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import polars as pl

from benchmarks.avro_purchases import AvroPurchases
from benchmarks.jobs.avro_totals import SCHEMAS, TOTAL
from benchmarks.kept_results import keep
from benchmarks.main_job import Measurement, judge, records_written
from benchmarks.sampler import CpuSampler
from benchmarks.workload import Purchases, load
from onceflow.cli.audit_topics import TopicReader
from onceflow.connectors.formats import Avro, Json
from onceflow.connectors.kafka.embedded import EmbeddedKafka

REPOSITORY = Path(__file__).resolve().parent.parent
ONCEFLOW = str(Path(sys.executable).with_name("onceflow"))
PROGRAMS = {
    "json": REPOSITORY / "examples" / "windowed_totals.py",
    "avro": REPOSITORY / "benchmarks" / "jobs" / "avro_totals.py",
}
PARTITIONS = 4
RUN_TIMEOUT_S = 600.0


def run(kind: str, kafka: EmbeddedKafka, folder: Path, records: int, master: str) -> tuple[str, Measurement]:
    """One run and its output topic. Raises SystemExit if the job fails."""
    output = f"{kind}-totals-{time.time_ns()}"
    kafka.create_topic(output, PARTITIONS)
    command = [
        ONCEFLOW, "run", str(PROGRAMS[kind]), "--master", master,
        "--checkpoint-dir", str(folder / output), "--checkpoint-interval", "1 s", "--json",
        "--", "--bootstrap-servers", kafka.bootstrap_servers, "--input", f"purchases-{kind}",
        "--output", output, "--until", "latest",
    ]  # fmt: skip
    started_s = time.time()
    job = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    sampler = CpuSampler(job.pid)
    assert job.stdout is not None
    events = [json.loads(line) for line in job.stdout if line.startswith("{")]
    if job.wait(RUN_TIMEOUT_S) != 0:
        raise SystemExit(f"the job failed: {events[-1] if events else 'no events'}")
    sampler.close()
    first_s = next(e["first_record_ms"] for e in events if e["event"] == "first_record") / 1000
    end_s = next(e["ts_ms"] for e in events if e["event"] == "job_finished") / 1000
    cpu_s = sampler.cpu_between(first_s, end_s)
    figures = (cpu_s, sampler.rss_max >> 20, sampler.slot_rss_max >> 20, records_written(events))
    return output, Measurement(records, first_s - started_s, end_s - first_s, *figures)


def rows(kafka: EmbeddedKafka, kind: str, topic: str) -> pl.DataFrame:
    """The committed rows of an output, sorted."""
    format = Avro(TOTAL, registry=SCHEMAS) if kind == "avro" else Json(Avro(TOTAL, registry=SCHEMAS).schema)
    decoded = format.decoder().decode(values(kafka.bootstrap_servers, topic))
    if decoded.bad:
        raise SystemExit(f"{topic} has a value that is no {kind}: {decoded.bad[0]}")
    return pl.DataFrame(pl.from_arrow(decoded.batch)).sort("window_end", "user")


def values(servers: str, topic: str) -> list[bytes | None]:
    """The rows as a read_committed consumer gets them."""
    reader = TopicReader(servers, {})
    try:
        return [value for chunk in reader.chunks(topic, lambda done, total: None) for value in chunk.values]
    finally:
        reader.close()


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--master", default="local[1]")
    options = parser.parse_args()
    done: dict[str, list[Measurement]] = {"json": [], "avro": []}
    with tempfile.TemporaryDirectory(prefix="onceflow-bench-") as name:
        folder = Path(name)
        with EmbeddedKafka(folder / "kafka") as kafka:
            inputs = {
                "json": Purchases(options.records, PARTITIONS),
                "avro": AvroPurchases(options.records, PARTITIONS),
            }
            for kind, purchases in inputs.items():
                say(f"{purchases.total:,} purchases as {kind} are loaded")
                kafka.create_topic(f"purchases-{kind}", PARTITIONS)
                load(kafka.bootstrap_servers, f"purchases-{kind}", purchases, lambda done: None)
            right: pl.DataFrame | None = None
            for _ in range(options.runs):
                for kind, purchases in inputs.items():
                    output, measured = run(kind, kafka, folder, purchases.total, options.master)
                    found = rows(kafka, kind, output)
                    if right is None:
                        judge(kafka.bootstrap_servers, "purchases-json", output)
                        right = found
                    if not found.equals(right):
                        raise SystemExit(f"the {kind} job's output is wrong")
                    done[kind].append(measured)
                    print(f"{kind}: {measured.k_per_cpu_s:,.0f} k records per CPU-second", flush=True)
    report(options, done)


def report(options: argparse.Namespace, done: dict[str, list[Measurement]]) -> None:
    medians = {kind: statistics.median(m.k_per_cpu_s for m in them) for kind, them in done.items()}
    ratio = medians["avro"] / medians["json"]
    print(f"avro {medians['avro']:,.0f}, json {medians['json']:,.0f} k records per CPU-second: {ratio:.2f}")
    result = {
        "benchmark": "avro_job",
        "master": options.master,
        "median_k_per_cpu_s": {kind: round(median, 1) for kind, median in medians.items()},
        "ratio": round(ratio, 3),
        "runs": {kind: [asdict(m) for m in them] for kind, them in done.items()},
    }
    keep("avro_job", result)


if __name__ == "__main__":
    main()
