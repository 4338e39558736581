"""Standard error of a run in which nothing is wrong: empty, on Spark too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.fixture(scope="module")
def forks() -> None:
    """An interpreter, from its start to its end."""


@pytest.mark.parametrize("master", ["threads[2]", "local[2]"])
def test_nothing_of_the_jvm_or_of_librdkafka_is_said_where_nothing_is_wrong(
    master: str, broker: Any, new_topic: Any, start_job: Any, feed: Any, tmp_path: Path
) -> None:
    source, output = new_topic("quiet-in", 2), new_topic("quiet-out", 2)
    data = feed(broker.bootstrap_servers, source, 2)
    data.close(data.load(2_000, 1_700_000_000_000))
    arguments = ("--bootstrap-servers", broker.bootstrap_servers, "--input", source, "--output", output)
    job = start_job(tmp_path / "ck", *arguments, "--until", "latest", master=master)
    assert job.wait(480) == 0, job.story()
    assert job.errors() == ""
