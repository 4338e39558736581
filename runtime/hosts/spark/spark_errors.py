"""What Spark and Py4J say of an error: in one sentence its cause, and what it means to the driver. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

from onceflow.runtime.checkpoint.fingerprints import Unexpected
from onceflow.runtime.errors import Fatal, OnceflowError, Retryable, Unavailable
from onceflow.runtime.hosts.spark.worker_environment import environment_error

_TOO_FEW_SLOTS = "SPARK-24819"
_FRAME = re.compile(r"\s+at [\w.$]+\(?.*|\s*\.\.\. \d+ (?:more|elided)")
_PYTHON_ERROR = re.compile(r"^(?!Traceback|\s|\[Previous line)(\S.*)$", re.MULTILINE)
_EXECUTOR_LOST = re.compile(r"ExecutorLostFailure \(executor (\S+) .*?\) Reason: (.+)")
_CANCELLED = re.compile(r"Job \d+ cancelled.*")
_PROLOGUE = re.compile(r"An error occurred while calling \S+\.$")
_CLASS = re.compile(r"^(?::\s*)?(?:Caused by: )?(?:[a-z]\w*\.)+([A-Z][\w$]*)(?::\s*|$)")
_STAGE = re.compile(r"^Job aborted due to stage failure: (?:.*Most recent failure reason: )?")
_BARRIER = re.compile(r"^Stage failed because barrier task .* finished unsuccessfully\.?$")
_CODES = re.compile(r"\[[A-Z][A-Z0-9_.-]+\]:? |\s*SQLSTATE: \w+")
_LENGTH_MAX = 500
_OWN_ERROR = re.compile(r"^onceflow\.runtime\.errors\.(\w+): ")
_MISTAKE = re.compile(
    "(?:Arithmetic|Assertion|Attribute|Import|Index|Key|Lookup|ModuleNotFound|Name|NotImplemented|Recursion|Syntax"
    "|Type|UnboundLocal|UnicodeDecode|UnicodeEncode|Value|ZeroDivision)Error(?:: |$)"
)
"""What Python raises where a program is wrong, and not what is outside of it."""
_KINDS = {"Fatal": Fatal, "Unavailable": Unavailable}
"""Errors that a slot raises before it can tell the driver itself, by their names."""


def is_too_few_slots(text: str) -> bool:
    """Spark has refused a barrier stage for which it has not enough slots now; nothing was started."""
    return _TOO_FEW_SLOTS in text


def error_of(text: str, failed_on: Callable[[], str | None]) -> OnceflowError:
    """What a failed stage means to the driver. `failed_on` gives the host, as far as Spark knows it; it is
    asked only where the host matters, since Spark's answer may take a while.

    Fatal where slots can't run there at all; the error itself that a slot raised before it had reached the
    driver, or Unexpected if it is a mistake of a program's; else Retryable with the cause.
    """
    if sentence := environment_error(text):
        return Fatal(f"on {failed_on() or 'a worker'}: {sentence}")
    if "Traceback (most recent call last):" in text and (own := _OWN_ERROR.match(_raised(text))):
        return _KINDS.get(own[1], Retryable)(_short(_raised(text)[own.end() :]))
    if "Traceback (most recent call last):" in text and _MISTAKE.match(_raised(text)):
        return Unexpected(cause_of(text))
    return Retryable(cause_of(text))


def cause_of(text: str) -> str:
    """The cause of a failed Spark job as one line: what Python raised, what became of an executor or of a
    worker, or else the last thing that Spark names. No name of a JVM method, no stack frame."""
    if is_too_few_slots(text):
        return "Spark has fewer slots than the attempt needs"
    if "Traceback (most recent call last):" in text:
        return _python_error(text)
    if lost := _EXECUTOR_LOST.search(text):
        return f"Spark lost executor {lost[1]}: {_short(lost[2])}"
    if "Python worker exited unexpectedly" in text:
        return "a slot's Python process ended unexpectedly: it was killed, or it crashed"
    if cancelled := _CANCELLED.search(text):
        return _short(cancelled[0])
    if "stopped SparkContext" in text or "SparkContext was shut down" in text:
        return "Spark was stopped"
    said = [_plain(line) for line in text.splitlines() if not _FRAME.fullmatch(line)]
    told = [line for line in said if line and not _BARRIER.fullmatch(line)]
    causes = [_plain(line) for line in text.splitlines() if line.startswith("Caused by: ") and _plain(line)]
    return _short((causes or told or ["Spark gave no reason"])[-1 if causes else 0])


def _python_error(text: str) -> str:
    """The error's class and message, without the place of our own classes."""
    return _short(_raised(text).removeprefix("onceflow.runtime.errors."))


def _raised(text: str) -> str:
    """The line below the frames of the last traceback: the error's class and message."""
    traceback = text.rsplit("Traceback (most recent call last):", 1)[1]
    told = [line for line in _PYTHON_ERROR.findall(traceback) if not _FRAME.fullmatch(line)]
    return next(iter(told), "an error in Python without a message")


def _plain(line: str) -> str:
    """A line without the words around what it says; a class stays where nothing is said besides."""
    if _PROLOGUE.search(line):
        return ""
    found = _CLASS.match(line)
    said = line if found is None else line[found.end() :]
    said = _CODES.sub("", _STAGE.sub("", said)).strip()
    return said or (found[1] if found else "")


def _short(line: str) -> str:
    line = _CODES.sub("", line).strip()
    return line if len(line) <= _LENGTH_MAX else line[: _LENGTH_MAX - 1] + "…"
