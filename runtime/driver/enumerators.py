"""The sources' enumerators in the driver: initial splits, checks at a restore, discovery."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.start_changes import AS_CONFIGURED
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import (
    BoundingEnumerator,
    Json,
    PruningEnumerator,
    PruningSource,
    SkippingEnumerator,
    SplitEnumerator,
    SplitProgress,
    SplitState,
    StartingEnumerator,
    WaitingEnumerator,
    WarningEnumerator,
)
from onceflow.runtime.errors import Fatal, OnceflowError, OptionError, UsageError
from onceflow.runtime.graph.job_graph import JobGraph

Splits = Mapping[str, Sequence[SplitProgress]]
"""How far splits were read, by the source's uid."""


class Enumerators:
    """All enumerators of a job. An enumerator is called by one thread at a time."""

    def __init__(self, graph: JobGraph, clock: Clock) -> None:
        self._locks = {node.uid: threading.Lock() for node in graph.sources()}
        self._enumerators: dict[str, SplitEnumerator] = {
            node.uid: node.source.open_enumerator(graph.job, clock) for node in graph.sources()
        }
        self._pruning = {
            node.uid: node.source for node in graph.sources() if isinstance(node.source, PruningSource)
        }
        for uid in self._pruning:
            assert isinstance(self._enumerators[uid], PruningEnumerator), f"{uid}: see PruningSource"
        self._books: dict[str, _Book] = {uid: _Book() for uid in self._enumerators}
        self._found_since: dict[str, frozenset[str]] = {}

    def initial_splits(self) -> Splits:
        """The splits of all sources, at the very first start of the job. Raises one OptionError that tells
        what is wrong with each source's options: nobody should have to start again to hear of the next."""
        found: dict[str, Sequence[SplitProgress]] = {}
        wrong: list[OptionError] = []
        for uid, enumerator in self._enumerators.items():
            try:
                with self._locks[uid]:
                    found[uid] = [SplitProgress(split) for split in enumerator.initial_splits()]
            except OptionError as error:
                wrong.append(error)
        if wrong:
            raise wrong[0] if len(wrong) == 1 else OptionError("; ".join(dict.fromkeys(map(str, wrong))))
        return found

    def splits_from(self, starts: Mapping[str, Json]) -> Splits:
        """The splits of these sources, from the start that is given instead of the configured one."""
        found: dict[str, Sequence[SplitProgress]] = {}
        for uid, start in starts.items():
            enumerator = self._enumerators[uid]
            with self._locks[uid]:
                if start == AS_CONFIGURED:
                    splits = enumerator.initial_splits()
                elif isinstance(enumerator, StartingEnumerator):
                    try:
                        splits = enumerator.splits_from(start)
                    except UsageError as error:
                        raise UsageError(f"--reset-offsets {uid}: {error}") from error
                else:
                    raise UsageError(
                        f"--reset-offsets {uid}: this source begins where the program says only: write "
                        f"{uid}={AS_CONFIGURED}, and change the program if it is to begin elsewhere"
                    )
            found[uid] = [SplitProgress(split) for split in splits]
        return found

    def bounded(self, manifest: CheckpointManifest) -> Splits:
        """The splits of a savepoint, those of sources that end with their end, and what came since."""
        found: dict[str, Sequence[SplitProgress]] = {}
        for uid, progress in manifest.splits.items():
            enumerator = self._enumerators[uid]
            if isinstance(enumerator, BoundingEnumerator):
                known = {p.split.split_id: p for p in progress}
                with self._locks[uid]:
                    ended = enumerator.bounded([p.split for p in progress], manifest.finished.get(uid))
                found[uid] = [
                    replace(known.get(split.split_id, SplitProgress(split)), split=split) for split in ended
                ]
        return {**manifest.splits, **found}

    def check_restored(self, splits: Splits) -> None:
        """Raises DataLossError where reading can't go on exactly."""
        for uid, progress in splits.items():
            with self._locks[uid]:
                self._enumerators[uid].check_restored([p.split for p in progress if not p.is_finished])

    def found_since(self, manifest: CheckpointManifest) -> Splits:
        """Splits that appeared while the job was down, looked for before anything is read. If they were found
        later, by discovery, the other splits could have passed their event time, and their rows were late.
        A source that the program did not have then begins where it is configured to."""
        found: dict[str, Sequence[SplitProgress]] = {}
        for uid, enumerator in self._enumerators.items():
            if uid not in manifest.splits and uid not in manifest.finished:
                with self._locks[uid]:
                    found[uid] = [SplitProgress(split) for split in enumerator.initial_splits()]
            elif enumerator.discovery_interval_ms is not None:
                known = frozenset(p.split.split_id for p in manifest.splits.get(uid, ()))
                with contextlib.suppress(OnceflowError):
                    found[uid] = self._look(uid, known, manifest.finished.get(uid))
        self._found_since = {uid: frozenset(p.split.split_id for p in new) for uid, new in found.items()}
        return {uid: new for uid, new in found.items() if new}

    def restore(self, manifest: CheckpointManifest) -> None:
        """An attempt starts from this: what is discovered from now on is new if it is not in it."""
        for uid, book in self._books.items():
            known = frozenset(p.split.split_id for p in manifest.splits.get(uid, ()))
            book.begin(known, manifest.finished.get(uid))

    def take_new(
        self, uid: str, found: Sequence[SplitProgress], is_wanted: bool
    ) -> Sequence[tuple[int, SplitProgress]]:
        """The answer to a look: the splits that nobody has been given yet, each with a number that goes up
        by one. Not wanted: none, and they are found again at the next look."""
        return self._books[uid].take(found if is_wanted else [])

    def prune(self, manifest: CheckpointManifest, finished: Mapping[str, Json]) -> CheckpointManifest:
        """The manifest without the finished splits of sources that remember them."""
        splits, finished = dict(manifest.splits), dict(finished)
        for uid, source in self._pruning.items():
            if done := _finished_splits(manifest, uid):
                finished[uid] = source.add_finished(finished.get(uid), done)
                splits[uid] = [p for p in splits[uid] if not p.is_finished]
        return replace(manifest, splits=splits, finished=finished)

    def on_pruned(self, manifest: CheckpointManifest, finished: Mapping[str, Json]) -> None:
        """This is durable now, and its finished splits are remembered."""
        for uid in self._pruning:
            if done := _finished_splits(manifest, uid):
                self._books[uid].forget({split.split_id for split in done}, finished[uid])

    def warnings(self, splits: Splits) -> Sequence[str]:
        """Sentences on the options of sources that do not apply to these splits."""
        return [
            f"source {uid!r}: {warning}"
            for uid, progress in splits.items()
            if isinstance(enumerator := self._enumerators[uid], WarningEnumerator)
            for warning in enumerator.warnings([p.split for p in progress])
        ]

    def waiting_for(self) -> str | None:
        """What a call that is under way waits for, if one of the sources knows. Never waits."""
        for enumerator in self._enumerators.values():
            if isinstance(enumerator, WaitingEnumerator) and (reason := enumerator.waiting_for()) is not None:
                return reason
        return None

    def skip_to_end(self, splits: Splits) -> Splits:
        """At-most-once: leave out what came since the checkpoint, except splits that the checkpoint doesn't
        know. Raises Fatal if a source can't."""
        skipped: dict[str, Sequence[SplitProgress]] = {}
        for uid, all_progress in splits.items():
            new_ids = self._found_since.get(uid, frozenset())
            new = [p for p in all_progress if p.split.split_id in new_ids]
            progress = [p for p in all_progress if p.split.split_id not in new_ids]
            enumerator = self._enumerators[uid]
            if not isinstance(enumerator, SkippingEnumerator):
                raise Fatal(f"source {uid!r} can't skip to its end: at-most-once is not offered for it")
            with self._locks[uid]:
                at_end = enumerator.skip_to_end([p.split for p in progress])
            skipped[uid] = [replace(p, split=split) for p, split in zip(progress, at_end, strict=True)] + new
        return skipped

    def start_discovery(self, found: Callable[[str, Sequence[SplitProgress]], None]) -> Callable[[], None]:
        """Look for new splits now and then, on a thread of its own; `found(uid, splits)` hears of them
        there. Returns what ends it. A look that fails is tried again: the readers notice what matters."""
        over = threading.Event()
        for uid, enumerator in self._enumerators.items():
            if (interval_ms := enumerator.discovery_interval_ms) is not None:
                arguments = (uid, interval_ms / 1000, over, found)
                threading.Thread(
                    target=self._discover, args=arguments, name=f"onceflow-discover-{uid}", daemon=True
                ).start()
        return over.set

    def _discover(
        self,
        uid: str,
        interval_s: float,
        over: threading.Event,
        found: Callable[[str, Sequence[SplitProgress]], None],
    ) -> None:
        while not over.wait(interval_s):
            looked = self._books[uid].look()
            if looked is None:
                continue
            try:
                splits = self._look(uid, *looked)
            except OnceflowError:
                continue
            if splits and not over.is_set():
                self._books[uid].ask()
                found(uid, splits)

    def _look(self, uid: str, known: frozenset[str], finished: Json) -> list[SplitProgress]:
        enumerator = self._enumerators[uid]
        with self._locks[uid]:
            if isinstance(enumerator, PruningEnumerator):
                splits = enumerator.discover_unfinished(known, finished)
            else:
                splits = enumerator.discover(known)
        return [SplitProgress(split) for split in splits]

    def close(self) -> None:
        for enumerator in self._enumerators.values():
            enumerator.close()


def _finished_splits(manifest: CheckpointManifest, uid: str) -> list[SplitState]:
    return [p.split for p in manifest.splits.get(uid, ()) if p.is_finished]


class _Book:
    """Which splits of a source are known. Looks, answers and checkpoints come on three threads.

    A split that is found while it is pruned must not be given out again: a look may take seconds, and says
    what was new when it began. So what is pruned meanwhile is remembered until the look was answered, and
    there is no other look before that.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: frozenset[str] = frozenset()
        self._finished: Json = None
        self._pruned_since_look: frozenset[str] = frozenset()
        self._given = 0
        self._is_answered = True

    def begin(self, known: frozenset[str], finished: Json) -> None:
        with self._lock:
            self._known, self._finished, self._given = known, finished, len(known)
            self._is_answered = True

    def look(self) -> tuple[frozenset[str], Json] | None:
        """What is known when a look begins. None: the one before has not been answered."""
        with self._lock:
            if not self._is_answered:
                return None
            self._pruned_since_look = frozenset()
            return self._known, self._finished

    def ask(self) -> None:
        """Something was found: `take` is the answer."""
        with self._lock:
            self._is_answered = False

    def take(self, found: Sequence[SplitProgress]) -> list[tuple[int, SplitProgress]]:
        with self._lock:
            self._is_answered = True
            old = self._known | self._pruned_since_look
            new = [p for p in found if p.split.split_id not in old]
            self._known |= {p.split.split_id for p in new}
            numbered = list(enumerate(new, self._given))
            self._given += len(new)
            return numbered

    def forget(self, split_ids: set[str], finished: Json) -> None:
        with self._lock:
            self._known -= split_ids
            self._pruned_since_look |= split_ids
            self._finished = finished
