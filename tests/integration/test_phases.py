"""What people are shown of a job while its sinks still commit what an earlier run had promised."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.kafka
START_MS = 1_700_000_000_000


def test_a_job_runs_once_records_flow_and_says_what_still_waits(
    start_job: Any, feed: Any, onceflow: Any, engine: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    """Killed between a manifest and its commit; the next run reads on while that commit is held back."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    data = feed(servers, source, 4)
    reached_ms = data.load(20_000, START_MS)
    with engine.holding_commits(servers) as proxy:
        job = start_job(tmp_path / "ck", *arguments, "--sink-servers", proxy.address)
        engine.wait_for(lambda: engine.holds_promise(proxy, tmp_path / "ck"), job)
        job.kill_group()
        job.wait()
        data.load(20_000, reached_ms)
        again = start_job(tmp_path / "ck", *arguments, "--sink-servers", proxy.address)
        flowing = again.wait_event("progress", lambda e: e["records_in"] > 0)
        assert flowing["phase"] == "running"
        held = again.wait_event("progress", lambda e: "which was restored" in str(e["waiting"]))
        assert held["phase"] == "running"
        status = json.loads(onceflow("status", str(tmp_path / "ck"), "--json").stdout)
        assert status["phase"] == "running"
        assert [slot["rss_bytes"] > 2**20 for slot in status["slots"]] == [True, True]
        assert f"{status['slots'][1]['pid']} on" in onceflow("status", str(tmp_path / "ck")).stdout
        listed = {entry["pid"]: entry["phase"] for entry in json.loads(onceflow("list", "--json").stdout)}
        assert listed[again.pid] == "running"
    assert not again.named("restarted")
