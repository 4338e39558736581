"""What a connector or a function of yours raises, and what a program that runs a job catches."""

from dataclasses import dataclass

from onceflow import Job, Retryable
from onceflow.runtime.errors import (
    BadRecordError,
    CorruptCheckpointError,
    DataLossError,
    Fatal,
    Fenced,
    GraphError,
    Indeterminate,
    JobFailedError,
    OnceflowError,
    OptionError,
    Unavailable,
    UsageError,
    UserFunctionError,
)

WHAT_NEXT = {
    Retryable: "it did not happen, and may next time: the job restarts",
    Unavailable: "what is outside can't be used",
    Indeterminate: "it may have happened: you will be asked",
    Fenced: "a newer attempt is at work: stop",
    Fatal: "a restart would meet it again: the job ends",
    DataLossError: "records or output are gone",
    BadRecordError: "a record can't be decoded",
    CorruptCheckpointError: "a file of the checkpoint is damaged",
    UserFunctionError: "the user's function raised",
}
assert all(issubclass(error, OnceflowError) for error in WHAT_NEXT)
assert issubclass(GraphError, UsageError)
assert issubclass(OptionError, UsageError)


@dataclass(frozen=True)
class Number:
    n: int


job = Job("halves")
numbers = job.from_elements(Number(2), Number(1), Number(0))
numbers.filter(lambda number: 1 / number.n > 0.5).print()
try:
    job.run(master="threads[1]", restart="none")
except JobFailedError as error:
    assert "division by zero" in str(error)

try:
    numbers.filter("n > 1")  # type: ignore[arg-type]
except GraphError as error:
    assert "filter" in str(error)

try:
    job.run(master="threads[1]", checkpoint_interval="soon")
except OptionError as error:
    assert "checkpoint_interval" in str(error)
