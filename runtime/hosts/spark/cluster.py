"""What the driver's JVM knows of the cluster and of a failed stage: Spark's own objects, asked through Py4J.

Nothing here is part of Spark's documented interface; the tests on a standalone Master hold it.
"""

from __future__ import annotations

import re
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

from onceflow.runtime.errors import Retryable

_STAGE = re.compile(r"ResultStage (\d+)")
_TASKS_MAX = 10_000


def jvm_context(context: SparkContext) -> Any:
    """Spark's own context, behind the one for Java. Raises Retryable once this process has stopped it."""
    for_java: Any = context._jsc
    if for_java is None:
        raise Retryable("Spark was stopped")
    return for_java.sc()


def slots_now(context: SparkContext) -> int:
    """How many tasks Spark can run at once on what is there now; what it holds a barrier stage against."""
    inside = jvm_context(context)
    profile = inside.resourceProfileManager().defaultResourceProfile()
    return int(inside.maxNumConcurrentTasks(profile))


def executors_now(context: SparkContext) -> int:
    """How many executors have registered with the driver and are there."""
    return len(jvm_context(context).statusTracker().getExecutorInfos()) - 1  # the driver is one of them


def driver_address(context: SparkContext) -> str:
    """`host:port` at which executors register."""
    conf = context.getConf()
    return f"{conf.get('spark.driver.host')}:{conf.get('spark.driver.port')}"


def failed_on(context: SparkContext, text: str) -> str | None:
    """The host of the first task that failed in the stage of which Spark's text tells; None if Spark does
    not know it (any more)."""
    stage = _STAGE.search(text)
    if stage is None:
        return None
    try:
        inside = jvm_context(context)
        inside.listenerBus().waitUntilEmpty()  # what has failed is told there, behind the error
        tasks = inside.statusStore().taskList(int(stage[1]), 0, _TASKS_MAX)
        for number in range(tasks.size()):
            if str(tasks.apply(number).status()) == "FAILED":
                return str(tasks.apply(number).host())
    except (Py4JError, OSError, Retryable):
        return None
    return None
