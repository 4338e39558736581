"""nexmark: a source of one kind of Nexmark's events."""

from __future__ import annotations

from onceflow.connectors.generator.source import GeneratorSource
from onceflow.connectors.nexmark.columns import NexmarkColumns
from onceflow.connectors.nexmark.events import Auction, Bid, Person
from onceflow.connectors.nexmark.numbering import SHARES, TURN, Kind, count_of
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.types.record_types import describe_record

_TYPES: dict[Kind, type] = {"person": Person, "auction": Auction, "bid": Bid}
_PER_S = 10_000.0


@explained
def nexmark(
    kind: Kind, *, rate: float | None = None, events: int | None = None, seed: int = 1, splits: int = 4
) -> GeneratorSource:
    """A source of Nexmark's events of one kind: "person" (Person), "auction" (Auction) or "bid" (Bid), which
    are 1, 3 and 46 of each 50. Event n is the same whoever makes it and whenever, so sources of the three
    kinds with the same `rate` and `seed` fit together: a bid names an auction that is there.

    `rate`: events of all three kinds together in a second, also of event time; None: as fast as they are
    taken, 10,000 in a second of event time. `events`: how many there are of all three kinds together; None:
    no end. `splits`: how many slots can share the work. Raises OptionError.
    """
    if kind not in SHARES:
        raise OptionError(f"nexmark({kind!r}): write {' or '.join(map(repr, SHARES))}")
    if rate is not None and not rate > 0:
        raise OptionError(f"nexmark: rate={rate!r}: give a number of events per second, above 0")
    if events is not None and not (isinstance(events, int) and events >= 0):
        raise OptionError(f"nexmark: events={events!r}: give a number of events")
    if not (isinstance(splits, int) and splits > 0):
        raise OptionError(f"nexmark: splits={splits!r}: give a number above 0")
    schema = describe_record(_TYPES[kind]).schema
    return GeneratorSource(
        NexmarkColumns(kind, schema, seed, rate or _PER_S),
        schema,
        _TYPES[kind],
        None if rate is None else rate * SHARES[kind][1] / TURN,
        None if events is None else count_of(kind, events),
        splits,
    )
