"""`onceflow broker`: the broker outlives the command, and each state has its words and exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.embedded.ports import free_port

pytestmark = pytest.mark.kafka


def onceflow(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a session of its own, which ends with it, as a shell that is closed."""
    command = [str(Path(sys.executable).with_name("onceflow")), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=480, start_new_session=True
    )


def test_start_status_stop(tmp_path: Path, broker: EmbeddedKafka) -> None:
    """One after the other, since each needs what the one before has left."""
    port, where = free_port(), ["--data", str(tmp_path / "data"), "--json"]
    try:
        started = onceflow("broker", "start", "--port", str(port), *where)
        assert started.returncode == 0, started.stderr
        report = json.loads(started.stdout)
        assert report["bootstrap_servers"] == f"127.0.0.1:{port}"
        assert (
            AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
            .list_topics(timeout=120)
            .brokers
        )

        assert json.loads(onceflow("broker", "status", *where).stdout) == report

        again = onceflow("broker", "start", "--port", str(port), *where)
        assert (again.returncode, again.stdout) == (1, "")
        assert f"already runs on {tmp_path / 'data'} (process {report['pid']}" in again.stderr
        assert "Traceback" not in again.stderr
    finally:
        stopped = onceflow("broker", "stop", *where)
    assert json.loads(stopped.stdout) == {"running": False, "stopped_pid": report["pid"]}
    gone = onceflow("broker", "status", *where)
    assert (gone.returncode, json.loads(gone.stdout)) == (1, {"running": False})


def test_a_registry_runs_beside_the_broker_and_remembers(tmp_path: Path, broker: EmbeddedKafka) -> None:
    """It starts beside a broker that runs already, too; `stop` ends both, and what was registered stays."""
    where = ["--data", str(tmp_path / "data"), "--json"]
    ports = ["--port", str(free_port()), "--registry-port", str(free_port())]
    try:
        assert "registry" not in json.loads(onceflow("broker", "start", *ports, *where).stdout)
        for _ in range(2):
            started = onceflow("broker", "start", "--registry", *ports, *where)
            assert started.returncode == 0, started.stderr
            report = json.loads(started.stdout)
            assert report["registry"] == f"http://127.0.0.1:{ports[3]}"
            assert json.loads(onceflow("broker", "status", *where).stdout) == report
            client = SchemaRegistryClient({"url": report["registry"], "timeout": 60})
            assert client.register_schema("s", Schema('"int"', "AVRO")) == 1
            assert client.get_versions("s") == [1]
            again = onceflow("broker", "start", "--registry", *ports, *where)
            assert (again.returncode, "already runs" in again.stderr) == (1, True)
            assert onceflow("broker", "stop", *where).returncode == 0
            assert onceflow("broker", "status", *where).stdout == '{"running": false}\n'
    finally:
        onceflow("broker", "stop", *where)


def test_a_registry_that_is_away_is_named_with_the_way_to_start_one(broker: EmbeddedKafka) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    where = ("--bootstrap-servers", broker.bootstrap_servers)
    assert onceflow("broker", "create", "away", "--if-missing", *where).returncode == 0
    command = [str(Path(sys.executable).with_name("onceflow")), "broker", "produce", "away"]
    answer = subprocess.run(
        [*command, "--registry", nobody, *where],
        input='"x"\n', capture_output=True, text=True, check=False, timeout=480,
    )  # fmt: skip
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"onceflow: the schema registry at {nobody} can't be asked")
    assert answer.stderr.endswith("`onceflow broker start --registry` starts one on this machine\n")


@pytest.mark.parametrize(
    ("shape", "shown"),
    [
        ("values", "base64:b25l\nbase64:dHdv\n"),
        ("pretty", "undecoded: two"),
        ("json", '"value_base64": "dHdv"'),
    ],
)
def test_values_that_are_not_avro_are_shown_and_counted(
    broker: EmbeddedKafka, shape: str, shown: str
) -> None:
    topic, nobody = f"no-avro-{shape}", f"http://127.0.0.1:{free_port()}"
    where = ("--bootstrap-servers", broker.bootstrap_servers)
    assert onceflow("broker", "create", topic, *where).returncode == 0
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for value in (b"one", b"two"):
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    consumed = onceflow("broker", "consume", topic, "--registry", nobody, "--format", shape, *where)
    assert consumed.returncode == 0, consumed.stderr
    assert shown in consumed.stdout
    assert consumed.stderr.startswith(
        f"onceflow: 2 values are shown undecoded. The first, {topic}-0 @ 0: a value is no Avro"
    )


def test_wrong_use_is_one_sentence_and_exit_code_2() -> None:
    wrong = onceflow("broker", "start", "--set", "log.retention.ms")
    assert wrong.returncode == 2
    assert wrong.stderr == "onceflow: --set log.retention.ms has no value: write it as --set NAME=VALUE\n"
    wrong = onceflow("broker", "consume", "t", "--start", "group")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith(
        "onceflow: --start group must be earliest, latest or a time, as timestamp:"
    )


def test_where_nobody_answers_on_this_machine_it_says_how_to_start_a_kafka() -> None:
    answer = onceflow("broker", "topics", "--bootstrap-servers", f"127.0.0.1:{free_port()}")
    assert answer.returncode == 1
    assert answer.stderr.rstrip().endswith("`onceflow broker start` starts a Kafka on this machine")


def test_debug_shows_the_traceback() -> None:
    assert "Traceback" in onceflow("--debug", "broker", "start", "--set", "x").stderr


def test_an_unknown_command_is_refused_with_the_nearest_name() -> None:
    wrong = onceflow("brokr")
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "onceflow: there is no command 'brokr': did you mean 'broker'?\n",
    )


def test_help_lists_every_command_and_imports_none_of_them() -> None:
    code = (
        "import sys; from onceflow.cli import app\n"
        "try: app.app()\n"
        "finally: print([n for n in app.COMMANDS.values() if n[0] in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0
    assert done.stderr.strip() == "[]"
    for name in ("broker", "verify"):
        assert name in done.stdout


def test_records_go_into_topics_and_come_out(broker: EmbeddedKafka, new_topic: Any, tmp_path: Path) -> None:
    """From lines to a topic, and from one topic to another without a difference."""
    where = ("--bootstrap-servers", broker.bootstrap_servers)
    first = new_topic("records", 1) + "-orders"
    second = f"{first}-copy"
    made = onceflow("broker", "create", first, second, "--partitions", "3", *where)
    assert made.stdout == f"{first}: made, partitions: 3\n{second}: made, partitions: 3\n"
    assert onceflow("broker", "create", first, "--if-missing", *where).stdout == f"{first}: exists\n"
    again = onceflow("broker", "create", first, *where)
    assert (again.returncode, "exists: give another name" in again.stderr) == (1, True)

    lines = tmp_path / "lines"
    lines.write_text("".join(f'{{"user":"u{n % 5}","n":{n}}}\n' for n in range(100)))
    written = onceflow("broker", "produce", first, str(lines), "--key-field", "user", *where)
    assert written.stderr == f"{first}: 100 records written\n"
    out = onceflow("broker", "consume", first, *where).stdout
    rows = [json.loads(line) for line in out.splitlines()]
    assert sorted(json.loads(row["value"])["n"] for row in rows) == list(range(100))
    assert all(row["key"] == json.loads(row["value"])["user"] for row in rows)
    assert len({row["partition"] for row in rows if row["key"] == "u1"}) == 1, "a key has one partition"

    lines.write_text(out)
    assert onceflow("broker", "produce", second, str(lines), "--json", *where).returncode == 0
    copied = [json.loads(line) for line in onceflow("broker", "consume", second, *where).stdout.splitlines()]
    assert sorted(map(content, copied)) == sorted(map(content, rows))

    listed = json.loads(onceflow("broker", "topics", first, "--json", *where).stdout)
    assert sum(row["end"] - row["first"] for row in listed) == 100
    last = onceflow(
        "broker", "consume", first, "--last", "1", "--format", "values", *where
    ).stdout.splitlines()
    assert len(last) == len({row["partition"] for row in rows})
    assert onceflow("broker", "consume", first, "--start", "latest", *where).stdout == ""
    assert len(onceflow("broker", "consume", first, "--count", "7", *where).stdout.splitlines()) == 7


def test_the_last_records_are_counted_without_markers_and_what_was_aborted(
    broker: EmbeddedKafka, new_topic: Any
) -> None:
    """Each transaction is one record and its marker, as the dead letters of a job; the last is aborted."""
    topic, where = new_topic("records", 1), ("--bootstrap-servers", broker.bootstrap_servers)
    settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(60)
    for values, end in [*(([str(n)], producer.commit_transaction) for n in range(5)), ("xyz" * 9, None)]:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value.encode(), partition=0)
        (end or producer.abort_transaction)(60)
    for count, found in (("1", [4]), ("3", [2, 3, 4]), ("100", [0, 1, 2, 3, 4])):
        told = onceflow("broker", "consume", topic, "--last", count, "--format", "values", *where)
        assert [int(line) for line in told.stdout.splitlines()] == found, told.stderr


def content(row: dict[str, object]) -> tuple[str, str, str]:
    return str(row["key"]), str(row["value"]), str(row["timestamp"])


def test_following_goes_on_at_the_end(broker: EmbeddedKafka, new_topic: Any) -> None:
    topic, where = new_topic("records", 3), ("--bootstrap-servers", broker.bootstrap_servers)
    command = [
        str(Path(sys.executable).with_name("onceflow")),
        "broker",
        "consume",
        topic,
        "--follow",
        *where,
    ]
    with subprocess.Popen(
        [*command, "--count", "2", "--format", "values"], stdout=subprocess.PIPE, text=True
    ) as follower:
        assert follower.stdout is not None
        for number in (1, 2):
            given = subprocess.run(
                [*command[:2], "produce", topic, *where],
                input=f"{number}\n",
                text=True,
                check=False,
                timeout=240,
            )
            assert given.returncode == 0
            assert follower.stdout.readline() == f"{number}\n"
        assert follower.wait(240) == 0


def test_what_is_wrong_with_records_is_one_sentence(
    broker: EmbeddedKafka, new_topic: Any, tmp_path: Path
) -> None:
    topic, where = new_topic("records", 3), ("--bootstrap-servers", broker.bootstrap_servers)
    lines = tmp_path / "lines"
    lines.write_text('{"user":"a"}\n{"n":1}\n')
    wrong = onceflow("broker", "produce", topic, str(lines), "--key-field", "user", *where)
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "onceflow: line 2 has no field 'user' to be its key; the 1 records before it are written\n",
    )
    near = onceflow("broker", "consume", topic[:-1], *where)
    assert f"has no topic {topic[:-1]} (did you mean" in near.stderr
    other = onceflow("broker", "produce", topic, str(lines), "--partition", "99", *where)
    assert "has no partition 99" in other.stderr
