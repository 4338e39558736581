"""Which small files wait, and which are shown as one: any commits, against what is promised of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onceflow.connectors.files.written.compaction import (
    CompactPolicy,
    Group,
    Waiting,
    groups_due,
    waiting,
    waiting_path,
)
from onceflow.connectors.files.written.part import Part
from onceflow.connectors.files.written.plan import Ledger, Promise, plan_commit
from onceflow.runtime.errors import OptionError
from onceflow.runtime.records import WATERMARK_MAX_MS

FORM = "abc"
POLICY = CompactPolicy(checkpoints=3, size=100)
Files = list[tuple[int, int]]
"""The folder and the size of each file of one commit."""
COMMITS = st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 120)), max_size=4), max_size=8)


def waits(path: str, size: int, since: int, form: str = FORM) -> Waiting:
    file = waiting(waiting_path("beef", "out", form, path), size, since)
    assert file is not None
    return file


@given(COMMITS, st.sets(st.integers(0, 2)))
@example([[(0, 1), (1, 1)], [(0, 1)], []], set())  # as old as may be, in two folders
@example([[(0, 60), (0, 60), (0, 60)]], set())  # large enough, and a rest
@example([[(0, 1), (1, 1)]], {0})  # one is complete
def test_each_file_is_shown_once_in_time_and_not_before(commits: list[Files], complete: set[int]) -> None:
    files: list[Waiting] = []
    shown: list[str] = []
    targets: list[str] = []
    for checkpoint_id, made in enumerate(commits, 1):
        files += [
            waits(f"{folder}/out-{checkpoint_id}-{n}", size, checkpoint_id)
            for n, (folder, size) in enumerate(made)
        ]
        groups = groups_due(files, checkpoint_id, POLICY, FORM, lambda folder: int(folder) in complete)
        by_name = {file.name: file for file in files}
        for group in groups:
            of = [by_name[name] for name in group.of]
            (folder,) = {file.folder for file in of}
            size = sum(file.size for file in of)
            is_old = checkpoint_id - of[0].since + 1 == POLICY.checkpoints
            assert is_old or size >= POLICY.size_bytes or int(folder) in complete, "it could wait"
            assert size - of[-1].size < POLICY.size_bytes, "it would be too large"
            assert group.target == of[0].target
            assert [file.name for file in of] == [f.name for f in files if f.name in group.of], "their order"
        shown += [name for group in groups for name in group.of]
        targets += [group.target for group in groups]
        files = [file for file in files if file.name not in shown]
        for file in files:
            assert checkpoint_id - file.since + 1 < POLICY.checkpoints, "it has waited too long"
            assert int(file.folder) not in complete
    assert len(set(shown)) == len(shown)
    assert len(set(targets)) == len(targets)


def test_files_of_another_form_are_shown_as_they_are_and_all_without_a_policy() -> None:
    files = [waits("a/x.csv", 1, 1, "old"), waits("a/y.csv", 1, 1, "old"), waits("a/z", 1, 1)]
    alone = [Group("a/x.csv", (files[0].name,)), Group("a/y.csv", (files[1].name,))]
    assert groups_due(files, 1, POLICY, FORM, lambda _: False) == alone
    assert groups_due(files, 1, None, FORM, lambda _: False) == [*alone, Group("a/z", (files[2].name,))]


def test_a_file_that_waits_is_found_by_its_path_and_no_reader_takes_it_for_one_of_his() -> None:
    path = waiting_path("beef", "out", FORM, "country=de/out-1.parquet")
    file = waiting(path, 7, 3)
    assert file == Waiting("waiting/abc/country=de/out-1.parquet.waiting", 7, 3)
    assert file is not None
    assert (file.form, file.folder, file.target) == (FORM, "country=de", "country=de/out-1.parquet")
    assert path.startswith(".")
    assert not path.endswith(".parquet")
    assert waiting("country=de/out-1.parquet", 7, 3) is None


def part(path: str, size: int = 10, attempt: int = 1) -> Part:
    return Part(waiting_path("beef", "out", FORM, path), f"hidden-{path}", size, attempt)


def test_a_commit_that_was_begun_joins_the_same_files_again() -> None:
    """Whatever the options say meanwhile: the joined file may be seen already."""
    promise = Promise(whole=[part("a/1"), part("a/2"), part("a/3")])
    begun = [Group("a/1", ("waiting/abc/a/1.waiting", "waiting/abc/a/2.waiting"))]
    plan = plan_commit(Ledger(), [promise], 2, 1, (CompactPolicy(checkpoints=1), FORM), begun)
    assert plan.groups == begun
    assert [file.target for file in plan.after.waiting] == ["a/3"]
    assert plan.gone == ["waiting/abc/a/1.waiting", "waiting/abc/a/2.waiting"]
    after = Ledger.from_json(plan.after.as_json())
    assert after == plan.after
    assert set(plan.gone) <= set(plan_commit(after, [], 2, 2, (POLICY, FORM)).gone), (
        "a crash before the sweep"
    )


def test_a_folder_is_complete_when_nothing_of_it_waits() -> None:
    """What has come for it is joined at once, since nothing more comes."""
    promise = Promise(whole=[part("h/1"), part("other/1")], watermark_ms=10, folders={"h": 10})
    plan = plan_commit(Ledger(), [promise], 1, 1, (POLICY, FORM))
    assert [group.target for group in plan.groups] == ["h/1"]
    assert plan.complete == ["h"]
    kept = plan_commit(Ledger(), [promise], 1, 1, (POLICY, FORM), begun=[])
    assert not kept.complete
    end = plan_commit(
        Ledger(), [Promise(whole=promise.whole, watermark_ms=WATERMARK_MAX_MS)], 1, 1, (POLICY, FORM)
    )
    assert [group.target for group in end.groups] == ["h/1", "other/1"]


def test_a_ledger_of_a_version_before_compaction_is_read() -> None:
    assert Ledger.from_json({"open": [], "folders": {}}) == Ledger([], {}, [], [])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"checkpoints": 0}, "checkpoints=0: give a whole number from 1 on"),
        ({"checkpoints": True}, "checkpoints=True: give a whole number"),
        ({"size": 0}, "size=0 has to be more than 0"),
        ({"size": "big"}, "size='big' is no size"),
    ],
)
def test_each_option_that_is_wrong_has_its_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        CompactPolicy(**options)
