"""Choices: the one source of nondeterminism of a simulation.

Whatever a simulation leaves open it asks here, so a list of numbers is a whole run: seeded (many
different runs), exhaustive (every run of a small world), replayed (the list that a failure printed).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Protocol


class Choices(Protocol):
    """Asked for every decision, in order."""

    def choose(self, n: int, what: str = "") -> int:
        """One of 0..n-1; 0 is the ordinary case. `what` names the question in a trace."""
        ...


class SeededChoices:
    """Different for each seed, the same each time for one."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.taken: list[int] = []

    def choose(self, n: int, what: str = "") -> int:
        assert n >= 1, what
        # Random.random is a quarter of the cost of randrange, and this is the simulation's inner loop.
        choice = int(self._random.random() * n) if n > 1 else 0
        self.taken.append(choice)
        return choice


class ReplayedChoices:
    """What `taken` of a failed run said; after its end always the ordinary case."""

    def __init__(self, taken: Sequence[int]) -> None:
        self._given = list(taken)
        self.taken: list[int] = []

    def choose(self, n: int, what: str = "") -> int:
        index = len(self.taken)
        choice = self._given[index] if index < len(self._given) else 0
        if choice >= n:
            raise AssertionError(
                f"replay differs: choice {index} ({what}) is {choice} of {n}; was the code changed?"
            )
        self.taken.append(choice)
        return choice


class ExhaustiveChoices:
    """Every run of a world, one after another, depth first.

        search = ExhaustiveChoices(deviations_max=2)
        for choices in search:
            run_world(choices)

    `deviations_max` bounds how many choices of a run are not 0 (delay-bounded search: most bugs of
    concurrency need few). Finds out too when a world is not deterministic: the bounds of the same
    prefix differ.
    """

    def __init__(self, deviations_max: int | None = None) -> None:
        self._deviations_max = deviations_max
        self._prefix: list[int] = []
        self._bounds: list[int] = []
        self.taken: list[int] = []
        self.runs = 0

    def __iter__(self) -> Iterator[ExhaustiveChoices]:
        while True:
            self.taken = []
            self.runs += 1
            yield self
            if not self._advance():
                return

    def choose(self, n: int, what: str = "") -> int:
        index = len(self.taken)
        if index < len(self._prefix):
            assert self._bounds[index] == n, (
                f"the world is not deterministic: choice {index} ({what}) had {self._bounds[index]} "
                f"options, now {n}"
            )
        else:
            self._prefix.append(0)
            self._bounds.append(n)
        self.taken.append(self._prefix[index])
        return self._prefix[index]

    def _advance(self) -> bool:
        """The next prefix in order; False: that was the last."""
        del self._prefix[len(self.taken) :], self._bounds[len(self.taken) :]
        others = len(self._prefix) - self._prefix.count(0)
        while self._prefix:
            last = self._prefix[-1]
            others -= last > 0
            may_deviate = self._deviations_max is None or others < self._deviations_max
            if last + 1 < self._bounds[-1] and may_deviate:
                self._prefix[-1] = last + 1
                return True
            self._prefix.pop()
            self._bounds.pop()
        return False
