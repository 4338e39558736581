"""What the direct routes are worth on each kind of listener: the main job with them and without, in turn.

    python -m benchmarks.listeners --listener SASL_SSL --records 4000000 --runs 3

Each route runs once in each round, on one broker, and every output is judged; one line per route, with the
median of its records per CPU-second. `direct` reads and writes past librdkafka; the others switch one of
the two off, or both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.kept_results import keep
from benchmarks.main_job import PARTITIONS, REPOSITORY, Measurement, run_once
from benchmarks.secured import MECHANISMS, PROTOCOLS, broker_options, client_settings, write_certificate
from onceflow.connectors.kafka.embedded import EmbeddedKafka

sys.path.insert(0, str(REPOSITORY / "scripts"))
from purchases import Purchases, load

ROUTES: dict[str, dict[str, str]] = {
    "direct": {},
    "librdkafka": {"ONCEFLOW_DIRECT_FETCH": "off", "ONCEFLOW_DIRECT_PRODUCE": "off"},
    "direct fetch": {"ONCEFLOW_DIRECT_PRODUCE": "off"},
    "direct produce": {"ONCEFLOW_DIRECT_FETCH": "off"},
}
"""The job's environment for each."""
JOB = str(REPOSITORY / "benchmarks" / "jobs" / "secured_totals.py")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--listener", choices=PROTOCOLS, default="SASL_SSL")
    parser.add_argument("--mechanism", choices=MECHANISMS, default="SCRAM-SHA-512")
    parser.add_argument("--routes", default=",".join(ROUTES))
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--master", default="local[1]")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    options.parallelism, options.guarantee, options.profile = 1, "exactly-once", None
    options.checkpoint_interval = "1 s"
    purchases = Purchases(options.records, PARTITIONS)
    runs: dict[str, list[Measurement]] = {route: [] for route in options.routes.split(",")}
    with tempfile.TemporaryDirectory(prefix="onceflow-bench-") as name:
        folder = Path(name)
        write_certificate(folder)
        with EmbeddedKafka(folder / "kafka", **broker_options(folder)) as kafka:
            options.kafka = kafka
            kafka.create_topic("purchases", PARTITIONS)
            load(kafka.bootstrap_servers, "purchases", purchases, lambda done: None)
            settings = client_settings(folder, options.listener, options.mechanism)
            settings["bootstrap.servers"] = kafka.address(options.listener)
            (folder / "client.json").write_text(json.dumps(settings), encoding="utf-8")
            program = (JOB, "--", "--settings", str(folder / "client.json"))
            for _ in range(options.runs):
                for route, measured in runs.items():
                    measured.append(
                        run_once(
                            options,
                            kafka.bootstrap_servers,
                            purchases,
                            folder,
                            program=program,
                            environment=ROUTES[route],
                        )
                    )
                    print(
                        f"{options.listener}, {route}: {measured[-1].k_per_cpu_s:,.0f} k per CPU-s",
                        flush=True,
                    )
    medians = {route: statistics.median(run.k_per_cpu_s for run in each) for route, each in runs.items()}
    for route, median in medians.items():
        print(f"{options.listener}, {route}: median {median:,.0f} k records per CPU-second")
    rounds = {route: [round(run.k_per_cpu_s, 1) for run in each] for route, each in runs.items()}
    kept = {"listener": options.listener, "records": options.records, "median_k_per_cpu_s": medians}
    keep(f"listeners-{options.listener.lower()}", {**kept, "rounds": rounds})


if __name__ == "__main__":
    main()
