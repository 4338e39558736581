"""The main job in Pathway. Run by the peer's own Python: nothing of onceflow is here."""

import sys

import pathway as pw


class Event(pw.Schema):
    user: str
    amount: int
    ts: int


def main(servers: str, source: str, target: str, folder: str) -> None:
    settings = {"bootstrap.servers": servers, "group.id": f"bench-{target}", "auto.offset.reset": "earliest"}
    events = pw.io.kafka.read(
        settings, topic=source, schema=Event, format="json", autocommit_duration_ms=1000
    )
    totals = events.windowby(
        events.ts,
        window=pw.temporal.tumbling(duration=10_000),
        instance=events.user,
        behavior=pw.temporal.exactly_once_behavior(shift=2_000),
    ).reduce(
        user=pw.this._pw_instance,
        window_end=pw.this._pw_window_end,
        count=pw.reducers.count(),
        total=pw.reducers.sum(pw.this.amount),
    )
    producer = {"bootstrap.servers": servers, "linger.ms": "20"}
    pw.io.kafka.write(totals, producer, topic_name=target, format="json")
    store = pw.persistence.Config(
        pw.persistence.Backend.filesystem(f"{folder}/store"),
        snapshot_interval_ms=1000,
        persistence_mode=pw.PersistenceMode.PERSISTING,
    )
    pw.run(persistence_config=store, monitoring_level=pw.MonitoringLevel.NONE)


if __name__ == "__main__":
    main(*sys.argv[1:])
