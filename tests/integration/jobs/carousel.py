"""Numbered riders go round as often as their number says, through other subtasks each time, and leave.

onceflow run carousel.py ... -- OUTPUT_FOLDER RIDERS RIDERS_A_SECOND
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onceflow import Job, col

ROUNDS = 40


@dataclass(frozen=True)
class Rider:
    id: int
    left: int
    rounds: int


def rider(number: int) -> Rider:
    return Rider(number, 1 + number % ROUNDS, 0)


def once_more(rider: Rider) -> Rider:
    return Rider(rider.id, rider.left - 1, rider.rounds + 1)


def place(rider: Rider) -> int:
    return (rider.id * 7 + rider.rounds * 3) % 97


def latest(so_far: Rider, rider: Rider) -> Rider:
    return rider


def go_round(riders: Any) -> tuple[Any, Any]:
    turned = riders.key_by(place).reduce(latest, uid="place").map(once_more)
    return turned.filter(col("left") > 0), turned.filter(col("left") == 0)


def build(arguments: list[str]) -> Job:
    output, riders, per_second = arguments
    job = Job("carousel")
    come = job.data_generator(rider, count=int(riders), rate=float(per_second), uid="riders")
    come.iterate(go_round, uid="loop").to_files(output, format="jsonl", uid="out")
    return job
