"""Function objects: an instance for each subtask, opened once, closed whatever happens."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.errors import GraphError, Retryable, UserFunctionError
from onceflow.runtime.functions.context import FunctionContext, function_context
from onceflow.runtime.functions.lives import FunctionLives, check_life, life_of, own_instance
from onceflow.runtime.functions.metrics import MetricRegistry
from onceflow.runtime.functions.parameters import Parameters

CONTEXT = function_context("job", "enrich", 1, 2, 3, Parameters(), lambda: "", MetricRegistry(ManualClock()))


class Client:
    """Says in `told` what happens to it, and to which of its copies."""

    told: list[str]

    def __init__(self, name: str = "one", fails: str = "") -> None:
        self.name, self.fails = name, fails
        self.cache: dict[str, int] = {}

    def open(self, ctx: FunctionContext) -> None:
        self._say("open")

    def __call__(self, record: Any) -> Any:
        return record

    lookup = __call__

    def close(self) -> None:
        self._say("close")

    def _say(self, what: str) -> None:
        type(self).told.append(f"{what} {self.name}")
        if self.fails == what:
            raise ValueError(f"{what} is not to be")


@pytest.fixture(autouse=True)
def told() -> list[str]:
    Client.told = []
    return Client.told


def test_what_was_opened_is_closed_the_last_first(told: list[str]) -> None:
    lives = FunctionLives(told.append)
    for name in ("one", "two"):
        lives.open(Client(name), CONTEXT)
    lives.open(str, CONTEXT)
    lives.close()
    lives.close()
    assert told == ["open one", "open two", "close two", "close one"]


def test_a_close_that_raises_is_told_and_the_others_are_closed(told: list[str]) -> None:
    lives = FunctionLives(told.append)
    for client in (Client("one"), Client("two", fails="close")):
        lives.open(client, CONTEXT)
    lives.close()
    assert told[2:] == [
        "close two",
        f"operator 'enrich': Client.close failed on the end of its subtask (at {__file__}:"
        f"{told[3].rsplit(':', 3)[1].rstrip(')')}): ValueError: close is not to be",
        "close one",
    ]


def test_an_open_that_raises_is_an_error_of_the_users_and_nothing_to_close(told: list[str]) -> None:
    lives = FunctionLives(told.append)
    with pytest.raises(
        UserFunctionError, match=r"'enrich': Client.open failed on subtask 1 of 2 .*ValueError"
    ):
        lives.open(Client(fails="open"), CONTEXT)
    lives.close()
    assert told == ["open one"]

    class Away(Client):
        def open(self, ctx: FunctionContext) -> None:
            raise Retryable("the service is away")

    with pytest.raises(Retryable, match=r"Away.open failed on subtask 1 of 2.*the service is away"):
        lives.open(Away(), CONTEXT)


def test_what_is_opened_by_a_thread_that_comes_late_is_closed_at_once(told: list[str]) -> None:
    lives = FunctionLives(told.append)
    lives.close()
    late = threading.Thread(target=lives.open, args=(Client(), CONTEXT))
    late.start()
    late.join()
    assert told == ["open one", "close one"]


def test_each_subtask_has_an_instance_of_its_own() -> None:
    client = Client()
    one, other = own_instance(client, "enrich"), own_instance(client, "enrich")
    one.cache["x"] = 1
    assert (other.cache, client.cache) == ({}, {})
    method = own_instance(client.lookup, "enrich")
    assert method.__self__ is not client
    assert method("x") == "x"
    assert own_instance(len, "enrich") is len

    client.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(UserFunctionError, match=r"Client can't be copied for each subtask .*in its open"):
        own_instance(client, "enrich")


def test_what_has_a_life() -> None:
    class Closes:
        def close(self) -> None: ...

    found = life_of(Closes())
    assert found is not None
    assert (found.open, found.close is None) == (None, False)
    assert [life_of(each) for each in (len, str, Client, lambda x: x, Path("x").joinpath)][:4] == [None] * 4


def test_an_open_of_another_kind_is_refused_when_the_graph_is_built() -> None:
    class Other:
        def open(self) -> None: ...

    with pytest.raises(GraphError, match=r"Other.open can't be called as `open\(self, ctx\)`"):
        check_life(Other(), "enrich")

    class Closed:
        def close(self, why: str) -> None: ...

    with pytest.raises(GraphError, match=r"Closed.close can't be called as `close\(self\)`"):
        check_life(Closed(), "enrich")
