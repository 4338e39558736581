"""What jobs/kinds_of_windows.py sends, from the events of both topics: naive, one event after the other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

from tests.integration.jobs.kinds_of_windows import FEW, GAP_MS, SHORT_GAP_MS, SIZE_MS, WITHIN_MS

Event = tuple[int, int, int]
"""(key, number, event time)."""
Events = list[Event]
OfKey = list[tuple[int, int]]
"""(number, event time) of each event of a key, in the order in which they were sent."""
ByKey = dict[int, OfKey]
Found = tuple[int, int | None, int | None, int | None]
"""(key, a, b, c), as the program says."""
LONG_MS = 3 * SIZE_MS


def by_key(events: Events) -> ByKey:
    found: ByKey = defaultdict(list)
    for key, n, ts in events:
        found[key].append((n, ts))
    return found


def totals(key: int, at: int | None, events: Iterable[tuple[int, int]]) -> Found:
    """`at` None: the highest number."""
    numbers = [n for n, _ in events]
    return (key, max(numbers) if at is None else at, len(numbers), sum(numbers))


def within(events: OfKey, start: int, end: int) -> OfKey:
    return [(n, ts) for n, ts in events if start <= ts < end]


def windows(events: OfKey, size_ms: int, slide_ms: int) -> Iterator[tuple[int, OfKey]]:
    """The windows that have events: the start of each, and these."""
    first, last = min(ts for _, ts in events), max(ts for _, ts in events)
    for start in range((first - size_ms) // slide_ms * slide_ms, last + 1, slide_ms):
        if inside := within(events, start, start + size_ms):
            yield start, inside


def tumbling(left: ByKey, right: ByKey) -> Counter[Found]:
    return Counter(totals(k, at, rows) for k, e in left.items() for at, rows in windows(e, SIZE_MS, SIZE_MS))


def sliding(left: ByKey, right: ByKey) -> Counter[Found]:
    return Counter(totals(k, at, rows) for k, e in left.items() for at, rows in windows(e, LONG_MS, SIZE_MS))


def session(left: ByKey, right: ByKey) -> Counter[Found]:
    found: Counter[Found] = Counter()
    for key, events in left.items():
        visit: OfKey = []
        for n, ts in sorted(events, key=lambda event: event[1]):
            if visit and ts - visit[-1][1] > GAP_MS:
                found[totals(key, visit[0][1], visit)] += 1
                visit = []
            visit.append((n, ts))
        found[totals(key, visit[0][1], visit)] += 1
    return found


def cumulative(left: ByKey, right: ByKey) -> Counter[Found]:
    found: Counter[Found] = Counter()
    for key, events in left.items():
        for start, _ in windows(events, LONG_MS, LONG_MS):
            for end in range(start + SIZE_MS, start + LONG_MS + 1, SIZE_MS):
                if so_far := within(events, start, end):
                    found[totals(key, end, so_far)] += 1
    return found


def last_rows(size: int | None, slide: int) -> Callable[[ByKey, ByKey], Counter[Found]]:
    """The last `size` events of a key, or all, with each `slide`-th of them."""

    def model(left: ByKey, right: ByKey) -> Counter[Found]:
        return Counter(
            totals(key, None, events[0 if size is None else max(0, end - size) : end])
            for key, events in left.items()
            for end in range(slide, len(events) + 1, slide)
        )

    return model


def early(left: ByKey, right: ByKey) -> Counter[Found]:
    """The rows of a window so far with each third one, and the whole at its end."""
    return Counter(
        totals(key, at, rows[:upto])
        for key, events in left.items()
        for at, rows in windows(events, SIZE_MS, SIZE_MS)
        for upto in [*range(3, len(rows) + 1, 3), len(rows)]
    )


def evicted(left: ByKey, right: ByKey) -> Counter[Found]:
    return Counter(
        totals(k, at, rows[-2:]) for k, e in left.items() for at, rows in windows(e, SIZE_MS, SIZE_MS)
    )


def all_of_each(left: ByKey, right: ByKey) -> Counter[Found]:
    return Counter((k, None, len(events), sum(n for n, _ in events)) for k, events in left.items())


def joined(
    left: ByKey, right: ByKey, meet: Callable[[int, int], bool] = lambda ours, theirs: True
) -> Counter[Found]:
    """Nested loops; `meet` gets the event times."""
    found: Counter[Found] = Counter()
    for key in left.keys() | right.keys():
        ours, theirs = left.get(key, []), right.get(key, [])
        pairs = [(n, m) for n, ts in ours for m, other in theirs if meet(ts, other)]
        met = {n for n, _ in pairs}, {m for _, m in pairs}
        found.update((key, n, m, 0) for n, m in pairs)
        found.update((key, n, None, 0) for n, _ in ours if n not in met[0])
        found.update((key, None, m, 0) for m, _ in theirs if m not in met[1])
    return found


def window_join(left: ByKey, right: ByKey) -> Counter[Found]:
    return joined(left, right, lambda ours, theirs: ours // SIZE_MS == theirs // SIZE_MS)


def interval_join(left: ByKey, right: ByKey) -> Counter[Found]:
    return joined(left, right, lambda ours, theirs: abs(ours - theirs) <= WITHIN_MS)


def regular_join(left: ByKey, right: ByKey) -> Counter[Found]:
    def few(side: ByKey) -> ByKey:
        return {key: [event for event in events if event[0] % FEW == 0] for key, events in side.items()}

    return joined(few(left), few(right))


def temporal_join(left: ByKey, right: ByKey) -> Counter[Found]:
    found: Counter[Found] = Counter()
    for key, events in left.items():
        for n, ts in events:
            versions = [(other, m) for m, other in right.get(key, []) if other <= ts]
            found[key, n, max(versions)[1] if versions else None, 0] += 1
    return found


def co_group(left: ByKey, right: ByKey) -> Counter[Found]:
    found: Counter[Found] = Counter()
    for key in left.keys() | right.keys():
        ours, theirs = left.get(key, []), right.get(key, [])
        for start, _ in windows([*ours, *theirs], SIZE_MS, SIZE_MS):
            mine, other = (within(side, start, start + SIZE_MS) for side in (ours, theirs))
            apart = sum(n for n, _ in mine) - sum(m for m, _ in other)
            found[key, start, len(mine) - len(other), apart] += 1
    return found


def sessions_of_both(left: ByKey, right: ByKey) -> Iterator[tuple[int, OfKey, OfKey]]:
    """Each key's sessions of both sides together: the key, and the rows of either side."""
    for key in left.keys() | right.keys():
        its = [(ts, side, n) for side, of in enumerate((left, right)) for n, ts in of.get(key, [])]
        visit: list[tuple[int, int, int]] = []
        for event in [*sorted(its), None]:
            if visit and (event is None or event[0] - visit[-1][0] > SHORT_GAP_MS):
                ours, theirs = ([(n, ts) for ts, side, n in visit if side == of] for of in (0, 1))
                yield key, ours, theirs
                visit = []
            if event is not None:
                visit.append(event)


def session_join(left: ByKey, right: ByKey) -> Counter[Found]:
    found: Counter[Found] = Counter()
    for key, ours, theirs in sessions_of_both(left, right):
        found += joined({key: ours}, {key: theirs})
    return found


def session_group(left: ByKey, right: ByKey) -> Counter[Found]:
    found: Counter[Found] = Counter()
    for key, ours, theirs in sessions_of_both(left, right):
        apart = sum(n for n, _ in ours) - sum(m for m, _ in theirs)
        found[key, min(ts for _, ts in ours + theirs), len(ours) - len(theirs), apart] += 1
    return found


def co_process(left: ByKey, right: ByKey) -> Counter[Found]:
    found: Counter[Found] = Counter()
    for key in left.keys() | right.keys():
        ours, theirs = ([n for n, _ in side.get(key, [])] for side in (left, right))
        found[key, 0, len(ours) + len(theirs), sum(ours) - sum(theirs)] += 1
    return found


def broadcast(left: ByKey, right: ByKey) -> Counter[Found]:
    rules = {n: key for key, events in right.items() for n, _ in events if n % FEW == 0}
    said = len(rules), sum(n * key for n, key in rules.items())
    return Counter((key, len(events), *said) for key, events in left.items())


def co_flat_map(left: ByKey, right: ByKey) -> Counter[Found]:
    sides = (left, 1), (right, 2)
    return Counter((k, n, side, 0) for of, side in sides for k, events in of.items() for n, _ in events)


def loop(left: ByKey, right: ByKey) -> Counter[Found]:
    return Counter((key, n, max(1, n % 5), 0) for key, events in left.items() for n, _ in events)


MODELS: dict[str, Callable[[ByKey, ByKey], Counter[Found]]] = {
    "tumbling": tumbling,
    "sliding": sliding,
    "session": session,
    "cumulative": cumulative,
    "count": lambda left, right: Counter(
        found for found in last_rows(7, 7)(left, right).elements() if found[2] == 7
    ),
    "sliding_count": last_rows(10, 3),
    "global": last_rows(None, 5),
    "own_trigger": last_rows(3, 3),
    "early": early,
    "window_state": early,
    "held": lambda left, right: Counter((key, n, 0, 0) for key, events in left.items() for n, _ in events),
    "evicted": evicted,
    "by_clock": all_of_each,
    "window_join": window_join,
    "interval_join": interval_join,
    "temporal_join": temporal_join,
    "co_process": co_process,
    "broadcast": broadcast,
    "co_flat_map": co_flat_map,
    "co_group": co_group,
    "session_join": session_join,
    "session_group": session_group,
    "loop": loop,
    "late": tumbling,
    "late_session": session,
    "late_firing": tumbling,
    "late_by_clock": session,
    "early_by_time": tumbling,
    "early_by_delta": tumbling,
    "regular_join": regular_join,
}
