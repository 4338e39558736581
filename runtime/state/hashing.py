"""Hashes of keys: stable for ever, because state on disk and routing between processes rest on them.

Strings and bytes go through XXH3 (64 bit), every other value through splitmix64 of its bits. The values
are pinned by tests/unit/state/test_hashing.py: a change would lose every user's state.

With kernels XXH3 is hash_kernels.py's, which takes a fifth of the time on batches of short keys; without
them it is hash_arrays.py's if all keys of a batch are short. For all others it is that of polars_hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import polars_hash
import pyarrow as pa

from onceflow.runtime.arrays.offsets import offsets_of
from onceflow.runtime.kernels.ops import ops
from onceflow.runtime.records import Int64s, UInt64s
from onceflow.runtime.state.columns import bits_of, is_word, null_mask
from onceflow.runtime.state.hash_arrays import hash_texts

CHECK_SEED = 0x6F6E6365666C6F77
"""Seed of the second, independent hash with which KeyIndex tells apart keys that share the first."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_COMBINE = np.uint64(0xD6E8FEB86659FD93)
_NULL_WORD = np.uint64(0x9AE16A3B2F90404F)
_STRUCT_WORD = np.uint64(0xC3A5C85C97CB3127)
_ODD = np.uint64(0x9E3779B97F4A7C15)
"""Odd, so that one key's starts all have different hashes; a key group's hashes stay uniform."""
_S27, _S30, _S31 = np.uint64(27), np.uint64(30), np.uint64(31)


def is_hashable(arrow: pa.DataType) -> bool:
    """Whether values of this type can be a key: all but lists, maps, unions and dictionaries."""
    t = pa.types
    if t.is_struct(arrow):
        return arrow.num_fields > 0 and all(is_hashable(arrow.field(i).type) for i in range(arrow.num_fields))
    return bool(_is_text(arrow) or t.is_null(arrow) or t.is_decimal128(arrow) or is_word(arrow))


def hash_keys(batch: pa.RecordBatch, columns: Sequence[str], seed: int = 0) -> UInt64s:
    """The 64-bit hash of these columns, one per row; with several columns their order counts.

    Equal keys have equal hashes: integers of any width by value, -0.0 as 0.0, every NaN as one, null
    as a value of its own. The seed chooses another, independent hash. Raises TypeError for a type
    that is not `is_hashable`.
    """
    assert columns, "a key has at least one column"
    hashed = _hash_column(batch.column(columns[0]), seed)
    for name in columns[1:]:
        hashed = _combine(hashed, _hash_column(batch.column(name), seed))
    return hashed


def with_start(key_hash: UInt64s, starts: Int64s) -> UInt64s:
    """The hash of (key, start)."""
    return key_hash + starts.view(np.uint64) * _ODD


def without_start(hashes: UInt64s, starts: Int64s) -> UInt64s:
    """A key's own hash from that of (key, start): the inverse of `with_start`."""
    return hashes - starts.view(np.uint64) * _ODD


def splitmix64(words: UInt64s) -> UInt64s:
    """The finaliser of SplitMix64 (Steele 2014): a bijection of 64-bit words that mixes all bits."""
    mixed = words + _GOLDEN
    mixed ^= mixed >> _S30
    mixed *= _MIX_1
    mixed ^= mixed >> _S27
    mixed *= _MIX_2
    mixed ^= mixed >> _S31
    return mixed


def _hash_column(array: pa.Array, seed: int) -> UInt64s:
    arrow = array.type
    if pa.types.is_struct(arrow):
        hashed = _seeded(np.full(len(array), _STRUCT_WORD), seed)
        for child in array.flatten():
            hashed = _combine(hashed, _hash_column(child, seed))
    elif _is_text(arrow):
        hashed = _hash_text(array, seed)
    elif pa.types.is_null(arrow):
        hashed = np.zeros(len(array), np.uint64)
    elif pa.types.is_decimal128(arrow):
        hashed = _hash_decimals(array, seed)
    elif is_word(arrow):
        hashed = _seeded(_words(array), seed)
    else:
        raise TypeError(f"a key can't be of type {arrow}")
    nulls = null_mask(array)
    if nulls is not None:
        hashed[nulls] = _seeded(np.full(1, _NULL_WORD), seed)[0]
    return hashed


def _hash_text(array: pa.Array, seed: int) -> UInt64s:
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    hashed = hash_text_by_kernel(array, seed) if ops().are_compiled else hash_text_by_arrays(array, seed)
    return hash_text_by_polars(array, seed) if hashed is None else hashed


def hash_text_by_kernel(array: pa.Array, seed: int) -> UInt64s | None:
    """XXH3 of strings or bytes, anything where null; None if there is a text too long for the kernel, or
    for Arrow's views. Needs numba."""
    from onceflow.runtime.state import hash_kernels

    bounds = _bounds(array)
    if bounds is None:
        return None
    hashes = np.empty(len(array), np.uint64)
    data = array.buffers()[2]
    address = 0 if data is None else data.address
    return hashes if hash_kernels.hash_texts(bounds, address, np.uint64(seed), hashes) else None


def hash_text_by_arrays(array: pa.Array, seed: int) -> UInt64s | None:
    """The same; None if the texts are not all short."""
    bounds = _bounds(array)
    if bounds is None or len(bounds) < 2 or array.buffers()[2] is None:
        return None
    return hash_texts(bounds, np.frombuffer(array.buffers()[2], np.uint8), seed)


def _bounds(array: pa.Array) -> npt.NDArray[Any] | None:
    """Where each text begins in the data, and where the last one ends; None: they are Arrow's views."""
    t, arrow = pa.types, array.type
    is_text = t.is_string(arrow) or t.is_binary(arrow) or t.is_large_string(arrow) or t.is_large_binary(arrow)
    return offsets_of(array) if is_text else None


def hash_text_by_polars(array: pa.Array, seed: int) -> UInt64s:
    """XXH3 of strings or bytes of any length, anything where null."""
    column = pl.Series("key", array)
    hashed = column.to_frame().select(polars_hash.col("key").nchash.xxh3_64(seed=seed)).to_series()
    # Not writable, or with nulls as a mask: hand out a writable copy without nulls.
    return np.array((hashed.fill_null(0) if hashed.null_count() else hashed).to_numpy(), np.uint64)


def _hash_decimals(array: pa.Array, seed: int) -> UInt64s:
    halves = bits_of(array, np.dtype((np.uint64, 2)))
    return _combine(_seeded(halves[:, 0].copy(), seed), _seeded(halves[:, 1].copy(), seed))


def _words(array: pa.Array) -> UInt64s:
    """A value as 64 bits: signed integers by value, so that a wider type hashes the same."""
    if pa.types.is_boolean(array.type):
        return np.asarray(array.fill_null(False).to_numpy(zero_copy_only=False)).astype(np.uint64)
    values = bits_of(array)
    if values.dtype.kind != "f":
        return (
            values.astype(np.int64).view(np.uint64) if values.dtype.kind == "i" else values.astype(np.uint64)
        )
    floats = values.astype(np.float64) + 0.0  # -0.0 + 0.0 is 0.0
    floats[np.isnan(floats)] = np.nan
    return floats.view(np.uint64)


def _seeded(words: UInt64s, seed: int) -> UInt64s:
    return splitmix64(words ^ splitmix64(np.full(1, seed, np.uint64)) if seed else words)


def _combine(left: UInt64s, right: UInt64s) -> UInt64s:
    return splitmix64(left * _COMBINE + right)


def _is_text(arrow: pa.DataType) -> bool:
    t = pa.types
    is_string = t.is_string(arrow) or t.is_large_string(arrow) or t.is_string_view(arrow)
    is_binary = t.is_binary(arrow) or t.is_large_binary(arrow) or t.is_binary_view(arrow)
    return bool(is_string or is_binary or t.is_fixed_size_binary(arrow))
