"""How savepoints are shown: trees and tables for people, objects for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import msgspec
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from onceflow.cli.checkpoints import PIPE_WIDTH, described_cells, kind_text
from onceflow.runtime.checkpoint.reading import StateTable
from onceflow.runtime.checkpoint.savepoints.difference import Change, Difference
from onceflow.runtime.checkpoint.savepoints.lineage import FoundSavepoint
from onceflow.runtime.checkpoint.savepoints.savepoint import Savepoint, program_digits
from onceflow.runtime.contracts import Json
from onceflow.runtime.state_tables.stored_counts import OperatorCounts

_COLOURS = {Change.NEW: "green", Change.DROPPED: "red", Change.EVOLVED: "yellow", Change.MOVED: "cyan"}


def show(what: RenderableType) -> None:
    """Prints as wide as the terminal is; into a pipe so that nothing is cut."""
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(what)


def origin(taken: Savepoint) -> dict[str, Any]:
    """Who took it, of what and when."""
    return {
        "job": taken.manifest.job,
        "parent": taken.parent,
        "taken_of": taken.taken_of,
        "taken_ms": taken.taken_ms,
        "onceflow": taken.onceflow,
        "program": program_digits(taken.manifest),
    }


def whole(taken: Savepoint, states: Sequence[StateTable], counts: Sequence[OperatorCounts]) -> dict[str, Any]:
    """All that `show` tells."""
    known = {name: getattr(taken, name) for name in taken.__struct_fields__ if name != "manifest"}
    return {
        **known,
        **origin(taken),
        "checkpoint_id": taken.manifest.checkpoint_id,
        "total_bytes": taken.manifest.total_bytes,
        "is_drained": taken.manifest.is_drained,
        "states": [msgspec.to_builtins(state) for state in states],
        "operators": [_counts(each) for each in counts],
        "positions": _positions(taken),
    }


def _counts(counts: OperatorCounts) -> dict[str, Any]:
    return {
        "uid": counts.uid,
        "states": [asdict(part) for part in counts.parts],
        "timers": {"event": counts.event_timers, "processing": counts.processing_timers},
        "not_counted": counts.not_counted,
    }


def tree(where: str, roots: Sequence[FoundSavepoint]) -> Tree:
    """Each savepoint under the one that its job was started from."""
    drawn = Tree(escape(where))

    def add(to: Tree, each: FoundSavepoint) -> None:
        branch = to.add(_line(each))
        for child in each.children:
            add(branch, child)

    for root in roots:
        add(drawn, root)
    return drawn


def _line(each: FoundSavepoint) -> str:
    taken, manifest = each.taken, each.taken.manifest
    parts = [
        taken.savepoint_id,
        f"job {manifest.job!r}",
        f"checkpoint {manifest.checkpoint_id}",
        _time(taken.taken_ms),
        f"{manifest.total_bytes:,} B{' pinned' if taken.is_pinned else ''}",
        f"program {program_digits(manifest) or 'not described'}",
        f"onceflow {taken.onceflow}",
        each.where,
    ]
    return escape("  ".join(parts))


def heading(taken: Savepoint) -> Iterator[str]:
    """A few lines on whose savepoint it is."""
    m = taken.manifest
    at = _time(taken.taken_ms)
    yield f"savepoint {taken.savepoint_id} of job {m.job!r}, taken at {at} by onceflow {taken.onceflow}"
    how = ("pinned there" if taken.is_pinned else "copied") + (", drained" if m.is_drained else "")
    size = f"{m.parallelism} slots, {m.total_bytes:,} B"
    yield f"of checkpoint {m.checkpoint_id} in {taken.taken_of}, {how}; {size}"
    if digits := program_digits(m):
        yield f"program {digits}: others with these digits keep the same state"
    if taken.parent:
        yield f"that folder was started from savepoint {taken.parent}"


def tables(
    taken: Savepoint, states: Sequence[StateTable], counts: Sequence[OperatorCounts]
) -> Iterator[Table]:
    """Its operators, each of their states, and how far each source was read."""
    operators = Table("uid", "state", "key", "rows", "size", title="operators")
    for table in states:
        kind, keys, _ = described_cells(table.description)
        cells = (table.uid, kind, keys, f"{table.rows:,}", f"{table.size_bytes:,} B")
        operators.add_row(*map(escape, cells))
    yield operators
    of_states = Table("uid", "state", "kind", "type", "has", title="states")
    described = {state.uid: state.description for state in states}
    for each in counts:
        operator = described[each.uid]
        kinds = {} if operator is None else {part.name: kind_text(part) for part in operator.parts}
        for part in each.parts:
            cells = (each.uid, part.name, kinds.get(part.name, part.kind), part.type, part.text)
            of_states.add_row(*map(escape, cells))
        for time, count in (("event", each.event_timers), ("processing", each.processing_timers)):
            if count is not None:
                of_states.add_row(escape(each.uid), "timers", f"{time} time", "", f"{count:,} timers")
    yield of_states
    shown = Table("uid", "split", "position", title="sources")
    for uid, splits in _positions(taken).items():
        for split, position in splits.items():
            shown.add_row(escape(uid), escape(split), escape(json.dumps(position)))
    yield shown


def difference_rows(difference: Difference) -> dict[str, Any]:
    """The difference of two savepoints, for scripts."""
    return {
        "states": [
            {
                "uid": each.uid,
                "table": each.table,
                "change": each.change.value,
                "rows_before": each.rows_before,
                "rows_after": each.rows_after,
                "details": list(each.details),
                "counts": [asdict(count) for count in each.counts],
            }
            for each in difference.states
        ],
        "splits": [
            {
                "uid": each.uid,
                "split": each.split,
                "change": each.change.value,
                "before": each.before,
                "after": each.after,
            }
            for each in difference.splits
        ],
    }


def difference_tables(difference: Difference) -> Iterator[Table]:
    """The same for people."""
    states = Table("uid", "table", "change", "rows in A", "rows in B", "what is not the same", title="state")
    for each in difference.states:
        counts = map(_count, (each.rows_before, each.rows_after))
        changed = [
            f"{count.name}: {_count(count.before)} -> {_count(count.after)}"
            for count in each.counts
            if count.before != count.after
        ]
        details = escape("\n".join([*each.details, *changed]))
        states.add_row(escape(each.uid), escape(each.table), _coloured(each.change), *counts, details)
    yield states
    splits = Table("uid", "split", "change", "in A", "in B", title="sources")
    for split in difference.splits:
        positions = (_position(position) for position in (split.before, split.after))
        splits.add_row(escape(split.uid), escape(split.split), _coloured(split.change), *positions)
    yield splits


def _count(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def _coloured(change: Change) -> str:
    colour = _COLOURS.get(change)
    return f"[{colour}]{change.value}[/{colour}]" if colour else change.value


def _position(position: Mapping[str, Json] | None) -> str:
    return "-" if position is None else escape(json.dumps(position))


def _positions(taken: Savepoint) -> dict[str, dict[str, dict[str, Json]]]:
    return {
        uid: {progress.split.split_id: dict(progress.split.position) for progress in splits}
        for uid, splits in taken.manifest.splits.items()
    }


def _time(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000):%Y-%m-%d %H:%M:%S}"
