"""Nexmark: persons, auctions and bids of a made-up auction house, for measurements that others can repeat."""

from onceflow.connectors.nexmark.events import Auction, Bid, Person
from onceflow.connectors.nexmark.source import nexmark

__all__ = ["Auction", "Bid", "Person", "nexmark"]
