"""An aggregate of your own: what it keeps for each key and window, and what it makes of it."""

from dataclasses import dataclass

from onceflow import AggregateFunction, Job, WatermarkStrategy, tumbling


@dataclass(frozen=True)
class Visit:
    user: str
    page: str
    ts: int


class Pages(AggregateFunction[Visit, list[str], str]):
    def create_accumulator(self) -> list[str]:
        return []

    def add(self, value: Visit, accumulator: list[str]) -> list[str]:
        return [*accumulator, value.page]

    def merge(self, accumulator_a: list[str], accumulator_b: list[str]) -> list[str]:
        return accumulator_a + accumulator_b

    def get_result(self, accumulator: list[str]) -> str:
        return " > ".join(accumulator)


job = Job("paths")
visits = job.from_elements(
    Visit("ann", "/", 1),
    Visit("ann", "/cart", 2),
    watermarks=WatermarkStrategy.monotonous("ts"),
)
paths = (
    visits.key_by("user").window(tumbling("1 min")).aggregate(path=Pages()).collect()
)
job.run(master="threads[1]")
assert [row["path"] for row in paths] == ["/ > /cart"]
