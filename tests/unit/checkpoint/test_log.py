"""The log: one writer per position, fencing, unknown outcomes settled by reading back, strict reading."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import msgspec
import pytest

from onceflow.runtime.checkpoint.copies import copy_path, delete_with_copies
from onceflow.runtime.checkpoint.log import (
    AttemptStarted,
    CheckpointCompleted,
    CheckpointLog,
    JobCreated,
    LogEntry,
    LogMoved,
    decode_entry,
    encode_entry,
    entry_path,
)
from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.manifest import MANIFEST_VERSION, SlotSnapshot, StateHandle, meta_as_json
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.errors import CorruptCheckpointError, Fenced, Indeterminate, Retryable, UsageError
from onceflow.runtime.testing.choices import ReplayedChoices
from onceflow.runtime.testing.coordination import manifest, snapshot
from onceflow.runtime.testing.faults import FaultyStore

NOW = b'"format_version":%d' % MANIFEST_VERSION
CREATED = JobCreated("job", "beef", 1)


CHECKSUM_AT = encode_entry(0, CREATED).index(b',"checksum"')


def sealed(content: bytes) -> bytes:
    """The entry with the checksum that fits what comes before it."""
    body = content[: content.index(b',"checksum"')]
    return body + b',"checksum":"crc32:%08x"}' % zlib.crc32(body)


def unchecked(position: int, entry: LogEntry, version: int = 2) -> bytes:
    """The entry as onceflow wrote it before there were checksums."""
    body, _, _ = encode_entry(position, entry).partition(b',"checksum"')
    return body.replace(NOW, b'"format_version":%d' % version, 1) + b"}"


def started(attempt: int, owner: str = "me") -> AttemptStarted:
    return AttemptStarted(attempt, None, owner, 1, 2)


def test_entries_come_back_as_they_were_written() -> None:
    store = MemoryStore()
    log = CheckpointLog(store, 0)
    entries = [CREATED, started(1), CheckpointCompleted(manifest(0, 1))]
    assert [log.append(entry) for entry in entries] == [0, 1, 2]
    view = read_log(store)
    assert [encode_entry(n, e) for n, e in view.entries.items()] == [
        encode_entry(n, e) for n, e in enumerate(entries)
    ]
    assert (view.next_position, view.corrupt) == (3, {})


def test_a_newer_attempt_fences_the_older_by_taking_its_next_position() -> None:
    store = MemoryStore()
    zombie = CheckpointLog(store, 0)
    zombie.append(CREATED)
    zombie.append(started(1))
    CheckpointLog(store, 2).append(started(2, "other"))
    for _ in range(2):
        with pytest.raises(Fenced):
            zombie.append(CheckpointCompleted(manifest(1, 1)))


def test_a_try_that_failed_alone_is_known_not_to_have_written() -> None:
    store = MemoryStore()
    log = CheckpointLog(FaultyStore(store, ReplayedChoices([1]), 1), 0)
    with pytest.raises(Retryable):
        log.append(CREATED)
    assert store.list("log") == []


def test_an_older_entry_in_doubt_is_remembered_while_a_newer_one_is_too() -> None:
    """A manifest, then the next attempt, both without an answer; the manifest turns up."""
    store = MemoryStore()
    log = CheckpointLog(FaultyStore(store, ReplayedChoices([2] * 6), 6), 0)
    for entry in (CREATED, started(1)):
        with pytest.raises(Indeterminate):
            log.append(entry)
    store.create(entry_path(0), encode_entry(0, CREATED))
    with pytest.raises(LogMoved):
        log.append(started(1))


def test_the_same_attempt_number_of_another_driver_is_not_mine() -> None:
    store = MemoryStore()
    CheckpointLog(store, 0).append(started(1, "other"))
    with pytest.raises(Fenced):
        CheckpointLog(store, 0).append(started(1, "me"))


@pytest.mark.parametrize("faults", [[3], [2], [3, 0], [2, 2, 0], [2, 3], [3, 1], [2, 1], [3, 2, 0]])
def test_an_unknown_outcome_is_settled_by_trying_again(faults: list[int]) -> None:
    """2: no answer, not done; 3: no answer, done. Either way the entry is there once."""
    store = MemoryStore()
    log = CheckpointLog(FaultyStore(store, ReplayedChoices(faults), len(faults)), 0)
    assert log.append(CREATED) == 0
    assert log.next_position == 1
    assert list(read_log(store).entries.values()) == [CREATED]


def test_an_outcome_that_stays_unknown_is_indeterminate_and_may_be_tried_again() -> None:
    store = MemoryStore()
    log = CheckpointLog(FaultyStore(store, ReplayedChoices([2, 2, 2]), 3), 0)
    with pytest.raises(Indeterminate):
        log.append(CREATED)
    assert log.append(CREATED) == 0


@pytest.mark.parametrize("faults", [[3, 1, 1], [2, 1, 1], [3, 2, 1]])
def test_regression_a_try_that_failed_says_nothing_about_the_one_before(faults: list[int]) -> None:
    """Seed 11: written without an answer, then a try that certainly did not write. It was taken for not
    done, the checkpoint aborted and its files deleted, and the entry was there."""
    store = MemoryStore()
    log = CheckpointLog(FaultyStore(store, ReplayedChoices(faults), 3), 0)
    with pytest.raises(Indeterminate):
        log.append(CREATED)
    assert log.append(CREATED) == 0


def test_an_entry_in_doubt_that_landed_late_is_not_taken_for_somebody_elses() -> None:
    store = MemoryStore()
    log = CheckpointLog(FaultyStore(store, ReplayedChoices([2, 2, 2]), 3), 0)
    with pytest.raises(Indeterminate):
        log.append(CREATED)
    store.create(entry_path(0), encode_entry(0, CREATED))
    assert log.was_in_doubt(0, CREATED)
    with pytest.raises(LogMoved):
        log.append(started(1))
    assert log.append(started(1)) == 1


@pytest.mark.parametrize(
    ("alter", "message"),
    [
        (lambda b: b[:-20], "no valid entry"),
        (lambda b: unchecked(0, CREATED, 4), "not where it was"),
        (lambda b: unchecked(0, CREATED, 3), "not where it was"),
        (lambda b: sealed(b.replace(b'"position":0', b'"position":7')), "says that it is entry 7"),
        (lambda b: sealed(b.replace(b'"lineage"', b'"linage"')), "linage"),
        (lambda b: sealed(b.replace(b'"created_ms":1', b'"created_ms":"1"')), "created_ms"),
        (lambda b: sealed(b.replace(NOW, b'"format_version":2', 1)), "not where it was"),
        (lambda b: b[:CHECKSUM_AT] + b"}", "not where it was"),
        (lambda b: b.replace(b'"created_ms":1', b'"created_ms":2'), "its checksum does not fit"),
        (lambda b: b"", "no valid entry"),
        (lambda b: b"\xff\x00", "no valid entry"),
    ],
)
def test_what_is_not_a_valid_entry_is_refused_with_its_path(
    alter: Callable[[bytes], bytes], message: str
) -> None:
    content = alter(encode_entry(0, CREATED))
    with pytest.raises(CorruptCheckpointError, match=message) as caught:
        decode_entry(content, 0, "dir/log/0000000000.json")
    assert "dir/log/0000000000.json" in str(caught.value)


def test_what_a_newer_onceflow_wrote_is_left_to_it() -> None:
    newer = b'"format_version":%d' % (MANIFEST_VERSION + 1)
    content = sealed(encode_entry(0, CREATED).replace(NOW, newer, 1))
    store = MemoryStore()
    store.create(entry_path(0), content)
    with pytest.raises(
        UsageError,
        match=rf"0000000000\.json has format version {MANIFEST_VERSION + 1}.*use the onceflow that wrote",
    ):
        read_log(store)


@pytest.mark.parametrize("version", [1, 2])
def test_an_entry_of_a_version_without_checksums_is_read(version: int) -> None:
    assert decode_entry(unchecked(0, CREATED, version), 0, "dir/log/0000000000.json") == CREATED


def test_gaps_above_the_oldest_kept_checkpoint_are_noticed_and_those_below_are_not() -> None:
    store = MemoryStore()
    log = CheckpointLog(store, 0)
    for entry in (CREATED, started(1), *(CheckpointCompleted(manifest(n, 1)) for n in range(4))):
        log.append(entry)
    delete_with_copies(store, [entry_path(2), entry_path(3)])
    assert read_log(store).corrupt == {}
    delete_with_copies(store, [entry_path(4)])
    assert read_log(store).corrupt == {}
    log.append(CheckpointCompleted(manifest(4, 1)))
    log.append(CheckpointCompleted(manifest(5, 1)))
    delete_with_copies(store, [entry_path(6)])
    assert list(read_log(store).corrupt) == [6]


def test_temporary_files_of_a_crashed_create_are_passed_over() -> None:
    store = MemoryStore()
    store.create("log/.new-abc", b"half")
    assert read_log(store).next_position == 0


def test_what_a_slot_acks_survives_json() -> None:
    part = snapshot(1)
    back = msgspec.json.decode(msgspec.json.encode(part), type=SlotSnapshot)
    assert msgspec.json.encode(back) == msgspec.json.encode(part)
    assert list(back.states) == list(part.states)
    assert back.paths() == part.paths() != set()


def test_what_an_operator_remembers_beside_its_tables_survives_json_as_it_was() -> None:
    handle = StateHandle("op", 0, 0, 8, meta_json=meta_as_json({"watermarks": [[0, 8, -(2**63)]]}))
    back = msgspec.json.decode(msgspec.json.encode(handle), type=StateHandle)
    assert back.meta == {"watermarks": [[0, 8, -(2**63)]]}
    assert b'"meta":{"watermarks"' in msgspec.json.encode(back)
    assert (
        msgspec.json.decode(
            b'{"uid":"op","subtask":0,"key_groups_start":0,"key_groups_end":8}', type=StateHandle
        ).meta
        == {}
    )


def test_an_entry_that_is_damaged_is_read_from_its_copy_and_one_that_is_gone_too() -> None:
    store = MemoryStore()
    log = CheckpointLog(store, 0)
    entries = [CREATED, started(1), CheckpointCompleted(manifest(0, 1)), CheckpointCompleted(manifest(1, 1))]
    for entry in entries:
        log.append(entry)
    store.write_copy(entry_path(1), store.read(entry_path(1)).replace(b'"me"', b'"mf"'))
    store.delete([entry_path(0), entry_path(3)])
    view = read_log(store)
    assert [encode_entry(n, view.entries[n]) for n in range(4)] == [
        encode_entry(n, e) for n, e in enumerate(entries)
    ]
    assert view.corrupt == {}
    assert view.gone == {0, 3}
    assert "0000000001.json was altered" in view.healed[1]
    assert "0000000003.json is missing" in view.healed[3]


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b"", lambda b: b.replace(b'"job"', b'"jab"')])
def test_a_copy_that_is_damaged_too_is_not_believed(damage: Callable[[bytes], bytes]) -> None:
    store = MemoryStore()
    CheckpointLog(store, 0).append(CREATED)
    for path in (entry_path(0), copy_path(entry_path(0))):
        store.write_copy(path, damage(store.read(path)))
    view = read_log(store)
    assert view.entries == {}
    assert entry_path(0) in view.corrupt[0]


def test_a_driver_that_lost_a_position_leaves_no_copy_of_its_entry() -> None:
    """A copy is believed where its entry is damaged: it has to be what the log has."""
    store = MemoryStore()
    CheckpointLog(store, 0).append(started(2, "other"))
    copy = store.read(copy_path(entry_path(0)))
    with pytest.raises(Fenced):
        CheckpointLog(store, 0).append(started(1, "me"))
    assert store.read(copy_path(entry_path(0))) == copy


def test_entries_without_a_checksum_are_counted_and_refused_behind_one_that_has_it() -> None:
    store = MemoryStore()
    for position, entry in enumerate([CREATED, started(1)]):
        store.create(entry_path(position), unchecked(position, entry))
    store.create(entry_path(2), encode_entry(2, CheckpointCompleted(manifest(0, 1))))
    view = read_log(store)
    assert (view.unchecked, view.corrupt) == ({0, 1}, {})
    store.create(entry_path(3), unchecked(3, started(2)))
    assert "no checksum, though entries before it have" in read_log(store).corrupt[3]
