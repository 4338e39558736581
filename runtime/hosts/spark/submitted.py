"""A Spark that is there before the job: what spark-submit was told, and a session of the program's own."""

from __future__ import annotations

from typing import Any

from pyspark import SparkConf, SparkContext

from onceflow.runtime.errors import OptionError
from onceflow.runtime.hosts.spark.settings import OWN_SETTINGS

_JOBS_OWN = {"spark.app.name", "spark.master", *OWN_SETTINGS}
"""Settings that don't come from there. Restarts rest on some; a cluster's defaults may say otherwise."""


def submitted_settings() -> tuple[str, dict[str, str]]:
    """The master and Spark's settings, from the JVM of spark-submit, which is there already."""
    SparkContext._ensure_initialized()
    settings = dict(SparkConf(loadDefaults=True).getAll())
    return settings["spark.master"], {k: v for k, v in settings.items() if k not in _JOBS_OWN}


def refuse_second_context() -> None:
    """Raises OptionError if the program has a session already: Spark can't have two in one process."""
    if SparkContext._active_spark_context is not None:
        raise OptionError(
            "this process has a SparkContext already, and a job starts one of its own: stop it first, as in "
            'spark.stop(), or run the job without Spark, on master="threads[2]"'
        )


NO_ERRORS = (
    "org.apache.spark.scheduler",
    "org.apache.spark.executor",
    "org.apache.spark.api.python",
    "org.apache.spark.TaskContextImpl",
)
"""Loggers that tell of a stage which is cancelled because an attempt is over: no error, and the driver says
why. In a JVM of our own log4j2.properties keeps them still."""


def keep_still(gateway: Any) -> None:
    """Turn these loggers off in a JVM that is not our own."""
    configurator = gateway.jvm.org.apache.logging.log4j.core.config.Configurator
    for name in NO_ERRORS:
        configurator.setLevel(name, gateway.jvm.org.apache.logging.log4j.Level.OFF)
