"""The highest bid so far of each auction of Nexmark."""

from onceflow import Job
from onceflow.connectors.nexmark import Auction, Bid, Person, nexmark


def higher(best: Bid, one: Bid) -> Bid:
    return one if one.price > best.price else best


job = Job("highest-bids")
bids = job.source(nexmark("bid", rate=10_000), uid="bids")
bids.key_by("auction").reduce(higher, uid="highest").print()
assert nexmark("auction").record_type is Auction
assert nexmark("person").record_type is Person

if __name__ == "__main__":
    job.run()
