"""Files in folders of an hour and a country, with a success marker."""

from pathlib import Path
from tempfile import mkdtemp

import polars as pl
from onceflow import Job, WatermarkStrategy
from onceflow.sinks.files import (
    CompactPolicy,
    FileSink,
    RollPolicy,
    daily,
    every,
    hourly,
)

folder = mkdtemp()
job = Job("folders")
visits = job.from_records(
    [{"country": "de", "ts": 1_000}, {"country": "fr", "ts": 3_600_000}],
    watermarks=WatermarkStrategy.monotonous("ts"),
)
hours = FileSink(
    f"{folder}/hours", partition_by=[hourly(), "country"], success_marker="_SUCCESS"
)
visits.sink_to(hours, uid="hours")
lines = FileSink(
    f"{folder}/lines",
    "jsonl",
    partition_by=daily("ts"),
    roll=RollPolicy(
        size="64 MiB", interval="10 min", idle="1 min", on_checkpoint=False
    ),
    compression="zstd",
)
visits.sink_to(lines, uid="lines")
quarters = FileSink(
    f"{folder}/quarters",
    partition_by=every("15 min"),
    compact=CompactPolicy(checkpoints=10, size="256 MiB"),
)
visits.sink_to(quarters, uid="q")
job.run(master="threads[1]")

read = pl.read_parquet(f"{folder}/hours/**/*.parquet", hive_partitioning=True)
assert sorted(read["country"]) == ["de", "fr"]
assert len(list(Path(folder).glob("hours/*/*/_SUCCESS"))) == 2
assert len(list(Path(folder).glob("quarters/*/*/*.parquet"))) == 2
assert len(list(Path(folder).glob("lines/date=1970-01-01/*.jsonl.zst"))) == 1
