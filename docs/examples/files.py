"""Files of four formats, read and written."""

from dataclasses import dataclass
from tempfile import mkdtemp

from onceflow import Job
from onceflow.connectors.files import AvroFiles, Csv, JsonLines, Parquet
from onceflow.connectors.formats import Json


@dataclass(frozen=True)
class Visit:
    user: str
    page: str


folder = mkdtemp()
formats = {
    "csv": Csv(delimiter=";"),
    "jsonl": JsonLines(Json(extra="forbid")),
    "parquet": Parquet(),
    "avro": AvroFiles("zstd"),
}

write = Job("write")
visits = write.from_elements(Visit("ann", "/"), Visit("bob", "/cart"))
for name, format in formats.items():
    visits.to_files(f"{folder}/{name}", format=format, uid=f"to-{name}")
write.run(master="threads[1]")

read = Job("read")
found = [
    read.from_files(
        f"{folder}/{name}", Visit, format=format, uid=f"from-{name}"
    ).collect()
    for name, format in formats.items()
]
read.run(master="threads[1]")
assert all(rows == [Visit("ann", "/"), Visit("bob", "/cart")] for rows in found)
