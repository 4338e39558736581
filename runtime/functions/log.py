"""FunctionLog: what `ctx.log` is; each line says which job, function, subtask and record it is about."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

LOGGER = "onceflow.functions"
_FORMAT = "%(asctime)s %(levelname)s %(message)s"


class FunctionLog(logging.LoggerAdapter[logging.Logger]):
    """A logger of the standard library's. Lines go where the process logs to; where it logs to nothing, as
    in a slot on Spark, to its standard error, from INFO on.

    A line begins with job, uid, subtask and, inside a call for a record whose origin is known, that; the log
    record has them as attributes too (`job`, `uid`, `subtask`, `attempt`, `origin`). Secrets are hidden, also
    in arguments and tracebacks.
    """

    def __init__(
        self,
        about: Mapping[str, Any],
        origin: Callable[[], str],
        redact: Callable[[str], str],
        logger: logging.Logger | None = None,
    ) -> None:
        """`about`: job, uid, subtask, attempt. `origin` is asked on the thread that logs."""
        super().__init__(logger or logging.getLogger(LOGGER))
        self._about = about
        self._origin = origin
        self._redact = redact
        show_lines(self.logger)

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if not self.isEnabledFor(level):
            return
        text = (
            str(msg) % (args[0] if len(args) == 1 and isinstance(args[0], Mapping) else args)
            if args
            else str(msg)
        )
        if raised := kwargs.pop("exc_info", None):
            text += "\n" + _traceback(raised)
        origin = self._origin()
        about = self._about
        place = f"{about['job']} {about['uid']} {about['subtask']}" + (f" {origin}" if origin else "")
        extra = {**(kwargs.pop("extra", None) or {}), **about, "origin": origin}
        stacklevel = kwargs.pop("stacklevel", 1) + 1  # the line of the user's, not this one
        line = self._redact(f"[{place}] {text}")
        self.logger.log(level, "%s", line, extra=extra, stacklevel=stacklevel, **kwargs)


def show_lines(logger: logging.Logger) -> None:
    """Give a logger that nobody listens to a handler of its own, once."""
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    if not _has_listener(logger):
        handler = StderrLines()
        handler.setFormatter(logging.Formatter(_FORMAT))
        logger.addHandler(handler)


class StderrLines(logging.Handler):
    """Writes to what is sys.stderr at that time: the live line of a terminal stands in for it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:  # as all handlers of the standard library do
            self.handleError(record)


def _has_listener(logger: logging.Logger | None) -> bool:
    while logger is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def _traceback(raised: Any) -> str:
    error = raised if isinstance(raised, BaseException) else sys.exc_info()[1]
    return "" if error is None else "".join(traceback.format_exception(error)).rstrip()
