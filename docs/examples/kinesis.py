"""Trades of a stream of Kinesis, and the turnover of each symbol by the minute of their arrival."""

from dataclasses import dataclass

from onceflow import Job, WatermarkStrategy, sum_, tumbling
from onceflow.connectors.formats import Json
from onceflow.connectors.kinesis import KinesisSource


@dataclass(frozen=True)
class Trade:
    id: int
    symbol: str
    cents: int


trades = KinesisSource(
    stream="trades",
    region="eu-central-1",
    value=Json(Trade),
    start="earliest",
    shard_column="shard",
)
by_arrival = WatermarkStrategy.bounded_out_of_orderness("10 s", idle_after="1 min")
job = Job("turnover")
(
    job.source(trades, watermarks=by_arrival, uid="trades")
    .key_by("symbol")
    .window(tumbling("1 min"))
    .aggregate(cents=sum_("cents"), uid="turnover")
    .print()
)

if __name__ == "__main__":
    job.run()
