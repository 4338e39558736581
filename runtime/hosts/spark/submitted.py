"""A program that `spark-submit` has started: the master and the settings that were given there."""

from __future__ import annotations

from pyspark import SparkConf, SparkContext

_NOT_OURS = ("spark.app.name", "spark.master")


def submitted_settings() -> tuple[str, dict[str, str]]:
    """The master and Spark's settings, from the JVM of spark-submit, which is there already."""
    SparkContext._ensure_initialized()
    settings = dict(SparkConf(loadDefaults=True).getAll())
    return settings["spark.master"], {k: v for k, v in settings.items() if k not in _NOT_OURS}
