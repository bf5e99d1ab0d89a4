"""utils/dimension.py: arithmetic on dynamic sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tflite2onnx.errors import OperatorError
from tflite2onnx.utils.dimension import (
    Dimension,
    Symbol,
    UndecidedError,
    UnequalError,
    broadcast_dims,
    evaluate,
    is_equal,
    make_array,
    make_dimension,
    require_equal,
    require_number,
)

N, T = (make_dimension(Symbol(name, value)) for name, value in (("n", 2), ("t", 7)))
Calculation = tuple[str, int | str]


def calculate(steps: list[Calculation], start: Any, other: Any) -> Any:
    """Return the result of operations with numbers, or with the other size."""
    value = start
    for code, operand in steps:
        by = other if operand == "n" else operand
        if code == "+":
            value = value + by
        elif code == "-":
            value = value - by
        elif code == "*":
            value = value * by
        elif code == "//":
            value = value // by
        elif code == "ceil":
            value = -(-value // by)
        else:
            value = value % by
    return value


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("+-*"), st.one_of(st.integers(-9, 9), st.just("n"))),
        st.tuples(st.sampled_from(["//", "ceil", "%"]), st.integers(1, 9)),
    ),
    max_size=6,
)


@given(STEPS, st.integers(1, 99), st.integers(1, 99))
def test_expressions_have_the_values_of_integers(steps: Any, t: int, n: int) -> None:
    expression = calculate(steps, T, N)
    assert evaluate(expression, {"t": t, "n": n}) == calculate(steps, t, n)
    if isinstance(expression, Dimension) and expression.least is not None:
        assert expression.least <= calculate(steps, t, n)


@given(STEPS, STEPS)
def test_equal_expressions_compare_equal(one: Any, other: Any) -> None:
    a, b = calculate(one, T, N), calculate(other, N, T)
    assert a + b - b == a
    assert a * 3 // 3 == a
    assert (a + b) * (a - b) == a * a - b * b
    assert isinstance(a, int) or hash(a) == hash(a + b - b)
    product = a * b
    if isinstance(product, Dimension) and product != 0:
        assert product.divide_exactly(b) == a


def test_only_a_symbol_alone_is_a_symbol() -> None:
    assert N.symbol == Symbol("n", 2)
    assert T.symbol == Symbol("t", 7)
    assert [size.symbol for size in (2 * N, N + 1, N * T, N * N, N // 2)] == [None] * 5


def test_ceiling_division_is_floor_division() -> None:
    assert -(-T // 2) == (T + 1) // 2
    half = -(-T // 2)
    assert -(-half // 2) == (T + 3) // 4
    assert (4 * T + 6) // 2 == 2 * T + 3
    assert (2 * T * N) // N == 2 * T
    assert str(3 + 2 * N * T) == "3 + 2*n*t"
    assert evaluate(100 // T) == 100 // 7


def test_exact_division_is_none_if_there_is_a_remainder() -> None:
    assert (N * T * 6).divide_exactly(3 * N) == 2 * T
    assert ((T + 1) * (N + 2)).divide_exactly(N + 2) == T + 1
    assert (T * 3).divide_exactly(2) is None
    assert (T * 3).divide_exactly(N) is None
    with pytest.raises(OperatorError, match="divided by 0"):
        _ = T // 0


def test_comparisons_hold_for_all_values() -> None:
    assert T > 0
    assert T >= 1
    assert N < N + T
    assert not T + N <= 1
    assert max(T, 0) == T
    assert bool(T)
    for undecided in (lambda: T > 5, lambda: T - 3 >= 0, lambda: bool(T - 1), lambda: N < T):
        with pytest.raises(UndecidedError):
            undecided()
    assert not is_equal(T + 1, 1)
    assert is_equal(T * 2, T + T)
    with pytest.raises(UndecidedError, match=f"for different sizes of {N} and {T}"):
        is_equal(T, N)


def test_broadcasting_requires_equal_sizes() -> None:
    assert broadcast_dims((N, 1, 3), (T, 1)) == (N, T, 3)
    assert broadcast_dims() == ()
    with pytest.raises(UnequalError) as error:
        broadcast_dims((N, T), (T,), (N,))
    assert error.value.dims == (T, N)
    with pytest.raises(UnequalError, match=r"got \[2\] and \[3\]"):
        broadcast_dims((2,), (3,))
    with pytest.raises(UnequalError, match="t and 3 must be equal"):
        require_equal(T, 3)


def test_number_is_required_of_dynamic_sizes_only() -> None:
    """A wrong number that the file declares is the error of the operator's check."""
    require_number(3, 4)
    require_number(N, N)
    for size in (N, N + 1):
        with pytest.raises(UnequalError, match="boxes must have 4 corners"):
            require_number(size, 4, "boxes must have 4 corners")


def test_arrays_of_dimensions_hold_objects() -> None:
    sizes = make_array([N, 2, T], np.int32)
    assert sizes.dtype == object
    assert np.prod(sizes) == 2 * N * T
    assert np.int64(3) * T == 3 * T
    assert make_array([np.int64(1), 2], np.int32).dtype == np.int32


def test_dimensions_support_only_integers_as_operands() -> None:
    with pytest.raises(TypeError):
        N + "a"
    with pytest.raises(TypeError):
        N * "a"
    with pytest.raises(TypeError):
        "a" // N


def test_remainders_and_quotients_equal_integer_arithmetic() -> None:
    """At n = 2 and t = 7 the results equal integer arithmetic."""
    quotient, remainder = divmod(T, 3)
    assert (evaluate(quotient), evaluate(remainder)) == (2, 1)
    assert evaluate(T // -3) == 7 // -3
    assert evaluate(T // (N + 1)) == 2
    assert evaluate((6 * T + 5) // 6) == 7
    assert evaluate(T) == 7
    assert T.divide_exactly(0) is None
