"""The three kinds of events of Nexmark, as record types."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Person:
    """Somebody who sells or bids. Its id is new."""

    id: int
    name: str
    email_address: str
    credit_card: str
    city: str
    state: str
    date_time: datetime
    extra: str


@dataclass(frozen=True)
class Auction:
    """Something that a person (`seller`) sells from `date_time` until `expires`. Its id is new."""

    id: int
    item_name: str
    description: str
    initial_bid: int
    reserve: int
    date_time: datetime
    expires: datetime
    seller: int
    category: int
    extra: str


@dataclass(frozen=True)
class Bid:
    """What a person (`bidder`) offers in an auction, in cents."""

    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    date_time: datetime
    extra: str
