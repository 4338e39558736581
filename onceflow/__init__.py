"""Onceflow: exactly-once streams on Kafka. The names a user imports; all else may change.

Names are loaded when they are first used, so that `import onceflow` is fast and needs no Spark.
"""

__version__ = "0.1.0"
