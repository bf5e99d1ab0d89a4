"""Elementwise operators, most of them by a line in a table."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from tests.conformance.bench import Bench, Range
from tests.conformance.table import KINDS, Bound, Row, coarse
from tests.support.tensor import TensorFields
from tflite2onnx.op.registry import list_builtin_codes

SIZES = (2, 3, 5, 7, 4, 2)
Q8, QU8, Q16 = "quantized int8", "quantized uint8", "quantized int16"
BYTES = (Q8, QU8)
QUANTIZED = (*BYTES, Q16)
RANKS = (4, 0, 1, 2, 3, 5)
# Shapes of two inputs that broadcast, in the ways that differ for layouts.
PAIRS = ("same", "scalar", "channels", "row", "both", "ranks")
ACTIVATIONS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")
ALL_VALUES = ("random", "edges", "not finite")


def broadcast_shapes(pair: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of two inputs and their broadcast shape."""
    full = (2, 3, 5, 7)
    return {
        "same": (full, full, full),
        "scalar": (full, (), full),
        "channels": (full, (7,), full),
        "row": ((1, 3, 1, 7), full, full),
        "both": ((2, 1, 5, 1), (1, 3, 1, 7), full),
        "ranks": ((5, 7), full, full),
        "matrices": ((3, 7), (3, 7), (3, 7)),
        "numbers": ((), (), ()),
        "five axes": ((2, 3, 1, 5, 7), (3, 4, 1, 7), (2, 3, 4, 5, 7)),
    }[pair]


class Unary:
    """Builds an operator with one input; `within` limits floats, `stored` limits integers."""

    def __init__(
        self,
        within: Range | None = None,
        stored: Mapping[str, Range] = MappingProxyType({}),
        **scales: tuple[float, int],
    ) -> None:
        self.within = within
        self.stored = stored
        self.scales = scales

    def __call__(self, b: Bench, code: str, /, *, rank: int, **options: Any) -> None:
        """Build the operator with a tensor of this rank."""
        shape = SIZES[:rank]
        x = b.add_input(shape, within=self._range(b))
        y = b.output_tensor(shape, self._output_fields(b))
        is_builtin = code in list_builtin_codes()
        made = b.op(code, [x], [y], **options) if is_builtin else b.custom(code, [x], [y], options)
        b.add_outputs(*made)

    def _range(self, b: Bench) -> Range | None:
        return self.stored.get(b.kind) if "quantized" in b.kind else self.within

    def _output_fields(self, b: Bench) -> TensorFields:
        fields = b.type()
        dtype = str(fields["dtype"])
        if "scale" in fields and dtype in self.scales:
            scale, zero_point = self.scales[dtype]
            return {"dtype": dtype, "scale": scale, "zero_point": zero_point}
        return fields


_DIVIDENDS = {Q8: (80, 127), QU8: (200, 255), Q16: (5000, 32767)}
_DIVISORS = {Q8: (40, 80), QU8: (160, 200), Q16: (50, 2000)}


class Binary:
    """Builds an operator with two inputs that broadcast; the second may be limited or constant.

    If `second` limits quantized divisors, no divisor represents 0 and no quotient is below a step:
    the kernel returns the largest integer for these.
    """

    def __init__(self, second: Range | None = None, makes: str = "", *, one: bool = False) -> None:
        self.second = second
        self.makes = makes
        self.one = one

    def __call__(
        self, b: Bench, code: str, /, *, pair: str, constant: bool = False, **options: Any
    ) -> None:
        """Build the operator with a pair of shapes."""
        first, second, made = broadcast_shapes(pair)
        fields = b.type() if self.one else None
        divides = self.second is not None
        x = b.add_input(first, fields, within=_DIVIDENDS.get(b.kind) if divides else None)
        within = _DIVISORS.get(b.kind, self.second) if divides else None
        y = (b.add_constant if constant else b.add_input)(second, fields, within=within)
        output = b.output_tensor(made, self.makes or fields)
        b.add_outputs(*b.op(code, [x, y], [output], **options))


def _same_shape(b: Bench, code: str, *, rank: int) -> None:
    """Build an operator with two inputs of one shape, which do not broadcast."""
    x, y = (b.add_input(SIZES[:rank]) for _ in range(2))
    b.add_outputs(*b.op(code, [x, y], [b.output_tensor(SIZES[:rank])]))


def _shift_left(b: Bench, code: str, *, rank: int) -> None:
    """Build shifts by less than the width of the type; larger shifts are undefined in C++."""
    x = b.add_input(SIZES[:rank])
    y = b.add_input(SIZES[:rank], within=(0, 8 * np.dtype(b.kind).itemsize - 1))
    b.add_outputs(*b.op(code, [x, y], [b.output_tensor(SIZES[:rank])]))


# Output quantizations that the kernels require.
_LOGISTIC = {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)}
_TANH = {"int8": (1 / 128, 0), "uint8": (1 / 128, 128), "int16": (1 / 32768, 0)}
_TABLES = "the kernel interpolates between a few hundred values of a table"

_FUNCTIONS: tuple[tuple[str, str, Range | None, dict[str, Any]], ...] = (
    ("ABS", "float32 int16 int32 q8 q16", None, {"values": ALL_VALUES}),
    ("CEIL", "float32", None, {"values": ALL_VALUES}),
    ("COS", "float32 float16", None, {}),
    ("ELU", "float32 q8", None, {"values": ALL_VALUES}),
    ("EXP", "float32 q8 q16", None, {}),
    ("FLOOR", "float32 float16 bfloat16", None, {"values": ALL_VALUES}),
    ("HARD_SWISH", "float32 q8 qu8", None, {}),
    ("LOG", "float32 q8 q16", (0.01, 100), {}),
    ("LOGICAL_NOT", "bool", None, {}),
    ("LOGISTIC", "float32 float16 bfloat16 q8 qu8 q16", None, {}),
    ("NEG", "float32 float16 bfloat16 int8 int16 int32 int64", None, {"values": ALL_VALUES}),
    ("RELU", "float32 q8 qu8 q16", None, {}),
    ("RELU6", "float32 q8 qu8 q16", None, {}),
    ("RELU_0_TO_1", "float32 q8 qu8", None, {}),
    ("RELU_N1_TO_1", "float32 q8 qu8", None, {}),
    ("ROUND", "float32 float16 bfloat16", None, {"values": ALL_VALUES}),
    ("RSQRT", "float32 q8 q16", (0.01, 100), {}),
    ("SIGN", "float32 float64 int32", None, {}),
    ("SIN", "float32 float16", None, {}),
    ("SQRT", "float32 q8 q16", (0, 100), {}),
    ("SQUARE", "float32", None, {"values": ALL_VALUES}),
    ("TANH", "float32 float16 bfloat16 q8 qu8 q16", None, {}),
    ("ZEROS_LIKE", "float32 int32 int64", None, {"values": ALL_VALUES}),
)
SHORT = {"q8": Q8, "qu8": QU8, "q16": Q16, "q4": "quantized int4"}
_ABOVE_0 = (31, 127)  # zero points are at most 30
_STORED = {
    "RSQRT": {Q8: _ABOVE_0, Q16: (0, 32767)},
    "SQRT": {Q8: _ABOVE_0, Q16: (0, 32767)},
}
_MAKES = {"LOGISTIC": _LOGISTIC, "TANH": _TANH}
_OFF = {code: {Q16: coarse(code, Q16, _TABLES)} for code in ("LOGISTIC", "TANH")}
# `verify` computes the error of this table from the scales (`measure_table_error`).
_OFF["EXP"] = {Q16: Bound(0, 60, _TABLES)}


def kinds(words: str) -> tuple[str, ...]:
    """Return element types from a string of names; "q8" is short for "quantized int8"."""
    return tuple(SHORT.get(word, word) for word in words.split())


def _functions() -> tuple[Row, ...]:
    return tuple(
        Row(
            code,
            Unary(within, _STORED.get(code, {}), **_MAKES.get(code, {})),
            kinds(types),
            {"rank": RANKS},
            bounds=_OFF.get(code, {}),
            **more,
        )
        for code, types, within, more in _FUNCTIONS
    )


_ARITHMETIC = {"pair": PAIRS, "fused_activation_function": ACTIVATIONS, "constant": (False, True)}
_PLAIN = {"pair": PAIRS, "constant": (False, True)}

_PAIRS: tuple[tuple[str, str, Range | None, dict[str, Any]], ...] = (
    ("ADD", "float32 float16 int16 int32 int64 q8 qu8 q16", None, {"grid": _ARITHMETIC}),
    (
        "DIV",
        "float32 int32 q8 qu8 q16",
        (1, 50),
        {
            "grid": _ARITHMETIC,
            "limits": "quantized kernels return the largest integer for quotients below one step",
        },
    ),
    ("FLOOR_DIV", "float32 int8 int16 int32", (1, 50), {}),
    ("FLOOR_MOD", "float32 int8 int16 int32 int64", (1, 50), {}),
    ("LOGICAL_AND", "bool", None, {}),
    ("LOGICAL_OR", "bool", None, {}),
    ("MUL", "float32 float16 int16 int32 uint32 int64 q8 qu8 q16", None, {"grid": _ARITHMETIC}),
    ("SQUARED_DIFFERENCE", "float32 int32 q8", None, {}),
    ("SUB", "float32 int32 int64 q8 qu8 q16", None, {"grid": _ARITHMETIC}),
    ("BITWISE_XOR", "int8 uint8 int16 uint16 int32 uint32", None, {}),
    ("RIGHT_SHIFT", "int8 uint8 int16 uint16 int32 uint32", None, {}),
)


def _pairs() -> tuple[Row, ...]:
    return tuple(
        Row(code, Binary(second), kinds(types), **{"grid": _PLAIN, **more})
        for code, types, second, more in _PAIRS
    )


_COMPARED = "float32 float16 int16 int32 int64 q8 qu8 q16"
_COMPARISONS = {
    "EQUAL": f"{_COMPARED} bool string",
    "NOT_EQUAL": f"{_COMPARED} bool string".replace(" int16", ""),
    "GREATER": f"{_COMPARED} bfloat16",
    "LESS": f"{_COMPARED} bfloat16",
    "GREATER_EQUAL": _COMPARED,
    "LESS_EQUAL": _COMPARED,
}


_NOTHING = {"int16": "converted; LiteRT's kernel computes nothing without a scale"}
_ENDS = dict.fromkeys(
    ("int8", "uint8"), "converted; LiteRT's kernel ends the process without a scale"
)


def _comparisons() -> tuple[Row, ...]:
    return tuple(
        Row(
            code,
            Binary(makes="bool"),
            kinds(types),
            _PLAIN,
            ALL_VALUES,
            exact=True,
            without=_ENDS | (_NOTHING if code == "NOT_EQUAL" else {}),
        )
        for code, types in _COMPARISONS.items()
    )


def _extremes() -> tuple[Row, ...]:
    types = kinds("float32 float16 bfloat16 int8 uint8 int16 int32 int64 q8 qu8 q16")
    return tuple(
        Row(code, Binary(one=True), types, _PLAIN, exact=True) for code in ("MAXIMUM", "MINIMUM")
    )


def add_n(b: Bench, code: str, *, count: int, rank: int) -> None:
    """Build the sum of several inputs."""
    xs = [b.add_input(SIZES[:rank]) for _ in range(count)]
    b.add_outputs(*b.op(code, xs, [b.output_tensor(SIZES[:rank])]))


def powers(b: Bench, code: str, *, pair: str) -> None:
    """Build powers of positive bases, or integer powers that stay small."""
    first, second, made = broadcast_shapes(pair)
    whole = "int" in b.kind
    x = b.add_input(first, within=(-5, 5) if whole else (0.1, 8))
    y = b.add_input(second, within=(0, 6) if whole else (-3, 3))
    b.add_outputs(*b.op(code, [x, y], [b.output_tensor(made)]))


def prelu(b: Bench, code: str, *, pair: str, constant: bool) -> None:
    """Build PRELU with slopes for each channel, for each element, or for all elements."""
    shape, slopes, _ = broadcast_shapes(pair)
    x = b.add_input(shape)
    kind = Q8 if b.kind == Q16 else b.kind
    fields = b.type(kind, step=0.1)
    if b.kind == Q16:
        fields["zero_point"] = 0
    alpha = (b.add_constant if constant else b.add_input)(slopes, fields)
    b.add_outputs(*b.op(code, [x, alpha], [b.output_tensor(shape)]))


def bucketize(b: Bench, code: str, *, rank: int, boundaries: list[float]) -> None:
    """Build BUCKETIZE; some elements lie on boundaries."""
    x = b.add_input(SIZES[:rank])
    b.add_outputs(*b.op(code, [x], [b.output_tensor(SIZES[:rank], "int32")], boundaries=boundaries))


def fake_quant(b: Bench, code: str, *, rank: int, bits: int, ends: tuple[float, float]) -> None:
    """Build FAKE_QUANT; the ranges contain 0, but 0 is not on the grid of each range."""
    x = b.add_input(SIZES[:rank])
    words: dict[str, Any] = {"num_bits": bits, "min": ends[0], "max": ends[1]}
    b.add_outputs(*b.op(code, [x], [b.output_tensor(SIZES[:rank])], **words))


_STABLEHLO = {
    "STABLEHLO_ADD": "bool float32 float16 float64 int8 uint8 int16 uint16 int32 uint32 int64"
    " uint64",
    "STABLEHLO_AND": "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64",
}
for _code in ("STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM", "STABLEHLO_MULTIPLY"):
    _STABLEHLO[_code] = _STABLEHLO["STABLEHLO_ADD"]


ROWS = (
    *_functions(),
    *_pairs(),
    *_comparisons(),
    *_extremes(),
    *(Row(code, _same_shape, kinds(types), {"rank": RANKS}) for code, types in _STABLEHLO.items()),
    Row(
        "ATAN2",
        _same_shape,
        kinds("float32 float16 bfloat16"),
        {"rank": RANKS},
        ALL_VALUES,
        without={"float64": "not converted: ONNX Runtime has no Atan for this type"},
    ),
    Row(
        "STABLEHLO_SHIFT_LEFT",
        _shift_left,
        kinds("int8 int16 int32"),
        {"rank": RANKS},
        limits="the kernel's result is undefined for shifts by at least the element's bits",
    ),
    Row("ADD_N", add_n, kinds("float32 int32"), {"count": (3, 2, 5), "rank": RANKS}),
    Row(
        "BUCKETIZE",
        bucketize,
        kinds("float32 float64 int32 int64"),
        {"rank": RANKS, "boundaries": ([-3.0, 0.0, 2.5], [1.0], [-8.0, -8.0, 40.0])},
        ALL_VALUES,
        exact=True,
    ),
    Row(
        "FAKE_QUANT",
        fake_quant,
        kinds("float32"),
        {"rank": RANKS, "bits": (8, 2, 4, 16), "ends": ((-3.0, 5.0), (0.0, 6.0), (-1.0, 0.0))},
        without=dict.fromkeys(
            [kind for kind in KINDS if kind != "float32"],
            "not converted: the kernel reads the elements as float32",
        ),
    ),
    Row(
        "GELU",
        Unary(),
        kinds("float32 float16 q8 qu8 q16"),
        {"rank": RANKS, "approximate": (False, True)},
        bounds={Q16: Bound(0, 60, _TABLES)},
    ),
    Row(
        "LEAKY_RELU",
        Unary(),
        kinds("float32 q8 qu8 q16"),
        {"rank": RANKS, "alpha": (0.2, 0.01, 1.5, -0.5)},
    ),
    Row("POW", powers, kinds("float32 int32"), {"pair": PAIRS}),
    Row(
        "PRELU",
        prelu,
        kinds("float32 q8 qu8 q16"),
        {"pair": ("channels", "same", "scalar", "matrices"), "constant": (True, False)},
    ),
)
