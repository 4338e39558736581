"""Decimal numbers that kernels read are the doubles that Python reads."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.kernels.ops import ops

if not ops().are_compiled:
    pytest.skip("needs numba", allow_module_level=True)

from onceflow.runtime.kernels.numbers import decimal_to_float

MANTISSA_MAX = (1 << 63) - 1


def shortest(number: float) -> tuple[int, int]:
    """The digits and the power of ten that Python writes a double with."""
    _, digits, power = Decimal(repr(number)).as_tuple()
    return int("".join(map(str, digits))), int(power)


@given(st.integers(0, MANTISSA_MAX), st.integers(-90, 90))
@example(9007199254740993, 0)  # half way between two doubles
@example(9007199254740993, 22)
@example(MANTISSA_MAX, 80)
@example(1, -80)
@settings(max_examples=300, deadline=None)
def test_a_number_is_rounded_as_python_rounds_it_or_left_to_others(mantissa: int, power: int) -> None:
    number = decimal_to_float(mantissa, power)
    assert math.isnan(number) or number == float(f"{mantissa}e{power}")


@given(st.floats(1e-60, 1e60))
@example(900719925474099.5)
@settings(max_examples=300, deadline=None)
def test_what_python_writes_for_a_double_gives_it_back(number: float) -> None:
    """But for large whole numbers, and where the text is the very number: these may look like ties."""
    read = decimal_to_float(*shortest(number))
    may_be_tie = number.is_integer() or Decimal(repr(number)) == Decimal(number)
    assert read == number or (math.isnan(read) and may_be_tie)


@given(st.integers(1 << 52, (1 << 53) - 1), st.integers(0, 9), st.integers(-1, 1))
@settings(max_examples=300, deadline=None)
def test_near_the_middle_of_two_doubles_nothing_is_guessed(number: int, shift: int, off: int) -> None:
    middle = ((2 * number + 1) << shift) + off
    read = decimal_to_float(middle, 0)
    assert math.isnan(read) or read == float(middle)
