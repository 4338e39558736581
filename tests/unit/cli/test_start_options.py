"""`--map-uid` and `--reset-offsets` as they are written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onceflow.cli.start_options import given_rekeys, given_starts, given_uids
from onceflow.runtime.errors import OptionError

OFFSETS = {"events": {"0": 17, "1": 5}}


@pytest.mark.parametrize(
    ("written", "start"),
    [
        ("src=earliest", "earliest"),
        ("src=start", "start"),
        ("src=timestamp:2026-01-31T00:00:00Z", "timestamp:2026-01-31T00:00:00Z"),
        ("src=2026-01-31T00:00:00Z", "timestamp:2026-01-31T00:00:00Z"),
        ("src=1769817600000", "timestamp:1769817600000"),
        (f"src={json.dumps(OFFSETS)}", OFFSETS),
    ],
)
def test_where_a_source_begins(written: str, start: object) -> None:
    assert given_starts([written]) == {"src": start}


def test_offsets_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps(OFFSETS))
    assert given_starts([f"src={file}"]) == {"src": OFFSETS}
    file.write_text("[]")
    with pytest.raises(OptionError, match="these are no offsets: write earliest, latest"):
        given_starts([f"src={file}"])


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        (["src"], "--reset-offsets 'src': write UID=WHERE"),
        (["src=earlyest"], "there is no such place or file: write earliest"),
        (['src={"events"'], "these are no offsets"),
        (["src=latest", "src=earliest"], "'src' begins at one place only: leave one out"),
    ],
)
def test_what_is_none_is_refused(written: list[str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        given_starts(written)


def test_uids_are_pairs() -> None:
    assert given_uids(["a=b", "c=d=e"]) == [("a", "b"), ("c", "d=e")]
    with pytest.raises(OptionError, match="--map-uid 'a=': write OLD=NEW"):
        given_uids(["a="])


def test_functions_for_other_keys() -> None:
    assert given_rekeys(["op=json:dumps", "a.b=json:loads,dumps"]) == {
        "op": json.dumps,
        "a.b": (json.loads, json.dumps),
    }


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        (["op"], "write UID=MODULE:KEY"),
        (["op=json"], "write UID=MODULE:KEY"),
        (["op=json:dumps", "op=json:loads"], "once for each operator"),
        (["op=no_such_module:key"], "can't be imported"),
        (["op=json:dumps,no_such"], "there is no 'no_such' in json"),
    ],
)
def test_functions_that_are_not_there(pairs: list[str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        given_rekeys(pairs)
