"""What Spark's JVM says on standard error, without what it says at each start whatever the job is.

Of the modules that Spark asks for, and of the classes of Java that it uses, the JVM itself warns: no
setting of Spark or of its logging keeps that away. What is left out here goes to the log, and everything
else to where it would have gone.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from typing import Any

from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

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


def launch_jvm(conf: SparkConf) -> Any:
    """PySpark's gateway to a new JVM."""
    errors = open_errors()
    try:
        return launch_gateway(conf, {"stderr": errors})
    finally:
        os.close(errors)


def open_errors(target: int = 2) -> int:
    """A file descriptor for a JVM's standard error; the caller closes it once the JVM has its own copy.
    Whole lines come to `target` as they are written, by a thread that ends with the JVM."""
    source, handed_out = os.pipe()
    threading.Thread(target=_forward, args=(source, target), name="onceflow-jvm-errors", daemon=True).start()
    return handed_out


def _forward(source: int, target: int) -> None:
    with os.fdopen(source, "rb") as lines:
        for line in lines:
            if _AT_EACH_START.match(line):
                _LOG.info("%s", line.decode(errors="replace").rstrip())
            else:
                os.write(target, line)
