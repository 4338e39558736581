"""A wrong argument is told by a sentence wherever the program runs, not only under `onceflow run`."""

from __future__ import annotations

import importlib
import inspect
import pickle
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from onceflow import Job, ValueState, WatermarkStrategy, tumbling
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained, explained_methods

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGES = (  # what users call; the other pages are for those who write connectors
    "delta, files, formats, functions, http-streams, hybrid, iceberg, job, kafka, kinesis, lookups, mysql, "
    "nexmark, nifi, postgres-cdc, postgres, pubsub, rabbitmq, streams, upserts, webhooks, windows"
)
NOT_CALLED = (  # given to users, or made by them as classes of their own
    "AggregateFunction, Auction, BadValue, BatchContext, Bid, Collected, Decoded, EncodeError, Evictor, "
    "FunctionContext, InitializationContext, JobResult, Lookup, Person, Secret, SnapshotContext, Target, "
    "TargetContext, TransactionalStore, Trigger, TriggerCtx, TriggerResult, WatermarkGenerator, "
    "WindowAssigner, WindowBounds, WindowCtx, WindowProcess, WindowTimers, for_topic, run"
)


def called_by_users() -> Iterator[tuple[str, Any]]:
    not_called = NOT_CALLED.split(", ")
    for page in PAGES.split(", "):
        for path in re.findall(r"^::: (\S+)", (REFERENCE / f"{page}.md").read_text(), re.MULTILINE):
            module, _, name = path.rpartition(".")
            found = getattr(importlib.import_module(module), name)
            is_protocol = getattr(found, "_is_protocol", False)
            if callable(found) and name not in not_called and not is_protocol:
                yield path, found


def test_everything_that_users_call_says_which_argument_it_does_not_have() -> None:
    bare = []
    for path, called in called_by_users():
        with pytest.raises(Exception) as raised:  # noqa: PT011 - which one is what is asked
            called(no_argument_of_anything=1)
        if raised.type is not OptionError and "**" not in str(inspect.signature(called)):
            bare.append(path)
    assert not bare, "decorate them with @explained (runtime/explained_calls.py)"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: KafkaSource(bootstrap_servers="x:1", topic="t", value=Json()),  # type: ignore[call-arg]
            "KafkaSource has no argument 'topic' (did you mean 'topics'?)",
        ),
        (
            lambda: Job("j").run(paralellism=2),  # type: ignore[call-arg]
            "Job.run has no argument 'paralellism' (did you mean 'parallelism'?)",
        ),
        (
            lambda: Job("j").from_elements(1).map(str, udi="x"),  # type: ignore[call-arg]
            "Stream.map has no argument 'udi' (did you mean 'uid'?)",
        ),
        (
            lambda: WatermarkStrategy.bounded_out_of_orderness("2 s", event_tme="ts"),  # type: ignore[call-arg]
            "WatermarkStrategy.bounded_out_of_orderness has no argument 'event_tme' (did you mean "
            "'event_time'?)",
        ),
        (
            lambda: ValueState("n"),
            "ValueState lacks value_type; its arguments are name, value_type, ttl, ttl_refresh, ttl_time, "
            "former_names, codec",
        ),  # type: ignore[call-arg]
        (
            lambda: tumbling("1 s", "2 s", "3 s"),  # type: ignore[call-arg]
            "tumbling is given more than it takes without a name; its arguments are size, offset",
        ),
        (
            lambda: tumbling("1 s", size="2 s"),  # type: ignore[misc]
            "tumbling is given one argument twice, with and without its name: multiple values for argument "
            "'size'; its arguments are size, offset",
        ),
    ],
)
def test_the_sentence_names_what_was_meant(call: Any, sentence: str) -> None:
    with pytest.raises(OptionError) as raised:
        call()
    assert str(raised.value) == sentence


@explained
@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0

    @classmethod
    def of(cls, text: str) -> Point:
        return cls(int(text) + None)  # type: ignore[operator]  # a mistake within


class Older:
    def move(self, by: int) -> int:
        return by


@explained_methods
class Newer(Older):
    pass


def test_what_fits_is_as_it_was() -> None:
    assert replace(Point(1, y=2), x=3) == Point(3, 2) == pickle.loads(pickle.dumps(Point(3, 2)))
    assert str(inspect.signature(Point)) == "(x: 'int', y: 'int' = 0) -> None"


def test_a_type_error_from_within_stays_what_it_is() -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        Point.of("1")


def test_methods_of_another_class_are_named_by_the_users_and_the_other_class_is_left_alone() -> None:
    with pytest.raises(OptionError, match=r"^Newer\.move has no argument 'byy' \(did you mean 'by'\?\)$"):
        Newer().move(byy=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword"):
        Older().move(byy=1)  # type: ignore[call-arg]
