"""LookupCalls: questions by key. Equal keys are asked for once, several in one request, and not again while
they are in the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from onceflow.runtime.functions.questions import Answer, Calls, Question
from onceflow.runtime.operators.async_calls.lookup_cache import LookupCache


class LookupCalls:
    """The calls of one look-up. The argument of a question is a key, None for one that equals no other; its
    answer's result are the rows of the key."""

    def __init__(self, requests: Calls, keys_at_once: int, cache: LookupCache | None) -> None:
        """`requests`: calls whose argument are keys, and whose result are rows by key."""
        self._requests = requests
        self._keys_at_once = keys_at_once
        self._cache = cache
        self._waiting: dict[Any, list[Question]] = {}
        """The questions that wait for a key's rows."""
        self._key_of: dict[int, Any] = {}
        self._keys_of: dict[int, Sequence[Any]] = {}
        """The keys of each request that has been made."""
        self._numbers = count()
        self._ready: list[Answer] = []

    def ask(self, questions: Sequence[Question]) -> None:
        new: list[Any] = []
        for question in questions:
            key = question.argument
            rows = () if key is None else self._cache.get(key) if self._cache is not None else None
            if rows is not None:
                self._ready.append(Answer(question.number, question.attempt, rows, None))
                continue
            if key not in self._waiting:
                new.append(key)
            self._waiting.setdefault(key, []).append(question)
            self._key_of[question.number] = key
        at_once = self._keys_at_once
        self._request([new[first : first + at_once] for first in range(0, len(new), at_once)])

    @property
    def has_answers(self) -> bool:
        return bool(self._ready) or self._requests.has_answers

    def take(self) -> list[Answer]:
        for request in self._requests.take():
            keys = self._keys_of.pop(request.number, ())
            if request.error is not None and len(keys) > 1:
                self._request([[key] for key in keys if key in self._waiting])
                continue
            found = request.result if request.error is None else {}
            for key in keys:
                rows = found.get(key, ())
                if request.error is None and self._cache is not None:
                    self._cache.put(key, rows)
                for question in self._waiting.pop(key, ()):
                    del self._key_of[question.number]
                    self._ready.append(Answer(question.number, question.attempt, rows, request.error))
        ready, self._ready = self._ready, []
        return ready

    def give_up(self, number: int) -> None:
        key = self._key_of.pop(number, None)
        if key in self._waiting:
            left = [question for question in self._waiting[key] if question.number != number]
            if left:
                self._waiting[key] = left
                return
            del self._waiting[key]
            for request, keys in list(self._keys_of.items()):
                if not any(each in self._waiting for each in keys):
                    del self._keys_of[request]
                    self._requests.give_up(request)

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._requests.run(function, *arguments)

    def close(self) -> None:
        self._requests.close()

    def _request(self, batches: Sequence[Sequence[Any]]) -> None:
        if not batches:
            return
        asked = [Question(next(self._numbers), 1, keys) for keys in batches]
        self._keys_of.update((question.number, question.argument) for question in asked)
        self._requests.ask(asked)
