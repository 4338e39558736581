"""Blocks of 32 bytes and machine words, for kernels that search text. Needs numba.

What compilers make of vectors: on x86 two or three instructions each, elsewhere more, with equal results.
As in memory.py addresses are int64 and nothing is checked: all 32 bytes from an address must be readable,
also those that lie behind what is searched. Words are int64, whatever their top bit means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

BLOCK = 32
"""How many bytes a block has."""

OfOne: TypeAlias = Callable[[int], int]
OfTwo: TypeAlias = Callable[[int, int], int]

_BYTE = ir.IntType(8)
_WORD = ir.IntType(64)
_VECTOR = ir.VectorType(_BYTE, BLOCK)
_BITS = ir.IntType(BLOCK)


def _load(builder: Any, address: Any) -> Any:
    return builder.load(builder.inttoptr(address, _VECTOR.as_pointer()), align=1)


def _mask(builder: Any, lanes: Any) -> Any:
    """Bit i: lane i is true."""
    return builder.zext(builder.bitcast(lanes, _BITS), _WORD)


def _all(byte: int) -> Any:
    return ir.Constant(_VECTOR, [byte] * BLOCK)


def _text_stops(builder: Any, address: Any) -> Any:
    block = _load(builder, address)
    quote = builder.icmp_unsigned("==", block, _all(ord('"')))
    backslash = builder.icmp_unsigned("==", block, _all(ord("\\")))
    control = builder.icmp_unsigned("<", block, _all(0x20))
    stops = builder.or_(builder.or_(quote, backslash), control)
    beyond_ascii = builder.icmp_unsigned(">=", block, _all(0x80))
    high = builder.shl(_mask(builder, beyond_ascii), ir.Constant(_WORD, BLOCK))
    return builder.or_(_mask(builder, stops), high)


def _equal_bytes(builder: Any, left: Any, right: Any) -> Any:
    equal = builder.icmp_unsigned("==", _load(builder, left), _load(builder, right))
    return _mask(builder, equal)


def _trailing_zeros(builder: Any, word: Any) -> Any:
    return builder.cttz(word, ir.Constant(ir.IntType(1), 0))


def _leading_zeros(builder: Any, word: Any) -> Any:
    return builder.ctlz(word, ir.Constant(ir.IntType(1), 0))


def _product_high(builder: Any, left: Any, right: Any) -> Any:
    wide = ir.IntType(128)
    product = builder.mul(builder.zext(left, wide), builder.zext(right, wide))
    return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), _WORD)


def _shift_right(builder: Any, word: Any, count: Any) -> Any:
    return builder.lshr(word, count)


def _is_below(builder: Any, left: Any, right: Any) -> Any:
    return builder.zext(builder.icmp_unsigned("<", left, right), _WORD)


def _float_of_bits(builder: Any, word: Any) -> Any:
    return builder.bitcast(word, ir.DoubleType())


def _bits_of_float(builder: Any, number: Any) -> Any:
    return builder.bitcast(number, _WORD)


def _pure(emit: Callable[..., Any], *arguments: Any, result: Any = types.int64) -> Any:
    """An intrinsic without side effects."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return emit(builder, *values)

    one = lambda typing_context, first: (result(*arguments), generate)  # noqa: E731 - numba counts parameters
    two = lambda typing_context, first, second: (result(*arguments), generate)  # noqa: E731
    return intrinsic(one if len(arguments) == 1 else two)


text_stops: OfOne = _pure(_text_stops, types.int64)
"""text_stops(address): of the block there, bit i (0 to 31) if byte i is a quote, a backslash or below 0x20;
bit 32 + i if byte i is above ASCII."""
equal_bytes: OfTwo = _pure(_equal_bytes, types.int64, types.int64)
"""equal_bytes(left, right): bit i (0 to 31) if byte i of the two blocks is the same."""
trailing_zeros: OfOne = _pure(_trailing_zeros, types.int64)
"""trailing_zeros(word): the index of the lowest bit that is set; 64 if none is."""
leading_zeros: OfOne = _pure(_leading_zeros, types.int64)
product_high: OfTwo = _pure(_product_high, types.int64, types.int64)
"""product_high(left, right): the upper 64 bits of the product of two unsigned words."""
shift_right: OfTwo = _pure(_shift_right, types.int64, types.int64)
"""shift_right(word, count): zeros come in from the top; count is below 64."""
is_below: OfTwo = _pure(_is_below, types.int64, types.int64)
"""is_below(left, right): 1 if left is less than right, both unsigned, else 0."""
float_of_bits: Callable[[int], float] = _pure(_float_of_bits, types.int64, result=types.float64)
bits_of_float: Callable[[float], int] = _pure(_bits_of_float, types.float64)


def _instruction(typed: Callable[..., Any]) -> Any:
    """An intrinsic with side effects."""
    return intrinsic(typed)


def _copy_block(typing_context: Any, target: Any, source: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to, from_ = arguments
        builder.store(_load(builder, from_), builder.inttoptr(to, _VECTOR.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _store(bits: int) -> Any:
    def typed(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word = ir.IntType(bits)
            value = arguments[1] if bits == _WORD.width else builder.trunc(arguments[1], word)
            builder.store(value, builder.inttoptr(arguments[0], word.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return intrinsic(typed)


copy_block: Callable[[int, int], None] = _instruction(_copy_block)
"""copy_block(target, source): the 32 bytes, which must not overlap in part."""
store_int64 = _store(64)
"""store_int64(address, value): 8 bytes in the machine's order, aligned or not."""
store_int32 = _store(32)
"""store_int32(address, value): the value's lowest four bytes, as store_int64 stores eight."""
store_uint8 = _store(8)
"""store_uint8(address, value): the value's lowest byte."""
