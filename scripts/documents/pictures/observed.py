"""ObservedWorld: a simulated run of which everything is written down that a picture may show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from onceflow.runtime.control.message import Message
from onceflow.runtime.records import Element
from onceflow.runtime.testing.choices import SeededChoices
from onceflow.runtime.testing.sim_slot import SimChannel, SimSlot
from onceflow.runtime.testing.sim_world import SimWorld
from onceflow.runtime.testing.world import Crash, Move, WorldOptions

ChannelName = tuple[int, int, int]
"""Edge, the slot that sends, the slot that receives."""
_SEEDS_MAX = 3_000


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, in order. `who`: a slot's number, "driver"."""

    move: int
    who: int | str
    point: int
    """How many crash points the run had passed."""
    what: str
    """A message's name with an arrow ("> Commit" to a slot, "< Acked" from one), a call of the store or the
    broker, or "read" for an element that a gate has taken."""
    detail: Any = None
    """The message; for "read" the channel and the element."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What lies in the channels after a move: on its way, and at the gate; the first to come is first."""

    move: int
    delivered: dict[ChannelName, tuple[Element, ...]]
    in_flight: dict[ChannelName, tuple[Element, ...]]


@dataclass
class _Seen:
    events: list[Event] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)


class ObservedWorld(SimWorld):
    """A SimWorld that is watched; it runs as it would without."""

    def __init__(self, seed: int, options: WorldOptions) -> None:
        self.seen = _Seen()
        super().__init__(SeededChoices(seed), options)

    @property
    def events(self) -> list[Event]:
        return self.seen.events

    @property
    def frames(self) -> list[Frame]:
        return self.seen.frames

    def point(self, what: str) -> None:
        if what != "between moves":
            self._see(what)
        super().point(what)

    def _crash(self, crash: Crash) -> None:
        durable = self.checker.latest
        self._see("crash", 0 if durable is None else durable.checkpoint_id)
        super()._crash(crash)

    def _tell(self, peer: int, message: Message) -> bool:
        slot = self._slots.get(peer)
        self._see(f"> {type(message).__name__}", message, slot)
        return super()._tell(peer, message)

    def _post(self, peer: int, message: Message) -> None:
        self._see(f"< {type(message).__name__}", message, self._slots.get(peer))
        super()._post(peer, message)

    def _move(self, move: Move) -> None:
        before = {name: tuple(c.delivered) for name, c in self._channels()}
        super()._move(move)
        delivered = {name: tuple(c.delivered) for name, c in self._channels()}
        for name, elements in before.items():
            for element in elements[: len(elements) - len(delivered.get(name, ()))]:
                self.events.append(Event(self.moves, name[2], self.points, "read", (name, element)))
        in_flight = {name: tuple(c.in_flight) for name, c in self._channels()}
        self.frames.append(Frame(self.moves, delivered, in_flight))

    def _channels(self) -> Iterator[tuple[ChannelName, SimChannel]]:
        yield from self._wirings[-1].channels.items() if self._wirings else ()

    def _see(self, what: str, detail: Any = None, slot: SimSlot | None = None) -> None:
        actor = slot or self._actor
        who = actor.number if isinstance(actor, SimSlot) and actor.number is not None else "driver"
        self.events.append(Event(self.moves, who, self.points, what, detail))


def first_run(options: WorldOptions, shows: Callable[[ObservedWorld], bool]) -> ObservedWorld:
    """The run of the lowest seed that shows what a picture is about."""
    for seed in count():
        assert seed < _SEEDS_MAX, "no run shows it any more: has the engine changed its order of things?"
        world = ObservedWorld(seed, options)
        world.run()
        if shows(world):
            return world
    raise AssertionError
