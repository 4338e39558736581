"""`onceflow verify` on real topics: what it reads is what readers of committed records see."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from onceflow.cli.audit_topics import TopicReader
from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.testing.fault_proxy import Course, FaultProxy
from onceflow.runtime.errors import Unavailable

pytestmark = pytest.mark.kafka

FETCH = 1
"""Its number in Kafka's protocol."""

MakeTopic = Callable[..., str]
Row = dict[str, Any]
Command = Callable[..., subprocess.CompletedProcess[str]]
Verify = Callable[..., tuple[int, Row]]


def transaction(
    kafka: EmbeddedKafka, name: str, topic: str, rows: list[Row], end: str = "commit"
) -> Producer:
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name, "log_level": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for row in rows:
        producer.produce(topic, json.dumps(row))
    assert producer.flush(30) == 0
    if end == "commit":
        producer.commit_transaction(30)
    elif end == "abort":
        producer.abort_transaction(30)
    return producer


@pytest.fixture
def verify(onceflow: Command) -> Verify:
    """`verify(kafka, ...)`: the command's exit code and what it says."""

    def run(kafka: EmbeddedKafka, *arguments: str) -> tuple[int, Row]:
        servers = ("--bootstrap-servers", kafka.bootstrap_servers)
        done = onceflow("verify", "--json", *servers, *arguments, timeout=480)
        assert done.returncode in (0, 1), done.stderr
        return done.returncode, json.loads(done.stdout)

    return run


def totals(users: int) -> tuple[list[Row], list[Row]]:
    source = [
        {"user": f"u{u}", "ts": ts, "amount": u + ts} for u in range(users) for ts in (1, 9_999, 10_000)
    ]
    output = []
    for u in range(users):
        output.append({"user": f"u{u}", "window_end": 10_000, "count": 2, "total": 2 * u + 10_000})
        output.append({"user": f"u{u}", "window_end": 20_000, "count": 1, "total": u + 10_000})
    return source, output


TOTALS = ["--group-by", "user", "--window", "10 s", "--count", "count", "--sum", "total=amount"]


def test_aborted_output_does_not_count(broker: EmbeddedKafka, new_topic: MakeTopic, verify: Verify) -> None:
    source, output = totals(users=200)
    first, second = new_topic("in", 3), new_topic("out", 2)
    transaction(broker, f"{first}-w", first, source)
    transaction(broker, f"{second}-a", second, output[:77], end="abort")
    transaction(broker, f"{second}-b", second, output)
    transaction(broker, f"{second}-c", second, output[:5], end="abort")
    code, report = verify(broker, "--input", first, "--output", second, *TOTALS)
    assert (code, report["clean"]) == (0, True)
    assert (report["input_records"], report["output_records"]) == (600, 400)


def test_nothing_to_judge_is_no_success(
    broker: EmbeddedKafka, new_topic: MakeTopic, verify: Verify, onceflow: Command
) -> None:
    output = new_topic("out")
    code, report = verify(broker, "--output", output, "--key", "user")
    assert (code, report["clean"]) == (1, False)
    servers = ("--bootstrap-servers", broker.bootstrap_servers)
    said = onceflow("verify", *servers, "--output", output, "--key", "user").stdout
    assert "nothing was judged: there are no records" in said


def test_each_planted_fault_is_found(broker: EmbeddedKafka, new_topic: MakeTopic, verify: Verify) -> None:
    source, output = totals(users=50)
    first, second = new_topic("in"), new_topic("out")
    transaction(broker, f"{first}-w", first, source)
    wrong = {**output[1], "total": output[1]["total"] + 1}
    transaction(broker, f"{second}-w", second, [wrong, *output[2:], output[7], output[7]])
    code, report = verify(broker, "--input", first, "--output", second, *TOTALS)
    assert code == 1
    assert [report[kind] for kind in ("missing", "doubled", "wrong")] == [1, 2, 1]
    assert report["samples"]["missing"][0]["user"] == "u0"


def test_an_open_transaction_is_named_and_what_it_holds_back_is_missing(
    broker: EmbeddedKafka, new_topic: MakeTopic, verify: Verify
) -> None:
    rows = [{"id": number} for number in range(20)]
    first, second = new_topic("in"), new_topic("out")
    transaction(broker, f"{first}-w", first, rows)
    transaction(broker, f"{second}-done", second, rows[:15])
    held = transaction(broker, f"{second}-open", second, rows[15:], end="none")
    code, report = verify(broker, "--input", first, "--output", second, "--key", "id")
    held.abort_transaction(30)
    assert (code, report["missing"]) == (1, 5)
    (named,) = report["open_transactions"]
    assert (named["transactional_id"], named["partition"], named["first_offset"]) == (f"{second}-open", 0, 16)


def test_gaps_and_duplicates_need_no_input(
    broker: EmbeddedKafka, new_topic: MakeTopic, verify: Verify
) -> None:
    topic = new_topic("out", 2)
    rows = [{"n": number} for number in [*range(100), 42] if number != 17]
    transaction(broker, f"{topic}-w", topic, rows)
    code, report = verify(broker, "--output", topic, "--sequence", "n")
    assert (code, report["missing"], report["doubled"]) == (1, 1, 1)


def test_a_partition_that_gives_nothing_is_named_after_the_time_out(
    broker: EmbeddedKafka, new_topic: MakeTopic
) -> None:
    topic = new_topic("silent")
    transaction(broker, f"{topic}-w", topic, [{"n": 1}])
    with FaultProxy(broker.bootstrap_servers) as proxy:
        proxy.on_request = lambda request: Course.HOLD if request.api == FETCH else Course.PASS
        with closing(TopicReader(proxy.address, {}, timeout_ms=1_500)) as reader:
            assert reader.ends(topic) == {0: (0, 2)}
            with pytest.raises(Unavailable, match=rf"gave no record of {topic}-0 for 1\.5 s"):
                list(reader.chunks(topic, lambda *_: None))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "nothing to judge by"),
        (["--group-by", "user"], "totals need --input, --group-by, --window"),
        (["--input", "in", *TOTALS[:3], "ten", "--count", "c"], "--window 'ten' is no length"),
        (["--key", "id", "--librdkafka", "/nowhere"], "--librdkafka /nowhere can't be read"),
        (["--key", "id"], "topic absent can't be read"),
        (["--key", "id", "--librdkafka", "CLIENT"], "'group.id' can't be given"),
    ],
)
def test_wrong_use_says_what_to_do(
    broker: EmbeddedKafka, tmp_path: Path, onceflow: Command, arguments: list[str], says: str
) -> None:
    client = tmp_path / "client.properties"
    client.write_text("group.id=theirs\n")
    arguments = [str(client) if argument == "CLIENT" else argument for argument in arguments]
    done = onceflow(
        "verify", "--output", "absent", "--bootstrap-servers", broker.bootstrap_servers, *arguments
    )
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
