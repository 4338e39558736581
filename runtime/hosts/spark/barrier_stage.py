"""BarrierStage: the slots of one launch, as the tasks of one barrier stage."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from py4j.protocol import Py4JError
from pyspark import SparkContext

from onceflow.runtime.errors import Fatal, OnceflowError, Unavailable
from onceflow.runtime.hosts.spark.cluster import driver_address, executors_now, slots_now
from onceflow.runtime.hosts.spark.executor import SlotFunction
from onceflow.runtime.hosts.spark.executor_watch import ExecutorWatch
from onceflow.runtime.hosts.spark.spark_errors import is_too_few_slots

LOOK_FOR_SLOTS_EVERY_S = 1.0


class BarrierStage:
    """`run` on a thread of its own, which it keeps until the slots are over; all else from any thread."""

    def __init__(self, number: int, function: SlotFunction, parallelism: int) -> None:
        """`number`: of the launch, unique in this driver."""
        self._group = f"onceflow-{number}"
        self._function = function
        self._parallelism = parallelism
        self._is_over = threading.Event()
        """Nobody wants it any more."""

    def run(
        self,
        context: SparkContext,
        executors: ExecutorWatch,
        can_grow: bool,
        on_waiting: Callable[[str], None],
    ) -> None:
        """Wait for room, then run the slots until they are over. Raises what Spark raises, Fatal if there
        never will be room, Unavailable if no executor reaches the driver."""
        while self._wait_for_room(context, executors, can_grow, on_waiting):
            if self._host_slots(context):
                break

    def release(self) -> None:
        """Nobody wants it any more: it waits no longer for room."""
        self._is_over.set()

    def cancel(self, context: SparkContext) -> None:
        """End what is left of it, soon."""
        self.release()
        with contextlib.suppress(Py4JError, OSError, OnceflowError):  # it is gone, and the slots with it
            context.cancelJobGroup(self._group)

    def _wait_for_room(
        self,
        context: SparkContext,
        executors: ExecutorWatch,
        can_grow: bool,
        on_waiting: Callable[[str], None],
    ) -> bool:
        """Wait until there are as many slots as are needed; executors may register late, and a lost one is
        replaced after a while. False: nobody wants the slots any more."""
        needed = self._parallelism
        while (slots := slots_now(context)) < needed:
            if not can_grow:
                raise Fatal(f"the job needs {needed} slots at once, {context.master} has {slots}")
            trouble = executors.trouble()
            if trouble is not None and executors_now(context) == 0:
                raise _unreachable(driver_address(context), trouble)
            on_waiting(f"the job needs {needed} slots, the cluster has {slots}{executors.told()}")
            if self._is_over.wait(LOOK_FOR_SLOTS_EVERY_S):
                return False
        return not self._is_over.is_set()

    def _host_slots(self, context: SparkContext) -> bool:
        """Run the slots until they are over. False: an executor was lost meanwhile, and none of them was
        started."""
        context.setJobGroup(self._group, "slots of onceflow")
        try:
            rdd = context.parallelize(range(self._parallelism), self._parallelism)
            rdd.barrier().mapPartitions(self._function).count()
        except Py4JError as error:
            if not is_too_few_slots(str(error)):
                raise
            return False
        return True


def _unreachable(address: str, trouble: str) -> Unavailable:
    return Unavailable(
        f"no executor has reached the driver at {address}, and of those that were started {trouble}; "
        "give an address that the workers reach by --conf spark.driver.host=…, and let a firewall between "
        "them pass it; if that is right, an executor's standard error says why it ended"
    )
