"""The hash of a key is part of the state format: these values must never change."""

import datetime as dt
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.kernels.ops import ops
from onceflow.runtime.state.hashing import (
    CHECK_SEED,
    hash_keys,
    hash_text_by_arrays,
    hash_text_by_kernel,
    hash_text_by_polars,
    is_hashable,
)
from onceflow.runtime.state.key_groups import key_groups_of

GOLDEN_COLUMNS = {
    "string": pa.array(["", "a", "u0012345", "Grüße \U0001f600", None, "x" * 300]),
    "binary": pa.array([b"", b"a", b"\x00", b"\xff" * 20, None, b"x" * 300]),
    "int64": pa.array([0, 1, -1, (1 << 63) - 1, None, -(1 << 63)]),
    "uint64": pa.array([0, 1, 2, (1 << 64) - 1, None, 5], pa.uint64()),
    "float64": pa.array([0.0, -0.0, 1.5, float("nan"), None, float("-inf")]),
    "bool": pa.array([True, False, True, False, None, True]),
    "date": pa.array([dt.date(1970, 1, 1), dt.date(2024, 2, 29), None, None, None, None]),
    "timestamp": pa.array([0, 1, -1, 1_700_000_000_000, None, 7], pa.timestamp("ms", "UTC")),
    "decimal": pa.array(
        [Decimal("0.00"), Decimal("-1.25"), None, None, None, Decimal("9.99")], pa.decimal128(9, 2)
    ),
    "struct": pa.array([{"a": 1, "b": "x"}, {"a": None, "b": "x"}, None, {"a": 1, "b": None}] + [None] * 2),
}

GOLDEN = {
    "string": [
        0x2D06800538D394C2,
        0xE6C632B61E964E1F,
        0x8A5C48B539F930D1,
        0x81FC46CC40EA1F91,
        0xF725441D87A5FE5E,
        0xA5D1B4607DC83554,
    ],
    "binary": [
        0x2D06800538D394C2,
        0xE6C632B61E964E1F,
        0xC44BDFF4074EECDB,
        0x5F3455E3912C8E0E,
        0xF725441D87A5FE5E,
        0xA5D1B4607DC83554,
    ],
    "int64": [
        0xE220A8397B1DCDAF,
        0x910A2DEC89025CC1,
        0xE4D971771B652C20,
        0x2A67D7552E039EA7,
        0xF725441D87A5FE5E,
        0x481EC0A212A9F3DB,
    ],
    "uint64": [
        0xE220A8397B1DCDAF,
        0x910A2DEC89025CC1,
        0x975835DE1C9756CE,
        0xE4D971771B652C20,
        0xF725441D87A5FE5E,
        0x63033B0CA389C35A,
    ],
    "float64": [
        0xE220A8397B1DCDAF,
        0xE220A8397B1DCDAF,
        0xD6DAB18E1392608A,
        0xC72971D82E15BB46,
        0xF725441D87A5FE5E,
        0x8CE2CA027CDA7FFE,
    ],
    "bool": [
        0x910A2DEC89025CC1,
        0xE220A8397B1DCDAF,
        0x910A2DEC89025CC1,
        0xE220A8397B1DCDAF,
        0xF725441D87A5FE5E,
        0x910A2DEC89025CC1,
    ],
    "date": [
        0xE220A8397B1DCDAF,
        0xDB8C04CA25F6E90D,
        0xF725441D87A5FE5E,
        0xF725441D87A5FE5E,
        0xF725441D87A5FE5E,
        0xF725441D87A5FE5E,
    ],
    "timestamp": [
        0xE220A8397B1DCDAF,
        0x910A2DEC89025CC1,
        0xE4D971771B652C20,
        0xD0DFFE4EF391603,
        0xF725441D87A5FE5E,
        0x63CBE1E459320DD7,
    ],
    "decimal": [
        0x508AE27D12E31B06,
        0x56855DC75C8EBD47,
        0xF725441D87A5FE5E,
        0xF725441D87A5FE5E,
        0xF725441D87A5FE5E,
        0x23B94BC33455975E,
    ],
    "struct": [
        0x9443CF6273B3CF56,
        0x5C204BF9B5D28B03,
        0xF725441D87A5FE5E,
        0xBC66D3570F75A9D1,
        0xF725441D87A5FE5E,
        0xF725441D87A5FE5E,
    ],
}
STRING_THEN_INT = [0x69351C39062662FF, 0x50C0FBD6273C486B, 0x86C590A35564F51B, 0xCEE79E4B4E397620]
INT_THEN_STRING = [0xB7632219646418D3, 0x1E572B23D2682004, 0xA8B388A5FCF23540, 0x8B44229772731A12]
STRING_CHECK = [0x7E147D941266C4DA, 0xDC65D553C7956974, 0x635E8C3CE88C2998, 0x55836F80C5321540]
INT_CHECK = [0xAB3EF69155953396, 0x3AD1E599F5FF4551, 0xB3B109EBCC2B261A, 0xF548012CF1E228D5]


@pytest.fixture
def keys():
    return pa.record_batch(GOLDEN_COLUMNS)


@pytest.mark.parametrize("column", list(GOLDEN))
def test_hash_of_every_type_is_pinned(keys, column):
    assert hash_keys(keys, [column]).tolist() == GOLDEN[column]


def test_hash_of_several_columns_is_pinned_and_depends_on_their_order(keys):
    assert hash_keys(keys, ["string", "int64"]).tolist()[:4] == STRING_THEN_INT
    assert hash_keys(keys, ["int64", "string"]).tolist()[:4] == INT_THEN_STRING


def test_second_hash_is_pinned(keys):
    assert hash_keys(keys, ["string"], CHECK_SEED).tolist()[:4] == STRING_CHECK
    assert hash_keys(keys, ["int64"], CHECK_SEED).tolist()[:4] == INT_CHECK


def test_hashes_agree_with_the_published_ones_of_xxh3_and_splitmix64(keys):
    assert hash_keys(keys, ["string"])[0] == 0x2D06800538D394C2
    assert hash_keys(keys, ["int64"])[0] == 0xE220A8397B1DCDAF


def test_key_groups_are_pinned(keys):
    assert key_groups_of(hash_keys(keys, ["string"]), 128).tolist() == [22, 115, 69, 64, 123, 82]
    assert key_groups_of(hash_keys(keys, ["int64"]), 1000).tolist() == [883, 566, 893, 165, 965, 281]


def test_another_process_computes_the_same():
    code = (
        "import pyarrow as pa; from onceflow.runtime.state.hashing import hash_keys;"
        "print(hash_keys(pa.record_batch({'k': ['u0012345']}), ['k'])[0])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(run.stdout) == GOLDEN["string"][2]


@pytest.mark.parametrize("column", list(GOLDEN))
def test_slices_hash_like_the_whole(keys, column):
    assert hash_keys(keys.slice(2, 3), [column]).tolist() == GOLDEN[column][2:5]


@pytest.mark.parametrize(
    ("column", "arrow"),
    [
        ("string", pa.large_string()),
        ("string", pa.string_view()),
        ("binary", pa.large_binary()),
        ("date", pa.date64()),
    ],
)
def test_equal_values_in_another_layout_hash_the_same(keys, column, arrow):
    cast = pa.record_batch({"k": keys.column(column).cast(arrow)})
    is_wider_unit = arrow == pa.date64()  # milliseconds, not days: another value
    assert (hash_keys(cast, ["k"]).tolist() == GOLDEN[column]) is not is_wider_unit


@pytest.mark.parametrize("arrow", [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint32(), pa.uint64()])
def test_integers_hash_by_value_whatever_their_width(arrow):
    narrow, wide = pa.array([0, 1, 100, None], arrow), pa.array([0, 1, 100, None], pa.int64())
    assert (
        hash_keys(pa.record_batch({"k": narrow}), ["k"]) == hash_keys(pa.record_batch({"k": wide}), ["k"])
    ).all()


def test_zeros_are_one_key_and_all_nans_are_one_key():
    other_nan = np.array([0x7FF8_0000_0000_0001, 0xFFF8_0000_0000_0000], np.uint64).view(np.float64)
    floats = pa.array(np.concatenate([[0.0, -0.0], other_nan]))
    zero, minus_zero, nan, negative_nan = hash_keys(pa.record_batch({"k": floats}), ["k"])
    assert zero == minus_zero
    assert nan == negative_nan != zero


def test_a_key_of_null_and_an_empty_batch_hash():
    assert len(hash_keys(pa.record_batch({"k": pa.nulls(2)}), ["k"])) == 2
    assert len(hash_keys(pa.record_batch({"k": pa.array([], pa.string())}), ["k"])) == 0


def test_unhashable_types_are_refused():
    assert not is_hashable(pa.list_(pa.int64()))
    assert not is_hashable(pa.map_(pa.string(), pa.int64()))
    assert not is_hashable(pa.struct([("x", pa.list_(pa.int64()))]))
    with pytest.raises(TypeError, match="list"):
        hash_keys(pa.record_batch({"k": [[1]]}), ["k"])


@pytest.mark.skipif(not ops().are_compiled, reason="needs numba")
@pytest.mark.parametrize("arrow", [pa.binary(), pa.large_binary()])
@pytest.mark.parametrize("seed", [0, 1, CHECK_SEED, (1 << 64) - 1])
def test_the_kernel_hashes_texts_of_every_length_like_polars(arrow, seed):
    rng = np.random.default_rng(3)
    texts = [rng.bytes(length) for length in range(241) for _ in range(3)]
    column = pa.array([b"before", *texts, b"after"], arrow).slice(1, len(texts))
    by_kernel = hash_text_by_kernel(column, seed)
    assert by_kernel is not None
    wrong = np.flatnonzero(by_kernel != hash_text_by_polars(column, seed))
    assert [len(texts[row]) for row in wrong] == []


@pytest.mark.skipif(not ops().are_compiled, reason="needs numba")
def test_the_kernel_leaves_long_texts_and_views_to_polars():
    assert hash_text_by_kernel(pa.array(["short", "x" * 241]), 0) is None
    assert hash_text_by_kernel(pa.array(["short"], pa.string_view()), 0) is None
    batch = pa.record_batch({"k": ["short", "x" * 241]})
    assert (hash_keys(batch, ["k"]) == hash_text_by_polars(batch.column("k"), 0)).all()


@pytest.mark.parametrize("arrow", [pa.binary(), pa.large_binary()])
@pytest.mark.parametrize("seed", [0, 1, CHECK_SEED, (1 << 64) - 1])
@pytest.mark.parametrize("lengths", [(4,), (7,), (8,), (4, 5, 6, 7, 8), (9,), (15,), (16,), (9, 12, 15, 16)])
def test_arrays_hash_short_texts_like_polars(arrow, seed, lengths):
    rng = np.random.default_rng(4)
    texts = [rng.bytes(length) for _ in range(50) for length in lengths]
    texts += [filler * lengths[-1] for filler in (b"\0", b"\xff")]  # carries of the product
    column = pa.array([b"before", *texts, b"after"], arrow).slice(1, len(texts))
    by_arrays = hash_text_by_arrays(column, seed)
    assert by_arrays is not None
    assert by_arrays.tolist() == hash_text_by_polars(column, seed).tolist()


@pytest.mark.parametrize(
    "texts", [["abc"], ["abcd", "abcdefghi"], ["x" * 17], ["", "abcd"], [None, "abcd"], []]
)
def test_arrays_leave_other_texts_to_polars(texts):
    column = pa.array(texts, pa.string())
    assert hash_text_by_arrays(column, 0) is None
    assert hash_text_by_arrays(column.cast(pa.string_view()), 0) is None


def test_a_null_between_short_texts_is_a_value_of_its_own_by_arrays():
    bounds, data = pa.py_buffer(np.array([0, 4, 8, 12], np.int32)), pa.py_buffer(b"aaaabbbbcccc")
    column = pa.Array.from_buffers(pa.string(), 3, [pa.py_buffer(bytes([0b101])), bounds, data])
    assert hash_text_by_arrays(column, 0) is not None
    expected = hash_keys(pa.record_batch({"k": ["aaaa", None, "cccc"]}), ["k"]).tolist()
    assert hash_keys(pa.record_batch({"k": column}), ["k"]).tolist() == expected
