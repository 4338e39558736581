"""A job of the runtime on local[2], on one version of PySpark: see test_spark_versions.py.

python spark_versions_job.py <folder of the output>
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

import pyspark

from onceflow import Job, WatermarkStrategy, count, sum_, tumbling


@dataclass(frozen=True)
class Purchase:
    user: str
    amount: int
    ts: int


def main(folder: str) -> None:
    print(json.dumps({"version": pyspark.__version__}), flush=True)
    job = Job("versions")
    purchases = job.from_elements(
        *[Purchase(f"u{n % 7}", n, 10 * n) for n in range(1_000)],
        watermarks=WatermarkStrategy.monotonous("ts"),
    )
    windows = purchases.key_by("user").window(tumbling("5 s"))
    windows.aggregate(count=count(), total=sum_("amount")).to_files(folder, format="jsonl")
    job.run(master="local[2]")


if __name__ == "__main__":
    main(*sys.argv[1:])
