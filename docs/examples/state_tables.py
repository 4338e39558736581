"""What a job remembers, read as tables when it is over, and changed for another job."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from onceflow import (
    Ctx,
    Job,
    KeyedProcess,
    ListState,
    ValueState,
    read_changes,
    read_state,
    rekey_state,
    write_state,
)


@dataclass(frozen=True)
class Reading:
    sensor: str
    celsius: float


class Remember(KeyedProcess[str, Reading, Reading]):
    highest = ValueState("highest", float)
    all = ListState("all", float)

    def process(self, record: Reading, ctx: Ctx) -> Iterator[Reading]:
        self.highest.set(max(record.celsius, self.highest.get(-273.15)))
        self.all.add(record.celsius)
        yield record


def floor(sensor: str) -> str:
    """Sensors of one floor become one."""
    return "below" if sensor == "cellar" else "above"


def together(
    key: str, states: list[dict[str, list[float]]]
) -> dict[str, list[float] | float]:
    values = [each for state in states for each in state["all"] or ()]
    return {"all": values, "highest": max(values, default=-273.15)}


with tempfile.TemporaryDirectory() as folder:
    job = Job("sensors")
    readings = job.from_elements(
        Reading("roof", 17.5), Reading("cellar", 11.0), Reading("roof", 21.0)
    )
    readings.key_by("sensor").process(Remember(), uid="remember").collect()
    job.run(folder, master="threads[1]")

    with read_state(folder) as state:
        assert state.operators[-1] == "remember"
        highest = state.table("remember", "highest")
        assert highest.read(keys=["roof"]).to_pylist() == [
            {"sensor": "roof", "value": 21.0}
        ]
        rows = [
            row
            for batch in state.table("remember", "all").batches()
            for row in batch.to_pylist()
        ]
        assert {"sensor": "roof", "position": 1, "value": 21.0} in rows

    # The highest is another one, whatever the sensors have sent; all else is kept.
    known = pa.table({"sensor": ["roof", "attic"], "value": [30.0, 25.0]})
    edited = f"{folder}/edited"
    write_state(edited, "remember", "highest", known, keys=["sensor"], base=folder)
    with read_state(edited) as state:
        attic = state.table("remember", "highest").read(keys=["attic"])
        assert attic.to_pylist() == [{"sensor": "attic", "value": 25.0}]
        assert state.table("remember", "all").read().num_rows == 3

    # Sensors become floors: the states of a floor are merged.
    rekey_state(f"{folder}/floors", folder, "remember", floor, together)
    with read_state(f"{folder}/floors") as state:
        floors = state.table("remember", "highest").read(keys=["above"])
        assert floors.to_pylist() == [{"sensor": "above", "value": 21.0}]

    # What the last checkpoint has changed; there may be one only, which has changed nothing.
    with read_state(folder) as state:
        last = state.checkpoint_id
    changes = read_changes(folder, last, last, "remember", "highest")
    assert changes.schema.names == ["row_kind", "sensor", "value"]
    assert changes.num_rows == 0
