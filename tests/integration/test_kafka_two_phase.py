"""KafkaSink(two_phase=True) on a real broker: every window of its crash table by SIGKILL, and what is lost
when the broker has ended a transaction. The judge is a dump of the topic under read_committed: each row
once."""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tenacity import retry, retry_if_result, stop_after_delay, wait_fixed

from onceflow import Job as DataJob
from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.testing.fault_proxy import Api, Course, FaultProxy
from onceflow.sinks.kafka import KafkaSink
from tests.integration.forks import Forks
from tests.integration.test_kafka_sink_crashes import Job, KillAt, check_windows, dump, new_job, windows_of

pytestmark = pytest.mark.kafka

METHODS = (
    "fence",
    "read_ledgers",
    "open_producer",
    "begin",
    "produce",
    "flush",
    "send_ledger",
    "stage",
    "persist",
    "commit_prepared",
)
WINDOWS = windows_of(METHODS, once={"fence", "read_ledgers"})


@pytest.fixture
def job(forks: Forks, broker: EmbeddedKafka, new_topic: Callable[..., str], tmp_path: Path) -> Job:
    made = new_job(forks, broker.bootstrap_servers, new_topic("out", partitions=2), tmp_path)
    made.settings["two_phase"] = True
    return made


@pytest.mark.parametrize("part", range(4))
def test_killed_in_every_window_of_the_protocol(job: Job, part: int) -> None:
    check_windows(job, WINDOWS[part::4])


@pytest.mark.soak
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("seed", range(3))
def test_a_hundred_kills_in_random_windows(job: Job, seed: int) -> None:
    chance = random.Random(seed)
    job.rows = 200
    for number in range(36):
        job.run(checkpoints=job.latest() + 6, kill=chance.choice(WINDOWS))
        if number % 10 == 0:
            job.judge(is_dead=True)
    job.run(checkpoints=job.latest() + 2)
    job.judge()


@dataclass
class Row:
    key: str
    n: int


def test_a_job_that_is_run_again_writes_its_rows_once_more(
    broker: EmbeddedKafka, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """The whole engine, with the thread that sends: epochs with rows, and the empty one at the end."""
    topic = new_topic("job", partitions=3)
    for number in range(2):
        job = DataJob("two-phase")
        rows = job.from_records([Row(f"k{n % 7}", n) for n in range(30_000)], Row)
        rows.sink_to(KafkaSink(broker.bootstrap_servers, topic, key="key", two_phase=True), uid="out")
        folder = tmp_path / str(number)
        job.run(str(folder), master="threads[2]", checkpoint_interval="100 ms")
    assert sorted(row["n"] for row in dump(broker.bootstrap_servers, topic)) == [
        n for n in range(30_000) for _ in range(2)
    ]
    assert ends_agree(broker.bootstrap_servers, topic, 3), "no transaction is left open"


@pytest.mark.parametrize("late", ["before the next attempt", "after the next attempt", "never"])
@pytest.mark.parametrize("api", [Api.END_TXN, Api.TXN_OFFSET_COMMIT, Api.INIT_PRODUCER_ID])
def test_killed_while_a_request_is_held_back(job: Job, api: Api, late: str) -> None:
    with FaultProxy(job.bootstrap_servers) as proxy:
        kill = KillAt(proxy, api, nth=2, course=Course.HOLD)
        kill.wait_and_kill(job.start(checkpoints=3, servers=proxy.address))
        if late == "before the next attempt":
            proxy.release()
        job.run(checkpoints=4)
        if late == "after the next attempt":
            proxy.release()
        job.judge()


def test_killed_when_the_reply_to_the_commit_is_lost(job: Job) -> None:
    with FaultProxy(job.bootstrap_servers) as proxy:
        kill = KillAt(proxy, Api.END_TXN, nth=2, course=Course.LOSE_REPLY)
        kill.wait_and_kill(job.start(checkpoints=3, servers=proxy.address))
        job.run(checkpoints=4)
        job.judge()


def test_nothing_of_the_output_is_written_to_the_checkpoint_folder(job: Job) -> None:
    job.run(checkpoints=3)
    assert not list(job.folder.glob("*.arrows"))


def test_an_epoch_that_the_broker_has_aborted_is_lost_and_the_way_out_works(
    job: Job, broker: EmbeddedKafka, onceflow: Callable[..., object]
) -> None:
    """The job is away for longer than its transaction may be open."""
    job.settings["transaction_timeout"] = 1_500
    job.run(checkpoints=3, kill={"method": "commit_prepared", "after": False, "nth": 3})
    assert job.latest() == 3
    wait_until_aborted(job)
    assert job.start(checkpoints=4).wait(120) != 0
    said = job.said.read_text()
    found = re.search(r"20 records of checkpoint 3 are lost.*ledger --set 3 (\S+)`", said)
    assert found is not None, said
    put = onceflow(
        "transactions", "ledger", "--set", "3", found[1], "--bootstrap-servers", broker.bootstrap_servers
    )
    assert put.returncode == 0, put.stderr  # type: ignore[attr-defined]
    job.settings["transaction_timeout"] = 60_000
    job.run(checkpoints=4)
    seen = sorted(row["n"] for row in dump(job.bootstrap_servers, job.topic))
    assert seen == [*range(40), *range(60, 80)]


@retry(retry=retry_if_result(lambda is_so: not is_so), stop=stop_after_delay(60), wait=wait_fixed(0.2))
def wait_until_aborted(job: Job) -> bool:
    """The broker looks every ten seconds for what is open for too long. Until then a reader of committed rows
    ends before one of all rows."""
    return ends_agree(job.bootstrap_servers, job.topic, 2)


def ends_agree(servers: str, topic: str, partitions: int) -> bool:
    return ends(servers, topic, partitions, "read_committed") == ends(
        servers, topic, partitions, "read_uncommitted"
    )


def ends(servers: str, topic: str, partitions: int, level: str) -> list[int]:
    settings = {"bootstrap.servers": servers, "group.id": "ends", "isolation.level": level}
    with contextlib.closing(Consumer(settings)) as consumer:
        places = [TopicPartition(topic, partition) for partition in range(partitions)]
        return [consumer.get_watermark_offsets(place, timeout=60)[1] for place in places]
