"""A job in a test: rows in, time by hand, rows out, and a crash in the middle."""

from dataclasses import dataclass

from onceflow import Job, WatermarkStrategy, count, tumbling
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink
from onceflow.testing import At, JobRun, run


@dataclass(frozen=True)
class Visit:
    user: str


def job() -> Job:
    job = Job("visits")
    visits = job.source(
        KafkaSource(
            bootstrap_servers="localhost:9092", topics=["visits"], value=Json(Visit)
        ),
        watermarks=WatermarkStrategy.monotonous(),
        uid="visits",
    )
    counts = (
        visits.key_by("user")
        .window(tumbling("10 s"))
        .aggregate(count=count(), uid="per-user")
    )
    counts.sink_to(
        KafkaSink(bootstrap_servers="localhost:9092", topic="counts"), uid="counts"
    )
    return job


with run(job(), visits=[At(Visit("ann"), "1 s"), At({"user": "ann"}, "2 s")]) as test:
    assert isinstance(test, JobRun)
    assert [row["value"] for row in test.state("per-user")] == [{"count": 2}]
    test.crash(parallelism=2)
    test.push(visits=[At(Visit("ann"), "3 s")]).advance_to("10 s")
    assert [row["count"] for row in test.counts] == [3]
    assert test.committed("counts") == []
    test.checkpoint()
    assert [row["count"] for row in test.committed("counts")] == [3]
    test.push(visits=[At(Visit("ann"), "4 s")])
    assert test.late_records == 1
    test.finish()
