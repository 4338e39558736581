"""What runs in an executor: one slot in each task of the barrier stage."""

from __future__ import annotations

import importlib
import os
import socket
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark import BarrierTaskContext, SparkFiles

from onceflow.runtime.errors import Fatal
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.hosts.spark.shipping import unpack_graph
from onceflow.runtime.slot.process import SlotLaunch, run_slot
from onceflow.runtime.sockets.loopback import is_loopback
from onceflow.runtime.version import VERSION

GIL_S = 0.001
"""How long a thread of a slot may keep Python to itself while others wait for it; Python's own is 5 ms. A
transaction takes the interpreter some forty times, each time against a slot's thread that is busy: with
1 ms it took 122 ms instead of 157 ms next to a thread that never rests."""


def host_of_slot(control_host: str, spark_host: str) -> str:
    """Where a slot listens for its peers: Spark's address of the executor, or loopback if the driver is
    reached by that. Then the slot is on the driver's machine, as all others are, and no other one has to
    reach it."""
    return control_host if is_loopback(control_host) else spark_host


class SlotFunction:
    """The function that Spark ships to each task: picklable, and what it holds is the whole job."""

    def __init__(self, launch: SlotLaunch, graph: bytes, folder: str | None) -> None:
        """`graph`: the launch's, packed, so that what is wrong with it in a slot is told to the driver;
        `folder`: the name of the archive that Spark has unpacked, in which the user's modules lie."""
        self._launch = replace(launch, graph=JobGraph(launch.graph.job, (), ()))
        self._graph = graph
        self._folder = folder
        self._version = VERSION

    def __call__(self, rows: Iterable[Any]) -> Iterator[Any]:
        """Run one slot until the driver ends the attempt. Yields nothing."""
        if self._version != VERSION:
            raise Fatal(
                f"the driver runs onceflow {self._version}, this executor {VERSION}: "
                "install the same version on both"
            )
        sys.setswitchinterval(GIL_S)
        context = BarrierTaskContext.get()
        partition = context.partitionId()
        spark_host = context.getTaskInfos()[partition].address.rsplit(":", 1)[0]
        host = host_of_slot(self._launch.control_address[0], spark_host)
        run_slot(self._launch, partition, host, partial(os._exit, 1), self._read_graph)
        return iter(())

    def _read_graph(self) -> JobGraph:
        """Raises Fatal for a graph that can't be read here: it could not the next time either."""
        if self._folder is not None:
            folder = SparkFiles.get(self._folder)
            if folder not in sys.path:
                sys.path.insert(0, folder)
                importlib.invalidate_caches()
        try:
            return unpack_graph(self._graph)
        except Exception as error:  # whatever a module of the user's raises when it is imported
            raise Fatal(
                f"a slot on {socket.gethostname()} can't read the job's program: {type(error).__name__}: "
                f"{error}; modules and packages beside the program are sent along, others have to be "
                "installed where the slots run, or be given by --py-files"
            ) from error
