"""A checkpoint's state is listed and read by a stranger's program, which has not got the job's code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from onceflow.cli.checkpoints import app
from onceflow.runtime.checkpoint.reading import open_checkpoint
from onceflow.runtime.errors import UsageError

GOLDEN = Path(__file__).parents[1] / "changed_programs" / "golden_3"
BEFORE = GOLDEN.with_name("written_before")

STRANGER = """
import json, sys
from onceflow.runtime.checkpoint.reading import open_checkpoint

checkpoint = open_checkpoint(sys.argv[1])
listed = {
    table.uid: [table.name, table.rows, table.kind, table.description.distribution,
                {key.name: key.type for key in table.description.keys},
                {part.name: [part.kind, part.type] for part in table.description.parts}]
    for table in checkpoint.tables
}
rows = {table.uid: [row for batch in checkpoint.batches(table.uid) for row in batch.to_pylist()]
        for table in checkpoint.tables}
ours = ("golden", "tests", "onceflow.runtime.operators", "onceflow.runtime.api.stream")
assert not [name for name in sys.modules if name.startswith(ours)]
print(json.dumps([checkpoint.job, listed, rows]))
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    command = [sys.executable, "-c", STRANGER, str(GOLDEN)]
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    run = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_a_stranger_lists_what_there_is(seen: Any) -> None:
    job, listed, rows = seen
    assert job == "job"
    assert {uid: (table, kind) for uid, (table, _, kind, *_) in listed.items()} == {
        "best": ("windows", "window reduce"),
        "every": ("windows", "window reduce"),
        "process": ("keys", "process"),
        "reduce": ("reduced", "reduce"),
        "sliding": ("panes", "window aggregate"),
        "tumbling": ("windows", "window aggregate"),
    }
    assert all(
        (distribution, keys) == ("keyed", {"user": "string"}) for *_, distribution, keys, _ in listed.values()
    )
    assert {uid: len(found) for uid, found in rows.items()} == {uid: row[1] for uid, row in listed.items()}
    parts = listed["tumbling"][-1]
    assert parts["total"] == ["sum_", "int64"]
    assert parts["mean_price"] == ["mean", "struct<count: int64, sum: double>"]
    assert parts["width"] == ["function", "list<int64 not null>"]
    assert listed["process"][-1] == {
        "n": ["value", "int64"],
        "totals": ["map", "list<struct<key: int64 not null, value: int64 not null> not null>"],
        "times": ["list", "list<int64 not null>"],
    }


def test_a_stranger_reads_what_is_in_it(seen: Any) -> None:
    """The state of a key, computed here from the records that were read before the checkpoint."""
    _, _, rows = seen
    records = [
        (f"user-{n * n * 7 % 211:03d}" if n % 17 else f"é{n % 211}", n * 37 % 1000 - 300, n * 83)
        for n in range(330)
    ]
    [of_key] = [row for row in rows["process"] if row["key"] == {"user": "user-023"}]
    mine = [(amount, ts) for user, amount, ts in records if user == "user-023"]
    assert of_key["state"]["n"] == len(mine) > 1
    open_windows = {(row["key"]["user"], row["window_start"]): row["value"] for row in rows["tumbling"]}
    expected: dict[tuple[str, int], list[int]] = {}
    for user, amount, ts in records:
        if ts >= 20_000:
            expected.setdefault((user, ts // 10_000 * 10_000), []).append(amount)
    assert {key: (value["n"], value["total"]) for key, value in open_windows.items()} == {
        key: (len(amounts), sum(amounts)) for key, amounts in expected.items()
    }


def test_some_key_groups_of_one_state_are_read() -> None:
    checkpoint = open_checkpoint(str(GOLDEN))
    groups = [
        g for batch in checkpoint.batches("reduce", key_groups=range(3, 6)) for g in batch[0].to_pylist()
    ]
    assert set(groups) == {3, 4, 5}
    [table] = [table for table in checkpoint.tables if table.uid == "reduce"]
    assert sum(batch.num_rows for batch in checkpoint.batches("reduce")) == table.rows


def test_what_is_not_there_is_said() -> None:
    checkpoint = open_checkpoint(str(GOLDEN), 2)
    with pytest.raises(
        UsageError, match=r"checkpoint 2 in .* has no state of 'reduced' \(did you mean 'reduce'"
    ):
        checkpoint.batches("reduced")
    with pytest.raises(UsageError, match="has no table 'values' of 'reduce'"):
        checkpoint.batches("reduce", "values")
    with pytest.raises(UsageError, match="has no completed checkpoint 7; it has 2"):
        open_checkpoint(str(GOLDEN), 7)


def test_state_that_nobody_described_is_read_all_the_same() -> None:
    checkpoint = open_checkpoint(str(BEFORE))
    assert (checkpoint.tables[0].uid, checkpoint.tables[0].kind) == ("best", "")
    assert all([*checkpoint.batches(table.uid)] for table in checkpoint.tables)


def test_the_command_shows_what_is_in_the_newest_checkpoint() -> None:
    shown = CliRunner().invoke(app, [str(GOLDEN), "--state", "--json"])
    assert shown.exit_code == 0, shown.output
    [first, *_] = json.loads(shown.output)
    assert (first["uid"], first["table"], first["description"]["kind"]) == (
        "best",
        "windows",
        "window reduce",
    )
    table = CliRunner().invoke(app, [str(GOLDEN), "--state"]).output
    assert "tumbling" in table
    assert "total=sum_('amount')" in table
    assert "10,000 ms" in table
