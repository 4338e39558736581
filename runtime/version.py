"""The version of onceflow; driver and executors compare it when a job starts."""

VERSION = "0.1.0"
