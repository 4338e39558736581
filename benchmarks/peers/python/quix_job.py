"""The main job in Quix Streams. Run by the peer's own Python: nothing of onceflow is here."""

import sys
from datetime import timedelta

from quixstreams import Application
from quixstreams.dataframe.windows import Count, Sum
from quixstreams.models import TopicConfig


def main(servers: str, source: str, target: str, partitions: str, folder: str) -> None:
    app = Application(
        broker_address=servers,
        consumer_group=f"bench-{target}",
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=1.0,
        state_dir=f"{folder}/state",
        loglevel="WARNING",
    )
    kept = TopicConfig(
        num_partitions=int(partitions), replication_factor=1, extra_config={"retention.ms": "-1"}
    )
    purchases = app.topic(
        source, value_deserializer="json", timestamp_extractor=lambda value, *_: value["ts"], config=kept
    )
    totals = app.topic(target, value_serializer="json", config=kept)
    stream = app.dataframe(purchases).group_by("user")
    windows = stream.tumbling_window(timedelta(seconds=10), grace_ms=timedelta(seconds=2))
    rows = windows.agg(count=Count(), total=Sum("amount")).final(closing_strategy="partition")
    rows = rows.apply(row, metadata=True)
    rows.to_topic(totals)
    app.run()


def row(window, key, timestamp, headers):  # type: ignore[no-untyped-def]
    user = key.decode() if isinstance(key, bytes) else key
    return {"user": user, "window_end": window["end"], "count": window["count"], "total": window["total"]}


if __name__ == "__main__":
    main(*sys.argv[1:])
