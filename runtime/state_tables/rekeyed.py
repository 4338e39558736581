"""onceflow.rekey_state: a savepoint in which the state of a process function belongs to other keys."""

from __future__ import annotations

import inspect
import typing
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from msgspec import structs

from onceflow.runtime.arguments import PathText, path_text
from onceflow.runtime.checkpoint.copies import copy_path
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.savepoints.taking import check_is_free
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.errors import OnceflowError, UsageError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.nearest import nearest
from onceflow.runtime.state.columns import one_batch
from onceflow.runtime.state.description import KeyColumn, StateDescription, type_text
from onceflow.runtime.state.hashing import is_hashable
from onceflow.runtime.state.in_flight import is_in_flight, way_ends
from onceflow.runtime.state.operator_state import KEY_GROUP_COLUMN
from onceflow.runtime.state_tables.merged_keys import Merge, merged_rows
from onceflow.runtime.state_tables.operator_rows import OperatorState, begin, finish, stored_rows
from onceflow.runtime.state_tables.shapes import KEYS_TABLE
from onceflow.runtime.state_tables.type_texts import type_of_text
from onceflow.runtime.types.declared_fields import is_record_type
from onceflow.runtime.types.record_types import arrow_schema, arrow_type, record_class
from onceflow.runtime.types.user_functions import function_name

KeyFunction = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class OtherKeys:
    """What a process function keeps, under other keys. `key` and `merge`: see rekey_state."""

    key: KeyFunction
    merge: Merge | None = None

    def __str__(self) -> str:
        """The names of both, as the option --rekey takes them."""
        merge = "" if self.merge is None else f",{function_name(self.merge)}"
        return f"{getattr(self.key, '__module__', '')}:{function_name(self.key)}{merge}"

    def state_of(self, store: CheckpointStore, manifest: CheckpointManifest, uid: str) -> OperatorState:
        """What the operator of this uid keeps in this manifest, whose files are in `store`, read into memory.
        Raises UsageError if it can't have these keys."""
        described = _described(manifest, uid)
        rest = stored_rows(store, manifest, uid)
        rows = _no_rows(described) if rest is None else one_batch(rest)
        old = pa.RecordBatch.from_struct_array(rows.column("key"))
        new = _new_keys(self.key, old, uid)
        merged = merged_rows(rows, old, new, described.parts, self.merge, uid)
        columns = tuple(KeyColumn(field.name, type_text(field.type)) for field in new.schema)
        right = columns if described.right_keys else ()
        return OperatorState(uid, structs.replace(described, keys=columns, right_keys=right), merged)


@explained
def rekey_state(
    target: PathText, base: PathText, operator: str, key: KeyFunction, merge: Merge | None = None
) -> str:
    """Write a savepoint into the new folder or URL `target`, in which all that a process function keeps
    belongs to other keys than in `base`, a savepoint or checkpoint folder, of which all else is copied;
    `onceflow run --from` starts a job from it. Returns the savepoint's id.

    `key` makes the new key of the old one: of a value for a key of one column, of a named tuple for several.
    What it returns is annotated: a type, for a key of one column of the same name, or a record type, whose
    fields are the new columns. With a parameter annotated as pyarrow.RecordBatch it gets the columns of all
    keys and returns a batch of the new ones, row by row.

    `merge(key, states)` is called where several old keys become one: `states` has a dictionary for each, in
    the order of the old keys, with what each state has by its name (None: nothing), and a dictionary of that
    kind is what is kept. Timers of all are kept. Raises UsageError if keys meet and there is no `merge`, and
    for state that is none of a process function. The rows are in memory.
    """
    store = open_store(path_text(target))
    check_is_free(store)
    savepoint_id = uuid.uuid4().hex[:16]
    begun = begin(store, path_text(base), None, savepoint_id)
    try:
        state = OtherKeys(key, merge).state_of(store, begun.manifest, operator)
    except OnceflowError:
        store.delete([each for path in begun.manifest.paths() for each in (path, copy_path(path))])
        raise
    return finish(store, begun, state, savepoint_id)


def _no_rows(described: StateDescription) -> pa.RecordBatch:
    keys = pa.struct([pa.field(key.name, type_of_text(key.type)) for key in described.keys])
    return pa.RecordBatch.from_pydict(
        {KEY_GROUP_COLUMN: pa.array([], pa.uint16()), "key": pa.array([], keys)}
    )


def _described(manifest: CheckpointManifest, operator: str) -> StateDescription:
    """The operator's state. Raises UsageError if it can't get other keys."""
    described = manifest.operators.get(operator)
    uid, _, state = operator.rpartition(".")
    if described is None and uid in manifest.operators:
        raise UsageError(
            f"{operator!r}: the key is that of all states of {uid!r}, not of {state!r} alone: give the uid, "
            "and let a merge function say what becomes of each state"
        )
    if described is None:
        raise UsageError(
            f"the base has no state of {operator!r}{nearest(operator, manifest.operators)}: use one of "
            f"{', '.join(sorted(manifest.operators))}"
        )
    if described.table != KEYS_TABLE:
        raise UsageError(
            f"operator {operator!r} is a {described.kind}, and only a process function's state can get other "
            "keys: give the operator a new uid, and begin it anew"
        )
    if [key.name for key in described.right_keys] not in ([], [key.name for key in described.keys]):
        raise UsageError(
            f"operator {operator!r} has keys of other names in its right input, and what the new ones are "
            "called is not known: take a savepoint of a program whose keys are called alike on both sides"
        )
    for handle in manifest.states:
        if is_in_flight(handle.uid) and operator in way_ends(handle.uid) and any(handle.rows.values()):
            raise UsageError(
                f"the base has rows in flight on the way {handle.uid!r}, which have the old keys: take a "
                "savepoint while the job runs with --barriers aligned"
            )
    return described


def _new_keys(key: KeyFunction, old: pa.RecordBatch, operator: str) -> pa.RecordBatch:
    who = f"operator {operator!r}: {function_name(key)}"
    hints = typing.get_type_hints(key if inspect.isroutine(key) else type(key).__call__)
    returned = hints.pop("return", None)
    try:
        made = key(old) if pa.RecordBatch in hints.values() else _one_by_one(key, old, returned, who)
    except OnceflowError:
        raise
    except Exception as error:
        raise UsageError(f"{who} failed on the keys: {type(error).__name__}: {error}: correct it") from error
    batch = one_batch(made) if isinstance(made, pa.Table) else made
    if not isinstance(batch, pa.RecordBatch) or batch.num_rows != old.num_rows:
        raise UsageError(
            f"{who} has to return a RecordBatch with a row for each of {old.num_rows} keys: make it so"
        )
    for field in batch.schema:
        if not is_hashable(field.type):
            raise UsageError(
                f"{who}: column {field.name!r} is a {field.type}, which can't be a key: use another"
            )
    return batch


def _one_by_one(key: KeyFunction, old: pa.RecordBatch, returned: Any, who: str) -> pa.RecordBatch:
    names = old.schema.names
    record = record_class(old.schema)
    columns = [column.to_pylist() for column in old.columns]
    keys = columns[0] if len(names) == 1 else [record(*row) for row in zip(*columns, strict=True)]
    made = [key(each) for each in keys]
    if is_record_type(returned):
        schema = arrow_schema(returned)
        rows = [{name: getattr(each, name) for name in schema.names} for each in made]
        return pa.RecordBatch.from_pylist(rows, schema)
    if returned is None or len(names) > 1:
        raise UsageError(
            f"{who} does not say what the new key is: annotate what it returns, a record type for several "
            "columns"
        )
    of = arrow_type(returned, who)
    return pa.RecordBatch.from_arrays([pa.array(made, of)], names=names)
