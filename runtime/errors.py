"""Errors, named by what the caller does next.

A user's mistake is a `UsageError`: one sentence that says what was wrong, where, and what to do; the
command line prints it without a traceback. In the engine an error is `Retryable` (try again), `Fatal`
(the job stops, a restart would meet it again), `Fenced` (a newer attempt has taken over: go away
quietly), or `Indeterminate` (it may have happened: ask, then decide).
"""

from __future__ import annotations


class OnceflowError(Exception):
    """The root of all errors that onceflow raises on purpose."""


class UsageError(OnceflowError):
    """The program or command is wrong: exit code 2, no traceback."""


class GraphError(UsageError):
    """The job's graph is wrong: raised while it is built, naming the operator's uid."""


class OptionError(UsageError):
    """An option is unknown, malformed, or would break the guarantee."""


class Retryable(OnceflowError):
    """What was asked for did not happen, and may succeed when tried again.

    Public: a user's function raises it for what may pass by itself. The job restarts as its restart
    strategy says, however often the same one comes in a row.
    """


class Unavailable(Retryable):
    """Something outside (a broker, a registry, a folder) could not be used for as long as its time-out
    allows, or waiting alone will not make it usable. Raised before an attempt of a run has worked, it is
    taken for a wrong setting and ends the job at once (checkpoint/verdict.py)."""


class Indeterminate(OnceflowError):
    """What was asked for may or may not have happened. Ask the system of record before trying again."""


class Fenced(OnceflowError):
    """A newer attempt owns the job. This one must stop and must not write any more."""


class Fatal(OnceflowError):
    """A restart would meet the same error: the job fails and names its last checkpoint."""


class JobFailedError(OnceflowError):
    """`job.run()`: the job has failed, or a newer run of it has taken over. Says why, and what to do."""


class UserFunctionError(OnceflowError):
    """The user's own function raised. Names operator, record and the user's line.

    `where` is the operator, the function and the line that raised, `kind` what it said without the record,
    `record` where the record came from ("" if that is not known): what a second failure is compared by
    (fingerprints.py).
    """

    def __init__(self, message: str, where: str = "", kind: str = "", record: str = "") -> None:
        super().__init__(message)
        self.where = where
        self.kind = kind
        self.record = record


class BadRecordError(Fatal):
    """A record can't be decoded and the policy is `errors.tolerance=none`."""


class DataLossError(Fatal):
    """Records or output that the job relies on are gone: it stops rather than skip them silently."""


class CorruptCheckpointError(Fatal):
    """A checkpoint's file is missing, half-written or altered: names its path and the last good one."""
