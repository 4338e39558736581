"""A store so slow that a checkpoint takes many intervals: records flow meanwhile, and nothing is left."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.store_url import open_store
from tests.answer_proxy import AnswerProxy
from tests.integration.forks import Forks
from tests.s3_server import S3Server, gateway

pytestmark = pytest.mark.kafka
INTERVAL_MS = 200
DELAY_S = 0.3
"""How late each block of a request is: a checkpoint then takes 2 to 4 s."""
SLOW_CHECKPOINTS = 3


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server(gateway()) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(server: S3Server) -> Iterator[AnswerProxy]:
    with AnswerProxy(server.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def forks(server: S3Server, proxy: AnswerProxy) -> Iterator[Forks]:
    """Processes that reach the store through the proxy."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in server.environment.items():
            environment.setenv(name, value)
        environment.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        forks = Forks()
        yield forks
        forks.close()


def test_records_flow_while_a_slow_store_takes_a_checkpoint(
    server: S3Server,
    proxy: AnswerProxy,
    start_job: Any,
    onceflow: Any,
    feed: Any,
    judge: Any,
    follow: Any,
    broker: Any,
    new_topic: Any,
) -> None:
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    data, rows = feed(servers, source, 4), follow(servers, output)
    data.run(2_000)
    url = server.new_folder()
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    job = start_job(url, *arguments, interval=f"{INTERVAL_MS} ms")
    job.wait_event("checkpoint_completed")
    proxy.delay_s = DELAY_S
    slow: list[dict[str, Any]] = []
    while len(slow) < SLOW_CHECKPOINTS:
        after = job.events.index(slow[-1]) + 1 if slow else job.mark
        slow.append(job.wait_event("checkpoint_completed", _is_slow, after=after))
    ids = [each["checkpoint_id"] for each in slow]
    assert ids == list(range(ids[0], ids[0] + SLOW_CHECKPOINTS)), "one after another, none given up"
    for each in slow:
        assert each["duration_ms"] >= each["write_ms"] > 5 * INTERVAL_MS, each
        counts = _records_while_written(job, each)
        assert len(counts) > 1, (each, job.story())
        assert all(more > fewer for fewer, more in pairwise(counts)), (counts, each)
    assert any(e["last_checkpoint_ms"] == slow[0]["duration_ms"] for e in job.named("progress")), job.story()
    proxy.delay_s = 0  # the last checkpoint has 7 s, which a busy machine would need for a slow one
    data.close()
    expected = judge(servers).expected(source)
    rows.wait_rows(len(expected), job)
    assert onceflow("stop", url).returncode == 0
    assert job.wait(120) == 0, job.story()
    assert not job.named("checkpoint_failed"), job.story()
    assert not job.named("attempt_failed"), job.story()
    verdict = judge(servers).verdict(expected, output)
    assert verdict.is_exact, verdict
    store = open_store(url, server.options)
    kept = {path for _, manifest in read_log(store).completed() for path in manifest.paths()}
    assert kept
    there = {status.path for folder in ("state", "staged") for status in store.list(folder)}
    assert {path for path in kept if path.startswith("state/")} <= there <= kept
    assert not server.uploads(url.split("/")[2])


def _is_slow(event: dict[str, Any]) -> bool:
    """Whether it took several intervals: the one during which the proxy became slow may not."""
    return bool(event["duration_ms"] >= 5 * INTERVAL_MS)


def _records_while_written(job: Any, checkpoint: dict[str, Any]) -> list[int]:
    """What progress counted, each second, while slots wrote this checkpoint or its manifest."""
    began = checkpoint["ts_ms"] - checkpoint["duration_ms"]
    durable = checkpoint["ts_ms"] - checkpoint["commit_ms"]
    return [e["records_in"] for e in job.named("progress") if began <= e["ts_ms"] <= durable]
