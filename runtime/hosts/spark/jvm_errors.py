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
from pyspark.java_gateway import launch_gateway

from onceflow.runtime.hosts.spark.executor_watch import LOGGER

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


def launch_jvm(conf: SparkConf, on_executors: Callable[[str], None]) -> Any:
    """PySpark's gateway to a new JVM. `on_executors` gets each line that it logs of a standalone cluster's
    executors, on another thread."""
    errors = open_errors(on_executors=on_executors)
    logging.getLogger().addFilter(is_not_py4j)
    try:
        return launch_gateway(conf, {"stderr": errors})
    finally:
        os.close(errors)


def is_not_py4j(record: logging.LogRecord) -> bool:
    """A filter of the root logger: what Py4J logs there itself goes to our log and is not shown."""
    if record.name == "root" and record.module == _PY4J:
        _LOG.info("Py4J: %s", record.getMessage(), exc_info=record.exc_info)
        return False
    return True


def open_errors(target: int = 2, on_executors: Callable[[str], None] = lambda line: None) -> int:
    """A file descriptor for a JVM's standard error; the caller closes it once the JVM has its own copy.
    Whole lines come to `target` as they are written, by a thread that ends with the JVM."""
    source, handed_out = os.pipe()
    arguments = source, target, on_executors
    threading.Thread(target=_forward, args=arguments, name="onceflow-jvm-errors", daemon=True).start()
    return handed_out


def _forward(source: int, target: int, on_executors: Callable[[str], None]) -> None:
    with os.fdopen(source, "rb") as lines:
        for line in lines:
            is_of_executors = _OF_EXECUTORS.match(line) is not None
            if is_of_executors or _AT_EACH_START.match(line):
                text = line.decode(errors="replace").rstrip()
                _LOG.info("%s", text)
                if is_of_executors:
                    on_executors(text)
            else:
                os.write(target, line)
