"""The graph as bytes that a slot's process can read.

Functions and classes of the user's file travel by value, as Spark's pickler does it. That alone is not
enough for a dataclass: `dataclasses` tells what is not given by the identity of a few objects, which pickle
would copy, so that `dataclasses.replace` and the like go wrong in a slot without a word; and annotations
that are text are looked up in a module that is not there. So those objects travel by name, annotations of
record types as objects, and in the slot a module with what came by value stands in for the user's.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
import sys
import typing
from collections import ChainMap
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, ClassVar

from pyspark import cloudpickle

from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.hosts.spark.shipped_types import is_struct, reduced_otherwise, reduced_struct
from onceflow.runtime.types.declared_fields import is_record_type

_CACHE = "__msgspec_cache__"
"""What msgspec keeps on a class that it was asked for: no pickle takes it, and it is made anew."""
_STAND_IN = "In a slot: the classes and functions of the user's file that the job needs."
_SENTINELS = ("MISSING", "KW_ONLY", "_HAS_DEFAULT_FACTORY")


_SPARKS: Any = cloudpickle.Pickler.dispatch_table


def pack_graph(graph: JobGraph, module: ModuleType | None) -> bytes:
    """The graph for `unpack_graph`, with the functions and classes of `module` (and of `__main__`) by value.

    Raises GraphError naming the operator that holds what can't travel.
    """
    try:
        return pack(graph, module)
    except Exception as error:  # whatever an object of the user's raises when it is pickled
        where = f"operator {uid!r}" if (uid := _culprit(graph, module)) else f"job {graph.job!r}"
        raise GraphError(
            f"{where} holds something that can't be sent to the slots: {error}; make it where it is used, "
            "inside the function, or in a module beside the program, which each slot imports itself"
        ) from error


def unpack_graph(packed: bytes) -> JobGraph:
    """Unpack the graph that `pack_graph` was given."""
    graph: JobGraph = unpack(packed)
    return graph


def pack(value: Any, module: ModuleType | None) -> bytes:
    """See `pack_graph`."""
    with io.BytesIO() as file, _by_value(module):
        pickler = _Pickler(file)
        pickler.dump(None if module is None else module.__name__)
        pickler.dump(value)
        names = {} if module is None else vars(module)
        pickler.dump({name: each for name, each in names.items() if id(each) in pickler.by_value})
        return file.getvalue()


def unpack(packed: bytes) -> Any:
    """Unpack the object that `pack` was given."""
    unpickler = pickle.Unpickler(io.BytesIO(packed))
    name = unpickler.load()
    if name is None:
        return unpickler.load()
    module = sys.modules.setdefault(name, ModuleType(name, _STAND_IN))
    value, names = unpickler.load(), unpickler.load()
    if module.__doc__ == _STAND_IN:
        vars(module).update(names)
    return value


@contextmanager
def _by_value(module: ModuleType | None) -> Iterator[None]:
    if module is None:
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _culprit(graph: JobGraph, module: ModuleType | None) -> str | None:
    for chain in graph.chains:
        for uid, node in chain.nodes.items():
            try:
                pack(node, module)
            except Exception:  # the caller has one of these to tell of
                return uid
    return None


def _name(sentinel: Any) -> str:
    """Told to pickle: it is found under this name in its module."""
    return next(name for name in _SENTINELS if getattr(dataclasses, name) is sentinel)


class _Pickler(cloudpickle.Pickler):
    """Spark's, for which the objects that `dataclasses` compares by identity stay the same."""

    dispatch_table: ClassVar = ChainMap(
        {type(getattr(dataclasses, name)): _name for name in _SENTINELS},
        _SPARKS,
    )

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.by_value: set[int] = set()
        """The ids of classes and functions that were."""

    def reducer_override(self, obj: Any) -> Any:
        if (made := reduced_otherwise(obj)) is not None:
            return made
        reduced: Any = super().reducer_override(obj)
        if isinstance(reduced, tuple):
            self.by_value.add(id(obj))
            if is_struct(obj):
                return reduced_struct(obj)
        if isinstance(reduced, tuple) and is_record_type(obj):
            attributes = reduced[2][0]  # of the class, to be set when it is made anew
            attributes.pop(_CACHE, None)
            if annotations := attributes.get("__annotations__"):
                attributes["__annotations__"] = _resolved(obj, annotations)
        return reduced


def _resolved(record_type: type, annotations: dict[str, Any]) -> dict[str, Any]:
    """The annotations of a record type, as objects if they are text; what can't be resolved here is left as
    it is."""
    if not any(isinstance(each, str) for each in annotations.values()):
        return annotations
    try:
        hints = typing.get_type_hints(record_type, include_extras=True)
    except Exception:  # what an annotation raises that only a type checker reads
        return annotations
    return {name: hints.get(name, each) for name, each in annotations.items()}
