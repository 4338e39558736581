"""A user's own program on Spark masters: its types, the modules and packages beside it, and records that lack
a field. What is right on `threads` is right there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.integration.standalone import quick_java

pytestmark = pytest.mark.kafka
ONCEFLOW = [sys.executable, "-c", "from onceflow.cli.app import main; main()"]
HOSTS = ["threads[2]", pytest.param("local-cluster[2,1,1024]", marks=pytest.mark.spark)]
"""A program is where it is used, and comes to other processes. How `local[2]` has it is tried below."""

PROGRAM = """
from __future__ import annotations

import dataclasses
import datetime as dt
import sys
from dataclasses import dataclass, field

import amounts
from shop.models import Address, Labelled
from onceflow import Job
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink


@dataclass(frozen=True)
class Purchase:
    user: str
    amount: int
    placed: dt.datetime
    tags: list[str] = field(default_factory=list)
    address: Address | None = None


def labelled(purchase: Purchase) -> Labelled:
    import labels

    assert isinstance(purchase.placed, dt.datetime)
    changed = dataclasses.replace(purchase, amount=amounts.doubled(purchase.amount))
    city = "" if changed.address is None else changed.address.city
    return Labelled(changed.user, changed.amount, labels.label(changed.tags), city)


def build(arguments: list[str]) -> Job:
    servers, source, output, *dead_letters = arguments
    tolerance = {"errors_tolerance": "all", "dead_letter_topic": dead_letters[0]} if dead_letters else {}
    job = Job("users-program")
    read = KafkaSource(
        bootstrap_servers=servers, topics=[source], value=Json(Purchase), until="latest", **tolerance
    )
    job.source(read).map(labelled).sink_to(KafkaSink(bootstrap_servers=servers, topic=output))
    return job


if __name__ == "__main__":
    result = build(sys.argv[3:]).run(sys.argv[1], master=sys.argv[2], parallelism=2)
    print(result)
"""
BESIDE = {
    "amounts.py": "def doubled(amount: int) -> int:\n    return 2 * amount\n",
    "labels.py": "def label(tags: list[str]) -> str:\n    return '+'.join(tags) or 'none'\n",
    "shop/__init__.py": "",
    "shop/jobs.py": PROGRAM,
    "shop/models.py": """
from __future__ import annotations
import datetime as dt
from dataclasses import dataclass


@dataclass(frozen=True)
class Address:
    city: str
    since: dt.date | None = None


@dataclass(frozen=True)
class Labelled:
    user: str
    amount: int
    label: str
    city: str
""",
}
PLACED = '"placed":"2026-01-02T03:04:05Z"'
FULL = f'{{"user":"a","amount":1,{PLACED},"tags":["x","y"],"address":{{"city":"C"}}}}'
SPARSE = f'{{"user":"b","amount":2,{PLACED}}}'
LESS = f'{{"user":"c",{PLACED}}}'
EXPECTED = [
    {"user": "a", "amount": 2, "label": "x+y", "city": "C"},
    {"user": "b", "amount": 4, "label": "none", "city": ""},
]


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A folder with the program, and beside it two modules and a package."""
    folder = tmp_path / "app"
    for name, text in {"orders.py": PROGRAM, **BESIDE}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def send(servers: str, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)


def rows(engine: Any, servers: str, topic: str) -> list[dict[str, Any]]:
    return sorted(map(json.loads, engine.read_topic(servers, topic)), key=lambda row: row["user"])


def options(folder: Path, master: str) -> list[str]:
    found = ["--checkpoint-dir", str(folder / "ck"), "--master", master, "--parallelism", "2"]
    executors = ["--conf", f"spark.executor.extraJavaOptions={quick_java()}"]
    return [*found, *executors] if master.startswith("local-cluster") else found


@pytest.mark.parametrize("master", HOSTS)
def test_types_and_modules_of_the_users_are_right_in_slots(
    master: str, app: Path, broker: Any, new_topic: Callable[..., str], engine: Any, tmp_path: Path
) -> None:
    """A missing field with a default, a nested optional record, annotations that are text, a module that only
    a function imports; and a record without a required field goes to the dead letters."""
    servers = broker.bootstrap_servers
    source, output, dead = new_topic("in", 2), new_topic("out", 2), new_topic("dead", 1)
    send(servers, source, FULL, LESS, SPARSE)
    arguments = [servers, source, output, dead]
    done = run(
        [*ONCEFLOW, "run", str(app / "orders.py"), *options(tmp_path, master), "--", *arguments], tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert rows(engine, servers, output) == EXPECTED
    assert engine.read_topic(servers, dead) == [LESS.encode()]


@pytest.mark.parametrize("how", ["module", "own run"])
@pytest.mark.spark
def test_a_module_and_a_program_that_runs_itself_find_what_lies_beside_them(
    how: str, app: Path, broker: Any, new_topic: Callable[..., str], engine: Any, tmp_path: Path
) -> None:
    servers, source, output = broker.bootstrap_servers, new_topic("in", 2), new_topic("out", 2)
    send(servers, source, FULL, SPARSE)
    arguments = [servers, source, output]
    if how == "module":
        done = run(
            [*ONCEFLOW, "run", "shop.jobs:build", *options(tmp_path, "local[2]"), "--", *arguments], app
        )
    else:
        # In the folder where it runs, a module of a name that Python has, too: the slots' Python took it for
        # Python's own before it was up.
        (tmp_path / "types.py").write_text("raise AssertionError('not the one that was meant')\n")
        own = [sys.executable, str(app / "orders.py"), str(tmp_path / "ck"), "local[2]"]
        done = run([*own, *arguments], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert rows(engine, servers, output) == EXPECTED


def test_without_dead_letters_a_record_that_lacks_a_field_is_named(
    app: Path, broker: Any, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    servers, source, output = broker.bootstrap_servers, new_topic("in", 2), new_topic("out", 2)
    send(servers, source, FULL, LESS)
    command = [*ONCEFLOW, "run", str(app / "orders.py"), *options(tmp_path, "threads[2]"), "--json", "--"]
    done = run([*command, servers, source, output], tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    told = f"{source}-0 at offset 1"
    assert told in done.stderr, done.stderr
    assert "missing required field `amount`" in done.stderr
    assert done.stdout.count('"slots_started"') == 1


@pytest.mark.spark
def test_a_module_that_a_slot_can_not_import_is_fatal_at_once(
    app: Path, broker: Any, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """It fails alike in each attempt."""
    with (app / "amounts.py").open("a") as file:
        file.write("import sys\nassert 'pyspark.daemon' not in sys.modules, 'the driver only'\n")
    servers, source, output = broker.bootstrap_servers, new_topic("in", 2), new_topic("out", 2)
    command = [*ONCEFLOW, "run", str(app / "orders.py"), *options(tmp_path, "local[2]"), "--json", "--"]
    done = run([*command, servers, source, output], tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "can't read the job's program: AssertionError: the driver only; " in done.stderr
    assert '"attempt_failed"' not in done.stdout, done.stdout
