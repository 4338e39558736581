"""Connectors by name: `onceflow connectors` lists those of all installed packages."""

from onceflow import Job, load_format, load_sink, load_source

text = load_format("text", "line")
kafka = {"bootstrap_servers": "localhost:9092"}
lines = load_source("kafka", **kafka, topics="lines", value=text)
job = Job("copied")
job.source(lines, uid="lines").sink_to(
    load_sink("kafka", **kafka, topic="copies", value=text), uid="copies"
)
