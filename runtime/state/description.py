"""StateDescription: what an operator's state is, as data, without the job's code.

Every operator with state has one when the graph is built. It is written into each manifest, once per uid,
so that whoever has a checkpoint can tell what its files hold; and it is compared when a job is restored
(`checkpoint/state_fits.py`): state that was made by another computation is never loaded in silence.

Fields may be added, with a default that means what was true before. What is compared is identity as the
user declared it: names, types, columns, kinds. The code of a user's function is not.
"""

from __future__ import annotations

from itertools import accumulate

import msgspec
import pyarrow as pa

KEYED = "keyed"
"""Each row belongs to a key group, and goes to the subtask that owns it."""
BY_SUBTASK = "by subtask"
"""There is no key: each subtask of a restore gets what all earlier ones left, and takes its part of it."""
RECORD = "record"
"""The name of a reduce's only part."""
NOT_NULL = " not null"
KEPT_BY = ", by "
"""Stands between what an aggregate keeps as bytes and the name of its class."""


class Expression(msgspec.Struct, frozen=True, omit_defaults=True):
    """A polars expression. `text` is for people; it leaves out some arguments. `digest` is of polars' own
    serialized form, "" if it has none (a Python function inside). Both may change with polars' version,
    which is why that is here too."""

    text: str
    reads: tuple[str, ...]
    """The input columns of the expression, sorted."""
    digest: str
    polars: str


class KeyColumn(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column of the key. Their order is part of how keys are hashed."""

    name: str
    type: str
    """The Arrow type, as `type_text` writes it."""
    expression: Expression | None = None
    """What key_by computes it from; None: a column of the stream, or a function of the user's."""


class Windows(msgspec.Struct, frozen=True, omit_defaults=True):
    """Windows: `tumbling`, `sliding`, `cumulative`; `session`, whose size and slide are the gap, or 0 if each
    row has its own; `count`, where they are numbers of rows; `global` and `own`, where they are 0."""

    kind: str
    size_ms: int
    slide_ms: int
    offset_ms: int = 0
    gap_column: str = ""
    """The column that says a session's gap, if one does."""
    gap: Expression | None = None
    """The expression that says it, if one does."""
    lateness_ms: int = 0
    """How long after its end a row still counts in a window."""
    is_by_clock: bool = False
    """Whether rows belong to the time at which they come, not to their own."""
    results: str = ""
    """What a window sends when it fires again; empty if it does not."""
    trigger: str = ""
    """When it fires, in words; empty: at the watermark."""
    function: str = ""
    """The class of the user's own assigner, or the function that says a session's gap."""


class TimeToLive(msgspec.Struct, frozen=True, omit_defaults=True):
    """How long a declared state remembers a value, an element of a list, or an entry of a map."""

    ms: int
    """How long after it was written it is forgotten, in ms."""
    is_by_clock: bool = False
    """Whether that is time of the clock (processing time), and not event time."""
    is_renewed_by_reads: bool = False
    """Whether reading counts as writing."""

    def __str__(self) -> str:
        time = "processing time" if self.is_by_clock else "event time"
        return f"{self.ms} ms of {time} after {'use' if self.is_renewed_by_reads else 'a write'}"


class StatePart(msgspec.Struct, frozen=True, omit_defaults=True):
    """What comes and goes by itself in an operator's state: an aggregate, or a declared state of a
    KeyedProcess; a reduce has one.

    `kind`: of an aggregate its name (`sum_`, ...) or `function`; `value`, `list` or `map`; `reduce`; of a
    function without a key `split list` or `union list`.
    `type`: of what is kept, as `type_text` says it.
    """

    name: str
    kind: str
    type: str
    column: str = ""
    """The input column, if it has one."""
    expression: Expression | None = None
    """The expression that is aggregated, in place of a column."""
    function: str = ""
    """The name of the user's class or function."""
    is_nullable: bool = False
    """Whether its result can be null."""
    ttl: TimeToLive | None = None
    """The time after which a declared state forgets; None: it does not."""
    codec: str = ""
    """How values are kept as bytes, `msgspec` or `pickle`; empty: as columns. `function` says of what; of an
    aggregate also, behind KEPT_BY, the name of its class."""


class StateDescription(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of one operator: in its state files the table `table` holds a row for each key (and window),
    with the columns that `operators/describe.py` names. `checkpoint/reading.py` reads it."""

    kind: str
    table: str
    keys: tuple[KeyColumn, ...]
    parts: tuple[StatePart, ...] = ()
    windows: Windows | None = None
    has_timers: bool = False
    """Whether event-time timers can be kept with a key."""
    distribution: str = KEYED
    """How the table's rows are dealt out to the subtasks of a restore."""
    right_keys: tuple[KeyColumn, ...] = ()
    """The columns of the right input that are the key there, if the operator has two."""
    is_whole: bool = True
    """False: read from the files of a checkpoint that has no descriptions; kinds, columns, expressions and
    functions are not known. Never written."""


def type_text(arrow: pa.DataType) -> str:
    """An Arrow type as text that does not hang on pyarrow's version. The order of a struct's fields does not
    count, since they are read by name; neither does how a list calls its items."""
    t = pa.types
    if t.is_struct(arrow):
        return f"struct<{', '.join(sorted(_field_text(f) for f in arrow))}>"
    if t.is_list(arrow) or t.is_large_list(arrow):
        return f"list<{type_text(arrow.value_type)}{_not_null(arrow.value_field)}>"
    if t.is_map(arrow):
        return f"map<{type_text(arrow.key_type)}, {type_text(arrow.item_type)}>"
    return str(arrow)


def is_wider(now: str, was: str) -> bool:
    """Whether of two `type_text`s the first is the second with null allowed in more places: then every value
    of the second is one of the first."""
    parts_now, parts_was = now.split(NOT_NULL), was.split(NOT_NULL)
    ends_now, ends_was = (set(accumulate(map(len, parts[:-1]))) for parts in (parts_now, parts_was))
    return "".join(parts_now) == "".join(parts_was) and ends_now < ends_was


def _field_text(field: pa.Field) -> str:
    return f"{field.name}: {type_text(field.type)}{_not_null(field)}"


def _not_null(field: pa.Field) -> str:
    return "" if field.nullable else NOT_NULL
