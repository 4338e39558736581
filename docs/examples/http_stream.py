"""Trades of a feed of server-sent events, the latest of each symbol kept."""

from dataclasses import dataclass

from onceflow import Job
from onceflow.connectors.formats import Json
from onceflow.connectors.http_stream import HttpStreamSource


@dataclass(frozen=True)
class Trade:
    symbol: str
    cents: int


def later(before: Trade, now: Trade) -> Trade:
    return now


feed = HttpStreamSource(
    urls=["https://feed.example.org/trades"],
    value=Json(Trade),
    events=["trade"],
    headers={"Authorization": "Bearer ${FEED_TOKEN}"},
)
job = Job("latest-trades")
job.source(feed, uid="trades").key_by("symbol").reduce(later, uid="latest").print()

if __name__ == "__main__":
    job.run()
