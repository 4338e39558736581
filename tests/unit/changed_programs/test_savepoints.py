"""Savepoints through the real driver: taken of a folder, and started from in others."""

from __future__ import annotations

import json
import re
import shutil
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from onceflow.cli import savepoints
from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.log import CheckpointCompleted, JobCreated, encode_entry, entry_path
from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.savepoints.deleting import delete_savepoint, starts_from
from onceflow.runtime.checkpoint.savepoints.difference import compare
from onceflow.runtime.checkpoint.savepoints.folder import savepoint_at
from onceflow.runtime.checkpoint.savepoints.pins import Pins, pinned_folder
from onceflow.runtime.checkpoint.savepoints.savepoint import RECORD_NAME, decode_savepoint
from onceflow.runtime.checkpoint.savepoints.taking import (
    committed_checkpoint,
    copy_savepoint,
    pin_savepoint,
)
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import Committable
from onceflow.runtime.environment.running_jobs import StartingJob
from onceflow.runtime.errors import CorruptCheckpointError, UsageError
from onceflow.runtime.operators.aggregation.aggregates import max_, sum_
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.operators.processing.keyed_process import Ctx, KeyedProcess
from onceflow.runtime.state.handles import ListState, ValueState
from onceflow.runtime.state.overflow import StateOptions

FIRST = (("ann", 5, 1.5, 1_000), ("bob", 7, 2.5, 2_000))
LATER = (("ann", 1, 0.5, 9_000), ("end", 0, 0.0, 99_000))


def windows(**aggregates: Any) -> Any:
    return lambda s: {"out": s.key_by("user").window(tumbling("10 s")).aggregate(uid="op", **aggregates)}


def totals(run: Any) -> dict[str, int]:
    return {row["user"]: row["total"] for row in run.visible["out"] if row["window_start"] == 0}


@pytest.fixture
def taken(folder: Any, tmp_path: Path) -> Path:
    """A savepoint of a job that was stopped with two windows open; it was moved since."""
    last = folder.run(windows(total=sum_("amount")), *FIRST).result.last_checkpoint_id
    store, first = open_store(str(folder.path)), tmp_path / "first"
    copy_savepoint(store, open_store(str(first)), ManualClock(), last)
    return Path(shutil.move(first, tmp_path / "moved"))


def begin(folder: Any, path: Path) -> Any:
    """Another checkpoint folder with the same input."""
    other = type(folder)(path)
    other.rows = folder.rows
    return other


def test_two_jobs_go_on_from_one_savepoint_and_are_nobodys_but_their_own(
    folder: Any, taken: Path, tmp_path: Path
) -> None:
    folder.rows += LATER
    lineages = set()
    for name in ("a", "b"):
        run = begin(folder, tmp_path / name).run(windows(total=sum_("amount")), start_from=str(taken))
        assert totals(run) == {"ann": 6, "bob": 7}, "what was read before the savepoint counts once"
        created = read_log(open_store(str(tmp_path / name))).entries[0]
        assert isinstance(created, JobCreated)
        lineages.add(created.lineage)
    lineages.add(savepoint_at(str(taken)).read().manifest.lineage)
    assert len(lineages) == 3, "transactional ids and ledgers are made of it"


def test_the_same_command_goes_on_and_does_not_begin_again(folder: Any, taken: Path, tmp_path: Path) -> None:
    other = begin(folder, tmp_path / "other")
    first = other.run(windows(total=sum_("amount")), start_from=str(taken))
    assert not first.visible["out"]
    second = other.run(windows(total=sum_("amount")), *LATER, start_from=str(taken))
    assert totals(second) == {"ann": 6, "bob": 7}
    shutil.rmtree(taken)
    assert other.run(windows(total=sum_("amount"))).result.last_checkpoint_id, "it has its own copy"


def test_a_folder_that_has_another_job_is_refused(folder: Any, taken: Path) -> None:
    refused = folder.run(windows(total=sum_("amount")), start_from=str(taken))
    assert refused.result.is_refused
    assert "a savepoint starts a folder of its own" in refused.result.reason


def test_another_computation_is_refused_before_the_folder_is_touched(
    folder: Any, taken: Path, tmp_path: Path
) -> None:
    other = begin(folder, tmp_path / "other")
    refused = other.run(windows(total=max_("amount")), start_from=str(taken))
    assert refused.result.is_refused
    assert "'op'" in refused.result.reason
    assert not (tmp_path / "other" / "log").exists()
    allowed = other.run(
        windows(highest=max_("price")), *LATER, start_from=str(taken), allow_dropped_state=True
    )
    changes = {e["change"] for e in allowed.events.named("state_changed")}
    assert changes == {"added", "dropped"}


def test_a_start_that_was_cut_off_needs_its_savepoint_again(folder: Any, taken: Path, tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "other"))
    savepoint_id = savepoint_at(str(taken)).read().savepoint_id
    store.create(entry_path(0), encode_entry(0, JobCreated("job", "lineage", 1, savepoint_id)))
    other = begin(folder, tmp_path / "other")
    refused = other.run(windows(total=sum_("amount")))
    assert "its start was cut off: name the savepoint again with --from" in refused.result.reason
    assert totals(other.run(windows(total=sum_("amount")), *LATER, start_from=str(taken))) == {
        "ann": 6,
        "bob": 7,
    }


def test_a_savepoint_is_never_replaced_and_damage_is_found(folder: Any, taken: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has a savepoint already"):
        copy_savepoint(open_store(str(folder.path)), open_store(str(taken)), ManualClock())
    with pytest.raises(UsageError, match=r"is not a savepoint: it has no savepoint\.json"):
        savepoint_at(str(folder.path)).read()
    [state] = (taken / "state").rglob("*.arrows")
    content = bytearray(state.read_bytes())
    content[len(content) // 2] ^= 1
    for file in taken.rglob(state.name):  # and its copy
        file.write_bytes(content)
    failed = begin(folder, tmp_path / "other").run(windows(total=sum_("amount")), start_from=str(taken))
    assert failed.result.reason.startswith(f"{state} (state ")
    assert "was altered" in failed.result.reason
    record = (taken / RECORD_NAME).read_bytes()
    with pytest.raises(CorruptCheckpointError, match="was altered"):
        decode_savepoint(record.replace(b'"job":"job"', b'"job":"jab"'), "savepoint.json")


@pytest.mark.parametrize("max_parallelism", [8, 16])
def test_a_start_reads_a_damaged_file_from_its_copy(
    folder: Any, taken: Path, tmp_path: Path, max_parallelism: int
) -> None:
    """Under another max_parallelism the rows are written anew, not copied."""
    [state] = (taken / "state").rglob("*.arrows")
    state.write_bytes(state.read_bytes()[:-7])
    folder.rows += LATER
    run = begin(folder, tmp_path / "other").run(
        windows(total=sum_("amount")), start_from=str(taken), max_parallelism=max_parallelism
    )
    assert totals(run) == {"ann": 6, "bob": 7}
    said = [fields["message"] for fields in run.events.named("damage_healed")]
    assert said
    assert all(str(state) in message and message.endswith("read from its copy") for message in said)


def test_only_what_is_known_to_be_committed_is_taken(folder: Any) -> None:
    """The output of the latest checkpoint of a job that was killed may not be there yet."""
    folder.run(windows(total=sum_("amount")), *FIRST)
    view = read_log(open_store(str(folder.path)))
    position, latest = view.completed()[-1]
    waiting = replace(latest, committables=(Committable("out", "0", latest.checkpoint_id, {}),))
    view.entries[position] = CheckpointCompleted(waiting)
    before = view.completed()[-2][1]
    store = MemoryStore()
    assert committed_checkpoint(store, view).checkpoint_id == before.checkpoint_id
    assert committed_checkpoint(store, view, latest.checkpoint_id) == waiting, "the caller knows"
    with pytest.raises(UsageError, match="may not be committed yet"):
        committed_checkpoint(store, view, before.checkpoint_id)
    view.entries[position] = CheckpointCompleted(replace(latest, committables=()))
    assert committed_checkpoint(store, view).checkpoint_id == latest.checkpoint_id


def command(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(savepoints.app, list(arguments), catch_exceptions=False)
    return done.exit_code, done.output


def test_what_is_in_it_is_shown(taken: Path) -> None:
    _, shown = command("show", str(taken))
    assert "of job 'job'" in shown
    assert re.search(r"op +│ total +│ sum_\('amount'\) +│ int64 +│ 2 rows", shown)
    told = json.loads(command("show", str(taken), "--json")[1])
    assert told["positions"] == {"src": {"all": {"next_offset": 2}}}
    assert [state["rows"] for state in told["states"] if state["uid"] == "op"] == [2]
    assert re.fullmatch("[0-9a-f]{8}", told["program"])


class Note(NamedTuple):
    user: str
    amount: int


class Noting(KeyedProcess[str, Any, Note]):
    """Keeps amounts, and a timer of each kind for every amount; those by the clock don't fire in a test."""

    amounts = ListState("amounts", int)
    highest = ValueState("highest", int)

    def process(self, record: Any, ctx: Ctx) -> Iterator[Note]:
        self.amounts.add(record.amount)
        if record.amount > 5:
            self.highest.set(record.amount)
        ctx.timers.event_time(1_000_000)
        ctx.timers.processing_time((1 << 52) + record.amount)
        yield Note(ctx.key, record.amount)


def noting(stream: Any) -> Any:
    return {"out": stream.key_by("user").process(Noting(), uid="notes")}


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_each_state_and_the_timers_of_each_kind_are_counted_without_the_program(
    folder: Any, tmp_path: Path, backend: str
) -> None:
    rows = [("ann", 1, 0.0, 1_000), ("ann", 7, 0.0, 2_000), ("bob", 3, 0.0, 2_000)]
    last = folder.run(noting, *rows, state=StateOptions(backend=backend)).result.last_checkpoint_id
    store, a, b = open_store(str(folder.path)), tmp_path / "a", tmp_path / "b"
    copy_savepoint(store, open_store(str(a)), ManualClock(), last)
    last = folder.run(noting, ("cid", 8, 0.0, 3_000)).result.last_checkpoint_id
    copy_savepoint(store, open_store(str(b)), ManualClock(), last)
    told = json.loads(command("show", str(a), "--json", "--count")[1])
    [notes] = told["operators"]
    assert [(each["name"], each["kind"], each["rows"], each["items"]) for each in notes["states"]] == [
        ("amounts", "list", 2, 3),
        ("highest", "value", 1, None),
    ]
    assert (notes["timers"], notes["not_counted"]) == ({"event": 2, "processing": 3}, "")
    assert "2 keys, 3 elements" in command("show", str(a), "--count")[1]
    shown = command("diff", str(a), str(b), "--count")[1]
    assert "amounts: 3 -> 4" in shown
    assert "timers (processing time): 3 -> 4" in shown
    told = json.loads(command("diff", str(a), str(b), "--json", "--count")[1])
    [state] = [each for each in told["states"] if each["uid"] == "notes"]
    assert {"name": "timers (event time)", "before": 2, "after": 3} in state["counts"]


def test_the_same_keys_with_more_in_a_state_are_a_difference(folder: Any, tmp_path: Path) -> None:
    places = [tmp_path / name for name in "ab"]
    for place in places:
        last = folder.run(noting, ("ann", 1, 0.0, 1_000)).result.last_checkpoint_id
        copy_savepoint(open_store(str(folder.path)), open_store(str(place)), ManualClock(), last)
    manifests = [savepoint_at(str(place)).read().manifest for place in places]
    counts = [{"notes": {"amounts": n}} for n in (1, 2)]
    assert not compare(*manifests, *counts).is_none
    assert [each.counts for each in compare(*manifests, counts[0], {}).states] == [[]]


# --- Pinned in the job's own folder ---


@pytest.fixture
def pinned(folder: Any) -> Path:
    """A savepoint in the folder of a job that was stopped with two windows open."""
    last = folder.run(windows(total=sum_("amount")), *FIRST).result.last_checkpoint_id
    saved = pin_savepoint(open_store(str(folder.path)), ManualClock(5), last)
    return Path(folder.path, pinned_folder(saved.savepoint_id))


def test_a_pinned_savepoint_outlives_the_checkpoints_of_its_job(
    folder: Any, pinned: Path, tmp_path: Path
) -> None:
    """Two more runs of the job, each with a sweep, retain one checkpoint: no file of the savepoint goes."""
    files = savepoint_at(str(pinned)).read().manifest.paths()
    assert files
    folder.rows += LATER
    for _ in range(2):
        run = folder.run(windows(total=sum_("amount")), retained=1)
    assert [m.checkpoint_id for _, m in read_log(open_store(str(folder.path))).completed()] == [
        run.result.last_checkpoint_id
    ]
    again = begin(folder, tmp_path / "other").run(windows(total=sum_("amount")), start_from=str(pinned))
    assert totals(again) == {"ann": 6, "bob": 7}
    delete_savepoint(savepoint_at(str(pinned)))
    assert not any((folder.path / path).exists() for path in files), "its deletion frees them"
    assert not pinned.exists()


class Noted(LocalStore):
    """Notes which files of state are touched."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.touched: list[str] = []

    def _note(self, *paths: str) -> None:
        self.touched += [path for path in paths if path.endswith(".arrows")]

    def open(self, path: str) -> Any:
        self._note(path)
        return super().open(path)

    def read(self, path: str) -> bytes:
        self._note(path)
        return super().read(path)

    def create_file(self, path: str) -> Any:
        self._note(path)
        return super().create_file(path)


def test_a_pin_reads_and_copies_no_state_so_its_size_does_not_matter(folder: Any) -> None:
    last = folder.run(windows(total=sum_("amount")), *FIRST).result.last_checkpoint_id
    store = Noted(str(folder.path))
    pin_savepoint(store, ManualClock(5), last)
    assert store.touched == []
    copy_savepoint(store, open_store(str(folder.path / "copy")), ManualClock(5), last)
    assert store.touched, "a copy does"


def test_what_the_job_still_needs_stays_when_a_savepoint_goes(folder: Any, pinned: Path) -> None:
    assert "is deleted" in command("delete", str(pinned))[1]
    folder.rows += LATER
    assert totals(folder.run(windows(total=sum_("amount")))) == {"ann": 6, "bob": 7}


def test_a_pinned_savepoint_is_exported_and_the_copy_needs_nobody(
    folder: Any, pinned: Path, tmp_path: Path
) -> None:
    target = tmp_path / "exported"
    exported = json.loads(command("export", str(pinned), str(target), "--json")[1])
    assert not exported["is_pinned"]
    moved = shutil.move(pinned, tmp_path / "moved")
    with pytest.raises(UsageError, match="moved without its state"):
        savepoint_at(str(moved)).read()
    shutil.rmtree(folder.path)
    folder.rows += LATER
    run = begin(folder, tmp_path / "other").run(windows(total=sum_("amount")), start_from=str(target))
    assert totals(run) == {"ann": 6, "bob": 7}
    with pytest.raises(UsageError, match="has a savepoint already"):
        command("export", str(target), str(target))


def test_an_export_of_damaged_state_is_no_savepoint(folder: Any, pinned: Path, tmp_path: Path) -> None:
    for path in savepoint_at(str(pinned)).read().manifest.paths():
        for file in folder.path.rglob(Path(path).name):  # and its copy
            file.write_bytes(bytes(len(file.read_bytes())))
    with pytest.raises(CorruptCheckpointError, match="was altered"):
        command("export", str(pinned), str(tmp_path / "target"))
    with pytest.raises(UsageError, match="is not a savepoint"):
        savepoint_at(str(tmp_path / "target")).read()


def test_a_pin_that_can_not_be_read_keeps_everything(folder: Any, pinned: Path) -> None:
    store = open_store(str(folder.path))
    (pinned / "pin.json").write_bytes(b"{}")
    kept = Pins(store).paths()
    assert kept == savepoint_at(str(pinned)).read().manifest.paths(), "its savepoint says what it was"
    (pinned / "savepoint.json").write_bytes(b"[]")
    assert Pins(store).paths() is None
    (pinned / "pin.json").unlink()
    with pytest.raises(CorruptCheckpointError):
        savepoint_at(str(pinned)).read()


def test_lists_show_which_was_started_from_which(
    folder: Any, pinned: Path, taken: Path, tmp_path: Path
) -> None:
    folder.rows += LATER
    other = begin(folder, tmp_path / "other")
    last = other.run(windows(total=sum_("amount")), start_from=str(pinned)).result.last_checkpoint_id
    child = pin_savepoint(open_store(str(other.path)), ManualClock(9), last)
    _, shown = command("tree", str(tmp_path))
    lines = shown.splitlines()
    parent_id = savepoint_at(str(pinned)).read().savepoint_id
    [parent] = [n for n, line in enumerate(lines) if parent_id in line]
    assert child.savepoint_id in lines[parent + 1]
    assert lines[parent + 1].index(child.savepoint_id) > lines[parent].index(parent_id)
    (pinned / "pin.json").unlink()
    told = json.loads(command("tree", str(tmp_path), "--json")[1])
    assert len(told["savepoints"]) == 2
    assert "has lost its pin" in told["problems"][0]
    with pytest.raises(UsageError, match="has no savepoint"):
        command("tree", str(tmp_path / "nothing"))


def test_the_difference_of_two(folder: Any, taken: Path, tmp_path: Path) -> None:
    other = begin(folder, tmp_path / "other")
    options = {"start_from": str(taken), "allow_dropped_state": True}
    last = other.run(windows(highest=max_("price")), ("cid", 2, 1.0, 3_000), **options)
    after = tmp_path / "after"
    copy_savepoint(
        open_store(str(other.path)), open_store(str(after)), ManualClock(), last.result.last_checkpoint_id
    )
    told = json.loads(command("diff", str(taken), str(after), "--json")[1])
    [state] = [each for each in told["states"] if each["uid"] == "op"]
    assert (state["change"], state["rows_before"], state["rows_after"]) == ("evolved", 2, 3)
    assert [detail.split(":")[0] for detail in state["details"]] == ["new", "dropped"]
    [split] = told["splits"]
    assert (split["change"], split["before"], split["after"]) == (
        "moved",
        {"next_offset": 2},
        {"next_offset": 3},
    )
    _, shown = command("diff", str(taken), str(after))
    assert "dropped: total=sum_('amount') as int64" in shown
    assert "both have the same states" in command("diff", str(taken), str(taken))[1]


def test_a_deletion_that_was_cut_off_is_finished_by_the_same_command(taken: Path) -> None:
    other = taken / "mine.txt"
    other.write_text("a file of the user's")
    savepoint_id = savepoint_at(str(taken)).read().savepoint_id
    (taken / "deleting.json").write_text(savepoint_id)
    assert savepoint_at(str(taken)).read().savepoint_id == savepoint_id, "it is whole before the next step"
    (taken / RECORD_NAME).unlink()
    assert "what was left of a savepoint" in command("delete", str(taken))[1]
    assert [file.name for file in taken.iterdir()] == ["mine.txt"]
    with pytest.raises(UsageError, match="is not a savepoint"):
        command("delete", str(taken))


def test_a_savepoint_is_not_deleted_while_a_job_begins_with_it(taken: Path, tmp_path: Path) -> None:
    savepoint_id = savepoint_at(str(taken)).read().savepoint_id
    place = str(tmp_path / "other")
    store = open_store(place)
    store.create(entry_path(0), encode_entry(0, JobCreated("job", "lineage", 1, savepoint_id)))
    assert starts_from(store, savepoint_id)
    with StartingJob.announced("job", place), pytest.raises(UsageError, match="is starting from"):
        command("delete", str(taken))
    assert "is deleted" in command("delete", str(taken))[1], "nobody begins there now"
    assert not taken.exists()


def test_a_job_whose_folder_is_away_keeps_no_savepoint_from_being_deleted(
    taken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as deaf, StartingJob.announced("other", "s3://away/job"):
        deaf.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{deaf.getsockname()[1]}")
        _, said = command("delete", str(taken))
    assert f"the job on s3://away/job is starting from {taken} can't be told: s3://away/job" in said
    assert "is deleted" in said
