"""A job: where its records come from, what is done with them, where they go, and how it is run."""

from collections.abc import Iterator
from dataclasses import dataclass
from tempfile import mkdtemp

import onceflow
from onceflow import Job


@dataclass(frozen=True)
class Purchase:
    user: str
    amount: int


def later() -> Iterator[Purchase]:
    yield Purchase("bob", 7)


job = Job("purchases")
early = job.from_elements(Purchase("ann", 5), Purchase("ann", 3), uid="early")
made_up = job.data_generator(
    Purchase, count=10, seed=1, fields={"user": ["eve"]}, uid="made-up"
)
purchases = early.union(job.from_records(later, uid="later"), made_up)
rows = purchases.collect()
purchases.to_files(mkdtemp(), format="jsonl")

# What `onceflow plan` shows. Mistakes in the graph are refused here.
uids = [node.uid for node in job.build().sources()]
assert sorted(uids) == ["early", "later", "made-up"]

result = job.run(master="threads[1]")  # or `onceflow run FILE.py --checkpoint-dir DIR`
assert result.outcome.value == "finished"
assert len(rows) == 13
assert rows.to_polars()["amount"].len() == 13
assert rows.to_arrow().num_rows == 13

# The same from a function, with checkpoints that the next run goes on from.
again = Job("again")
again.from_elements(1, 2, 3).print()
onceflow.run(again, mkdtemp(), master="threads[1]", checkpoint_interval="200 ms")
