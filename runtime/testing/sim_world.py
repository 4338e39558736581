"""SimWorld: the world of the simulated job, with a broker that answers late and a checker of every row."""

from __future__ import annotations

from collections.abc import Callable

from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.testing.checkers import Checker, Promised, rows_in_payloads
from onceflow.runtime.testing.choices import Choices
from onceflow.runtime.testing.sim_broker import SimBroker, SimSink
from onceflow.runtime.testing.sim_job import SimInput, SimSource, sim_graph
from onceflow.runtime.testing.world import Move, World, WorldOptions


class SimWorld(World):
    """One run of the simulated job, or of another one over its source and sink."""

    checker: Checker
    checker_type: type[Checker] = Checker

    def __init__(
        self,
        choices: Choices,
        options: WorldOptions,
        graph: Callable[[SimSource, SimSink, int, bool], JobGraph] = sim_graph,
        is_traced: bool = False,
        promised: Promised | None = rows_in_payloads,
        input_of: Callable[[SimInput], SimInput] = lambda drawn: drawn,
    ) -> None:
        """`input_of`: what a graph with windows of its own needs to be made of the input that is drawn."""
        self.input = input_of(SimInput.draw(choices, options.splits, options.records_max, options.keys))
        durable = MemoryStore("simulated")
        checker = self.checker_type(
            self.input, durable, options.is_aligned, options.has_real_windows, promised
        )
        self.broker = SimBroker(
            choices,
            options.resends,
            on_visible=lambda _, rows: checker.on_visible(rows),
            on_call=self.point,
        )
        source, sink = SimSource(self.input, choices), SimSink(self.broker)
        made = graph(source, sink, options.max_parallelism, options.has_real_windows)
        super().__init__(choices, options, made, checker, durable, is_traced)

    def outside_moves(self) -> list[Move]:
        late = self.broker.late
        return [("late EndTxn", late[0], self.broker.land_late, ())] if late else []
