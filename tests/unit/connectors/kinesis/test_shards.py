"""Which shards are read when: any history of splits and merges, any order of finishing, and a restart between
any two steps."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from onceflow.connectors.kinesis.finished_shards import FinishedShards
from onceflow.connectors.kinesis.position import ShardPosition
from onceflow.connectors.kinesis.shards import Shard, first_shards, new_shards


def name(number: int) -> str:
    return f"shardId-{number:012}"


def shard(number: int, *parents: int, is_open: bool = True) -> Shard:
    return Shard(name(number), tuple(map(name, parents)), "0", "1", is_open)


def finished(*shards: Shard) -> FinishedShards:
    positions = [ShardPosition(s.shard_id, "s", 0, s.parents, complete_ms=5) for s in shards]
    return FinishedShards(json.loads(json.dumps(FinishedShards(None).with_shards(positions))))


def found(listed: list[Shard], known: list[Shard], done: FinishedShards) -> list[str]:
    return [new.shard.shard_id for new in new_shards(listed, frozenset(s.shard_id for s in known), done)]


SPLIT = [shard(0, is_open=False), shard(1, 0), shard(2, 0)]
MERGED = [shard(0, is_open=False), shard(1, is_open=False), shard(2, 0, 1)]


def test_children_wait_for_all_of_their_parents() -> None:
    assert found(SPLIT, [SPLIT[0]], finished()) == []
    assert found(SPLIT, [], finished(SPLIT[0])) == [name(1), name(2)]
    assert found(SPLIT, [SPLIT[1]], finished(SPLIT[0])) == [name(2)]
    assert found(MERGED, [MERGED[0]], finished(MERGED[1])) == []
    assert found(MERGED, [], finished(*MERGED[:2])) == [name(2)]


def test_a_start_with_the_oldest_and_one_with_those_that_are_open() -> None:
    assert [s.shard_id for s in first_shards(SPLIT, only_open=False)] == [name(0)]
    assert [s.shard_id for s in first_shards(SPLIT[1:], only_open=False)] == [name(1), name(2)]
    assert [s.shard_id for s in first_shards(MERGED, only_open=True)] == [name(2)]
    assert found(MERGED, [MERGED[2]], finished()) == [], "what is older was before the start"


def test_a_parent_that_is_gone_and_was_never_read_is_told() -> None:
    listed = [shard(2, 1)]
    (new,) = new_shards(listed, frozenset(), finished(shard(0)))
    assert new.lost_parent == name(1)
    assert found(listed, [shard(1, 0)], finished(shard(0))) == [], "its reader will see that it is gone"
    (new,) = new_shards(listed, frozenset(), finished(shard(0), shard(1, 0)))
    assert new.lost_parent is None


def test_what_is_remembered_is_numbers_in_ranges_and_little_more() -> None:
    positions = [ShardPosition(name(n), "s", 0, from_ms=n, complete_ms=n) for n in range(6)]
    children = [ShardPosition(name(n), "s", 0, (name(n - 6),), complete_ms=n) for n in range(6, 12)]
    odd = ShardPosition("shard-x", "s", 0)
    remembered = FinishedShards(None).with_shards([*positions, *children, odd])
    assert remembered == {
        "from_ms": 5,
        "shards": [[0, 11]],
        "others": ["shard-x"],
        "complete_ms": {**{name(n): n for n in range(6, 12)}, "shard-x": None},
    }
    done = FinishedShards(remembered)
    assert done.with_shards(positions) == remembered, "told twice"
    assert name(3) in done
    assert name(12) not in done
    assert "shard-x" in done
    assert done.complete_ms([name(6), name(7)]) == 6
    assert done.complete_ms([name(1)]) is None


@pytest.mark.parametrize("seed", range(40))
def test_each_shard_is_read_once_and_after_its_parents(seed: int) -> None:
    """Shards are resharded, given out and finished in any order; each step may be lost, back to what was
    durable (Flink loses children when a restart falls between the two: FLINK-37627)."""
    chance = random.Random(seed)
    listed = [shard(0), shard(1)]
    durable: tuple[dict[str, Shard], object] = ({s.shard_id: s for s in first_shards(listed, False)}, None)
    reading, remembered = dict(durable[0]), durable[1]
    order: list[str] = []
    durable_order: list[str] = []
    for step in range(120):
        open_shards = [s for s in listed if s.is_open]
        move = chance.choice(
            ("reshard" if step < 40 else "finish", "discover", "finish", "checkpoint", "crash")
        )
        if move == "reshard":
            closed = chance.sample(open_shards, min(len(open_shards), chance.choice((1, 2))))
            children = 2 if len(closed) == 1 else 1
            listed = [replace(s, is_open=s.is_open and s not in closed) for s in listed]
            parents = [int(s.shard_id[-12:]) for s in closed]
            listed += [shard(len(listed) + n, *parents) for n in range(children)]
        elif move == "discover":
            for new in new_shards(listed, frozenset(reading), FinishedShards(remembered)):
                assert new.lost_parent is None
                reading[new.shard.shard_id] = new.shard
        elif move == "finish":
            closed_ids = {s.shard_id for s in listed if not s.is_open}
            if left := [s for s in reading if s in closed_ids and s not in order]:
                order.append(chance.choice(left))
        elif move == "checkpoint":
            ended = [ShardPosition(s, "s", 0, reading[s].parents) for s in order if s in reading]
            remembered = json.loads(json.dumps(FinishedShards(remembered).with_shards(ended)))
            reading = {s: of for s, of in reading.items() if s not in order}
            durable, durable_order = (dict(reading), remembered), [*order]
        else:
            (reading, remembered), order = (dict(durable[0]), durable[1]), [*durable_order]
        for place, shard_id in enumerate(order):
            (of,) = [s for s in listed if s.shard_id == shard_id]
            assert set(of.parents) <= set(order[:place])
    closed = [s.shard_id for s in listed if not s.is_open]
    for _ in range(len(listed)):
        for new in new_shards(listed, frozenset(reading), FinishedShards(remembered)):
            reading[new.shard.shard_id] = new.shard
        ended = [ShardPosition(s, "s", 0, reading[s].parents) for s in [*reading] if s in closed]
        order += [each.shard_id for each in ended if each.shard_id not in order]
        remembered = FinishedShards(remembered).with_shards(ended)
        reading = {s: of for s, of in reading.items() if s not in closed}
    assert sorted(order) == sorted(closed)
    assert set(reading) == {s.shard_id for s in listed if s.is_open}
