"""What every source must do whose finished splits are pruned (PruningSource).

The source under test has two splits or more that are found independently, all of which can be read to their
end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import ForgettingReader, Json, PruningEnumerator, PruningSource, Source
from onceflow.runtime.testing.conformance import quotations
from onceflow.runtime.testing.conformance.sources import initial_splits, open_reader, read


@quotations.of(
    PruningEnumerator.discover_unfinished, "splits that are not in `known` and were not added to `finished`."
)
def finished_splits_are_not_discovered_again(source: Source) -> None:
    splits = initial_splits(source)
    with_each = found_together(source)
    for count in range(len(splits) + 1):
        finished = add(source, None, range(count))
        found = discover(source, frozenset(), finished)
        gone = set().union(*with_each[:count])
        assert found == {s.split_id for s in splits} - gone, f"with {count} finished"
        known = frozenset(s.split_id for s in splits[count:])
        assert discover(source, known, finished) == set(), "known ones are not new"


@quotations.of(PruningSource.add_finished, "a split may come a second time.")
def splits_finish_in_any_order_and_may_be_told_twice(source: Source) -> None:
    splits = initial_splits(source)
    count, with_each = len(splits), found_together(source)
    forwards = add(source, None, range(count))
    backwards: Json = None
    for number in reversed(range(count)):
        backwards = add(source, add(source, backwards, [number]), [number])
        left = {s.split_id for s in splits} - set().union(*with_each[number:])
        assert discover(source, frozenset(), backwards) == left
    assert backwards == forwards, "what was finished does not depend on the order"


@quotations.of(PruningSource, "it should stay small however many splits have finished.")
def what_is_remembered_is_smaller_than_what_is_forgotten(source: Source) -> None:
    splits = initial_splits(source)
    positions = json.dumps([[s.split_id, dict(s.position)] for s in splits])
    assert len(json.dumps(add(source, None, range(len(splits))))) < len(positions)


@quotations.of(ForgettingReader.forget_splits, "leave them out of later snapshots.")
def a_reader_forgets_finished_splits(source: Source) -> None:
    splits = initial_splits(source)
    reader = open_reader(source)
    assert isinstance(reader, ForgettingReader), "or it grows for as long as the job runs"
    _, finished, _ = read(reader, splits, is_closed=False)
    first, *others = sorted(finished)
    reader.forget_splits([first])
    assert {s.split_id for s in reader.snapshot()} == set(others)
    reader.close()


PRUNING_CHECKS: Sequence[Callable[[Source], None]] = (
    finished_splits_are_not_discovered_again,
    splits_finish_in_any_order_and_may_be_told_twice,
    what_is_remembered_is_smaller_than_what_is_forgotten,
    a_reader_forgets_finished_splits,
)


def found_together(source: Source) -> list[set[str]]:
    """For each split those that are not discovered any more once it has finished: itself, and those that are
    always found with it. Asserts that it is the same for all of these, and that others are discovered."""
    splits = initial_splits(source)
    every = [s.split_id for s in splits]
    found = [
        set(every) - discover(source, frozenset(), add(source, None, [number]))
        for number in range(len(every))
    ]
    for split_id, together in zip(every, found, strict=True):
        assert split_id in together, f"{split_id} has finished, and is discovered again"
        assert all(found[every.index(other)] == together for other in together), (
            f"{split_id} has finished, and {sorted(together)} are not discovered any more"
        )
    assert len({frozenset(together) for together in found}) > 1, (
        "once one split has finished none is discovered any more; conformance needs two that are found "
        "independently"
    )
    return found


def add(source: Source, finished: Json, numbers: Sequence[int]) -> Json:
    """These splits have finished, too; as it comes back from a manifest."""
    assert isinstance(source, PruningSource)
    splits = initial_splits(source)
    return json.loads(json.dumps(source.add_finished(finished, [splits[n] for n in numbers])))


def discover(source: Source, known: frozenset[str], finished: Json) -> set[str]:
    enumerator = source.open_enumerator("conformance", SystemClock())
    assert isinstance(enumerator, PruningEnumerator)
    found = [split.split_id for split in enumerator.discover_unfinished(known, finished)]
    enumerator.close()
    assert len(found) == len(set(found)), found
    return set(found)
