"""nexmark: what is refused, and what the events of the three kinds are together."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onceflow.connectors.nexmark import Auction, Bid, Person, nexmark
from onceflow.runtime.errors import OptionError
from onceflow.testing.kit import SourceKit

KINDS: dict[Any, type] = {"person": Person, "auction": Auction, "bid": Bid}
EVENTS = 100_000


def table(kind: Any, events: int = EVENTS, seed: int = 1) -> pa.RecordBatch:
    source = nexmark(kind, events=events, seed=seed)
    assert source.count is not None
    return source.maker.batch(np.arange(source.count, dtype=np.int64), source.schema.names)


class TestBids(SourceKit):
    def source(self) -> Any:
        return nexmark("bid", events=60, splits=3)


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("bids", {}, "write 'person' or 'auction' or 'bid'"),
        ("bid", {"rate": 0}, "rate=0: give a number of events per second, above 0"),
        ("bid", {"events": -1}, "events=-1: give a number of events"),
        ("bid", {"splits": 0}, "splits=0: give a number above 0"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(kind: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        nexmark(kind, **options)


def test_of_each_fifty_events_one_is_a_person_three_are_auctions_and_the_others_bids() -> None:
    counts = [nexmark(kind, events=EVENTS).count for kind in KINDS]
    assert counts == [EVENTS // 50, EVENTS * 3 // 50, EVENTS * 46 // 50]
    for events in range(120):
        assert sum(nexmark(kind, events=events).count or 0 for kind in KINDS) == events
    times = np.concatenate(
        [table(kind, 500).column("date_time").cast(pa.int64()).to_numpy() for kind in KINDS]
    )
    assert len(times) == 500
    rates = [nexmark(kind, rate=5_000).rate for kind in KINDS]
    assert rates == [100, 300, 4_600]


def test_an_event_is_the_same_whoever_makes_it() -> None:
    for kind, of in KINDS.items():
        source, whole = nexmark(kind, events=5_000), table(kind, 5_000)
        again = pickle.loads(pickle.dumps(source))
        numbers = np.array([77, 3, 50], np.int64)
        columns = source.schema.names[::-1]
        assert (
            again.maker.batch(numbers, columns).to_pylist() == whole.select(columns).take(numbers).to_pylist()
        )
        assert source.record_type is of
        assert not table(kind, 500, seed=2).equals(table(kind, 500))


def test_a_bid_names_an_auction_and_a_person_that_are_there_and_an_auction_its_seller() -> None:
    person, auction, bid = (table(kind) for kind in KINDS)

    def newest(of: pa.RecordBatch, at: pa.RecordBatch) -> np.ndarray:
        ids, times = of.column("id").to_numpy(), of.column("date_time").cast(pa.int64()).to_numpy()
        return ids[np.searchsorted(times, at.column("date_time").cast(pa.int64()).to_numpy(), "right") - 1]

    for of, at, name, share in ((auction, bid, "auction", 0.5), (person, bid, "bidder", 0.75),
                                (person, auction, "seller", 0.75)):  # fmt: skip
        named = at.column(name).to_numpy()
        assert (np.diff(of.column("id").to_numpy()) == 1).all()
        assert (named >= 1_000).all()
        assert (named <= newest(of, at)).all()
        assert abs((named % 100 == 0).mean() - share) < 0.05, "the hot one"
    assert (auction.column("reserve").to_numpy() > auction.column("initial_bid").to_numpy()).all()
    expires, begins = (auction.column(name).cast(pa.int64()).to_numpy() for name in ("expires", "date_time"))
    assert (expires > begins).all()
