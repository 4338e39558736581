"""A job under crashes at every step; and one that a crash would change, which is told before any."""

import random
from collections.abc import Iterator

from onceflow import Job
from onceflow.testing import SimulationError, SimulationReport, simulate


def numbers() -> Iterator[int]:
    yield from range(10)


job = Job("sums")
job.from_records(numbers, uid="numbers").key_by("value").reduce(
    lambda one, other: other
).print(uid="out")
report: SimulationReport = simulate(
    job, {"numbers": [{"value": n % 3} for n in range(12)]}, seeds=5
)
assert report.rows == {"out": 12}
assert report.runs == 5

dice = Job("dice")
dice.from_records(numbers, uid="numbers").filter(
    lambda record: random.random() < 0.5
).print(uid="out")
try:
    simulate(dice, {"numbers": [{"value": n} for n in range(50)]}, seeds=1)
except SimulationError as error:
    assert "not deterministic" in str(error)
