"""A program that `spark-submit` has started: the master and the settings that were given there."""

from __future__ import annotations

from pyspark import SparkConf, SparkContext

from onceflow.runtime.hosts.spark.settings import OWN_SETTINGS

_JOBS_OWN = {"spark.app.name", "spark.master", *OWN_SETTINGS}
"""Settings that don't come from there. Restarts rest on some; a cluster's defaults may say otherwise."""


def submitted_settings() -> tuple[str, dict[str, str]]:
    """The master and Spark's settings, from the JVM of spark-submit, which is there already."""
    SparkContext._ensure_initialized()
    settings = dict(SparkConf(loadDefaults=True).getAll())
    return settings["spark.master"], {k: v for k, v in settings.items() if k not in _JOBS_OWN}
