"""The adults of a collection, printed: no broker, no key, no time."""

from dataclasses import dataclass

from onceflow import Job, col


@dataclass(frozen=True)
class Person:
    name: str
    age: int


job = Job("adults")
people = job.from_elements(
    Person("Fred", 35), Person("Wilma", 35), Person("Pebbles", 2)
)
adults = people.filter(col("age") >= 18)
adults.print()
rows = adults.collect()
job.run(master="threads[1]")
assert [person.name for person in rows] == ["Fred", "Wilma"]
