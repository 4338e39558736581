"""A source that is read in batches, planned before they are read: what Spark's micro-batches ask for."""

import json
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa
from onceflow.connectors.files import files_source
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import BatchedSource, BatchLimit, BatchPlanner

folder = Path(mkdtemp())
for number in range(3):
    (folder / f"{number}.jsonl").write_text(json.dumps({"n": number}) + "\n")

source = files_source(str(folder), pa.schema([("n", pa.int64())]), "jsonl", watch="1 s")
assert isinstance(source, BatchedSource)
planner: BatchPlanner = source.open_planner(SystemClock(), BatchLimit(splits=2))
planner.hold()  # only what is there now
place = planner.first()
sizes = []
while (
    end := planner.next(place)
) != place:  # a place is JSON: Spark keeps it in its checkpoint
    sizes.append(sum(len(splits) for splits in planner.tasks(place, end)))
    place = end
planner.close()
print(sizes)
assert sizes == [2, 1]
