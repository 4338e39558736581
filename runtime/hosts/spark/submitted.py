"""A Spark that is there before the job: what spark-submit was told, and a session of the program's own."""

from __future__ import annotations

from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from onceflow.runtime.errors import OptionError


def submitted_master() -> str:
    """The master that spark-submit was given. The JVM is there already, and is asked."""
    gateway = SparkContext._gateway
    if gateway is None:
        gateway = SparkContext._gateway = launch_gateway(SparkConf(loadDefaults=False))
        SparkContext._jvm = gateway.jvm
    return str(gateway.jvm.System.getProperty("spark.master"))


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
