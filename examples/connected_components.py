"""Groups of accounts that are linked, however far: each account with the smallest one of its group.

Links come one after another, and one link may join two groups. Each account keeps its neighbours and the
smallest account that it has heard of; what it hears anew it tells its neighbours, round the loop, until
nobody hears anything new. (Connected components by label propagation.)

onceflow run examples/connected_components.py --checkpoint-dir /tmp/groups -- \
    --bootstrap-servers localhost:9092 --input links --output groups
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from onceflow import Ctx, Job, KeyedProcess, ListState, SideOutput, ValueState
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink


@dataclass(frozen=True, slots=True)
class Link:
    a: int
    b: int


@dataclass(frozen=True, slots=True)
class Word:
    """What an account is told: of a neighbour that it has now (None: of no new one), and of a group."""

    account: int
    neighbour: int | None
    group: int


@dataclass(frozen=True, slots=True)
class Member:
    account: int
    group: int


class Spread(KeyedProcess[int, Word, Word]):
    """Hears, keeps, and tells its neighbours what is new."""

    neighbours = ListState("neighbours", int)
    group = ValueState("group", int)
    members = SideOutput("members", Member)

    def process(self, word: Word, ctx: Ctx) -> Iterator[Word]:
        known = self.group.get()
        group = min(word.group, word.account if known is None else known)
        if word.neighbour is not None:
            self.neighbours.add(word.neighbour)
        if group != known:
            self.group.set(group)
            ctx.emit(self.members, Member(word.account, group))
            for neighbour in self.neighbours.get():
                yield Word(neighbour, None, group)
        elif word.neighbour is not None:
            yield Word(word.neighbour, None, group)


def both_ways(link: Link) -> Iterator[Word]:
    yield Word(link.a, link.b, link.b)
    yield Word(link.b, link.a, link.a)


def build(arguments: list[str]) -> Job:
    options = parse(arguments)
    servers = options.bootstrap_servers
    job = Job("connected-components")
    links = job.source(
        KafkaSource(bootstrap_servers=servers, topics=[options.input], value=Json(Link), until=options.until),
        uid="links",
    )

    def spread(words: Any) -> tuple[Any, Any]:
        told = words.key_by("account").process(Spread(), uid="spread")
        return told, told.side_output(Spread.members)

    members = links.flat_map(both_ways).iterate(spread, uid="loop")
    members.sink_to(
        KafkaSink(bootstrap_servers=servers, topic=options.output, key="account", key_format=Json()),
        uid="members",
    )
    return job


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="connected_components.py", description=__doc__)
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--input", default="links", help="topic with links")
    parser.add_argument("--output", default="groups", help="topic for each account's group, the last counts")
    parser.add_argument("--until", choices=["latest"], help="stop at what is there now; else run on")
    return parser.parse_args(arguments)
