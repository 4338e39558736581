"""SinkFormat: how a sink of the runtime becomes a format, as in `.format("onceflow-postgres")`.

A registration is a class in `formats.py`, and its line in FORMATS there:

    class OnceflowRedis(SinkDataSource):
        form = SinkFormat("onceflow-redis", _redis, {"url": text, "key": names}, needs=("url", "key"))

    def _redis(given: Mapping[str, Any]) -> Sink:
        from onceflow.sinks.redis import RedisSink   # here, so that other formats don't need its packages

        return RedisSink(**given)

Two kinds of sinks can be registered, and nothing else has to be written for them:

- a TargetSink (connectors/staged_commits): tasks stage the batch's rows, and the driver commits them all to
  the Target of owner "0", in the order of the partitions, as checkpoint batchId + 1. So a Target that commits
  in one step shows a batch at once, and rows of one key are in one Target.
- a CommittingSink: tasks write parts with the sink's own writers (`recover` of nothing, `write`, `pre_commit`
  of checkpoint batchId + 1, `stage`; subtask is the partition), and the driver's committer commits what they
  have named. Spark may run a task twice at once, with the same subtask and attempt: names of files need
  something random. Rows of one key may come to several writers, so one with `partition_columns` is refused,
  unless it is a SettlingSink.

What both may rely on is what the runtime gives them: a checkpoint that was tried is only ever tried again
with the same committables, whatever Spark does (batch_commits.py says how). Row kinds are never given:
all rows are new.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from onceflow.runtime.contracts import Sink
from onceflow.structured_streaming.option_texts import Convert


@dataclass(frozen=True, slots=True)
class SinkFormat:
    """A format and its sink. `options`: its own, beside uid, staging and those of the query. `make` gets what
    was given of them, converted, by the names that are here, and raises OptionError; `needs`: what must be
    there."""

    name: str
    make: Callable[[Mapping[str, Any]], Sink]
    options: Mapping[str, Convert]
    needs: tuple[str, ...] = ()
    instead_of_reading: str = "it can only be written"
    """How rows are read instead, for who tries."""
