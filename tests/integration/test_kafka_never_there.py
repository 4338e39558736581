"""A Kafka that was never there ends the job in its first attempt, with what was tried and for how long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize("servers", ["127.0.0.1:1", "nobody.invalid:9092"])
def test_an_address_at_which_nobody_ever_answered_ends_the_job_after_broker_timeout(
    servers: str, start_job: Any, tmp_path: Path
) -> None:
    arguments = ("--bootstrap-servers", servers, "--input", "in", "--output", "out", "--give-up", "4 s")
    job = start_job(tmp_path / "ck", *arguments)
    assert job.wait(240) == 1, job.story()
    assert not job.named("attempt_failed"), job.story()
    told = [reason for progress in job.named("progress") for reason in progress["waiting"]]
    assert any(f"Kafka at {servers} does not answer: " in reason for reason in told), told
    assert f"can't get topic 'in' from Kafka at {servers}" in job.errors()
    assert "Waited for broker_timeout (4 s)" in job.errors()
