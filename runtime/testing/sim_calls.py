"""SimCalls: functions that answer later, in one thread; in which order they have answered is a choice."""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from threading import Thread
from typing import Any

from onceflow.runtime.functions.making_calls import is_coroutine_function
from onceflow.runtime.functions.questions import Answer, Question

Choose = Callable[[int, str], int]
"""(how many there are, what for) -> which one; as Choices.choose."""


class SimCalls:
    """The calls of one function. Coroutines run while answers are taken, until one at least is through; what
    has been answered is handed out in chosen order, and perhaps not at once."""

    def __init__(self, function: Callable[[Any], Any], choose: Choose | None) -> None:
        """`choose`: None: answers come as soon as they can, in the order of the questions."""
        self._function = function
        self._choose = choose
        self._is_async = is_coroutine_function(function)
        self._open: dict[int, Question] = {}
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._answered: dict[int, Answer] = {}
        self._is_closed = False
        self._loop = asyncio.new_event_loop() if self._is_async else None
        self._end = weakref.finalize(self, _end_loop, self._loop)

    def ask(self, questions: Sequence[Question]) -> None:
        self._open.update((question.number, question) for question in questions)

    @property
    def has_answers(self) -> bool:
        """Whether there may be some: time stands still while this one thread waits for them."""
        return bool(self._open)

    def take(self) -> list[Answer]:
        if self._loop is not None:
            self._run_tasks(self._loop)
        else:
            for question in self._open.values():
                if question.number not in self._answered:
                    self._answered[question.number] = _answer(question, self._function)
        there = [self._answered[number] for number in self._open if number in self._answered]
        if self._choose is not None:
            count = len(there) - self._choose(len(there) + 1, "answers that come later")
            there = [there.pop(self._choose(len(there), "answer")) for _ in range(count)]
        for answer in there:
            del self._open[answer.number], self._answered[answer.number]
        return there

    def give_up(self, number: int) -> None:
        if (task := self._tasks.pop(number, None)) is not None:
            task.cancel()
        self._open.pop(number, None)
        self._answered.pop(number, None)

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if self._loop is None:
            return function(*arguments)

        async def called() -> Any:
            found = function(*arguments)
            return await found if inspect.isawaitable(found) else found

        try:
            return self._loop.run_until_complete(called())
        finally:
            if self._is_closed:
                self._end()

    def close(self) -> None:
        self._is_closed = True
        self._open.clear()

    def _run_tasks(self, loop: asyncio.AbstractEventLoop) -> None:
        for number, question in self._open.items():
            if number not in self._tasks and number not in self._answered:
                self._tasks[number] = loop.create_task(self._function(question.argument))
        if self._tasks and not self._answered:
            loop.run_until_complete(asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_COMPLETED))
        for number, task in list(self._tasks.items()):
            if task.done():
                del self._tasks[number]
                self._answered[number] = _answer(self._open[number], partial(_result, task))


def _result(task: asyncio.Task[Any], _: Any) -> Any:
    return task.result()


def _answer(question: Question, function: Callable[[Any], Any]) -> Answer:
    result: Any = None
    error: Exception | None = None
    try:
        result = function(question.argument)
    except Exception as raised:
        error = raised
    return Answer(question.number, question.attempt, result, error)


def _end_loop(loop: asyncio.AbstractEventLoop | None) -> None:
    if loop is not None and not loop.is_closed():
        # In a thread of its own: Python may let go of these calls while it runs another loop in this one.
        thread = Thread(target=_cancel_and_close, args=(loop,))
        thread.start()
        thread.join()


def _cancel_and_close(loop: asyncio.AbstractEventLoop) -> None:
    async def cancel_all() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    loop.run_until_complete(cancel_all())
    loop.close()
