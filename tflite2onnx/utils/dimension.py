"""Dimensions: sizes of axes as expressions of dynamic sizes.

A dimension is an integer, or a `Dimension`: a polynomial with integer coefficients in symbols and
in quotients that are rounded down. A `Dimension` is immutable and has a normal form, so equal
expressions compare equal. It has the arithmetic of an integer, so that a formula for the shape of
an output computes integers from integers, and expressions from expressions.

A comparison is true or false for all values of the symbols, or raises `UndecidedError` if the
result depends on the values. `==` compares the expressions and does not raise an error.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import zip_longest
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tflite2onnx.errors import OperatorError

_LONGEST_TEXT = 40  # the largest number of characters of an expression in a message
MOST_TRIED = 4096  # the largest size that is tried


class UndecidedError(OperatorError):
    """A decision depends on the values of dynamic sizes.

    The message names these sizes in place of the expression, because a user can choose sizes.
    """

    def __init__(self, dim: Dim) -> None:
        self.names = sorted(symbol.name for symbol in list_symbols(dim))
        names = " and ".join(self.names)
        super().__init__(f"it needs different nodes for different sizes of {names}")


class UnequalError(OperatorError):
    """An operator requires two dimensions to be equal, but their expressions differ."""

    def __init__(self, one: Dim, other: Dim, message: str = "") -> None:
        self.dims = one, other
        super().__init__(message or f"the sizes {one!r} and {other!r} must be equal")


class BroadcastError(UnequalError):
    """Two dimensions must be equal, or one of them must be 1."""


class Symbol(NamedTuple):
    """A dynamic size: its name, its value at the declared sizes, and its smallest value."""

    name: str
    value: int
    least: int = 1

    @property
    def symbols(self) -> frozenset[Symbol]:
        return frozenset({self})

    def evaluate(self, values: Mapping[str, int]) -> int:
        return values.get(self.name, self.value)

    def __str__(self) -> str:
        return self.name


class Quotient(NamedTuple):
    """A quotient that is rounded down and is not a polynomial."""

    numerator: Dimension
    denominator: Dim

    @property
    def least(self) -> int | None:
        """The smallest value that is certain, None if no value is certain."""
        low, divisor = self.numerator.least, self.denominator
        return low // divisor if low is not None and isinstance(divisor, int) else None

    @property
    def symbols(self) -> frozenset[Symbol]:
        return self.numerator.symbols | list_symbols(self.denominator)

    def evaluate(self, values: Mapping[str, int]) -> int:
        return self.numerator.evaluate(values) // (evaluate(self.denominator, values) or 1)

    def __str__(self) -> str:
        return f"floor(({self.numerator})/({self.denominator}))"


Factors = tuple[Symbol | Quotient, ...]


class Dimension:
    """A polynomial that is no constant: coefficients by products of symbols and quotients."""

    def __init__(self, terms: Mapping[Factors, int]) -> None:
        # Long quotients have the same short text, see `__repr__`.
        key = {factors: (str(factors), [*map(str, factors)]) for factors in terms}
        self._terms = {factors: terms[factors] for factors in sorted(terms, key=key.__getitem__)}
        self._key = tuple(self._terms.items())
        self._hash = hash(self._key)

    # Values

    @cached_property
    def symbols(self) -> frozenset[Symbol]:
        return frozenset(s for factors in self._terms for factor in factors for s in factor.symbols)

    @property
    def symbol(self) -> Symbol | None:
        """The symbol, if the expression is a symbol alone."""
        ((factors, coefficient), *rest) = self._key
        single = not rest and coefficient == 1 and len(factors) == 1
        return factors[0] if single and isinstance(factors[0], Symbol) else None

    @cached_property
    def least(self) -> int | None:
        """The smallest value that is certain, None if no value is certain."""
        total = 0
        for factors, coefficient in self._key:
            lows = [factor.least for factor in factors]
            if factors and (coefficient < 0 or any(low is None or low < 0 for low in lows)):
                return None
            total += coefficient * prod(low for low in lows if low is not None)
        return total

    def evaluate(self, values: Mapping[str, int]) -> int:
        """Return the value for values of symbols, by name; the default is the declared value."""
        return sum(
            coefficient * prod(factor.evaluate(values) for factor in factors)
            for factors, coefficient in self._key
        )

    # Arithmetic

    def __add__(self, other: object) -> Any:  # noqa: ANN401 - a dimension, or NotImplemented
        terms = _list_terms(other)
        if terms is None:
            return NotImplemented
        total = dict(self._terms)
        for factors, coefficient in terms.items():
            total[factors] = total.get(factors, 0) + coefficient
        return _make_dimension(total)

    def __mul__(self, other: object) -> Any:  # noqa: ANN401
        terms = _list_terms(other)
        if terms is None:
            return NotImplemented
        total: dict[Factors, int] = {}
        for a, m in self._key:
            for b, n in terms.items():
                factors = tuple(sorted((*a, *b), key=str))
                total[factors] = total.get(factors, 0) + m * n
        return _make_dimension(total)

    def __floordiv__(self, other: object) -> Any:  # noqa: ANN401
        divisor = as_dim(other)
        return NotImplemented if divisor is None else _divide(self, divisor)

    def __rfloordiv__(self, other: object) -> Any:  # noqa: ANN401
        number = as_dim(other)
        if number is None:
            return NotImplemented
        return 0 if number == 0 else _make_dimension({(Quotient(_make_constant(number), self),): 1})

    def __mod__(self, other: object) -> Any:  # noqa: ANN401
        return self - self // other * other

    def __divmod__(self, other: object) -> tuple[Any, Any]:
        return self // other, self % other

    def __neg__(self) -> Dimension:
        return Dimension({factors: -n for factors, n in self._key})

    def __sub__(self, other: object) -> Any:  # noqa: ANN401
        number = as_dim(other)
        return NotImplemented if number is None else self + -number

    def __rsub__(self, other: object) -> Any:  # noqa: ANN401
        return -self + other

    __radd__ = __add__
    __rmul__ = __mul__

    # Comparisons

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dimension) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __lt__(self, other: object) -> bool:
        return is_positive(other - self)

    def __gt__(self, other: object) -> bool:
        return is_positive(self - other)

    def __le__(self, other: object) -> bool:
        return not is_positive(self - other)

    def __ge__(self, other: object) -> bool:
        return not is_positive(other - self)

    def __bool__(self) -> bool:
        return not is_equal(self, 0)

    def __repr__(self) -> str:
        """Return the expression, or the symbols of a long expression, for shapes in messages."""
        text = str(self)
        if len(text) <= _LONGEST_TEXT:
            return text
        first, *others = sorted(symbol.name for symbol in self.symbols)
        others = [f"{len(others)} more"] if len(others) > 1 else others
        return f"(from {' and '.join((first, *others))})"

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        texts = []
        for factors, n in self._key:
            names = [str(factor) for factor in factors]
            texts.append("*".join(names if n == 1 and names else [str(n), *names]))
        return " + ".join(texts)

    def divide_exactly(self, divisor: Dim) -> Dim | None:
        """Return the quotient if it is a polynomial with integer coefficients, else None."""
        parts = _list_terms(divisor) or {}
        if not parts:
            return None
        first, n = max(parts.items(), key=_compute_degree)
        rest: Dim = self
        quotient: Dim = 0
        while rest != 0:
            lead, m = max((_list_terms(rest) or {}).items(), key=_compute_degree)
            factors = _cancel(lead, first)
            if factors is None or m % n:
                return None
            part = _make_dimension({factors: m // n})
            quotient, rest = quotient + part, rest - part * divisor
        return quotient


Dim = int | Dimension


def _compute_degree(item: tuple[Factors, int]) -> tuple[int, list[str]]:
    """Return a key that puts terms in the order that their products with a term have, too."""
    return len(item[0]), [*map(str, item[0])]  # as factors are sorted in a term


def _cancel(factors: Factors, others: Factors) -> Factors | None:
    left = list(factors)
    for factor in others:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


def _make_constant(number: Dim) -> Dimension:
    return number if isinstance(number, Dimension) else Dimension({(): number})


def _make_dimension(terms: Mapping[Factors, int]) -> Dim:
    """Return an integer if there are no symbols, else a Dimension."""
    kept_terms = {factors: n for factors, n in terms.items() if n}
    return kept_terms.get((), 0) if kept_terms.keys() <= {()} else Dimension(kept_terms)


def _list_terms(value: object) -> dict[Factors, int] | None:
    if isinstance(value, Dimension):
        return value._terms  # noqa: SLF001 - of the same class
    number = as_dim(value)
    return None if number is None else {(): number} if number else {}  # type: ignore[dict-item]


def _divide(number: Dimension, divisor: Dim) -> Dim:
    """Return the quotient, rounded down."""
    if divisor == 0:
        raise OperatorError("a size must not be divided by 0")
    exact = number.divide_exactly(divisor)
    if exact is not None:
        return exact
    if not isinstance(divisor, int):
        return _make_dimension({(Quotient(number, divisor),): 1})
    if divisor < 0:
        return _divide(-number, -divisor)
    terms = _list_terms(number) or {}
    # The remainder of the constant is positive. The remainder of each other term has the sign of
    # its coefficient.
    parts = {factors: _split_coefficient(factors, n, divisor) for factors, n in terms.items()}
    whole = _make_dimension({factors: quotient for factors, (quotient, _) in parts.items()})
    rest = _make_dimension({factors: rest for factors, (_, rest) in parts.items()})
    if isinstance(rest, int):  # the remainder of a constant is less than the divisor
        return whole
    leading = next(n for factors, n in (_list_terms(rest) or {}).items() if factors)
    if leading < 0:  # floor(-a / b) is -floor((a + b - 1) / b)
        return whole - _divide(-rest + (divisor - 1), divisor)
    return whole + _make_dimension({(_flatten(rest, divisor),): 1})


def _split_coefficient(factors: Factors, n: int, divisor: int) -> tuple[int, int]:
    if not factors or n >= 0:
        return divmod(n, divisor)
    quotient, rest = divmod(-n, divisor)
    return -quotient, -rest


def _flatten(number: Dimension, divisor: int) -> Quotient:
    """Return a quotient; floor((floor(a/b) + c) / d) becomes floor((a + b*c) / (b*d))."""
    terms = dict(_list_terms(number) or {})
    nested = [factors for factors, n in terms.items() if n == 1 and len(factors) == 1]
    if len(terms) - (() in terms) == 1 and nested and isinstance(nested[0][0], Quotient):
        inner = nested[0][0]
        if isinstance(inner.denominator, int):
            whole = inner.numerator + inner.denominator * terms.get((), 0)
            return Quotient(whole, inner.denominator * divisor)
    return Quotient(number, divisor)


# Functions of dimensions, integers included


def make_dimension(symbol: Symbol) -> Dimension:
    """Return the dimension that is this symbol."""
    return Dimension({(symbol,): 1})


def as_dim(value: object) -> Dim | None:
    """Return a dimension, or an integer of any type; None for other values."""
    if isinstance(value, Dimension):
        return value
    return int(value) if isinstance(value, (int, np.integer)) else None


def evaluate(dim: Dim, values: Mapping[str, int] | None = None) -> int:
    """Return the value of a dimension, by default at the declared sizes."""
    return dim.evaluate(values or {}) if isinstance(dim, Dimension) else dim


def list_symbols(dim: object) -> frozenset[Symbol]:
    """Return the symbols of a dimension; an integer has none."""
    return dim.symbols if isinstance(dim, Dimension) else frozenset()


def is_positive(dim: Dim) -> bool:
    """Return whether a dimension is more than 0; UndecidedError if this depends on symbols."""
    if not isinstance(dim, Dimension):
        return dim > 0
    if dim.least is not None and dim.least > 0:
        return True
    negative = (-dim).least
    if negative is not None and negative >= 0:
        return False
    raise UndecidedError(dim)


def is_no_less(dim: Dim, number: int) -> bool:
    """Return whether a dimension is certain to be no less than a number."""
    minimum = dim.least if isinstance(dim, Dimension) else dim
    return minimum is not None and minimum >= number


def is_equal(one: Dim, other: Dim) -> bool:
    """Return whether two dimensions are equal; UndecidedError if this depends on symbols."""
    difference = one - other
    if not isinstance(difference, Dimension):
        return difference == 0
    lows = [side.least for side in (difference, -difference)]
    if any(low is not None and low > 0 for low in lows):
        return False
    raise UndecidedError(difference)


def is_known(dim: Dim) -> bool:
    """Return whether a dimension is an integer."""
    return not isinstance(dim, Dimension)


def require_equal(one: Dim, other: Dim, message: str = "") -> Dim:
    """Return one of two equal dimensions; UnequalError if they differ."""
    if one != other:
        raise UnequalError(one, other, message)
    return one


def find_only_solution(dim: Dim, number: Dim) -> tuple[Dimension, int] | None:
    """Return the symbol and the value for which a dimension is a number, None if there is no such.

    The dimension is a multiple of one symbol, plus a number.
    """
    if not isinstance(dim, Dimension) or not isinstance(number, int) or len(dim.symbols) != 1:
        return None
    (symbol,) = dim.symbols
    unknown = make_dimension(symbol)
    factor = (dim - evaluate(dim, {symbol.name: 0})).divide_exactly(unknown)
    rest = number - evaluate(dim, {symbol.name: 0})
    if not isinstance(factor, int) or rest % factor or rest // factor < symbol.least:
        return None
    return unknown, rest // factor


def describe_unequal(shape: Sequence[Dim], one: Dim, number: int) -> str:
    """Return a shape for a message, and the smallest size for which `one` would be `number`."""
    found = find_fitting_size(one, (number,))
    return "{} ({} may be {})".format([*shape], *found) if found else str([*shape])


def find_fitting_size(dim: Dim, values: Container[int]) -> tuple[str, int] | None:
    """Return the only symbol of a dimension, and its least value that makes one of the values."""
    names = {symbol.name for symbol in list_symbols(dim)}
    if len(names) != 1:
        return None
    (name,) = names
    fits = (n for n in range(1, MOST_TRIED) if evaluate(dim, {name: n}) in values)
    return next(((name, n) for n in fits), None)


def depends_on_inputs(dim: Dim) -> bool:
    """Return whether a dimension depends on a dynamic axis of an input, which is never empty."""
    return any(symbol.least for symbol in list_symbols(dim))


def require_number(dim: Dim, number: Dim, message: str = "") -> None:
    """Raise UnequalError if a dimension that is no integer differs from `number`."""
    if isinstance(dim, Dimension) and dim != number:
        raise UnequalError(dim, number, message)


def broadcast_dims(*shapes: Sequence[Dim], message: str = "") -> tuple[Dim, ...]:
    """Return the shape to which shapes broadcast; a dynamic size is not assumed to be 1.

    A size that depends on data may be 1, or equal to the other number: both broadcast to this
    number. `message` is the reason of the BroadcastError in place of the general reason.
    """
    result: list[Dim] = []
    listed = " and ".join(str(list(shape)) for shape in shapes)
    message = message or f"input shapes must broadcast to each other, got {listed}"
    for sizes in zip_longest(*(tuple(shape)[::-1] for shape in shapes), fillvalue=1):
        candidates = [size for size in sizes if size != 1]
        if any(map(is_known, candidates)):
            candidates = [size for size in candidates if is_known(size) or depends_on_inputs(size)]
        for size in candidates[1:]:
            if size != candidates[0]:
                raise BroadcastError(candidates[0], size, message)
        result.append(candidates[0] if candidates else 1)
    return tuple(result[::-1])


def infer_product(
    a: Sequence[Dim], b: Sequence[Dim], transposed: tuple[bool, bool]
) -> tuple[Dim, ...]:
    """Return the shape of a product of matrices, each possibly transposed; else OperatorError."""
    if min(len(a), len(b)) < 2:
        raise OperatorError(f"both inputs must have 2 axes or more, got {list(a)} and {list(b)}")
    (rows, inner), (inner_of_b, columns) = (
        shape[:-3:-1] if turn else shape[-2:]
        for shape, turn in zip((a, b), transposed, strict=True)
    )
    message = f"the matrices must have matching inner and batch sizes, got {list(a)} and {list(b)}"
    require_equal(inner, inner_of_b, message)
    return (*broadcast_dims(a[:-2], b[:-2], message=message), rows, columns)


def make_array(values: object, dtype: Any) -> np.ndarray[Any, Any]:  # noqa: ANN401 - of numpy
    """Return dimensions as an array: of a numpy type if all are integers, else of objects."""
    array = np.asarray(values, object)
    return array if has_dimensions(array) else array.astype(dtype)


def has_dimensions(values: object) -> bool:
    """Return whether a shape or an array has dimensions that are not integers."""
    return next(list_dimensions(values), None) is not None


def list_dimensions(values: object) -> Iterator[Dimension]:
    """Yield the dimensions in a shape or an array that are not integers."""
    if isinstance(values, np.ndarray):
        values = values.flat if values.dtype == object else ()
    for value in () if values is None else values:  # type: ignore[attr-defined]
        if isinstance(value, Dimension):
            yield value
