"""close() at the end of an attempt: on the slot's thread, bounded in time, and told."""

from __future__ import annotations

import threading

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.control.message import Message
from onceflow.runtime.control.messages import FunctionsClosed, FunctionsOpened, Noticed
from onceflow.runtime.errors import Retryable
from onceflow.runtime.functions.context import function_context
from onceflow.runtime.functions.lives import FunctionLives
from onceflow.runtime.functions.metrics import MetricRegistry
from onceflow.runtime.functions.parameters import NO_PARAMS, Parameters, Secret
from onceflow.runtime.slot.function_closing import SlotWord, close_functions

CONTEXT = function_context("job", "enrich", 0, 1, 1, NO_PARAMS, lambda: "", MetricRegistry(ManualClock()))


class Client:
    def __init__(self) -> None:
        self.closed_on: threading.Thread | None = None

    def close(self) -> None:
        self.closed_on = threading.current_thread()


class Hanging:
    def __init__(self, until: threading.Event) -> None:
        self._until = until

    def close(self) -> None:
        assert self._until.wait(120)


def test_it_is_called_on_the_thread_that_opened() -> None:
    lives, client = FunctionLives(lambda trouble: None), Client()
    lives.open(client, CONTEXT)
    close_functions(lives, lambda said: None, None)
    assert client.closed_on is threading.current_thread()


def test_one_that_hangs_is_named_and_ends_its_process() -> None:
    lives, has_ended, said = FunctionLives(lambda trouble: None), threading.Event(), list[str]()
    lives.open(Hanging(has_ended), CONTEXT)
    close_functions(lives, said.append, has_ended.set, close_s=0.01)
    assert said == [
        "operator 'enrich': Hanging.close has not come back within 0.01 s at the end of an attempt: its "
        "process is ended"
    ]


def test_the_driver_hears_that_there_is_something_to_close_and_that_it_was() -> None:
    sent: list[Message] = []
    word = SlotWord(3, sent.append, Parameters({"token": Secret("hunter2")}))
    lives = FunctionLives(word.noticed, word.functions_opened)
    lives.open(str, CONTEXT)
    word.functions_closed()
    assert sent == []
    lives.open(Client(), CONTEXT)
    lives.open(Client(), CONTEXT)
    word.noticed("of hunter2")
    word.functions_closed()
    assert sent == [
        FunctionsOpened(attempt=3),
        Noticed(attempt=3, reason="of ***"),
        FunctionsClosed(attempt=3),
    ]


def test_a_driver_that_is_gone_does_not_matter() -> None:
    def fail(message: Message) -> None:
        raise Retryable("the driver is gone")

    SlotWord(1, fail, NO_PARAMS).noticed("something")
