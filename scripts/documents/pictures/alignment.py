"""Barriers meet at a gate with two channels: four moments of one run."""

from __future__ import annotations

from dataclasses import dataclass

from documents.pictures.observed import ChannelName, Event, Frame, ObservedWorld, first_run
from documents.pictures.svg import Drawing
from onceflow.runtime.records import Barrier, Element, EndOfInput, Idle, LoopToken, Records, Watermark
from onceflow.runtime.testing.world import WorldOptions

OPTIONS = WorldOptions(parallelism=(2,), splits=2, records_max=6, keys=3, piece_rows_max=1, steps_per_task=1)
WIDTH, LEFT, GATE, TUBE, CELL = 780, 84, 506, 40, 36
PANEL, TOP = 138, 14


@dataclass(frozen=True)
class Meeting:
    """The barriers of a checkpoint at one gate: where in the run the first and the last of them is read."""

    channels: tuple[ChannelName, ChannelName]
    """The one whose barrier comes first, and the other."""
    first: Event
    last: Event

    @property
    def checkpoint_id(self) -> int:
        _, barrier = self.first.detail
        return int(barrier.checkpoint_id)


def picture() -> str:
    world = first_run(OPTIONS, lambda world: meeting(world) is not None)
    found = meeting(world)
    assert found is not None
    drawing = Drawing(WIDTH, TOP + 4 * PANEL)
    for number, (frame, words, blocked) in enumerate(moments(world, found)):
        _panel(drawing, TOP + number * PANEL, f"{number + 1}", words, frame, found, blocked)
    return drawing.svg()


def meeting(world: ObservedWorld) -> Meeting | None:
    """A meeting where records wait behind the first barrier while the other channel is read."""
    reads = [event for event in world.events if event.what == "read"]
    for at, first in enumerate(reads):
        name, element = first.detail
        if not isinstance(element, Barrier):
            continue
        later = [e for e in reads[at + 1 :] if e.who == first.who]
        last = next((e for e in later if e.detail[1] == element), None)
        if last is None or last.detail[0] == name or last.move == first.move:
            continue
        between = [e.detail for e in later[: later.index(last)]]
        took = [each for _, each in between if isinstance(each, Records)]
        waiting = frame_before(world, last.move).delivered.get(name, ())
        if took and any(isinstance(each, Records) for each in waiting) and element.checkpoint_id > 0:
            return Meeting((name, last.detail[0]), first, last)
    return None


def frame_before(world: ObservedWorld, move: int) -> Frame:
    return max((f for f in world.frames if f.move < move), key=lambda frame: frame.move)


def frame_after(world: ObservedWorld, move: int) -> Frame:
    return next(f for f in world.frames if f.move >= move)


def moments(world: ObservedWorld, found: Meeting) -> list[tuple[Frame, list[str], bool]]:
    """Frames, what is said to each, and whether the first channel is left unread then."""
    n = found.checkpoint_id
    return [
        (
            frame_before(world, found.first.move),
            [
                f"Barrier {n} is on its way. Records before",
                f"it belong to checkpoint {n},",
                "those behind it do not.",
            ],
            False,
        ),
        (
            frame_after(world, found.first.move),
            [f"One channel has delivered barrier {n}:", "from now on it is left unread."],
            True,
        ),
        (
            frame_before(world, found.last.move),
            ["The other one is read on. What comes", "behind the barrier waits at the gate."],
            True,
        ),
        (
            frame_after(world, found.last.move),
            [
                f"Barrier {n} has come in both: the state is",
                f"frozen as part of checkpoint {n}, and",
                "both channels are read again.",
            ],
            False,
        ),
    ]


def _panel(
    drawing: Drawing,
    top: float,
    number: str,
    words: list[str],
    frame: Frame,
    found: Meeting,
    is_blocked: bool,
) -> None:
    drawing.text(18, top + 34, number, "soft", style="bold")
    for row, name in enumerate(sorted(found.channels)):
        y = top + 20 + row * 58
        blocked = is_blocked and name == found.channels[0]
        drawing.text(34, y + 17, "from", "soft", style="small")
        drawing.text(34, y + 31, f"slot {name[1]}", "soft", style="small")
        drawing.rect(LEFT, y, GATE - LEFT, TUBE, "wash", "line", 6)
        delivered, in_flight = frame.delivered.get(name, ()), frame.in_flight.get(name, ())
        _elements(drawing, y, [*delivered, *in_flight])
        colour = "red" if blocked else "line"
        drawing.line(GATE + 4, y, GATE + 4, y + TUBE, colour, 6 if blocked else 2)
    label = "blocked" if is_blocked else "open"
    drawing.text(GATE + 18, top + 34, label, "red" if is_blocked else "green", style="bold")
    for line, text in enumerate(words):
        drawing.text(GATE + 18, top + 54 + 15 * line, text, style="small")


def _elements(drawing: Drawing, y: float, elements: list[Element]) -> None:
    """The first to come is next to the gate."""
    x = GATE - 8.0
    for element in elements:
        for label in _labels(element):
            if x - CELL < LEFT:
                drawing.text(LEFT + 4, y + TUBE - 6, "…", "soft")
                return
            x -= CELL
            _element(drawing, x, y, element, label)


def _labels(element: Element) -> list[str]:
    match element:
        case Records(batch):
            return [f"r{n}" for n in batch.column("id").to_pylist()]
        case Watermark(time_ms):
            return ["∞" if time_ms > 1 << 60 else f"{time_ms}"]
        case Barrier(n):
            return [f"{n}"]
        case Idle():
            return ["idle"]
        case EndOfInput():
            return ["end"]
        case LoopToken():
            return ["token"]


def _element(drawing: Drawing, x: float, y: float, element: Element, label: str) -> None:
    middle = x + CELL / 2
    match element:
        case Records():
            drawing.rect(x + 2, y + 7, CELL - 4, TUBE - 14, "blue", radius=4)
            drawing.text(middle, y + 24, label, "paper", "middle", "small bold")
        case Barrier():
            drawing.rect(middle - 4, y - 4, 8, TUBE + 8, "orange", radius=2)
            drawing.text(middle, y - 7, f"barrier {label}", "orange", "middle", "small bold")
        case _:
            drawing.text(
                middle, y + 18, "w" if isinstance(element, Watermark) else "", "soft", "middle", "small"
            )
            drawing.text(middle, y + 30, label, "soft", "middle", "small")
