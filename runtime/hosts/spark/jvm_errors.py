"""What Spark's JVM says on standard error, without what it says at each start whatever the job is.

Of the modules that Spark asks for, and of the classes of Java that it uses, the JVM itself warns: no
setting of Spark or of its logging keeps that away. What is left out here goes to the log, and everything
else to where it would have gone. Py4J logs a traceback when a JVM dies in the middle of a call, beside the
error that it raises and the job tells in a sentence: that goes to onceflow's log as well.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable
from typing import Any

from pyspark import SparkConf
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from onceflow.runtime.errors import Fatal
from onceflow.runtime.hosts.spark.executor_watch import LOGGER
from onceflow.runtime.hosts.spark.spark_errors import cause_of
from onceflow.runtime.hosts.spark.unused_file_systems import let_go_of_unused_file_systems

_LOG = logging.getLogger(__name__)

_AT_EACH_START = re.compile(
    rb"WARNING: (?:Using incubator modules: "
    rb"|A terminally deprecated method in sun\.misc\.Unsafe |sun\.misc\.Unsafe::"
    rb"|A restricted method in java\.lang\.|java\.lang\.(?:System|Runtime)::load"
    rb"|Use --enable-native-access=|Restricted methods will be blocked"
    rb"|Please consider reporting this to the maintainers of class )"
    rb"|Using Spark's default log4j profile: |Setting default log level to "
    rb"|To adjust logging level use sc\.setLogLevel"
    rb"|.* WARN (?:[\w.]*\.)?NativeCodeLoader: "
)
_PY4J = "java_gateway"
_OF_EXECUTORS = re.compile(rf"\S+ (?:INFO|WARN) {LOGGER}\$".encode())
_THROWN = re.compile(r'^Exception in thread "\S+" (.*)', re.MULTILINE)
ENDED_WITHIN_S = 10.0
SAID_MAX = 2
"""How many of its lines are told: the first ones say why a JVM refuses a setting."""


def launch_jvm(conf: SparkConf, on_executors: Callable[[str], None]) -> Any:
    """PySpark's gateway to a new JVM. `on_executors` gets each line that it logs of a standalone cluster's
    executors and masters, on another thread.

    Fatal with what it said if it ends before it answers, as on a setting that Java refuses.
    """
    logging.getLogger().addFilter(is_not_py4j)
    said = JvmErrors(on_executors=on_executors, holds=True)
    let_go_of_unused_file_systems()
    try:
        gateway = launch_gateway(conf, {"stderr": said.handed_out})
    except PySparkRuntimeError as error:
        raise Fatal(f"Spark's JVM did not start: {said.cause() or cause_of(str(error))}") from error
    finally:
        os.close(said.handed_out)
    said.release()
    return gateway


def is_not_py4j(record: logging.LogRecord) -> bool:
    """A filter of the root logger: what Py4J logs there itself goes to our log and is not shown."""
    if record.name == "root" and record.module == _PY4J:
        _LOG.info("Py4J: %s", record.getMessage(), exc_info=record.exc_info)
        return False
    return True


class JvmErrors:
    """A JVM's standard error. Whole lines come to `target` as they are written, by a thread that ends with
    the JVM. `holds`: not before `release`; a JVM that does not start is told of in one sentence."""

    def __init__(
        self,
        target: int = 2,
        on_executors: Callable[[str], None] = lambda line: None,
        holds: bool = False,
    ) -> None:
        self._target, self._on_executors = target, on_executors
        self._lock = threading.Lock()
        self._held: list[bytes] | None = [] if holds else None
        source, self.handed_out = os.pipe()
        """What the JVM writes to; the owner closes it once the JVM has its own copy."""
        self._thread = threading.Thread(
            target=self._forward, args=(source,), name="onceflow-jvm-errors", daemon=True
        )
        self._thread.start()

    def release(self) -> None:
        """Pass on what was held, and all that comes."""
        with self._lock:
            held, self._held = self._held or [], None
            for line in held:
                os.write(self._target, line)

    def cause(self) -> str:
        """What a JVM has said that has ended, in one sentence; empty: nothing."""
        self._thread.join(ENDED_WITHIN_S)
        with self._lock:
            text = b"".join(self._held or []).decode(errors="replace")
        if thrown := _THROWN.search(text):
            return cause_of(thrown[1])
        said = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("\t")]
        return "; ".join(line.removeprefix("Error: ").rstrip(".") for line in said[:SAID_MAX])

    def _forward(self, source: int) -> None:
        with os.fdopen(source, "rb") as lines:
            for line in lines:
                is_of_executors = _OF_EXECUTORS.match(line) is not None
                if is_of_executors or _AT_EACH_START.match(line):
                    text = line.decode(errors="replace").rstrip()
                    _LOG.info("%s", text)
                    if is_of_executors:
                        self._on_executors(text)
                else:
                    self._pass_on(line)

    def _pass_on(self, line: bytes) -> None:
        with self._lock:
            if self._held is not None:
                self._held.append(line)
            else:
                os.write(self._target, line)
