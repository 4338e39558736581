"""`onceflow broker`: the broker outlives the command, and each state has its words and exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.embedded.ports import free_port

pytestmark = pytest.mark.kafka


def onceflow(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a session of its own, which ends with it, as a shell that is closed."""
    command = [str(Path(sys.executable).with_name("onceflow")), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, start_new_session=True
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
            .list_topics(timeout=30)
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


def test_wrong_use_is_one_sentence_and_exit_code_2() -> None:
    wrong = onceflow("broker", "start", "--set", "log.retention.ms")
    assert wrong.returncode == 2
    assert wrong.stderr == "onceflow: --set log.retention.ms has no value: write it as --set NAME=VALUE\n"


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
        "try: app.main()\n"
        "finally: print([n for n in app.COMMANDS.values() if n[0] in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0
    assert done.stderr.strip() == "[]"
    for name in ("broker", "verify"):
        assert name in done.stdout
