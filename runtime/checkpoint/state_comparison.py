"""Pure: one operator's state as it was described, and as the program describes it now."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from msgspec import structs

from onceflow.runtime.checkpoint.renamed_parts import renamed_parts
from onceflow.runtime.errors import UsageError
from onceflow.runtime.state.description import (
    KEPT_BY,
    RECORD,
    Expression,
    KeyColumn,
    StateDescription,
    StatePart,
    Windows,
    is_wider,
)
from onceflow.runtime.state.evolution.readers import Readers
from onceflow.runtime.state.evolution.resolution import UnresolvedError, changes
from onceflow.runtime.state.evolution.type_trees import tree_of_text

ALLOW = "--allow-dropped-state"
_NEW_UID = f"or give the operator a new uid and start with {ALLOW}"


@dataclass(frozen=True, slots=True)
class StateNote:
    """Something about restored state that is told. `change`: added, renamed, widened, evolved, ttl,
    dropped, or unchecked."""

    uid: str
    change: str
    text: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """One operator: what its state was made by, and what the program computes now."""

    uid: str
    where: str
    was: StateDescription
    now: StateDescription
    rows: int
    """In the state: keys, or keys and windows."""
    allows_dropped: bool
    readers: Readers = field(default_factory=dict)
    found: list[StateNote] = field(default_factory=list)

    def notes(self) -> list[StateNote]:
        """What is to be said. Raises UsageError if the state is of another computation."""
        was, now = self.was, self.now
        if was.is_whole:
            self._same("is of a", was.kind, now.kind, f"make it what it was, {_NEW_UID}")
        has_windows = was.windows is not None or now.windows is not None
        if was.is_whole and has_windows:  # before the table, which depends on them and says less
            self._check_windows(was.windows, now.windows)
        self._same("is", was.distribution, now.distribution, f"make it what it was, {_NEW_UID}")
        self._same("has the table", was.table, now.table, f"make it what it was, {_NEW_UID}")
        self._check_keys()
        if has_windows:
            self._check_windows(was.windows, now.windows)
        if was.has_timers and not now.has_timers:
            self._refuse("event-time timers", "no event time", f"give the source its watermarks, {_NEW_UID}")
        new = {part.name: part for part in now.parts}
        who = f"operator {self.uid!r} in {self.where}"
        old, said = renamed_parts(who, {part.name: part for part in was.parts}, new, self.readers)
        self.found.extend(StateNote(self.uid, "renamed", text) for text in said)
        for name in sorted(new.keys() & old.keys()):
            self._check_part(old[name], new[name])
        for name in sorted(old.keys() - new.keys()):
            self._drop(old[name])
        for name in sorted(new.keys() - old.keys()):
            self._add(new[name])
        return sorted(self.found, key=lambda note: note.text)

    def _check_keys(self) -> None:
        self._check_keys_of("has the key", self.was.keys, self.now.keys)
        if self.was.is_whole:
            self._check_keys_of("has for the right input the key", self.was.right_keys, self.now.right_keys)

    def _check_keys_of(self, verb: str, was: tuple[KeyColumn, ...], now: tuple[KeyColumn, ...]) -> None:
        before, after = (", ".join(f"{k.name} {k.type}" for k in keys) for keys in (was, now))
        todo = f"keep the key, {_NEW_UID}"
        self._same(verb, before, after, todo)
        if self.was.is_whole:
            for old, new in zip(was, now, strict=True):
                self._check_expression(f"key {new.name!r}", old.expression, new.expression, todo)

    def _check_windows(self, was: Windows | None, now: Windows | None) -> None:
        todo = f"keep the windows, {_NEW_UID}"
        if was is None or now is None:
            self._refuse(windows_text(was), windows_text(now), todo)
        elif self.was.is_whole:
            is_same = structs.replace(was, gap=None) == structs.replace(now, gap=None)
            if not is_same or (was.gap is None) != (now.gap is None):
                self._refuse(windows_text(was), windows_text(now), todo)
            self._check_expression("sessions with the gap", was.gap, now.gap, todo)
        elif _lengths(was) != _lengths(now):
            self._refuse(windows_text(was), windows_text(now), todo)

    def _check_part(self, was: StatePart, now: StatePart) -> None:
        what = _NOUNS.get(self.now.kind, "aggregate")
        is_alone = now.name == RECORD and now.kind == "reduce"
        todo = f"keep the function, {_NEW_UID}" if is_alone else f"give the new {what} another name"
        if what == _SIDE:
            todo = f"make the join what it was, {_NEW_UID}"
        if is_wider(now.type, was.type):
            kept = f"{what} {now.name!r}" if now.kind != "reduce" else "the record so far"
            text = f"operator {self.uid!r}: {kept} may have null where it had none in {self.where}"
            self.found.append(StateNote(self.uid, "widened", f"{text}: what is there is kept"))
            was = structs.replace(was, type=now.type)
        elif now.type != was.type and now.name in self.readers:
            was = self._evolved(
                f"{what} {now.name!r}" if not is_alone else "the record so far", was, now, todo
            )
        if was.ttl != now.ttl:
            self._other_ttl(was, now)
        if self.was.is_whole:
            is_same = _identity(was) == _identity(now)
            if not is_same or (was.expression is None) != (now.expression is None):
                self._refuse(part_text(was, now), part_text(now, was), todo)
            if was.expression is not None:
                self._check_expression(f"{what} {now.name!r}", was.expression, now.expression, todo)
        elif was.type != now.type:
            self._refuse(f"{now.name!r} as {was.type}", f"{now.name!r} as {now.type}", todo)

    def _evolved(self, what: str, was: StatePart, now: StatePart, todo: str) -> StatePart:
        """The part under the type that the program reads it as. Raises UsageError if it can't, or if that
        loses something and nobody allowed it."""
        try:
            found = changes(tree_of_text(was.type), self.readers[now.name].type)
        except UnresolvedError as error:
            self._refuse(part_text(was, now), part_text(now, was), f"{error}; {todo}")
        for change in found:
            text = f"operator {self.uid!r}: {what}: {change.text} in {self.where}"
            if change.is_drop and not self.allows_dropped:
                raise UsageError(
                    f"{text}: put it back, say by FormerName which field takes it, or start with {ALLOW}"
                )
            self.found.append(StateNote(self.uid, "dropped" if change.is_drop else "evolved", text))
        return structs.replace(was, type=now.type)

    def _other_ttl(self, was: StatePart, now: StatePart) -> None:
        """What is there keeps its time, if it has one of the same kind."""
        has = f"operator {self.uid!r}: state {now.name!r} has {_ttl(now)}, and {_ttl(was)} in {self.where}"
        if now.ttl is None:
            then = "what had not expired is kept for good"
        elif was.ttl is None or was.ttl.is_by_clock != now.ttl.is_by_clock:
            then = "what is there expires as if it were written now"
        else:
            then = "what is there expires when it would have, until it is written again"
        self.found.append(StateNote(self.uid, "ttl", f"{has}: {then}"))

    def _check_expression(self, what: str, was: Expression | None, now: Expression | None, todo: str) -> None:
        """An expression is written differently by another polars: then only its columns can be compared."""
        if was == now:
            return
        if was is not None and now is not None:
            same_form = (was.text, was.digest) == (now.text, now.digest)
            if was.reads != now.reads or (was.polars == now.polars and not same_form):
                after = now.text if was.text != now.text else "the same with other arguments"
                self._refuse(f"{what} from {was.text}", after, todo)
            if same_form:
                return
        self.found.append(
            StateNote(
                self.uid,
                "unchecked",
                f"operator {self.uid!r}: {self.where} has {what} from {_written(was)}, the program from "
                f"{_written(now)}: whether they are the same can't be told",
            )
        )

    def _drop(self, part: StatePart) -> None:
        what = f"{_NOUNS.get(self.now.kind, 'aggregate')} {part.name!r}"
        has = f"operator {self.uid!r}: {self.where} has {what}, which the program does not have"
        if not self.allows_dropped:
            raise UsageError(f"{has}: put it back, or start with {ALLOW}")
        self.found.append(StateNote(self.uid, "dropped", f"{has}: dropped"))

    def _add(self, part: StatePart) -> None:
        noun = _NOUNS.get(self.now.kind, "aggregate")
        new = f"operator {self.uid!r}: {noun} {part.name!r} is new since {self.where}"
        if self.now.windows is None:
            self.found.append(StateNote(self.uid, "added", f"{new}: it begins empty"))
            return
        if self.rows and not part.is_nullable:
            raise UsageError(
                f"{new}, where windows are open that have no value for it, and its column can't be null: "
                f"{_with_null(part)}, {_NEW_UID}"
            )
        began = "windows that were open then get null" if self.rows else "no window was open then"
        self.found.append(StateNote(self.uid, "added", f"{new}: {began}"))

    def _same(self, verb: str, was: str, now: str, todo: str) -> None:
        if was != now:
            raise UsageError(
                f"operator {self.uid!r}: its state in {self.where} {verb} {was}, in the program {now}: {todo}"
            )

    def _refuse(self, was: str, now: str, todo: str) -> NoReturn:
        raise UsageError(
            f"operator {self.uid!r}: its state in {self.where} has {was}, the program {now}: {todo}"
        )


_SIDE = "side"
_JOINS = ("interval join", "window join", "co-group", "temporal join", "regular join")
_FUNCTIONS = {"reduce": "function", "window reduce": "function"}
_NOUNS = {"process": "state", "function": "state"} | _FUNCTIONS | dict.fromkeys(_JOINS, _SIDE)
"""What an operator's parts are called; else they are aggregates. The two sides of a join have their names
from the engine."""


def _identity(part: StatePart) -> tuple[str, ...]:
    return part.kind, part.type, part.column, part.function, part.codec


def _ttl(part: StatePart) -> str:
    return "no ttl" if part.ttl is None else f"a ttl of {part.ttl}"


def _lengths(windows: Windows) -> tuple[int, int, int]:
    return windows.size_ms, windows.slide_ms, windows.offset_ms


def windows_text(windows: Windows | None) -> str:
    """`tumbling windows of 10000 ms`."""
    if windows is None:
        return "no windows"
    again = f" with {windows.lateness_ms} ms of lateness, {windows.results}" if windows.results else ""
    if windows.trigger:
        again += f", which {'fire' + windows.trigger.removeprefix('fires')}"
    if windows.is_by_clock:
        return f"{windows_text(structs.replace(windows, is_by_clock=False))} by the clock"
    if windows.kind == "session":
        gap = f"of {windows.size_ms} ms" if windows.size_ms else f"by {_gap_text(windows)}"
        return f"sessions with a gap {gap}{again}"
    if windows.kind == "own":
        return f"windows by {windows.function}{again}"
    if windows.kind == "global":
        return f"global windows{again}"
    if windows.kind == "count":
        every = f" every {windows.slide_ms}" if windows.slide_ms != windows.size_ms else ""
        return f"windows of {windows.size_ms} rows{every}"
    every = f" every {windows.slide_ms} ms" if windows.slide_ms != windows.size_ms else ""
    offset = f" from {windows.offset_ms} ms on" if windows.offset_ms else ""
    kind = f"{windows.kind} " if windows.kind else ""
    return f"{kind}windows of {windows.size_ms} ms{every}{offset}{again}"


def _gap_text(windows: Windows) -> str:
    if windows.function:
        return windows.function
    return repr(windows.gap_column) if windows.gap is None else windows.gap.text


def part_text(part: StatePart, other: StatePart | None = None) -> str:
    """`total=sum_('amount')`; the type only where it is the difference to the other."""
    argument = repr(part.column) if part.column else part.function
    if part.codec:
        argument = f"{part.codec} of {part.function}"
    if part.expression is not None:
        argument = part.expression.text
    call = f"{part.name}={part.kind}({argument})"
    return f"{call} as {part.type}" if other is None or part.type != other.type else call


def _with_null(part: StatePart) -> str:
    """How to write an aggregate so that its column may be null. Where that is the same aggregate it may be
    written plainly again later."""
    if part.function:
        name = part.function.rpartition(KEPT_BY)[2]
        return f"let the get_result of {name} return an optional type"
    if part.kind in ("count_distinct", "approx_count_distinct"):
        return "add it once these windows have closed"
    if part.kind != "count":
        again = f"{part.kind}({part.column!r})"
        return (
            f"write {part.name}={part.kind}(col({part.column!r})), which may be null, and {again} again "
            "once these windows have closed"
        )
    if part.expression is not None:
        return f"write {part.name}=sum_(e.is_not_null()), where e is the expression that it counts"
    counted = f"col({part.column!r})" if part.column else "col(c)"
    which = "" if part.column else ", where c is a column without nulls,"
    return f"write {part.name}=sum_({counted}.is_not_null()){which} which may be null"


def _written(expression: Expression | None) -> str:
    if expression is None:
        return "a column or a function"
    return f"{expression.text} (as polars {expression.polars} writes it)"
