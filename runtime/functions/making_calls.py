"""Calls: functions of the user's that answer later, on other threads than the slot's.

A coroutine function runs on one event loop, on a thread of its own; a blocking one on a few threads. The
slot's thread gives them questions and takes what has been answered; it never waits. The simulation puts
something else in their place (runtime/testing/sim_calls.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from onceflow.runtime.functions.lives import life_of
from onceflow.runtime.functions.questions import Answer, Calls, Question

THREADS_MAX = 32
"""The most threads of one subtask for a blocking function."""
END_S = 2.0
"""How long the end waits for coroutines that were cancelled."""


def is_coroutine_function(function: Any) -> bool:
    """Whether what a call returns has to be awaited."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(type(function), "__call__", None)  # noqa: B004 - of the class: whether it is a coroutine
    )


def calls_of(function: Callable[[Any], Any], at_once_max: int, wake: Callable[[], None]) -> Calls:
    """The calls of this function, at most so many at a time. `wake` ends the slot's waiting when an answer
    has come; it is called from other threads."""
    answers = Answers(wake)
    if is_coroutine_function(function):
        return LoopCalls(function, answers)
    return ThreadCalls(function, answers, min(at_once_max, THREADS_MAX))


class Answers:
    """The way of answers from other threads to the slot's."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._answers: deque[Answer] = deque()
        self._has_woken = False

    def __bool__(self) -> bool:
        return bool(self._answers)

    def put(self, answer: Answer) -> None:
        """Called from any thread. The slot is woken once until it takes."""
        self._answers.append(answer)
        if not self._has_woken:
            self._has_woken = True
            self._wake()

    def take(self) -> list[Answer]:
        self._has_woken = False  # before they are taken: what comes meanwhile wakes again
        taken: list[Answer] = []
        while self._answers:
            taken.append(self._answers.popleft())
        return taken


class LoopCalls:
    """Calls of a coroutine function, on one event loop on a thread of its own."""

    def __init__(self, function: Callable[[Any], Any], answers: Answers) -> None:
        self._function = function
        self._answers = answers
        self._tasks: dict[int, asyncio.Task[None]] = {}
        """Touched by the loop's thread only."""
        life = life_of(function)
        self._has_close = life is not None and life.close is not None
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="onceflow-calls", daemon=True)
        self._thread.start()

    def ask(self, questions: Sequence[Question]) -> None:
        self._loop.call_soon_threadsafe(self._begin, questions)

    @property
    def has_answers(self) -> bool:
        return bool(self._answers)

    def take(self) -> list[Answer]:
        return self._answers.take()

    def give_up(self, number: int) -> None:
        self._loop.call_soon_threadsafe(self._cancel, number)

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        async def called() -> Any:
            found = function(*arguments)
            return await found if inspect.isawaitable(found) else found

        try:
            return asyncio.run_coroutine_threadsafe(called(), self._loop).result()
        finally:
            if self._is_closed:
                self._end_loop()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        cancelled = asyncio.run_coroutine_threadsafe(self._cancel_all(), self._loop)
        with contextlib.suppress(TimeoutError):  # a coroutine that takes no cancellation is left behind
            cancelled.result(END_S)
        if not self._has_close:
            self._end_loop()

    def _begin(self, questions: Sequence[Question]) -> None:
        for question in questions:
            self._tasks[question.number] = self._loop.create_task(self._answer(question))

    async def _answer(self, question: Question) -> None:
        result: Any = None
        error: Exception | None = None
        try:
            result = await self._function(question.argument)
        except BaseException as raised:  # a cancellation of the user's own is an answer too
            error = _said(raised)
        if self._tasks.get(question.number) is asyncio.current_task():
            del self._tasks[question.number]
        self._answers.put(Answer(question.number, question.attempt, result, error))

    def _cancel(self, number: int) -> None:
        task = self._tasks.get(number)
        if task is not None:
            task.cancel()

    async def _cancel_all(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(END_S)
        if not self._thread.is_alive():
            self._loop.close()


class ThreadCalls:
    """Calls of a blocking function, on threads that are started as they are needed and end with the slot. A
    call that is given up keeps its thread until it comes back: Python can end no thread."""

    def __init__(self, function: Callable[[Any], Any], answers: Answers, threads_max: int) -> None:
        self._function = function
        self._answers = answers
        self._threads_max = threads_max
        self._questions: SimpleQueue[Question | None] = SimpleQueue()
        self._given_up: set[int] = set()
        self._open = 0
        """Questions without an answer that was taken."""
        self._threads = 0

    def ask(self, questions: Sequence[Question]) -> None:
        self._open += len(questions)
        while self._threads < min(self._open, self._threads_max):
            self._threads += 1
            threading.Thread(target=self._serve, name="onceflow-calls", daemon=True).start()
        for question in questions:
            self._questions.put(question)

    @property
    def has_answers(self) -> bool:
        return bool(self._answers)

    def take(self) -> list[Answer]:
        taken = self._answers.take()
        self._open -= len(taken)
        self._given_up.difference_update(answer.number for answer in taken)
        return taken

    def give_up(self, number: int) -> None:
        self._given_up.add(number)

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    def close(self) -> None:
        with contextlib.suppress(Empty):
            while True:
                self._questions.get_nowait()
        for _ in range(self._threads):
            self._questions.put(None)
        self._threads = 0

    def _serve(self) -> None:
        while (question := self._questions.get()) is not None:
            result: Any = None
            error: Exception | None = None
            if question.number in self._given_up:
                error = TimeoutError("nobody waits for it any more")
            else:
                try:
                    result = self._function(question.argument)
                except BaseException as raised:  # the thread serves others too
                    error = _said(raised)
            self._answers.put(Answer(question.number, question.attempt, result, error))


def _said(raised: BaseException) -> Exception:
    return raised if isinstance(raised, Exception) else RuntimeError(f"it ended with {type(raised).__name__}")
