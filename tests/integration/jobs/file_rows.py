"""Made-up records into files of some kinds, below a URL: open over checkpoints or not, packed or not, in
folders of an hour of event time or of a column, as they are or joined.

onceflow run file_rows.py ... -- URL STORAGE_OPTIONS_AS_JSON RECORDS RATE KINDS
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from onceflow import Job, WatermarkStrategy
from onceflow.sinks.files import CompactPolicy, FileSink, RollPolicy, hourly

HOUR_ROWS = 5_000


@dataclass(frozen=True)
class Row:
    number: int
    ts: int
    color: str
    text: str


def row(n: int) -> Row:
    return Row(n, n * 3_600_000 // HOUR_ROWS, ("red", "green", "blue")[n % 3], "x" * (n % 50))


OVER_CHECKPOINTS = RollPolicy(size="256 KiB", on_checkpoint=False, interval="700 ms", idle="500 ms")
JOINED = CompactPolicy(checkpoints=3, size="64 KiB")
KINDS = {
    "lines": {"format": "jsonl", "roll": OVER_CHECKPOINTS},
    "packed": {
        "format": "jsonl",
        "roll": OVER_CHECKPOINTS,
        "compression": "zstd",
        "partition_by": hourly(),
        "success_marker": "_SUCCESS",
    },
    "columns": {"format": "parquet", "partition_by": [hourly(), "color"], "success_marker": "_SUCCESS"},
    "comma": {"format": "csv", "partition_by": "color", "compression": "gzip"},
    "blocks": {"format": "avro", "roll": OVER_CHECKPOINTS},
    "joined": {
        "format": "parquet",
        "partition_by": [hourly(), "color"],
        "success_marker": "_SUCCESS",
        "compact": JOINED,
    },
    "joined_lines": {"format": "jsonl", "compression": "zstd", "compact": JOINED},
    "joined_comma": {"format": "csv", "partition_by": "color", "compact": JOINED},
    "joined_blocks": {"format": "avro", "compact": JOINED},
}


def build(arguments: list[str]) -> Job:
    url, options, records, rate, kinds = arguments
    job = Job("file-rows")
    rows = job.data_generator(
        row,
        rate=float(rate),
        count=int(records),
        uid="rows",
        watermarks=WatermarkStrategy.monotonous("ts"),
    )
    for kind in kinds.split(","):
        sink = FileSink(f"{url}/{kind}", **KINDS[kind], storage_options=json.loads(options))
        rows.sink_to(sink, uid=kind)
    return job
