"""Memory by address, for kernels that walk over a C library's structs. Needs numba.

Addresses are int64. Nothing is checked: a wrong address ends the process. Take addresses from
`array.ctypes.data`, from a pyarrow buffer's `address`, or out of a struct whose layout is the library's
public interface, and keep the owner alive.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _load(bits: int, result: Any) -> Any:
    def typed(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            return builder.load(pointer, align=1)

        return result(types.int64), generate

    return intrinsic(typed)


load_int64 = _load(64, types.int64)
"""load_int64(address): the 8 bytes there, in the machine's order, aligned or not."""
load_uint64 = _load(64, types.uint64)
load_int32 = _load(32, types.int32)
load_uint8 = _load(8, types.uint8)


def _copy_bytes(typing_context: Any, target: Any, source: Any, count: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bytes_ = ir.IntType(8).as_pointer()
        to, from_ = (builder.inttoptr(argument, bytes_) for argument in arguments[:2])
        cgutils.raw_memcpy(builder, to, from_, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _call_with_pointer(typing_context: Any, function: Any, pointer: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        void_pointer = ir.IntType(8).as_pointer()
        function_type = ir.FunctionType(ir.VoidType(), [void_pointer])
        target = builder.inttoptr(arguments[0], function_type.as_pointer())
        builder.call(target, [builder.inttoptr(arguments[1], void_pointer)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _generate_call(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Generate the call of a function whose arguments are pointers, or integers as wide as one."""
    void_pointer = ir.IntType(8).as_pointer()
    result = ir.IntType(signature.return_type.bitwidth)
    function_type = ir.FunctionType(result, [void_pointer] * (len(arguments) - 1))
    target = builder.inttoptr(arguments[0], function_type.as_pointer())
    return builder.call(target, [builder.inttoptr(a, void_pointer) for a in arguments[1:]])


def _call_for_int64(typing_context: Any, function: Any, first: Any, second: Any) -> Any:
    return types.int64(*[types.int64] * 3), _generate_call


def _call_for_int32(typing_context: Any, function: Any, first: Any, second: Any) -> Any:
    return types.int32(*[types.int64] * 3), _generate_call


def _call_with_five(
    typing_context: Any, function: Any, first: Any, second: Any, third: Any, fourth: Any, fifth: Any
) -> Any:
    return types.int32(*[types.int64] * 6), _generate_call


def _prefetch(typing_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bytes_, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        function_type = ir.FunctionType(ir.VoidType(), [bytes_, word, word, word])
        hint = builder.module.declare_intrinsic("llvm.prefetch", (bytes_,), function_type)
        to_read, stay, data = (ir.Constant(word, number) for number in (0, 3, 1))
        builder.call(hint, [builder.inttoptr(arguments[0], bytes_), to_read, stay, data])
        return context.get_dummy_value()

    return types.void(types.int64), generate


copy_bytes: Any = intrinsic(_copy_bytes)
"""copy_bytes(target, source, count): memcpy; the areas don't overlap."""
call_with_pointer: Any = intrinsic(_call_with_pointer)
"""call_with_pointer(function, pointer): calls the C function `void f(void *)` at that address."""
call_for_int64: Any = intrinsic(_call_for_int64)
"""call_for_int64(function, first, second): calls `int64_t f(void *, void *)` and gives its answer."""
call_for_int32: Any = intrinsic(_call_for_int32)
"""call_for_int32(function, first, second): calls `int32_t f(void *, void *)` and gives its answer."""
call_with_five: Any = intrinsic(_call_with_five)
"""call_with_five(function, a, b, c, d, e): calls `int32_t f(a, b, c, d, e)`, each a pointer or a size_t, and
gives its answer."""
prefetch: Any = intrinsic(_prefetch)
"""prefetch(address): the memory there is on its way into the cache. A hint: any address will do."""
