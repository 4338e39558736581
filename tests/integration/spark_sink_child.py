"""A query into one of our formats, to be killed: rows of JSON files, two files a batch.

Run as a program with one argument, JSON: input, checkpoint, gates (a folder), run (a number; each row names
its run, so that a batch of two attempts is seen), options, where to: bootstrap_servers and topic, or
format and its options, and maybe source: a format of ours to read with, schema and options. Lines on standard
input: `start` a query until its input is used up, or `end`. Prints a line of JSON for the end of each
query: {"event": "done"} or {"event": "failed", "error": ...}.

A gate is a file NAME in the folder of gates: who comes to it takes it, leaves NAME.reached with its process
id inside, and waits until it is killed or NAME.open appears. So each window can be hit exactly, with
nothing of it in the code under test: the writer is wrapped here.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit

import onceflow
from onceflow.structured_streaming.any_sink.formats import FORMATS
from onceflow.structured_streaming.data_source import OnceflowKafka

GATE_S = 480


def pass_gate(gates: str, name: str) -> None:
    """Wait here if the gate was set up."""
    gate = Path(gates, name)
    reached, opened = gate.with_suffix(".reached"), gate.with_suffix(".open")
    temporary = gate.with_suffix(f".{os.getpid()}")
    temporary.write_text(str(os.getpid()))
    try:
        gate.rename(gate.with_suffix(f".{os.getpid()}.taken"))  # one comer wins
    except FileNotFoundError:
        return
    temporary.rename(reached)
    deadline = time.monotonic() + GATE_S
    while not opened.exists():
        assert time.monotonic() < deadline, f"nobody opened {name}"
        time.sleep(0.01)
    opened.unlink()


def gated_source(source: Any) -> Any:
    """The data source under test, with gates around its writer."""

    class Gated(source):  # type: ignore[misc]
        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            gates = self.options.pop("test_gates")
            return _gated(super().streamWriter(schema, overwrite), gates)

    return Gated


def _gated(writer: Any, gates: str) -> Any:
    write, commit = type(writer).write, type(writer).commit

    class GatedWriter(type(writer)):  # type: ignore[misc]
        def write(self, iterator: Any) -> Any:
            pass_gate(gates, "before-staging")
            message = write(self, _gated_batches(iterator, gates))
            if message.staged.file is not None if hasattr(message, "staged") else message.part.paths:
                pass_gate(gates, "after-staging")
            return message

        def commit(self, messages: Any, batchId: int) -> None:
            pass_gate(gates, "before-commit")
            commit(self, messages, batchId)
            pass_gate(gates, "after-commit")

    writer.__class__ = GatedWriter
    return writer


def _gated_batches(batches: Iterator[pa.RecordBatch], gates: str) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        pass_gate(gates, "mid-stage")


def main(config: dict[str, Any]) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.python.daemon.module": "onceflow.structured_streaming.daemon",
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
        **config.get("settings", {}),
    }
    builder = SparkSession.builder.master(config.get("master", "local[2]"))
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    onceflow.register(spark)
    source = {each.name(): each for each in (OnceflowKafka, *FORMATS)}[config.get("format", "onceflow-kafka")]
    spark.dataSource.register(gated_source(source))
    print(json.dumps({"event": "ready"}), flush=True)
    for run, line in enumerate(sys.stdin):
        if line.strip() == "end":
            break
        try:
            start(spark, config, 1_000 * config["run"] + run)
            said = {"event": "done"}
        except Exception as e:
            said = {"event": "failed", "error": str(e)}
        print(json.dumps(said), flush=True)
    os._exit(0)


def start(spark: SparkSession, config: dict[str, Any], run: int) -> None:
    rows = spark.readStream.schema("id long, user string").option("maxFilesPerTrigger", 2)
    if "source" in config:  # one of our formats instead of Spark's own files
        source = config["source"]
        rows = spark.readStream.schema(source["schema"]).format(source["format"])
        read = rows.options(**source["options"]).load()
    else:
        read = rows.json(config["input"])
    marked = read.withColumn("run", lit(run))
    options = {
        "uid": "kills",
        "checkpointLocation": config["checkpoint"],
        "test_gates": config["gates"],
        **config.get("options", {}),
    }
    if "topic" in config:
        options |= {"bootstrap_servers": config["bootstrap_servers"], "topic": config["topic"]}
        options |= {"format": "json", "key": "user"}
    writing = marked.writeStream.format(config.get("format", "onceflow-kafka")).options(**options)
    writing.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
