"""Who is connected to whom: within a slot by reference, between slots over the network, the same for both."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.exchange.channel import LocalChannel
from onceflow.runtime.exchange.record_writer import ForwardWriter, KeyedWriter, RebalanceWriter
from onceflow.runtime.exchange.remote_channel import RemoteInput, RemoteOutput
from onceflow.runtime.exchange.transport import Network
from onceflow.runtime.exchange.wiring import LocalWiring, NetworkWiring, record_writer
from onceflow.runtime.graph.job_graph import (
    Broadcast,
    ByKey,
    Edge,
    Forward,
    JobGraph,
    Partitioning,
    Rebalance,
)
from onceflow.runtime.records import Barrier, Origin, Records, Watermark
from onceflow.runtime.sockets.credentials import Credentials
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.key_groups import key_groups_of, subtask_of_key_group

SCHEMA = pa.schema([("k", pa.int64())])
MAX_PARALLELISM = 128


def edge(edge_id: int, partitioning: Partitioning) -> Edge:
    return Edge(edge_id, 0, 1, partitioning, SCHEMA, has_event_time=True, with_origin=False)


EDGES = [edge(0, Forward()), edge(1, ByKey(("k",))), edge(2, Rebalance())]
GRAPH = JobGraph("job", [], EDGES, MAX_PARALLELISM)


def rows(*keys: int) -> Records:
    batch = pa.record_batch([pa.array(keys, pa.int64())], schema=SCHEMA)
    return Records(batch, np.array(keys, np.int64))


def test_a_forward_edge_stays_in_its_slot() -> None:
    wiring = LocalWiring()
    for slot in range(3):
        (output,) = wiring.slot(slot, 3).outputs(EDGES[0])
        (source,) = wiring.slot(slot, 3).inputs(EDGES[0])
        assert output is source
    assert len({id(wiring.slot(slot, 3).inputs(EDGES[0])[0]) for slot in range(3)}) == 3


def test_what_one_slot_sends_to_another_is_what_that_one_receives() -> None:
    wiring = LocalWiring()
    for upstream in range(3):
        for downstream in range(3):
            output = wiring.slot(upstream, 3).outputs(EDGES[1])[downstream]
            assert output is wiring.slot(downstream, 3).inputs(EDGES[1])[upstream]


@pytest.mark.parametrize(("number", "kind"), [(0, ForwardWriter), (1, KeyedWriter), (2, RebalanceWriter)])
def test_the_writer_fits_the_partitioning(number: int, kind: type) -> None:
    assert isinstance(record_writer(EDGES[number], LocalWiring().slot(0, 2), 0, MAX_PARALLELISM), kind)


def test_a_keyed_writer_sends_each_row_to_the_owner_of_its_key_group() -> None:
    wiring = LocalWiring()
    writer = record_writer(EDGES[1], wiring.slot(0, 3), 0, MAX_PARALLELISM)
    sent = rows(*range(500))
    writer.emit(sent)
    groups = key_groups_of(hash_keys(sent.batch, ("k",)), MAX_PARALLELISM)
    for subtask in range(3):
        found = wiring.channel(1, 0, subtask).receive()
        assert isinstance(found, Records)
        owned = [k for k in range(500) if subtask_of_key_group(MAX_PARALLELISM, 3, int(groups[k])) == subtask]
        assert found.batch.column(0).to_pylist() == owned
        assert found.event_time is not None
        assert found.event_time.tolist() == owned
        assert found.key_hash is not None


@pytest.mark.parametrize("partitioning", [Forward(), ByKey(("k",)), Rebalance(), Broadcast()])
@pytest.mark.parametrize("with_origin", [True, False])
def test_regression_rows_have_no_origin_on_an_edge_without(
    partitioning: Partitioning, with_origin: bool
) -> None:
    """Rows of another slot have none there, and both kinds are put into one batch."""
    wiring, of = LocalWiring(), replace(edge(1, partitioning), with_origin=with_origin)
    sent = replace(rows(1, 2, 3), origin=Origin(("t-0",), np.zeros(3, np.uint16), np.arange(3)))
    record_writer(of, wiring.slot(0, 1), 0, MAX_PARALLELISM).emit(sent)
    found = wiring.channel(1, 0, 0).receive()
    assert isinstance(found, Records)
    assert (found.origin is not None) == with_origin


def test_control_elements_go_to_every_subtask_and_batches_to_each_in_turn() -> None:
    wiring = LocalWiring()
    writer = record_writer(EDGES[2], wiring.slot(1, 3), 1, MAX_PARALLELISM)
    for n in range(4):
        writer.emit(rows(n))
    writer.broadcast(Barrier(1))
    taken: list[list[object]] = []
    for subtask in range(3):
        channel = wiring.channel(2, 1, subtask)
        found = [channel.receive() for _ in range(3)]
        taken.append([e.batch.column(0).to_pylist() if isinstance(e, Records) else e for e in found])
    assert taken == [[[2], Barrier(1), None], [[0], [3], Barrier(1)], [[1], Barrier(1), None]]


def test_an_edge_has_room_only_if_all_its_channels_have() -> None:
    wiring = LocalWiring()
    writer = record_writer(EDGES[1], wiring.slot(0, 2), 0, MAX_PARALLELISM)
    assert writer.has_room
    wiring.channel(1, 0, 1).send(rows(*range(1_000_000)))
    assert not writer.has_room
    wiring.channel(1, 0, 1).receive()
    assert writer.has_room


def test_over_the_network_each_slot_meets_every_other() -> None:
    networks = [Network(Credentials(b"s" * 32), 1, "127.0.0.1") for _ in range(3)]
    peers = [network.address for network in networks]
    for slot, network in enumerate(networks):
        network.slot = slot
    try:
        with ThreadPoolExecutor(3) as pool:
            wirings = list(pool.map(lambda s: NetworkWiring(networks[s], GRAPH, s, peers), range(3)))
        for slot, wiring in enumerate(wirings):
            assert [type(o) for o in wiring.outputs(EDGES[0])] == [LocalChannel]
            for crossing in EDGES[1:]:
                kinds: list[type] = [RemoteOutput] * 3
                kinds[slot] = LocalChannel
                assert [type(o) for o in wiring.outputs(crossing)] == kinds
                assert sum(isinstance(i, RemoteInput) for i in wiring.inputs(crossing)) == 2
                assert wiring.inputs(crossing)[slot] is wiring.outputs(crossing)[slot]
        wirings[0].outputs(EDGES[1])[2].send(Watermark(17))
        source = wirings[2].inputs(EDGES[1])[0]
        found = None
        for _ in range(1_000):
            networks[0].pump(1)
            networks[2].pump(5)
            found = source.receive()
            if found is not None:
                break
        assert found == Watermark(17)
        assert wirings[2].inputs(EDGES[2])[0].receive() is None, "another edge is another channel"
    finally:
        for network in networks:
            network.close()
