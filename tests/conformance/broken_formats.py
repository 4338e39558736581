"""Formats and checkpoint stores that are wrong in one way each, and the checks that have to notice."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa

from onceflow.connectors.formats import Decoded, Values
from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.store import FileStatus
from onceflow.testing.kit import StoreKit
from tests.conformance.own_connectors import own_format

Decoder: Any = own_format.PairDecoder
Encoder: Any = own_format.PairEncoder


class WritesOneValue(Encoder):
    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        return super().encode(batch.slice(0, 1))


class WritesUpperCase(Encoder):
    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        return pa.array([value.upper() for value in super().encode(batch).to_pylist()], pa.binary())


class WritesTheFirstRows(Encoder):
    """It looks into the buffers and forgets that a part of a batch begins later."""

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        whole = pa.RecordBatch.from_pylist(
            [{"name": batch.column(0).to_pylist()[0], "count": 0}] * batch.num_rows, own_format.PAIR
        )
        return super().encode(whole if batch.column(0).offset else batch)


class ReadsOtherColumns(Decoder):
    def decode(self, values: Values) -> Decoded:
        decoded = super().decode(values)
        return replace(decoded, batch=decoded.batch.rename_columns(["name", "number"]))


class KnowsNoArrow(Decoder):
    def decode(self, values: Values) -> Decoded:
        return super().decode([value for value in values])  # scalars, and no bytes


class LosesBadValues(Decoder):
    def decode(self, values: Values) -> Decoded:
        return replace(super().decode(values), bad=())


class RaisesForBadValues(Decoder):
    def decode(self, values: Values) -> Decoded:
        decoded = super().decode(values)
        if decoded.bad:
            raise ValueError(decoded.bad[0].reason)
        return decoded


class ReadsAllColumns(Decoder):
    def decode(self, values: Values) -> Decoded:
        self.__dict__["schema"] = own_format.PAIR
        return super().decode(values)


class ReadsOnce(Decoder):
    def decode(self, values: Values) -> Decoded:
        earlier = self.__dict__.setdefault("earlier", [])
        earlier += values.to_pylist() if isinstance(values, pa.Array) else values
        decoded = super().decode(earlier)
        return replace(decoded, rows=np.arange(decoded.batch.num_rows))


class KnowsItsProcess(Decoder):
    def decode(self, values: Values) -> Decoded:
        decoded = super().decode(values)
        rows = [{**row, "count": os.getpid()} for row in decoded.batch.to_pylist()]
        return replace(decoded, batch=pa.RecordBatch.from_pylist(rows, decoded.batch.schema))


class BrokenFormatKit(own_format.TestPairs):  # type: ignore[misc]
    __test__ = False
    in_new_processes = False
    part: ClassVar[Any] = Decoder

    def format(self) -> Any:
        broken = self.part
        if issubclass(broken, Encoder):
            return type("Broken", (own_format.Pairs,), {"encoder": lambda form, schema: broken()})()

        def decoder(form: Any, columns: frozenset[str] | None = None) -> Any:
            return broken(own_format.Pairs.decoder(form, columns).schema)

        return type("Broken", (own_format.Pairs,), {"decoder": decoder})()


class KnowsItsProcessKit(BrokenFormatKit):
    in_new_processes = True
    part = KnowsItsProcess


FORMAT_KILLERS: dict[Any, str] = {
    WritesOneValue: "each_row_is_written_as_one_value",
    WritesUpperCase: "what_is_written_is_read_back",
    ReadsOtherColumns: "rows_have_the_columns_of_the_schema",
    WritesTheFirstRows: "a_part_of_a_batch_is_written_as_its_rows",
    KnowsNoArrow: "all_forms_of_values_are_read_alike",
    LosesBadValues: "each_value_is_a_row_or_is_bad",
    RaisesForBadValues: "a_damaged_value_raises_nothing",
    ReadsAllColumns: "fewer_columns_are_read_as_among_all",
    ReadsOnce: "a_decoder_and_an_encoder_are_used_again",
    KnowsItsProcessKit: "a_new_process_reads_what_was_written",
}

# --- Stores ---------------------------------------------------------------------------------------------


class CreatesLater(MemoryStore):
    def create(self, path: str, content: bytes) -> None:
        super().create(path, content[:0])


class Replaces(MemoryStore):
    def create(self, path: str, content: bytes) -> None:
        self.delete([path])
        super().create(path, content)


class LooksAndThenCreates(MemoryStore):
    """Eight callers find nothing, and then each of them writes."""

    looked: ClassVar[threading.Barrier] = threading.Barrier(8)

    def create(self, path: str, content: bytes) -> None:
        self.looked.wait()
        self.delete([path])
        super().create(path, content)


class WritesInPlace(LocalStore):
    def create(self, path: str, content: bytes) -> None:
        place = Path(self.describe(path))
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("xb", buffering=0) as file:
            for first in range(0, len(content), 1 << 10):
                file.write(content[first : first + (1 << 10)])


class CreatesFilesTwice(MemoryStore):
    def create_file(self, path: str) -> BinaryIO:
        self.delete([path])
        return super().create_file(path)


class ListsOneLevel(MemoryStore):
    def list(self, folder: str) -> list[FileStatus]:
        return [file for file in super().list(folder) if file.path.count("/") < 3]


class FindsEverything(MemoryStore):
    def open(self, path: str) -> BinaryIO:
        try:
            return super().open(path)
        except FileNotFoundError:
            return io.BytesIO()


class KnowsOnlyLetters(MemoryStore):
    def create(self, path: str, content: bytes) -> None:
        super().create(path.replace("%", "_"), content)


class KeepsItInMemory(LocalStore):
    """Written when the store is closed, and a killed process closes nothing."""

    kept: ClassVar[dict[str, bytes]] = {}

    def create(self, path: str, content: bytes) -> None:
        self.kept[path] = content


class ReplacesOthers(LocalStore):
    def create(self, path: str, content: bytes) -> None:
        self.delete([path])
        super().create(path, content)


class BrokenStoreKit(StoreKit):
    __test__ = False
    in_new_processes = False
    part: ClassVar[Any] = MemoryStore

    def store(self) -> Any:
        arguments: Sequence[str] = [f"{self.folder}/store"] if issubclass(self.part, LocalStore) else []
        return self.part(*arguments)


class KeepsItInMemoryKit(BrokenStoreKit):
    in_new_processes = True
    part = KeepsItInMemory


class ReplacesOthersKit(BrokenStoreKit):
    in_new_processes = True
    part = ReplacesOthers


STORE_KILLERS: dict[Any, str] = {
    CreatesLater: "create_makes_a_file_that_is_there_at_once",
    Replaces: "create_never_replaces",
    LooksAndThenCreates: "of_many_creators_one_wins",
    WritesInPlace: "nobody_sees_half_a_file",
    CreatesFilesTwice: "a_file_is_written_once_and_read_in_parts",
    ListsOneLevel: "a_listing_is_deep_and_relative",
    FindsEverything: "what_is_not_there_is_not_found",
    KnowsOnlyLetters: "names_may_hold_what_uids_hold",
    KeepsItInMemoryKit: "what_another_process_has_created_is_there",
    ReplacesOthersKit: "what_another_process_has_created_is_not_created_again",
}
