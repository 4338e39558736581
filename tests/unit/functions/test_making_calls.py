"""Calls of functions that answer later, on the threads that make them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from onceflow.runtime.functions.making_calls import Calls, LoopCalls, ThreadCalls, calls_of
from onceflow.runtime.functions.questions import Answer, Question


class Woken:
    def __init__(self) -> None:
        self.event = threading.Event()
        self.count = 0

    def __call__(self) -> None:
        self.count += 1
        self.event.set()


@pytest.fixture
def woken() -> Woken:
    return Woken()


@pytest.fixture
def make(woken: Woken) -> Iterator[Callable[..., Calls]]:
    made: list[Calls] = []

    def calls(function: Any, at_once_max: int = 4) -> Calls:
        made.append(calls_of(function, at_once_max, woken))
        return made[-1]

    yield calls
    for each in made:
        each.close()


def wait_for(calls: Calls, count: int, woken: Woken) -> list[Answer]:
    found: list[Answer] = []
    for _ in range(100):
        found += calls.take()
        if len(found) >= count:
            return found
        woken.event.wait(0.2)
        woken.event.clear()
    raise AssertionError(f"{found} after 20 s")


async def doubled(n: int) -> int:
    if n < 0:
        raise ValueError(n)
    return 2 * n


def halved(n: int) -> int:
    if n < 0:
        raise SystemExit(n)
    return n // 2


def test_a_coroutine_function_runs_on_a_loop_and_another_one_on_threads(
    make: Callable[..., Calls], woken: Woken
) -> None:
    loop, threads = make(doubled), make(halved)
    assert isinstance(loop, LoopCalls)
    assert isinstance(threads, ThreadCalls)
    for calls in (loop, threads):
        calls.ask([Question(n, 1, n) for n in range(10)])
        assert sorted(answer.number for answer in wait_for(calls, 10, woken)) == list(range(10))
        assert not calls.has_answers
    assert woken.count >= 2


def test_what_is_raised_is_an_answer(make: Callable[..., Calls], woken: Woken) -> None:
    loop, threads = make(doubled), make(halved)
    loop.ask([Question(1, 1, -1)])
    (answer,) = wait_for(loop, 1, woken)
    assert isinstance(answer.error, ValueError)
    threads.ask([Question(1, 1, -1), Question(2, 1, 8)])
    answers = {answer.number: answer for answer in wait_for(threads, 2, woken)}
    assert "SystemExit" in str(answers[1].error)
    assert answers[2].result == 4


def test_many_wait_at_once_on_the_loop_and_one_may_be_given_up(
    make: Callable[..., Calls], woken: Woken
) -> None:
    gates: dict[int, asyncio.Event] = {}
    ended: list[int] = []
    all_there = threading.Event()

    async def wait(n: int) -> int:
        gates[n] = asyncio.Event()
        if len(gates) == 50:
            all_there.set()
        try:
            await gates[n].wait()
        finally:
            ended.append(n)
        return n

    calls = make(wait)
    assert isinstance(calls, LoopCalls)
    calls.ask([Question(n, 1, n) for n in range(50)])
    assert all_there.wait(80), "all of them at the same time"
    calls.give_up(7)
    (answer,) = wait_for(calls, 1, woken)
    assert (answer.number, ended) == (7, [7])
    assert "CancelledError" in str(answer.error)
    calls._loop.call_soon_threadsafe(gates[3].set)
    assert [answer.result for answer in wait_for(calls, 1, woken)] == [3]
    calls.close()
    assert sorted(ended) == list(range(50)), "the end cancels the rest"


def test_threads_are_no_more_than_may_be_asked_at_a_time(make: Callable[..., Calls], woken: Woken) -> None:
    gate, running = threading.Event(), threading.Semaphore(0)

    def block(n: int) -> str:
        running.release()
        gate.wait(80)
        return threading.current_thread().name

    calls = make(block, 2)
    calls.ask([Question(n, 1, n) for n in range(6)])
    assert running.acquire(timeout=80)
    assert running.acquire(timeout=80)
    assert not running.acquire(timeout=0.05), "a third one"
    calls.give_up(5)
    gate.set()
    answers = wait_for(calls, 6, woken)
    assert {answer.number for answer in answers if answer.error is not None} == {5}


class Client:
    def __init__(self) -> None:
        self.log: list[tuple[str, str]] = []

    async def open(self, ctx: Any) -> None:
        self.log.append(("open", threading.current_thread().name))

    async def close(self) -> None:
        self.log.append(("close", threading.current_thread().name))

    async def __call__(self, n: int) -> int:
        self.log.append(("call", threading.current_thread().name))
        return n


def test_an_object_lives_on_the_loop_that_calls_it_and_the_loop_ends_behind_its_close(
    make: Callable[..., Calls], woken: Woken
) -> None:
    client = Client()
    calls = make(client)
    assert isinstance(calls, LoopCalls)
    calls.run(client.open, None)
    calls.ask([Question(1, 1, 1)])
    wait_for(calls, 1, woken)
    calls.close()
    assert calls._thread.is_alive()
    calls.run(client.close)
    assert [what for what, _ in client.log] == ["open", "call", "close"]
    assert {name for _, name in client.log} == {"onceflow-calls"}
    assert not calls._thread.is_alive()


def test_without_a_close_the_loop_ends_with_the_operator(make: Callable[..., Calls]) -> None:
    calls = make(doubled)
    assert isinstance(calls, LoopCalls)
    calls.close()
    assert not calls._thread.is_alive()
