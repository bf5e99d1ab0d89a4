"""Construction of ONNX nodes: values, pooled constants, and forms that depend on the opset.

Values have no names here: the writer names values, because a name must be unique in the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from onnx import TensorProto

from tflite2onnx.builder.folding import fold_node
from tflite2onnx.builder.opsets import AXES_INPUT, LINEAR, ZERO_SIZE, compute_type, find_first_opset
from tflite2onnx.errors import FixedSizeError, OperatorError
from tflite2onnx.tensor import Array, DType, Shape, Sizes
from tflite2onnx.utils.constant_budget import ConstantBudget

# Equal constants up to this size share one value. A comparison of larger constants takes too long.
_POOLED_BYTES = 1 << 16

# ONNX's names of element types if they differ from TFLite's names. None: ONNX has no such type.
_RENAMED = {
    DType.FLOAT32: "FLOAT",
    DType.FLOAT64: "DOUBLE",
    DType.FLOAT8_E4M3FN: "FLOAT8E4M3FN",
    DType.FLOAT8_E5M2: "FLOAT8E5M2",
    DType.RESOURCE: None,
    DType.VARIANT: None,
}

# Element types for which runtimes lack kernels of Squeeze and Unsqueeze, and kernels of Identity
# (for less than 8 bits) or of Reshape before opset 21 (float8). Reshape supports types of less than
# 8 bits for constants only.
_UNCOPIED = (DType.INT2, DType.INT4, DType.UINT4, DType.FLOAT8_E4M3FN, DType.FLOAT8_E5M2)
# The int64 kernels of Max, Min and Clip may compare only the lower 32 bits.
_BY_COMPARING = {"Max": "Greater", "Min": "Less"}
_WHOLE = {DType.BOOL, *(dtype for dtype in DType if dtype.is_integer)}


class NeedsOpset(Exception):  # noqa: N818 - a request from the builder to its caller, no error
    """The model needs a node that only a newer opset has: `version` is the first opset."""

    def __init__(self, version: int, node: str) -> None:
        self.version = version
        self.node = node
        super().__init__(f"{node} needs opset {version}")


@dataclass(frozen=True, eq=False)
class Value:
    """A value that nodes read: the output of a node, a graph input, or a constant (`data`).

    `dtype` is the element type of a constant or a graph input; the type of a node's output follows
    from the node. `name` is the preferred name of a constant; other values get numbers.
    """

    data: Array | None = None
    dtype: DType | None = None
    name: str = ""


class Node(NamedTuple):
    """An ONNX node; `domain` is empty for ONNX's own operators."""

    op_type: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    attributes: Mapping[str, Any]
    domain: str = ""

    @property
    def present(self) -> tuple[Value, ...]:
        """The inputs that are not absent."""
        return tuple(x for x in self.inputs if x is not None)

    def with_inputs(self, values: Mapping[Value, Value]) -> Node:
        """Return the node with inputs replaced as in `values`."""
        if values.keys().isdisjoint(self.inputs):
            return self
        inputs = tuple(None if x is None else values.get(x, x) for x in self.inputs)
        return self._replace(inputs=inputs)


Types = Mapping[Value, tuple[DType, Sizes]]


class Readable(Protocol):
    """An operand whose value is computed on first use."""

    @property
    def value(self) -> Value:
        """The value."""


# An int is an int64 scalar, and a list an int64 vector: sizes, axes, places, bounds of a Slice.
Operand = Readable | Value | Array | int | list[int] | None


class Nodes:
    """Collects nodes, and the types and shapes of their outputs as far as they are known.

    `opset_is_fixed` is set if the user chose the opset. A nested graph (`is_nested`) shares types
    and constants with the graph `around` it.
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
        self.opset, self.is_nested = opset, around is not None
        self.opset_is_fixed = opset_is_fixed
        self.nodes: list[Node] = []
        self.inputs: list[Value] = []  # of the model
        # From the outputs of Reshape nodes to their inputs.
        self._reshaped: dict[Value | None, Value | None] = {}
        self._shared: dict[Callable[..., Value], Value] = {}
        self.types: dict[Value, tuple[DType, Sizes]] = {} if around is None else around.types
        self.pool: dict[tuple[str, Shape, int], Value] = {} if around is None else around.pool
        # By the addresses of elements, which stay in memory: no other elements get the address.
        self.packed: dict[tuple[int, Shape], tuple[Array, Value]] = (
            {} if around is None else around.packed
        )
        # The addresses and shapes of constants that are stored in the file's order.
        self.kept: set[tuple[int, Shape]] = set() if around is None else around.kept

    def node(self, op_type: str, *inputs: Operand, **attributes: Any) -> Value:
        """Add a node and return its output; see `node_outputs`."""
        return self.add(op_type, 1, inputs, attributes, attributes.pop("domain", ""))[0]

    def node_outputs(
        self, op_type: str, outputs: int, *inputs: Operand, domain: str = "", **attributes: Any
    ) -> tuple[Value, ...]:
        """Add a node and return its outputs; omit attributes and trailing inputs that are None.

        NeedsOpset: only a newer opset has the node; nodes of other domains are not checked.
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
        """Add a node whose attributes may have any name; see `node_outputs`.

        A node of small integer constants is not added: the output is the constant that it computes.
        """
        if not domain:
            self.require(find_first_opset(op_type), op_type)
        operands = tuple([self._make_value(i) for i in inputs])
        while operands and operands[-1] is None:
            operands = operands[:-1]
        present = {k: v for k, v in attributes.items() if v is not None}
        folded = self._fold(op_type, operands, present)
        if folded is not None:
            return (self.constant(folded),)
        results = tuple([Value() for _ in range(outputs)])
        self.nodes.append(Node(op_type, operands, results, present, domain))
        return results

    def _fold(
        self, op_type: str, operands: Sequence[Value | None], attributes: Mapping[str, Any]
    ) -> Array | None:
        """Return what a node of known sizes or of small integer constants computes, else None."""
        if op_type == "Shape" and not attributes and operands[0] in self.types:
            sizes = self.types[operands[0]][1]
            is_known = all(isinstance(size, int) for size in sizes)
            return np.array(sizes, np.int64) if is_known else None
        constants = [None if x is None else x.data for x in operands]
        return fold_node(op_type, constants, attributes)

    def share(self, add: Callable[..., Value]) -> Value:
        """Return the value that a function adds the nodes of; they are added once for a function.

        Nodes of ONNX's own operators become one without this (`merge_equal_nodes`).
        """
        if add not in self._shared:
            self._shared[add] = add(self)
        return self._shared[add]

    def __getattr__(self, op_type: str) -> Callable[..., Value]:
        """Return a function that adds a node of this type: g.Conv(x, w, group=2)."""
        if not op_type[0].isupper():
            raise AttributeError(op_type)
        return partial(self.node, op_type)

    def require(self, version: int, feature: str) -> None:
        """Raise NeedsOpset if only opsets from `version` on have a feature."""
        if version > self.opset:
            raise NeedsOpset(version, feature)

    def annotate(self, value: Value, dtype: DType, shape: Sizes) -> Value:
        """Record the type and the shape of a value, and return it."""
        self.types.setdefault(value, (dtype, shape))
        return value

    def supports(self, version: int, feature: str) -> bool:
        """Return whether the opset is `version` or newer; NeedsOpset if not, and it may change."""
        if not self.opset_is_fixed:
            self.require(version, feature)
        return version <= self.opset

    def has_type(self, dtype: DType) -> bool:
        """Return whether constants may have this type; see `supports`."""
        return self.supports(find_first_opset(dtype), f"{dtype.label} in a constant")

    def _make_value(self, operand: Operand) -> Value | None:
        if operand is None or isinstance(operand, Value):
            return operand
        if isinstance(operand, (int, list)):
            operand = np.asarray(operand, np.int64)
        return self.constant(operand) if isinstance(operand, np.ndarray) else operand.value

    # Constants

    def constant(self, data: Array, dtype: DType | None = None, name: str = "") -> Value:
        """Return a constant; small constants with equal elements are shared."""
        value = Value(data, dtype or DType[data.dtype.name.upper()], name)
        if data.nbytes <= _POOLED_BYTES and value.dtype not in (None, DType.STRING):
            elements = data.tobytes()  # `data` is small: the key holds a second copy of its bytes
            pooled = self.pool.setdefault((value.dtype.label, data.shape, hash(elements)), value)
            value = (
                pooled if pooled.data is not None and pooled.data.tobytes() == elements else value
            )
        if value.data is data:
            self.budget.spend(data.nbytes)
        return value

    def make_separate_constant(self, data: Array, dtype: DType, name: str = "") -> Value:
        """Return a constant that no other node reads.

        A runtime that makes uint8 weights of int8 weights, for each product, rejects a model in
        which two products read the same constant (docs/runtime-faults.md).
        """
        self.budget.spend(data.nbytes)
        return Value(data, dtype, name)

    def ints(self, items: Sequence[int]) -> Value:
        """Return a one-dimensional int64 constant."""
        return self.constant(np.asarray(items, np.int64).reshape(-1))

    def text(self, text: str) -> Value:
        """Return a constant string."""
        return self.constant(np.array(text.encode(), np.object_), DType.STRING)

    def scalar(self, number: float, dtype: DType) -> Value:
        """Return a constant without axes; OperatorError if the type is not numeric."""
        if dtype.numpy is None:
            raise OperatorError(f"its tensors must hold numbers, got {dtype.label}")
        # A damaged file may have a list in place of a number, which would become several elements.
        return self.constant(np.asarray(number, dtype.numpy).reshape(()), dtype)

    # Forms that depend on the opset, or that several operators need

    def cast(self, x: Operand, dtype: DType) -> Value:
        """Return x in another type; small constants of integers or bools are converted here."""
        value = self._make_value(x)
        data = None if value is None or value.dtype not in _WHOLE else value.data
        if data is not None and dtype in _WHOLE and data.nbytes <= _POOLED_BYTES:
            return self.constant(data.astype(dtype.numpy), dtype)
        self.require(find_first_opset(dtype), f"Cast to {dtype.label}")
        # With saturation, Cast would turn infinity into the largest finite number.
        saturate = 0 if dtype.label.startswith("float8") else None
        return self.Cast(value, to=require_onnx_type(dtype), saturate=saturate)

    def recast(self, x: Readable | Value, source: DType, target: DType) -> Value:
        """Return x, which has the type `source`, in the type `target`; equal types need no node."""
        value = x if isinstance(x, Value) else x.value
        return value if source is target else self.cast(value, target)

    def compute_type(self, op_type: str, dtype: DType) -> DType:
        """Return the type in which a node computes elements of a type, mostly the same type."""
        self.require(find_first_opset((op_type, dtype)), f"{op_type} of {dtype.label}")
        return compute_type(op_type, dtype, self.opset)

    def add_with_casts(
        self, op_type: str, dtype: DType, *inputs: Operand, **attributes: Any
    ) -> Value:
        """Add a node with inputs and an output of one type, with casts if the node lacks it."""
        if dtype is DType.INT64 and op_type == "Clip":
            return self.clamp_int64(*inputs)
        if dtype is DType.INT64 and op_type in _BY_COMPARING:
            a, b = (self._make_value(x) for x in inputs)
            return self.Where(self.node(_BY_COMPARING[op_type], a, b), a, b)
        emit = partial(self.node, op_type, **attributes)
        return self.with_compute_type(op_type, dtype, emit, *inputs)

    def clamp_int64(self, x: Operand, low: Operand, high: Operand) -> Value:
        """Return int64 elements limited to the range from `low` to `high`."""
        return self.min_int64(self.max_int64(x, low), high)

    def max_int64(self, a: Operand, b: Operand) -> Value:
        """Return the larger of int64 elements."""
        return self.add_with_casts("Max", DType.INT64, a, b)

    def min_int64(self, a: Operand, b: Operand) -> Value:
        """Return the smaller of int64 elements."""
        return self.add_with_casts("Min", DType.INT64, a, b)

    def move(
        self, op_type: str, dtype: DType, x: Operand, *rest: Operand, **attributes: Any
    ) -> Value:
        """Add a node that moves the elements of x, with casts if the node lacks their type."""
        return self.with_compute_type(
            op_type, dtype, lambda v: self.node(op_type, v, *rest, **attributes), x
        )

    def pad(
        self, dtype: DType, x: Operand, pads: Operand, *fill: Operand, mode: str | None = None
    ) -> Value:
        """Return x with elements added around it, with casts if Pad lacks their type."""
        return self.with_compute_type(
            "Pad", dtype, lambda v, *c: self.Pad(v, pads, *c, mode=mode), x, *fill
        )

    def with_compute_type(
        self, op_type: str, dtype: DType, emit: Callable[..., Value], *inputs: Operand
    ) -> Value:
        """Return emit(*inputs), all of one type, with casts if the node lacks this type."""
        type_of_node = self.compute_type(op_type, dtype)
        if type_of_node is dtype:
            return emit(*inputs)
        return self.cast(emit(*(self.cast(x, type_of_node) for x in inputs)), dtype)

    def where(self, condition: Operand, a: Operand, b: Operand, dtype: DType) -> Value:
        """Return elements of a where a condition holds, else of b; both have this type."""
        return self.with_compute_type("Where", dtype, partial(self.Where, condition), a, b)

    def sample_grid(self, image: Operand, grid: Operand, *, padding: str) -> Value:
        """Return an image, NCHW, interpolated at positions from -1 to 1, [N, height, width, 2]."""
        mode = "linear" if self.opset >= find_first_opset(("GridSample", LINEAR)) else "bilinear"
        return self.GridSample(image, grid, align_corners=0, mode=mode, padding_mode=padding)

    def scatter_nd(
        self, into: Operand, indices: Operand, updates: Operand, reduction: str | None = None
    ) -> Value:
        """Return `into` with updates at their indices.

        `reduction` is "add", "mul", "max" or "min". With None, the last of several updates of an
        element is kept.
        """
        if reduction is not None:
            self.require(find_first_opset(("ScatterND", reduction)), f"ScatterND with {reduction}")
        return self.ScatterND(into, indices, updates, reduction=reduction)

    def hard_swish(self, x: Operand) -> Value:
        """Return x * clip(x / 6 + 1 / 2, 0, 1)."""
        if self.opset >= find_first_opset("HardSwish"):
            return self.HardSwish(x)
        return self.Mul(x, self.HardSigmoid(x, alpha=1 / 6, beta=0.5))

    def gelu(self, x: Operand, dtype: DType, *, approximate: bool) -> Value:
        """Return x times the normal distribution function of x, or its approximation by tanh.

        If the opset lacks Gelu, these are several nodes in the sequence that runtimes fuse.
        """
        if self.opset >= find_first_opset("Gelu"):
            return self.Gelu(x, approximate="tanh" if approximate else "none")
        half, one = self.scalar(0.5, dtype), self.scalar(1, dtype)
        if not approximate:
            erf = self.Erf(self.Div(x, self.scalar(math.sqrt(2), dtype)))
            return self.Mul(self.Mul(x, self.Add(erf, one)), half)
        cubed = self.Mul(self.Pow(x, self.scalar(3, dtype)), self.scalar(0.044715, dtype))
        scaled = self.Mul(self.Add(x, cubed), self.scalar(math.sqrt(2 / math.pi), dtype))
        return self.Mul(self.Mul(x, half), self.Add(self.Tanh(scaled), one))

    def dft(self, x: Operand, axis: int, *, onesided: bool = False, inverse: bool = False) -> Value:
        """Return the Fourier transform along an axis of real numbers or of pairs.

        `onesided` keeps the first half of the frequencies of real numbers.
        """
        attributes = {"onesided": int(onesided), "inverse": 1 if inverse else None}
        if self.opset >= find_first_opset(("DFT", AXES_INPUT)):
            return self.DFT(x, None, axis, **attributes)
        return self.DFT(x, axis=axis, **attributes)

    def reshape(self, x: Operand, shape: Sequence[int | str], like: Operand | None = None) -> Value:
        """Return x in a shape; a size of 0 means 0, not the size of the input.

        Reshape infers one dynamic size. Other dynamic sizes must be sizes of x or of `like`.

        Raises:
            FixedSizeError: another dynamic size is not a size of x or of `like`.
            OperatorError: one size is dynamic and another size is 0.
        """
        allow = 1 if 0 in shape else None
        if allow:
            if -1 in shape:
                raise OperatorError("its operands must not be empty")
            self.require(find_first_opset(("Reshape", ZERO_SIZE)), "Reshape to a shape with a 0")
        value, target = self._make_value(x), self._make_target(x, shape, like)
        dtype = value and (value.dtype or self.types.get(value, (None,))[0])
        if dtype not in _UNCOPIED:
            if target.data is not None and dtype is DType.FLOAT32:
                value = self._reshaped.get(value, value)
                if value in self.types and self.types[value][1] == tuple(shape):
                    return value
            result = self.Reshape(value, target, allowzero=allow)
            self._reshaped[result] = value
            return result
        return self.move("Reshape", dtype, value, target, allowzero=allow)

    def identity(self, x: Operand, dtype: DType) -> Value:
        """Return another value with the elements of x."""
        return self._copy("Identity", dtype, x)

    def squeeze(self, x: Operand, axes: Sequence[int], dtype: DType) -> Value:
        """Return x without axes of size 1."""
        return self._copy("Squeeze", dtype, x, self.ints(axes))

    def unsqueeze(self, x: Operand, axes: Sequence[int], dtype: DType) -> Value:
        """Return x with new axes of size 1."""
        return self._copy("Unsqueeze", dtype, x, self.ints(axes))

    def _copy(self, op_type: str, dtype: DType, x: Operand, *rest: Value) -> Value:
        """Return a copy of the elements of x, in a wider type if runtimes lack a kernel."""
        if dtype in _UNCOPIED:
            return self.move(op_type, dtype, x, *rest)
        return self.node(op_type, x, *rest)

    def reshape_to_sizes(self, x: Operand, sizes: Value) -> Value:
        """Return x in a computed shape; a size of 0 means 0, not the size of the input."""
        if sizes.data is not None:
            return self.reshape(x, sizes.data.tolist())
        self.require(find_first_opset(("Reshape", ZERO_SIZE)), "Reshape to a shape with a 0")
        value = self._make_value(x)
        dtype = value and (value.dtype or self.types.get(value, (None,))[0])
        if dtype in _UNCOPIED:
            return self.move("Reshape", dtype, value, sizes, allowzero=1)
        return self.Reshape(value, sizes, allowzero=1)

    def _make_target(
        self, x: Operand, shape: Sequence[int | str], like: Operand | None = None
    ) -> Value:
        value = self._make_value(x)
        dims = self.types[value][1] if value in self.types else ()
        dynamic = [size for size in shape if isinstance(size, str)]
        inferred = [s for s in shape if s == -1 or (isinstance(s, str) and s not in dims)]
        if not dynamic:
            return self.ints([size for size in shape if isinstance(size, int)])
        if len(inferred) > 1 and like is not None:
            return self.runtime_shape(shape, like)
        if len(inferred) > 1 or 0 in shape:
            names = ", ".join(dynamic)
            raise FixedSizeError(f"Reshape can infer one dynamic size only, got {names}")
        sizes = [size for size in dims if isinstance(size, int)]
        product = math.prod(size for size in shape if isinstance(size, int) and size != -1)
        elements = math.prod(sizes)
        if value in self.types and len(sizes) == len(dims) and elements % product:
            raise OperatorError(
                f"its operand must have a multiple of {product} elements, got {elements}"
            )
        # A size that Reshape infers needs no nodes.
        axis = shape.index((inferred or dynamic)[0])
        return self.runtime_shape([*shape[:axis], -1, *shape[axis + 1 :]], x)

    def runtime_shape(self, sizes: Sequence[int | str], x: Operand) -> Value:
        """Return sizes as int64; dynamic sizes are read from x. FixedSizeError: x lacks a size."""
        if not any(isinstance(size, str) for size in sizes):
            return self.ints([size for size in sizes if isinstance(size, int)])
        value = self._make_value(x)
        names = self.types[value][1] if value in self.types else ()
        unknown = [size for size in sizes if isinstance(size, str) and size not in names]
        if unknown:
            raise FixedSizeError(f"the dynamic size {unknown[0]} must be a size of the input")
        shape = self.Shape(value)
        parts = [
            self.Gather(shape, [names.index(size)], axis=0)
            if isinstance(size, str)
            else self.ints([size])
            for size in sizes
        ]
        return self.Concat(*parts, axis=0) if len(parts) > 1 else parts[0]

    def reduce(
        self, op_type: str, x: Operand, axes: Sequence[int] | Value | None, *, keepdims: bool
    ) -> Value:
        """Reduce over axes of the stored order, None for all axes; without axes the result is x.

        Computed axes are an input of the node, constant axes an attribute if the opset allows it:
        a runtime may return no scalar if the axes are an input, even if it lists all axes.
        """
        keep, first = int(keepdims), find_first_opset((op_type, AXES_INPUT))
        if isinstance(axes, Value):
            self.require(first, f"{op_type} over computed axes")
            return self.node(op_type, x, axes, keepdims=keep, noop_with_empty_axes=1)
        if axes is None:
            return self.node(op_type, x, keepdims=keep)
        if not axes:
            return self.Identity(x)
        if self.opset >= first:
            return self.node(op_type, x, self.ints(axes), keepdims=keep)
        return self.node(op_type, x, axes=list(axes), keepdims=keep)


def find_onnx_type(dtype: DType) -> int | None:
    """Return the number of an element type in onnx.proto, None if the installed onnx lacks it."""
    number = getattr(TensorProto, _RENAMED.get(dtype, dtype.name) or "", None)
    return None if number is None else int(number)


def require_onnx_type(dtype: DType) -> int:
    """Return the number of an element type in onnx.proto; OperatorError if onnx lacks the type."""
    number = find_onnx_type(dtype)
    if number is None:
        newer = "" if dtype.is_handle else "; a newer version of onnx may have it"
        raise OperatorError(f"the type must be one of ONNX, got {dtype.label}{newer}")
    return number
