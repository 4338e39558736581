"""What a function logs says what it is about, and shows no secret."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr

import pytest

from onceflow.runtime.functions.log import FunctionLog

ABOUT = {"job": "totals", "uid": "enrich", "subtask": 1, "attempt": 2}


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    made = logging.Logger("of this test")
    yield made
    made.handlers.clear()


def test_a_line_says_job_uid_subtask_and_record(logger: logging.Logger) -> None:
    kept = Kept()
    logger.addHandler(kept)
    log = FunctionLog(ABOUT, lambda: "events-3 at offset 17", lambda text: text, logger)
    log.info("%s of %d", "one", 2)
    (record,) = kept.records
    assert record.getMessage() == "[totals enrich 1 events-3 at offset 17] one of 2"
    assert (record.job, record.origin) == ("totals", "events-3 at offset 17")  # type: ignore[attr-defined]
    assert record.filename == "test_log.py", "the line of the user's"
    log.debug("not from INFO on")
    assert len(kept.records) == 1


def test_secrets_are_hidden_in_text_arguments_and_tracebacks(logger: logging.Logger) -> None:
    kept = Kept()
    logger.addHandler(kept)
    log = FunctionLog(ABOUT, lambda: "", lambda text: text.replace("hunter2", "***"), logger)
    try:
        raise ValueError("with hunter2")
    except ValueError:
        log.exception("hunter2 %s", "and hunter2")
    shown = logging.Formatter().format(kept.records[0])
    assert "hunter2" not in shown
    assert "ValueError: with ***" in shown


def test_where_nobody_listens_lines_go_to_standard_error_once(logger: logging.Logger) -> None:
    FunctionLog(ABOUT, lambda: "", str, logger)
    log = FunctionLog(ABOUT, lambda: "", str, logger)
    shown = io.StringIO()
    with redirect_stderr(shown):
        log.warning("slow")
    assert shown.getvalue().endswith(" WARNING [totals enrich 1] slow\n")
    assert shown.getvalue().count("\n") == 1
    assert sys.stderr is not shown
