"""The sources' enumerators in the driver: initial splits, checks at a restore, discovery."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import (
    SkippingEnumerator,
    SplitEnumerator,
    SplitProgress,
    WarningEnumerator,
)
from onceflow.runtime.errors import Fatal, OnceflowError, Retryable
from onceflow.runtime.graph import JobGraph

Splits = Mapping[str, Sequence[SplitProgress]]
"""How far splits were read, by the source's uid."""


class Enumerators:
    """All enumerators of a job. An enumerator is called by one thread at a time."""

    def __init__(self, graph: JobGraph, clock: Clock) -> None:
        self._locks = {node.uid: threading.Lock() for node in graph.sources()}
        self._enumerators: dict[str, SplitEnumerator] = {
            node.uid: node.source.open_enumerator(graph.job, clock) for node in graph.sources()
        }
        self._known: dict[str, frozenset[str]] = {}

    def initial_splits(self) -> Splits:
        """The splits of all sources, at the very first start of the job."""
        found: dict[str, Sequence[SplitProgress]] = {}
        for uid, enumerator in self._enumerators.items():
            with self._locks[uid]:
                found[uid] = [SplitProgress(split) for split in enumerator.initial_splits()]
        return found

    def check_restored(self, splits: Splits) -> None:
        """Raises DataLossError where reading can't go on exactly."""
        for uid, progress in splits.items():
            with self._locks[uid]:
                self._enumerators[uid].check_restored([p.split for p in progress if not p.is_finished])

    def restore(self, splits: Splits) -> None:
        """An attempt starts with these: what is discovered from now on is new if it is none of them."""
        self._known = {uid: frozenset(p.split.split_id for p in found) for uid, found in splits.items()}

    def take_new(self, uid: str, found: Sequence[SplitProgress]) -> Sequence[tuple[int, SplitProgress]]:
        """The splits that nobody has been given yet, each with its number in the order in which they came."""
        known = self._known.get(uid, frozenset())
        new = [p for p in found if p.split.split_id not in known]
        self._known[uid] = known.union(p.split.split_id for p in new)
        return list(enumerate(new, len(known)))

    def warnings(self, splits: Splits) -> Sequence[str]:
        """Sentences on the options of sources that do not apply to these splits."""
        return [
            f"source {uid!r}: {warning}"
            for uid, progress in splits.items()
            if isinstance(enumerator := self._enumerators[uid], WarningEnumerator)
            for warning in enumerator.warnings([p.split for p in progress])
        ]

    def skip_to_end(self, splits: Splits) -> Splits:
        """At-most-once: leave out what came since the checkpoint. Raises Fatal if a source can't."""
        skipped: dict[str, Sequence[SplitProgress]] = {}
        for uid, progress in splits.items():
            enumerator = self._enumerators[uid]
            if not isinstance(enumerator, SkippingEnumerator):
                raise Fatal(f"source {uid!r} can't skip to its end: at-most-once is not offered for it")
            with self._locks[uid]:
                at_end = enumerator.skip_to_end([p.split for p in progress])
            skipped[uid] = [replace(p, split=split) for p, split in zip(progress, at_end, strict=True)]
        return skipped

    def start_discovery(self, found: Callable[[str, Sequence[SplitProgress]], None]) -> Callable[[], None]:
        """Look for new splits now and then, on a thread of its own; `found(uid, splits)` hears of them
        there. Returns what ends it. A look that fails is tried again: the readers notice what matters."""
        over = threading.Event()
        for uid, enumerator in self._enumerators.items():
            if (interval_ms := enumerator.discovery_interval_ms) is not None:
                arguments = (uid, enumerator, interval_ms / 1000, over, found)
                threading.Thread(
                    target=self._discover, args=arguments, name=f"onceflow-discover-{uid}", daemon=True
                ).start()
        return over.set

    def _discover(
        self,
        uid: str,
        enumerator: SplitEnumerator,
        interval_s: float,
        over: threading.Event,
        found: Callable[[str, Sequence[SplitProgress]], None],
    ) -> None:
        while not over.wait(interval_s):
            try:
                with self._locks[uid]:
                    splits = enumerator.discover(self._known.get(uid, frozenset()))
            except (Retryable, OnceflowError):
                continue
            if splits and not over.is_set():
                found(uid, [SplitProgress(split) for split in splits])

    def close(self) -> None:
        for enumerator in self._enumerators.values():
            enumerator.close()
