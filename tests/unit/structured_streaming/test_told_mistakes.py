"""Spark's errors in our words: the sentence is found in what Spark makes of it, and only there."""

from __future__ import annotations

import contextlib
import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from onceflow.structured_streaming.told_mistakes import _Hook, tell_mistakes_in_a_sentence, why_failed

TRACEBACK = """[STREAM_FAILED] Query [id = 7, runId = 8] terminated: [PYTHON_ERROR] Failed: Traceback:
  File "/x/onceflow/structured_streaming/source.py", line 115, in _checked
    raise OptionError("no")
onceflow.runtime.errors.OptionError: the first, which another followed: not this one

The above exception was the direct cause of the following exception:

  File "/x/onceflow/structured_streaming/source.py", line 123, in source_options
onceflow.runtime.errors.{name}: {said}
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 7, runId = 8]
"""
IN_TASK = """An error occurred while calling o126.collectToPython.
: org.apache.spark.SparkException: Job aborted: org.apache.spark.api.python.PythonException: Traceback:
  File "/x/onceflow/structured_streaming/source_tasks.py", line 9, in read_ranges
onceflow.runtime.errors.Fatal: the value can't be decoded: leave it out

	at org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:581)
"""
ELSEWHERE = """[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: Traceback:
  File "/x/onceflow/structured_streaming/source.py", line 16, in <module>
    import pyarrow as pa
ModuleNotFoundError: No module named 'pyarrow'
 SQLSTATE: 38000
"""
SENTENCE = "onceflow-kafka has no option 'topik' (did you mean 'topic'?)"


def failed(said: str = SENTENCE, name: str = "OptionError") -> StreamingQueryException:
    return StreamingQueryException(TRACEBACK.replace("{name}", name).replace("{said}", said))


def test_the_last_sentence_of_ours_is_what_went_wrong() -> None:
    assert why_failed(failed()) == SENTENCE
    assert why_failed(Exception(IN_TASK)) == "the value can't be decoded: leave it out"
    assert why_failed(None) is None
    assert why_failed(StreamingQueryException("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012")) is None


def test_what_may_pass_has_a_way_out() -> None:
    said = why_failed(failed("Kafka at x can't be reached", "Unavailable"))
    assert said is not None
    assert said.startswith("Kafka at x can't be reached; correct the address, or start the query again")


def test_a_python_without_onceflow_is_told_with_the_right_one() -> None:
    said = why_failed(AnalysisException(ELSEWHERE))
    assert said is not None
    assert "(No module named 'pyarrow')" in said
    assert said.endswith(f"to {sys.executable}")
    assert why_failed(Exception("ModuleNotFoundError: No module named 'x'")) is None, "the user's own"


def shown(error: BaseException, capsys: pytest.CaptureFixture[str]) -> tuple[str, list[Any]]:
    passed_on: list[Any] = []
    try:
        raise error
    except BaseException as raised:
        _Hook(lambda *told: passed_on.append(told))(type(raised), raised, raised.__traceback__)
    return capsys.readouterr().err, passed_on


def test_what_nobody_catches_is_one_sentence_with_the_users_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said, passed_on = shown(failed(), capsys)
    first, way = said.splitlines()
    assert first.startswith(f"onceflow: {__file__}:")
    assert first.endswith(f": {SENTENCE}")
    assert way == "(set ONCEFLOW_DEBUG=1 to see the whole error)"
    assert passed_on == []
    mine = RuntimeError(str(failed()))  # raised by the user, who wants it seen
    assert shown(mine, capsys) == ("", [(RuntimeError, mine, mine.__traceback__)])
    other = AnalysisException("[TABLE_OR_VIEW_NOT_FOUND] SQLSTATE: 42P01")
    assert shown(other, capsys)[1][0][1] is other
    monkeypatch.setenv("ONCEFLOW_DEBUG", "1")
    assert len(shown(failed(), capsys)[1]) == 1


def test_the_hook_is_there_once() -> None:
    place = SimpleNamespace(excepthook=print)
    tell_mistakes_in_a_sentence(place)
    ours = place.excepthook
    tell_mistakes_in_a_sentence(place)
    assert isinstance(ours, _Hook)
    assert place.excepthook is ours


def test_a_cell_of_a_notebook_ends_with_the_sentence() -> None:
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    tell_mistakes_in_a_sentence(SimpleNamespace(excepthook=print), shell)
    shell.user_ns.update(error=failed(), other=ValueError("mine"))
    ours, others = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(ours), contextlib.redirect_stdout(ours):
        shell.run_cell("raise error")
    with contextlib.redirect_stderr(others), contextlib.redirect_stdout(others):
        shell.run_cell("raise other")
    assert SENTENCE in ours.getvalue()
    assert "Traceback" not in ours.getvalue()
    assert "mine" in others.getvalue()
