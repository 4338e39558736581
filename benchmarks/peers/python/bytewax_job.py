"""The main job in Bytewax. Run by the peer's own Python: nothing of onceflow is here."""

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.operators import windowing
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main

WINDOW_MS = 10_000
BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
BEGIN_MS = int(BEGIN.timestamp() * 1000)


def event(message):  # type: ignore[no-untyped-def]
    value = json.loads(message.value)
    return value["user"], (value["amount"], value["ts"])


def happened(value):  # type: ignore[no-untyped-def]
    return BEGIN + timedelta(milliseconds=value[1] - BEGIN_MS)


def added(sums, value):  # type: ignore[no-untyped-def]
    return sums[0] + 1, sums[1] + value[0]


def merged(one, other):  # type: ignore[no-untyped-def]
    return one[0] + other[0], one[1] + other[1]


def row(item):  # type: ignore[no-untyped-def]
    user, (window, (count, total)) = item
    end_ms = BEGIN_MS + (window + 1) * WINDOW_MS
    value = {"user": user, "window_end": end_ms, "count": count, "total": total}
    return KafkaSinkMessage(user.encode(), json.dumps(value).encode())


def main(servers: str, source: str, target: str, folder: str) -> None:
    flow = Dataflow("totals")
    # A constant: else the clock of the wall pushes the event time of a replay past its records.
    clock = windowing.EventClock(happened, timedelta(seconds=2), now_getter=lambda: BEGIN)
    windows = windowing.TumblingWindower(timedelta(milliseconds=WINDOW_MS), BEGIN)
    records = op.input("purchases", flow, KafkaSource([servers], [source], tail=False, batch_size=1_000))
    events = op.map("event", records, event)
    sums = windowing.fold_window(
        "totals", events, clock, windows, lambda: (0, 0), added, merged, ordered=False
    )
    rows = op.map("row", sums.down, row)
    op.output("out", rows, KafkaSink([servers], target))
    store = Path(folder) / "recovery"
    store.mkdir()
    init_db_dir(store, 1)
    cli_main(flow, recovery_config=RecoveryConfig(str(store)), epoch_interval=timedelta(seconds=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
