"""HybridEnumerator: the splits of one source after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onceflow.connectors.hybrid.stages import (
    Finished,
    first_splits,
    inner,
    number_of,
    outer,
    outer_id,
    then_of,
)
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import (
    Json,
    PruningEnumerator,
    SplitEnumerator,
    SplitState,
    WaitingEnumerator,
    WarningEnumerator,
)

LOOK_MS = 1_000
"""How often it is looked whether a source has been read to its end."""


class HybridEnumerator:
    """A SplitEnumerator, a PruningEnumerator, a WarningEnumerator and a WaitingEnumerator."""

    def __init__(self, enumerators: Sequence[SplitEnumerator], clock: Clock) -> None:
        """`enumerators`: one of each source, in the order in which they are read."""
        self._enumerators = enumerators
        self._last = len(enumerators) - 1
        self._clock = clock
        self._looked_ms = clock.monotonic_ms()
        """When new splits of the last source were looked for."""

    @property
    def discovery_interval_ms(self) -> int | None:
        return LOOK_MS

    def initial_splits(self) -> Sequence[SplitState]:
        return first_splits([each.initial_splits() for each in self._enumerators])

    def discover(self, known: frozenset[str]) -> Sequence[SplitState]:
        return self.discover_unfinished(known, None)

    def discover_unfinished(self, known: frozenset[str], finished: Json) -> Sequence[SplitState]:
        done = Finished.of(finished)
        number = max(map(number_of, known), default=done.number)
        if number < self._last and known:
            return []  # it is being read
        if number < self._last and (found := done.next_splits):
            return found
        of_source = done.of_source if done.number == self._last else None
        return self._discover_in_last(known, of_source)

    def check_restored(self, splits: Sequence[SplitState]) -> None:
        """Check also what is to be read later: it may be gone before its time comes."""
        for number, enumerator in enumerate(self._enumerators):
            of_source = [inner(split) for split in _with_later(splits) if number_of(split.split_id) == number]
            if of_source:
                enumerator.check_restored(of_source)

    def warnings(self, splits: Sequence[SplitState]) -> Sequence[str]:
        return [
            warning
            for number, enumerator in enumerate(self._enumerators)
            if isinstance(enumerator, WarningEnumerator)
            for warning in enumerator.warnings(
                [inner(split) for split in splits if number_of(split.split_id) == number]
            )
        ]

    def waiting_for(self) -> str | None:
        """What the source waits for that is being asked; see WaitingEnumerator."""
        found = (each.waiting_for() for each in self._enumerators if isinstance(each, WaitingEnumerator))
        return next((reason for reason in found if reason is not None), None)

    def close(self) -> None:
        for enumerator in self._enumerators:
            enumerator.close()

    def _discover_in_last(self, known: frozenset[str], of_source: Json) -> Sequence[SplitState]:
        """Look for new splits of the last source, as often as that asks for."""
        enumerator, now_ms = self._enumerators[self._last], self._clock.monotonic_ms()
        interval_ms = enumerator.discovery_interval_ms
        if interval_ms is None or now_ms - self._looked_ms < interval_ms:
            return []
        self._looked_ms = now_ms
        prefix = outer_id(self._last, "")
        its_own = frozenset(
            split_id.removeprefix(prefix) for split_id in known if split_id.startswith(prefix)
        )
        found = (
            enumerator.discover_unfinished(its_own, of_source)
            if isinstance(enumerator, PruningEnumerator)
            else enumerator.discover(its_own)
        )
        return [outer(self._last, split) for split in found]


def _with_later(splits: Sequence[SplitState]) -> Iterator[SplitState]:
    """These, and those that are read once they have finished."""
    for split in splits:
        yield split
        then = then_of(split)
        if then is not None:
            number = number_of(split.split_id)
            for later, states in enumerate(Finished(number, None, then).later_splits, number + 1):
                yield from (outer(later, state) for state in states)
