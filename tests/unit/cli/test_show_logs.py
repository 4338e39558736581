"""What clients log is on standard error with --debug, and only then."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from onceflow.cli.run import show_logs


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    ours = logging.getLogger("onceflow")
    handlers, level = list(ours.handlers), ours.level
    yield logging.getLogger("onceflow.connectors.kafka.metadata")
    ours.handlers[:] = handlers
    ours.setLevel(level)


def test_logs_of_clients_are_shown_on_request_only(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    logger.error("FAIL: connect to 127.0.0.1:1 refused")
    assert capsys.readouterr().err == ""
    show_logs()
    logger.error("FAIL: connect to 127.0.0.1:1 refused")
    assert "FAIL: connect to 127.0.0.1:1 refused" in capsys.readouterr().err
