"""Damage to the checkpoint folder, between the crashes: the second copies are enough to go on exactly.

Goal: whatever single file, or its copy, is altered at any bit, cut at any byte or deleted, each record
counts once, each result is visible once, and the job comes to its end.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from onceflow.runtime.checkpoint import checked_files, log_view
from onceflow.runtime.checkpoint.log import LogEntry, decode_entry, encode_entry
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.errors import CorruptCheckpointError, UsageError
from onceflow.runtime.testing import world
from onceflow.runtime.testing.choices import Choices
from onceflow.runtime.testing.mutation import Mutant, killed_by, mutated
from onceflow.runtime.testing.simulation import damaged_world, run_seeds
from onceflow.runtime.testing.violations import Breach


@pytest.mark.parametrize("seeds", [300, pytest.param(3_000, marks=pytest.mark.soak)])
def test_hundreds_of_seeds_with_damage(seeds: int) -> None:
    report = run_seeds(range(seeds), world_of=damaged_world)
    assert report.failed_seed is None, report.failure
    assert report.marks["damage"] > seeds / 2


def _without_checksum(content: bytes, position: int, path: str) -> LogEntry:
    """What fits no checksum is read all the same."""
    try:
        return decode_entry(content, position, path)
    except CorruptCheckpointError:
        body = content.partition(b',"checksum"')[0]
        return decode_entry(body + b',"checksum":"crc32:%08x"}' % zlib.crc32(body), position, path)


def _alter_an_offset(store: MemoryStore, choices: Choices, can_delete: bool) -> str:
    """Alter a digit of each offset in the newest entry that has one: it is still valid JSON. A bit that is
    flipped anywhere does so in one of thousands of runs."""
    entries = [status.path for status in store.list("log/") if _OFFSET.search(store.read(status.path))]
    if not entries:
        return ""
    path = max(entries)
    altered = _OFFSET.sub(lambda m: m[1] + bytes([m[2][0] ^ 1]), store.read(path))
    store.delete([path])
    store.create(path, altered)
    return f"offsets of {path} were altered"


_OFFSET = re.compile(rb'("next_offset":\d*)(\d)')


def _no_copy(*_: Any) -> None:
    return None


LONG_SEED = 138
MUTANTS = (
    (
        0,
        Mutant(
            "an entry's checksum is not looked at",
            [(log_view, "decode_entry", _without_checksum), (world, "damage", _alter_an_offset)],
            {Breach.OFFSETS, Breach.STATE, Breach.LOST},
        ),
    ),
    (0, Mutant("copies of the log are not read", [(log_view, "_read_copy", _no_copy)], {Breach.STUCK})),
    (
        LONG_SEED,
        Mutant(
            "a state file's checksum is not looked at",
            [(checked_files, "check_content", lambda *_: None)],
            {Breach.STATE, Breach.STUCK},
        ),
    ),
    (
        14,
        Mutant(
            "state files have no copies",
            [(checked_files, "copy_path", lambda path: f"nowhere/{path}")],
            {Breach.STUCK},
        ),
    ),
)
"""Each with the first seed that killed it when somebody looked last."""


@pytest.mark.parametrize(
    ("seed", "mutant"),
    [
        # One goes on until it has made as many moves as a world may: thirty times as long as others.
        pytest.param(*each, id=each[1].title, marks=[pytest.mark.soak] if each[0] == LONG_SEED else [])
        for each in MUTANTS
    ],
)
def test_mutant_is_killed(seed: int, mutant: Mutant) -> None:
    seeds = (seed, *range(2_000))
    assert any(killed_by(mutant, n, damaged_world) for n in seeds), f"{mutant.title} survived"


def test_altered_offsets_are_found_and_the_copy_is_read() -> None:
    """The same damage as for the first mutant, which is right without it."""
    with mutated(Mutant("offsets are altered", [(world, "damage", _alter_an_offset)])):
        report = run_seeds(range(60), world_of=damaged_world)
    assert report.failed_seed is None, report.failure
    assert report.marks["damage"] > 30


def test_every_flipped_bit_of_every_entry_is_found() -> None:
    """The log of a whole job."""
    world = damaged_world(3)
    world.run()
    for position, entry in log_view.read_log(world.store).entries.items():
        content = encode_entry(position, entry)
        for altered in flipped(content):
            with pytest.raises(CorruptCheckpointError, match=r"dir/entry\.json"):
                decode_entry(altered, position, "dir/entry.json")


def test_without_the_check_flipped_bits_are_accepted() -> None:
    """The test above tests something."""
    world = damaged_world(3)
    world.run()
    (position, entry), *_ = log_view.read_log(world.store).entries.items()
    accepted = 0
    for altered in flipped(encode_entry(position, entry)):
        with contextlib.suppress(CorruptCheckpointError, UsageError):
            accepted += _without_checksum(altered, position, "") != entry
    assert accepted > 100


def flipped(content: bytes) -> Iterator[bytes]:
    """The content with each of its bits flipped, one at a time."""
    altered = bytearray(content)
    for place in range(len(content)):
        for bit in range(8):
            altered[place] ^= 1 << bit
            yield bytes(altered)
            altered[place] ^= 1 << bit


def test_an_entry_survives_its_own_encoding() -> None:
    """What `mend_copies` rests on: an entry that was read is written again as it was."""
    world = damaged_world(3)
    world.run()
    view = log_view.read_log(world.store)
    assert len(view.entries) > 3
    for position, entry in view.entries.items():
        content = encode_entry(position, entry)
        assert encode_entry(position, decode_entry(content, position, "")) == content
