"""The life of one checkpoint: what driver, slots, checkpoint folder and Kafka say to each other, in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from documents.pictures.observed import Event, ObservedWorld, first_run
from documents.pictures.svg import Drawing
from onceflow.runtime.records import Barrier
from onceflow.runtime.testing.world import WorldOptions

OPTIONS = WorldOptions(parallelism=(2,), splits=2, records_max=5, keys=6, piece_rows_max=1, steps_per_task=1)
LINES = {"Kafka": 70, 0: 230, 1: 390, "driver": 550, "folder": 710}
NAMES = {"Kafka": "Kafka", 0: "slot 0", 1: "slot 1", "driver": "driver", "folder": "checkpoint folder"}
WIDTH, TOP, STEP = 780, 60, 30


@dataclass(frozen=True)
class Said:
    """A line of the picture: from one to the other."""

    sender: int | str
    receiver: int | str
    words: str
    colour: str = "ink"


def picture() -> str:
    world = first_run(OPTIONS, lambda world: shows(list(said(world))))
    lines = list(said(world))
    drawing = Drawing(WIDTH, TOP + STEP * (len(lines) + 2) + 10)
    bottom = TOP + STEP * (len(lines) + 1) + 14
    for who, x in LINES.items():
        drawing.text(x, 28, NAMES[who], anchor="middle", style="bold")
        drawing.line(x, 38, x, bottom, "line")
    y = TOP
    for line in lines:
        y += STEP
        _line(drawing, y, line)
        if line.words == "manifest 1":
            y += STEP
            drawing.line(20, y - 8, WIDTH - 20, y - 8, "orange", 2, "7 5")
            drawing.text(
                24, y - 14, "point of no return: the output is promised", "orange", style="small bold"
            )
    return drawing.svg()


def said(world: ObservedWorld) -> Iterator[Said]:
    """What is said for checkpoint 1, in the order of the run."""
    is_persisting = False
    for event in world.events:
        match event.what:
            case "> Trigger" | "> Commit" if _of_first(event):
                yield Said("driver", event.who, f"{event.what[2:]}(1)")
            case "< Acked" | "< Committed" if _of_first(event):
                yield Said(event.who, "driver", f"{event.what[2:]}(1)", "blue")
                is_persisting = event.what == "< Acked"
            case "read":
                (_, sender, receiver), element = event.detail
                if element == Barrier(1) and sender != receiver:
                    yield Said(sender, receiver, "barrier 1", "orange")
            case "before create_file" if event.who != "driver" and not _is_over(world, event):
                yield Said(event.who, "folder", "state", "green")
            case "after create" if is_persisting:
                yield Said("driver", "folder", "manifest 1", "orange")
                is_persisting = False
            case "commit done" if not _is_over(world, event):
                yield Said(event.who, "Kafka", "rows and ledger", "green")


def shows(lines: list[Said]) -> bool:
    """Both slots have state to write, both barriers cross, and each step is there for both."""
    words = [line.words for line in lines]
    return (
        words.count("barrier 1") == 2
        and {line.sender for line in lines if line.words == "state"} == {0, 1}
        and words.count("state") == 2
        and words.count("rows and ledger") == 4
        and words.index("manifest 1") < words.index("rows and ledger")
    )


def _of_first(event: Event) -> bool:
    return getattr(event.detail, "checkpoint_id", None) == 1 and not getattr(event.detail, "is_last", False)


def _is_over(world: ObservedWorld, event: Event) -> bool:
    """Whether checkpoint 2 was under way, to which a later write belongs."""
    later = [e.move for e in world.events if e.what == "> Trigger" and not _of_first(e)]
    return bool(later) and event.move >= later[0]


def _line(drawing: Drawing, y: float, line: Said) -> None:
    start, end = LINES[line.sender], LINES[line.receiver]
    drawing.arrow(start, end, y, line.colour)
    drawing.circle(start, y, 3, line.colour)
    near = start + (70 if end > start else -70)
    drawing.text(near, y - 5, line.words, line.colour, "middle", "small")
