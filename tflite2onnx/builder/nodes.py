"""ONNX nodes in the making: values, pooled constants, and which opset has which form of a node.

Names are given last, by the writer, because what a value is called depends on who else has a
claim on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from onnx import TensorProto

from tflite2onnx.builder.opsets import AXES_INPUT, ZERO_SIZE, compute_type, first_opset
from tflite2onnx.errors import FixedSizeError, OperatorError
from tflite2onnx.tensor import Array, DType, Shape, Sizes
from tflite2onnx.utils.constant_budget import ConstantBudget

# A constant this small is worth comparing with others; weights are told apart by who they are.
_POOLED_BYTES = 4096

# ONNX's names where they are not TFLite's; None where ONNX has no such tensors.
_RENAMED = {
    DType.FLOAT32: "FLOAT",
    DType.FLOAT64: "DOUBLE",
    DType.FLOAT8_E4M3FN: "FLOAT8E4M3FN",
    DType.FLOAT8_E5M2: "FLOAT8E5M2",
    DType.RESOURCE: None,
    DType.VARIANT: None,
}

_PACKED = (DType.INT2, DType.INT4, DType.UINT4)  # of which ONNX Runtime reshapes constants only
# Nodes whose kernels for int64 compare the lower halves alone, in ONNX Runtime up to 1.31; so does
# that of Clip.
_BY_COMPARING = {"Max": "Greater", "Min": "Less"}
_INTEGERS = {dtype for dtype in DType if dtype.is_integer}


class NeedsOpset(Exception):  # noqa: N818 - a message from the builder to its caller, no error
    """The model needs a node that only a newer opset has."""

    def __init__(self, version: int, node: str) -> None:
        self.version = version
        self.node = node
        super().__init__(f"{node} needs opset {version}")


@dataclass(frozen=True, eq=False)
class Value:
    """Something that a node can read: a node's output, a graph input, or a constant (`data`).

    `dtype` is the element type of a constant or a graph input; that of a node's output follows
    from the node. `name` is what a constant, say, would like to be called; most have numbers.
    """

    data: Array | None = None
    dtype: DType | None = None
    name: str = ""


class Node(NamedTuple):
    """An ONNX node; the `domain` of ONNX's own operators is empty."""

    op_type: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    attributes: Mapping[str, Any]
    domain: str = ""


class Readable(Protocol):
    """Something that has a value, made when it is asked for."""

    @property
    def value(self) -> Value:
        """The value."""


Operand = Readable | Value | Array | None


class Nodes:
    """Collects nodes, and what is known of their outputs: type and shape.

    A `opset_is_fixed` opset is what the user wants, whatever it costs. Nested graphs share what is
    known, and their constants, with the graph `around` them.
    """

    def __init__(
        self,
        opset: int,
        *,
        opset_is_fixed: bool = False,
        budget: ConstantBudget | None = None,
        around: Nodes | None = None,
    ) -> None:
        self.budget: ConstantBudget = (
            (budget or ConstantBudget()) if around is None else around.budget
        )
        self.opset = opset
        self.opset_is_fixed = opset_is_fixed
        self.nodes: list[Node] = []
        self.types: dict[Value, tuple[DType, Sizes]] = {} if around is None else around.types
        self.pool: dict[tuple[str, Shape, bytes], Value] = {} if around is None else around.pool

    def node(self, op_type: str, *inputs: Operand, **attributes: Any) -> Value:
        """Add a node and return its output; see `node_outputs`."""
        return self.node_outputs(op_type, 1, *inputs, **attributes)[0]

    def node_outputs(
        self,
        op_type: str,
        outputs: int,
        *inputs: Operand,
        domain: str = "",
        **attributes: Any,
    ) -> tuple[Value, ...]:
        """Add a node with several outputs and return them; attributes that are None are left out.

        Opsets are those of ONNX's own domain; the writer knows which of another one to import.
        """
        return self.add(op_type, outputs, inputs, attributes, domain)

    def add(
        self,
        op_type: str,
        outputs: int,
        inputs: Sequence[Operand],
        attributes: Mapping[str, Any],
        domain: str = "",
    ) -> tuple[Value, ...]:
        """Add a node whose attributes can have any name; see `node_outputs`."""
        if not domain:
            self.require(first_opset(op_type), op_type)
        made = tuple(Value() for _ in range(outputs))
        given = tuple(self._value_of(i) for i in inputs)
        while given and given[-1] is None:
            given = given[:-1]
        kept = {k: v for k, v in attributes.items() if v is not None}
        self.nodes.append(Node(op_type, given, made, kept, domain))
        return made

    def __getattr__(self, op_type: str) -> Callable[..., Value]:
        """Return a function that adds a node of this type: g.Conv(x, w, group=2)."""
        if not op_type[0].isupper():
            raise AttributeError(op_type)
        return lambda *inputs, **attributes: self.node(op_type, *inputs, **attributes)

    def require(self, version: int, what: str) -> None:
        """Say that what is being emitted does not exist before this opset."""
        if version > self.opset:
            raise NeedsOpset(version, what)

    def annotate(self, value: Value, dtype: DType, shape: Sizes) -> Value:
        """Note what is known of a value, and return it."""
        self.types.setdefault(value, (dtype, shape))
        return value

    def supports(self, version: int, what: str) -> bool:
        """Return whether the opset has what another, worse form can stand in for.

        Raises:
            NeedsOpset: it has not, but need not be this one.
        """
        if not self.opset_is_fixed:
            self.require(version, what)
        return version <= self.opset

    def has_type(self, dtype: DType) -> bool:
        """Return whether a constant can be of this type; see `supports`."""
        return self.supports(first_opset(dtype), f"{dtype.label} in a constant")

    def _value_of(self, operand: Operand) -> Value | None:
        if isinstance(operand, np.ndarray):
            return self.constant(operand)
        return operand if operand is None or isinstance(operand, Value) else operand.value

    # Constants

    def constant(self, data: Array, dtype: DType | None = None, name: str = "constant") -> Value:
        """Return a constant; small ones with the same elements are one."""
        value = Value(data, dtype or DType[data.dtype.name.upper()], name)
        if data.nbytes > _POOLED_BYTES or value.dtype in (None, DType.STRING):
            self.budget.spend(data.nbytes)
            return value
        return self.pool.setdefault((value.dtype.label, data.shape, data.tobytes()), value)

    def own_constant(self, data: Array, dtype: DType, name: str = "constant") -> Value:
        """Return a constant that no other node reads.

        With session.x64quantprecision ONNX Runtime makes uint8 of the int8 weights and zero points
        that each product reads. It names the copies after the originals, so that a second reader
        of one of them makes the model fail to load (avx2_weight_s8_to_u8.cc).
        """
        self.budget.spend(data.nbytes)
        return Value(data, dtype, name)

    def ints(self, items: Sequence[int]) -> Value:
        """Return a one-dimensional int64 constant."""
        return self.constant(np.asarray(items, np.int64).reshape(-1))

    def scalar(self, number: float, dtype: DType) -> Value:
        """Return a constant without axes; OperatorError if the type has no numbers."""
        if dtype.numpy is None:
            raise OperatorError(f"there is no {number} of type {dtype.label}")
        # An option of a file may be a list, which would become more than a number.
        return self.constant(np.asarray(number, dtype.numpy).reshape(()), dtype)

    # Forms that depend on the opset, or that several operators need

    def cast(self, x: Operand, dtype: DType) -> Value:
        """Return x as another type; a few constant integers are converted at once."""
        value = self._value_of(x)
        data = None if value is None or value.dtype not in _INTEGERS else value.data
        if data is not None and dtype in _INTEGERS and data.nbytes <= _POOLED_BYTES:
            return self.constant(data.astype(dtype.numpy), dtype)
        self.require(first_opset(dtype), f"Cast to {dtype.label}")
        # Saturating, Cast would turn an infinity into the largest number of eight bits.
        saturate = 0 if dtype.label.startswith("float8") else None
        return self.Cast(value, to=onnx_type(dtype), saturate=saturate)

    def recast(self, x: Readable | Value, have: DType, want: DType) -> Value:
        """Return x, which has one type, in another; nothing is emitted if they are the same."""
        value = x if isinstance(x, Value) else x.value
        return value if have is want else self.cast(value, want)

    def compute_type(self, op_type: str, dtype: DType) -> DType:
        """Return the type in which a node takes elements of this type: mostly this one.

        Raises:
            NeedsOpset: only a newer opset has the node for this type.
        """
        self.require(first_opset((op_type, dtype)), f"{op_type} of {dtype.label}")
        return compute_type(op_type, dtype, self.opset)

    def in_compute_type(
        self, op_type: str, dtype: DType, *inputs: Operand, **attributes: Any
    ) -> Value:
        """Add a node whose inputs and output are of one type, in the type that it runs in."""
        if dtype is DType.INT64 and op_type == "Clip":
            return self.clamp_int64(*inputs)
        if dtype is DType.INT64 and op_type in _BY_COMPARING:
            a, b = (self._value_of(x) for x in inputs)
            return self.Where(self.node(_BY_COMPARING[op_type], a, b), a, b)
        return self.with_compute_type(
            op_type, dtype, partial(self.node, op_type, **attributes), *inputs
        )

    def clamp_int64(self, x: Operand, low: Operand, high: Operand) -> Value:
        """Return int64 that are no less than one bound and no more than another."""
        return self.in_compute_type(
            "Min", DType.INT64, self.in_compute_type("Max", DType.INT64, x, low), high
        )

    def with_compute_type(
        self, op_type: str, dtype: DType, emit: Callable[..., Value], *inputs: Operand
    ) -> Value:
        """Return emit(*inputs), all of one type, in the type that the node runs in."""
        carrier = self.compute_type(op_type, dtype)
        if carrier is dtype:
            return emit(*inputs)
        return self.cast(emit(*(self.cast(x, carrier) for x in inputs)), dtype)

    def scatter_nd(
        self, into: Operand, indices: Operand, updates: Operand, reduction: str | None = None
    ) -> Value:
        """Return a tensor with updates at their indices; a reduction is "add", "mul" or an extreme.

        Without any the last of several updates counts. Reductions came with opset 16, extremes
        with 18.
        """
        if reduction is not None:
            self.require(first_opset(("ScatterND", reduction)), f"ScatterND with {reduction}")
        return self.ScatterND(into, indices, updates, reduction=reduction)

    def hard_swish(self, x: Operand) -> Value:
        """Return x * clip(x / 6 + 1 / 2, 0, 1)."""
        if self.opset >= first_opset("HardSwish"):
            return self.HardSwish(x)
        return self.Mul(x, self.HardSigmoid(x, alpha=1 / 6, beta=0.5))

    def gelu(self, x: Operand, dtype: DType, *, approximate: bool) -> Value:
        """Return x times the normal distribution function of x, or its approximation by tanh.

        Before opset 20 that takes several nodes, in the sequence that ONNX Runtime fuses.
        """
        if self.opset >= first_opset("Gelu"):
            return self.Gelu(x, approximate="tanh" if approximate else "none")
        half, one = self.scalar(0.5, dtype), self.scalar(1, dtype)
        if not approximate:
            erf = self.Erf(self.Div(x, self.scalar(math.sqrt(2), dtype)))
            return self.Mul(self.Mul(x, self.Add(erf, one)), half)
        cubed = self.Mul(self.Pow(x, self.scalar(3, dtype)), self.scalar(0.044715, dtype))
        scaled = self.Mul(self.Add(x, cubed), self.scalar(math.sqrt(2 / math.pi), dtype))
        return self.Mul(self.Mul(x, half), self.Add(self.Tanh(scaled), one))

    def dft(self, x: Operand, axis: int, *, onesided: bool = False, inverse: bool = False) -> Value:
        """Return the Fourier transform along an axis of real numbers or pairs, all or one half.

        The axis is an input since opset 20.
        """
        how = {"onesided": int(onesided), "inverse": 1 if inverse else None}
        if self.opset >= first_opset(("DFT", AXES_INPUT)):
            return self.DFT(x, None, self.scalar(axis, DType.INT64), **how)
        return self.DFT(x, axis=axis, **how)

    def reshape(self, x: Operand, shape: Sequence[int | str]) -> Value:
        """Return x in a shape whose sizes are meant literally, 0 too.

        Of those that stay open Reshape finds one by itself; others have to be sizes of x.
        """
        allow = 1 if 0 in shape else None
        if allow:
            self.require(first_opset(("Reshape", ZERO_SIZE)), "Reshape to a shape with a 0")
        value, target = self._value_of(x), self._target(x, shape)
        dtype = value and (value.dtype or self.types.get(value, (None,))[0])
        if dtype not in _PACKED:
            return self.Reshape(value, target, allowzero=allow)
        made = partial(self.Reshape, allowzero=allow)
        return self.with_compute_type("Reshape", dtype, lambda v: made(v, target), value)

    def reshape_to_sizes(self, x: Operand, sizes: Value) -> Value:
        """Return x in a shape that is computed, whose sizes are meant literally, 0 too."""
        self.require(first_opset(("Reshape", ZERO_SIZE)), "Reshape to a shape with a 0")
        return self.Reshape(x, sizes, allowzero=1)

    def _target(self, x: Operand, shape: Sequence[int | str]) -> Value:
        value = self._value_of(x)
        there = self.types[value][1] if value in self.types else ()
        left = [size for size in shape if isinstance(size, str)]
        unknown = [size for size in left if size not in there] or left[:1]
        if not left:
            return self.ints([size for size in shape if isinstance(size, int)])
        if len(unknown) > 1 or 0 in shape:
            raise FixedSizeError(f"a shape of the open sizes {', '.join(left)} cannot be told")
        place = shape.index(unknown[0])
        return self.runtime_shape([*shape[:place], -1, *shape[place + 1 :]], x)

    def runtime_shape(self, sizes: Sequence[int | str], x: Operand) -> Value:
        """Return sizes as int64, those that stay open being taken from the shape of x.

        Raises:
            FixedSizeError: x has no such size.
        """
        if not any(isinstance(size, str) for size in sizes):
            return self.ints([size for size in sizes if isinstance(size, int)])
        value = self._value_of(x)
        there = self.types[value][1] if value in self.types else ()
        missing = [size for size in sizes if isinstance(size, str) and size not in there]
        if missing:
            raise FixedSizeError(f"the open size {missing[0]} cannot be told")
        shape = self.Shape(value)
        parts = [
            self.Gather(shape, self.ints([there.index(size)]), axis=0)
            if isinstance(size, str)
            else self.ints([size])
            for size in sizes
        ]
        return self.Concat(*parts, axis=0) if len(parts) > 1 else parts[0]

    def reduce(
        self, op_type: str, x: Operand, axes: Sequence[int] | Value, *, keepdims: bool
    ) -> Value:
        """Reduce over axes, all in stored positions; no axis at all leaves x as it is.

        The axes of ReduceSum are an input since opset 13, those of its sisters since 18; computed
        ones can be nothing else.
        """
        kept, since = int(keepdims), first_opset((op_type, AXES_INPUT))
        if isinstance(axes, Value):
            self.require(since, f"{op_type} over computed axes")
            return self.node(op_type, x, axes, keepdims=kept, noop_with_empty_axes=1)
        if not axes:
            return self.Identity(x)
        if self.opset >= since:
            return self.node(op_type, x, self.ints(axes), keepdims=kept)
        return self.node(op_type, x, axes=list(axes), keepdims=kept)


def onnx_type(dtype: DType) -> int:
    """Return ONNX's number for an element type; OperatorError if it has none."""
    name = _RENAMED.get(dtype, dtype.name)
    if name is None or not hasattr(TensorProto, name):
        raise OperatorError(f"ONNX has no tensors of type {dtype.label}")
    return int(getattr(TensorProto, name))
