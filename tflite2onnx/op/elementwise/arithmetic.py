"""Elementwise operators: tables with a row for each operator.

If a result is not finite, these operators follow ONNX, not LiteRT: LiteRT's kernels of ADD, SUB,
MUL and DIV replace an infinity by the largest float (kernels of the default delegate keep
infinities). In LiteRT, MAXIMUM and MINIMUM of NaN and b are b, and SIGN of NaN is 1.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial, reduce
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from tflite2onnx.builder.builder import Builder, Operand, Value, View
from tflite2onnx.graph import Options
from tflite2onnx.op.base import Category, OperatorError, OutputShape
from tflite2onnx.op.common.checks import expect_input_count, list_types
from tflite2onnx.op.common.fixed_point import (
    Squares,
    are_narrow,
    find_squares,
    negate_constant,
    sum_scales,
)
from tflite2onnx.op.common.interpolated_tables import (
    interpolate_table,
    make_table,
    measure_table_error,
)
from tflite2onnx.op.traits import AnySizes, Broadcasts, Foldable
from tflite2onnx.quantization.declarations import Integers, Real
from tflite2onnx.quantization.rules import Reading
from tflite2onnx.quantization.storage import BOUNDS, find_integer_range, is_quantized
from tflite2onnx.tensor import Array, DType, Quantization, Tensor
from tflite2onnx.utils.dimension import broadcast_dims
from tflite2onnx.utils.suggestions import join_alternatives

# The element types of numbers that TensorFlow's kernels support, and TFLite's do not.
_WIDE = "float64 float16 int8 int16 int64 uint8 uint16 uint32 uint64"

T = TypeVar("T")
# A function that emits the nodes of an operator, from the builder, the type of the inputs, the
# options and the inputs.
Emit = Callable[..., Value]


class Row(NamedTuple):
    """An elementwise operator.

    Attributes:
        emit: a function of (builder, type of the inputs, the operator's options, *inputs).
        types: the element types that LiteRT's kernel accepts without quantization.
        wide: the element types that only TensorFlow's kernel accepts.
        numpy: a NumPy function with exactly the results of the kernel, or None. The function may
            return None where the kernel would fail.
        interpolated: the function of (input, options) of which the kernel for int16 interpolates a
            table; see `measure_table_error`.
    """

    emit: Emit
    types: str
    numpy: Callable[..., Any] | None = None
    wide: str = ""
    interpolated: Callable[[Array, Options], Array] | None = None


def emit_node(op_type: str) -> Emit:
    """Return a function that emits one node, whose output has the type of its inputs."""
    return lambda g, dtype, _, *xs: g.add_with_casts(op_type, dtype, *xs)


def as_emit(emit: Callable[..., Value]) -> Emit:
    """Return an Emit that ignores type and options, from a function of (builder, *inputs)."""
    return lambda g, _, __, *xs: emit(g, *xs)


def clip_to_activation(name: str, array: Array) -> Array:
    """Apply a fused activation to a constant."""
    low, high = (
        None if b is None else np.asarray(b).astype(array.dtype)
        for b in BOUNDS.get(name, (None, None))
    )
    return array if low is None else np.clip(array, low, high)


class Elementwise(Broadcasts, AnySizes, Foldable):
    """A function of each element; inputs broadcast.

    Attributes:
        rows: the table, keyed by TFLite's operator code.
        arity: the number of inputs, None for two or more.
        makes: the type of the output; None if it is the type of the inputs.
        commutes: the codes of the operators whose two inputs may change places.
    """

    category = Category.TRANSPARENT
    tflite = "... -> ..."
    rows: ClassVar[Mapping[str, Row]] = {}
    arity: ClassVar[int | None] = 1
    makes: ClassVar[DType | None] = None
    commutes: ClassVar[tuple[str, ...]] = ()

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [broadcast_dims(*(self.input(i).shape for i in range(len(self.op.inputs))))]

    def check(self) -> None:
        inputs = [self.input(i) for i in range(len(self.op.inputs))]
        if self.arity is None and len(inputs) < 2:
            raise OperatorError(f"it must have at least two inputs, got {len(inputs)}")
        expect_input_count(self, self.arity or len(inputs))
        types, accepted = self.find_types(), list_types(self, self.row.types, self.row.wide)
        effective = [self._find_effective_dtype(t).label for t in inputs]
        if len(types) != 1 or not {*effective} <= {*accepted}:
            actual = " and ".join(dtype.label for dtype in types)
            raise OperatorError(
                f"its inputs must all be {join_alternatives(accepted)}, got {actual}"
            )
        makes = self.makes or types[0]
        if self.output.dtype is not makes:
            raise OperatorError(f"its output must be {makes.label}, got {self.output.dtype.label}")

    @property
    def allowed_steps(self) -> int:
        """The number of steps by which integers may differ from LiteRT's; see `Operator`."""
        steps = self.apply_to_table(measure_table_error)
        return super().allowed_steps if steps is None else steps

    def apply_to_table(
        self, apply: Callable[[Callable[[Array], Array], float, float], T]
    ) -> T | None:
        """Return what a function makes of the kernel's function, and of the scales of x and y.

        None if the kernel has no table between whose entries it interpolates.
        """
        function, x, y = self.row.interpolated, self.input(0).quantization, self.output.quantization
        if function is None or self.output.dtype is not DType.INT16 or x is None or y is None:
            return None
        scale, unit = float(x.scale[0]), float(y.scale[0])
        return apply(lambda numbers: function(numbers, self.options), scale, unit)

    def find_types(self) -> list[DType]:
        """Return the different types of the inputs. `check` accepts one type only."""
        return list(dict.fromkeys(self.input(i).dtype for i in range(len(self.op.inputs))))

    def _find_effective_dtype(self, tensor: Tensor) -> DType:
        # Read from the class, because the property of an instance may compute scales.
        declaration = type(self).quantization
        in_file_types = isinstance(declaration, Integers) and declaration.in_file_types
        return DType.FLOAT32 if is_quantized(tensor) and not in_file_types else tensor.dtype

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        return self.rows[self.op.code].emit(g, xs[0].dtype, self.options, *xs)

    def evaluate(self, *inputs: Array) -> list[Array] | None:
        # NumPy would read bfloat16, which is stored as its bits, as integers, and would write the
        # result to a surplus input.
        is_bits = self.input(0).dtype is DType.BFLOAT16
        if self.row.numpy is None or is_bits or len(inputs) != self.arity:
            return None
        with np.errstate(all="ignore"):
            output = self.row.numpy(*inputs)
        if output is None:
            return None
        activation = self.options.get("fused_activation_function", "NONE")
        return [clip_to_activation(activation, np.asarray(output))]


def emit_square(g: Builder, x: Operand) -> Value:
    """Return x * x."""
    return g.Mul(x, x)


def emit_squared_difference(g: Builder, a: Operand, b: Operand) -> Value:
    """Return (a - b) squared."""
    return emit_square(g, g.Sub(a, b))


def emit_reciprocal_root(g: Builder, x: Operand) -> Value:
    """Return 1 / sqrt(x)."""
    return g.Reciprocal(g.Sqrt(x))


def compute_maximum(a: Array, b: Array) -> Array:
    """Return the larger elements, or b where a or b is NaN, as in the kernels."""
    return np.where(a > b, a, b)


def compute_minimum(a: Array, b: Array) -> Array:
    """Return the smaller elements, or b where a or b is NaN, as in the kernels."""
    return np.where(a < b, a, b)


def _make_zeros(g: Builder, dtype: DType, _: Options, x: Operand) -> Value:
    # The product x * 0 would be NaN if x is infinite.
    return g.Expand(g.scalar(0, dtype), g.Shape(x))


class Unary(Elementwise):
    """An elementwise function of one input."""

    rows: ClassVar[Mapping[str, Row]] = {
        "CEIL": Row(emit_node("Ceil"), "float32", np.ceil),
        "COS": Row(emit_node("Cos"), "float32 float16"),
        "EXP": Row(emit_node("Exp"), "float32", interpolated=lambda x, _: np.exp(x)),
        "FLOOR": Row(emit_node("Floor"), "float32 float16 bfloat16", np.floor),
        "LOGICAL_NOT": Row(as_emit(lambda g, x: g.Not(x)), "bool", np.logical_not),
        "ROUND": Row(emit_node("Round"), "float32 float16 bfloat16", np.round),
        "SIGN": Row(emit_node("Sign"), "float32 float64 int32"),
        "SIN": Row(emit_node("Sin"), "float32 float16"),
        "SQUARE": Row(as_emit(emit_square), "float32", np.square),
        "ZEROS_LIKE": Row(_make_zeros, "float32 int32 int64", np.zeros_like, f"{_WIDE} bool"),
    }


class Absolute(Elementwise):
    """ABS. The kernel reads the first of several scales: the scales of x and y must be the same."""

    rows: ClassVar[Mapping[str, Row]] = {
        "ABS": Row(emit_node("Abs"), "float32 int16 int32", np.abs)
    }

    @property
    def quantization(self) -> Real:
        x, y = self.input(0).quantization, self.output.quantization
        return Real(takes_axes=x is not None and x.same_as(y) and not any(x.zero_point))


class Unbounded(Elementwise):
    """Functions that are infinite at 0.

    If quantized, LOG of 0 and of negative numbers is the smallest number that the output can
    represent, and RSQRT of 0 is the largest number. The kernel of RSQRT fails for negative numbers.
    Integers of 16 bits are interpolated as in the kernels, whose error is large near 0.
    """

    rows: ClassVar[Mapping[str, Row]] = {
        "LOG": Row(
            as_emit(lambda g, x: g.Log(x)),
            "float32",
            interpolated=lambda x, _: np.where(x > 0, np.log(x), -np.inf),
        ),
        "RSQRT": Row(
            as_emit(emit_reciprocal_root),
            "float32",
            interpolated=lambda x, _: np.where(x > 0, 1 / np.sqrt(x), np.inf),
        ),
    }

    @cached_property
    def table(self) -> Array | None:
        """The table of the kernel for int16, None for other types."""
        return self.apply_to_table(make_table)

    @property
    def quantization(self) -> Real:
        return Real(tabulates=self.table is not None)

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        if self.table is not None and xs[0].storage.quantization is not None:
            return interpolate_table(g, g.constant(self.table, DType.INT16, "table"), xs[0])
        storage = y.plan.storage
        if storage.quantization is None:
            return super().emit(g, y, *xs)
        low, high = (
            float(storage.quantization.scale[0]) * (bound - storage.zero_point)
            for bound in find_integer_range(storage.dtype)
        )
        if self.op.code == "LOG":
            return g.Max(g.Log(g.Relu(xs[0])), g.scalar(low, DType.FLOAT32))
        return g.Min(super().emit(g, y, *xs), g.scalar(high, DType.FLOAT32))


class SquareRoot(Elementwise):
    """SQRT; the kernel rounds integers down."""

    rows: ClassVar[Mapping[str, Row]] = {"SQRT": Row(emit_node("Sqrt"), "float32", np.sqrt)}

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        root, scale = super().emit(g, y, *xs), y.plan.storage.quantization
        if scale is None or y.plan.reading is not Reading.DEQUANTIZED:
            return root
        step = g.scalar(float(scale.scale[0]), DType.FLOAT32)
        return g.Mul(g.Floor(g.Div(root, step)), step)


def _emit_floor_div(g: Builder, dtype: DType, _: Options, a: Operand, b: Operand) -> Value:
    if dtype.is_float:
        return g.Floor(g.Div(a, b))
    # Div of integers rounds towards 0. The floor of a float64 quotient of 32-bit integers is exact.
    a, b = (g.cast(x, DType.FLOAT64) for x in (a, b))
    return g.cast(g.Floor(g.Div(a, b)), dtype)


def emit_floor_mod(g: Builder, dtype: DType, _: Options, a: Operand, b: Operand) -> Value:
    """Return the remainder of a / b, with the sign of b."""
    if dtype.is_integer:
        return g.Mod(a, b)
    remainder = g.Mod(a, b, fmod=1)
    # Sign(remainder) replaces remainder, because a product of small numbers may underflow to 0.
    differs = g.Less(g.Mul(g.Sign(remainder), b), g.scalar(0, dtype))
    return g.Where(differs, g.Add(remainder, b), remainder)


def _divide_constants(a: Array, b: Array) -> Array | None:
    if not b.all():
        return None
    if a.dtype == b.dtype == object:  # the elements are dimensions
        return np.asarray(a // b) if (a >= 0).all() and (b > 0).all() else None
    return np.asarray(a / b if a.dtype.kind == "f" else np.trunc(a / b).astype(a.dtype))


def _floor_divide_constants(a: Array, b: Array) -> Array | None:
    if not b.all():
        return None
    return np.asarray(a // b) if a.dtype == object else np.floor(a / b).astype(a.dtype)


def _evaluate_modulo(a: Array, b: Array) -> Array | None:
    return np.asarray(np.mod(a, b)) if b.all() else None


class Binary(Elementwise):
    """An elementwise function of two inputs that broadcast."""

    arity = 2
    evaluates_dimensions = True
    rows: ClassVar[Mapping[str, Row]] = {
        "DIV": Row(emit_node("Div"), "float32 int32", _divide_constants),
        "LOGICAL_AND": Row(as_emit(lambda g, a, b: g.And(a, b)), "bool", np.logical_and),
        "LOGICAL_OR": Row(as_emit(lambda g, a, b: g.Or(a, b)), "bool", np.logical_or),
        "MUL": Row(emit_node("Mul"), "float32 float16 int16 int32 uint32 int64", np.multiply),
        "POW": Row(emit_node("Pow"), "float32 int32"),
    }
    commutes = ("LOGICAL_AND", "LOGICAL_OR", "MUL")


class SquaredDifference(Elementwise):
    """SQUARED_DIFFERENCE: (a - b) squared; both broadcast.

    The kernel rounds integers several times. Other scales, and two Round nodes if the scales of the
    inputs differ, give the same integers (`find_squares`).
    """

    arity = 2
    rows: ClassVar[Mapping[str, Row]] = {
        "SQUARED_DIFFERENCE": Row(as_emit(emit_squared_difference), "float32 int32")
    }
    commutes = tuple(rows)

    @cached_property
    def squares(self) -> Squares | None:
        """The scales of the integer kernel, None if there are none."""
        return find_squares(self.input(0), self.input(1), self.output)

    @property
    def quantization(self) -> Real:
        return Real(self.squares.reads, self.squares.writes) if self.squares else Real()

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        squares = self.squares if xs[0].plan.reading is Reading.DEQUANTIZED else None
        inputs: list[Operand] = [*xs]
        if squares and squares.rounded is not None:
            whole = g.Round(xs[squares.rounded])
            inputs[squares.rounded] = g.Round(g.Mul(whole, g.scalar(squares.factor, DType.FLOAT32)))
        return emit_squared_difference(g, *inputs)


class Sum(Elementwise):
    """The sum or the difference of two inputs that broadcast.

    SUB of a constant becomes Add of the negated constant, because runtimes have integer kernels
    for Add but not for Sub.
    """

    arity = 2
    evaluates_dimensions = True
    rows: ClassVar[Mapping[str, Row]] = {
        "ADD": Row(emit_node("Add"), "float32 float16 int16 int32 int64", np.add),
        "SUB": Row(emit_node("Sub"), "float32 int32 int64", np.subtract),
    }
    commutes = ("ADD",)

    @cached_property
    def terms(self) -> tuple[Tensor, Tensor, int]:
        """The inputs and the sign of the second input: 1 if it is a constant, negated here."""
        a, b = self.input(0), self.input(1)
        if self.op.code == "ADD" or b.data is None or not are_narrow(b):
            return a, b, 1 if self.op.code == "ADD" else -1
        return a, negate_constant(b), 1

    @cached_property
    def scales(self) -> tuple[Quantization, ...]:
        """The scale in which each input is read; empty if inputs keep their own scales."""
        return sum_scales(*self.terms[:2], self.output, self.terms[2])

    @property
    def quantization(self) -> Real:
        second = self.terms[1]
        negated = None if second is self.input(1) else second.quantization
        return Real(reads=self.scales or (None, negated))

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        a, b = xs
        is_read = b.plan.reading in (Reading.DEQUANTIZED, Reading.UNIFORM)
        if not is_read or b.tensor is self.terms[1]:
            return super().emit(g, y, a, b)
        return g.Add(a, g.view(self.terms[1], b.order, b.letters, b.plan))


_ORDERED = "float32 float16 bfloat16 int8 uint8 int16 int32 int64"


class Extreme(Elementwise):
    """The larger or smaller of two inputs that broadcast.

    The kernels compare stored integers, and ignore the scales of the three tensors.
    """

    arity = 2
    quantization = Integers()
    evaluates_dimensions = True
    rows: ClassVar[Mapping[str, Row]] = {
        "MAXIMUM": Row(emit_node("Max"), _ORDERED, compute_maximum),
        "MINIMUM": Row(emit_node("Min"), _ORDERED, compute_minimum),
    }
    commutes = tuple(rows)


class OfIntegers(Elementwise):
    """Functions that the kernels compute on stored integers; the scales are ignored."""

    arity = 2
    quantization = Integers(in_file_types=True)
    evaluates_dimensions = True
    rows: ClassVar[Mapping[str, Row]] = {
        "BITWISE_XOR": Row(
            emit_node("BitwiseXor"), "int8 uint8 int16 uint16 int32 uint32", np.bitwise_xor
        ),
        "FLOOR_DIV": Row(_emit_floor_div, "float32 int8 int16 int32", _floor_divide_constants),
        "FLOOR_MOD": Row(emit_floor_mod, "float32 int8 int16 int32 int64", _evaluate_modulo),
    }
    commutes = ("BITWISE_XOR",)


class Negation(Elementwise):
    """NEG: negates the stored integers of quantized tensors, except the smallest integer."""

    quantization = Integers(in_file_types=True)
    evaluates_dimensions = True
    rows: ClassVar[Mapping[str, Row]] = {
        "NEG": Row(emit_node("Neg"), "float32 float16 bfloat16 int8 int16 int32 int64", np.negative)
    }


class AddN(Elementwise):
    """ADD_N: the sum of any number of inputs."""

    arity = None
    rows: ClassVar[Mapping[str, Row]] = {
        # Add nodes in a chain, because Sum does not support integers.
        "ADD_N": Row(
            lambda g, dtype, _, *xs: reduce(partial(g.add_with_casts, "Add", dtype), xs),
            "float32 int32",
            wide=_WIDE,
        )
    }
