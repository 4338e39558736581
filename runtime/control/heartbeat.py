"""How often driver and slots tell each other that they live, and how far they are."""

from __future__ import annotations

_HEARTBEAT_MS = 1_000.0
_MESSAGES_PER_S_MAX = 100.0
_MISSED_MAX = 3
_ALIGNMENT_MS = 50.0


def heartbeat_ms(slots: int) -> float:
    """The pause between two signs of life of a slot, and of the driver to all slots: a second, or longer
    with more than a hundred slots, so that the driver hears a hundred of them a second and no more."""
    return max(_HEARTBEAT_MS, 1_000.0 * slots / _MESSAGES_PER_S_MAX)


def alignment_pause_ms(slots: int) -> float:
    """The pause between two reports of a slot on how far its splits are, for watermark alignment: the driver
    hears a hundred a second and no more."""
    return max(_ALIGNMENT_MS, 1_000.0 * slots / _MESSAGES_PER_S_MAX)


def silence_ms_max(slots: int, slot_timeout_ms: float) -> float:
    """The silence after which a slot counts as lost, in ms: what the user says, but never before it could
    have been heard a few times."""
    return max(slot_timeout_ms, _MISSED_MAX * heartbeat_ms(slots))
