"""Replace complex tensors by real tensors of pairs (real part, imaginary part).

ONNX Runtime does not compute with complex tensors. A complex64 tensor becomes a float32 tensor with
one more axis of size 2, the last axis (complex128: float64). ONNX's DFT uses the same form.
Complex inputs and outputs of the file are tensors of pairs in the ONNX model. A rule of this file
replaces each operator with a complex input or output:

1. Operators about complex numbers (REAL, COMPLEX_ABS, FFTs) and elementwise sums stay.
2. RESHAPE, SQUEEZE and EXPAND_DIMS become RESHAPE to the shape with the axis of pairs.
3. SLICE, STRIDED_SLICE, TRANSPOSE and BROADCAST_TO get constants with one more element.
4. SHAPE and RANK read the real part.
5. Products, CAST, FlexComplex, FlexConj, FlexAngle and SELECT_V2 become several operators.

Other operators on complex tensors are errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tflite2onnx.errors import (
    ModelFileError,
    OperatorError,
    collect_errors,
)
from tflite2onnx.graph import Graph, Op
from tflite2onnx.op import operator_for
from tflite2onnx.op.common.checks import expect_rank
from tflite2onnx.passes.rewriter import Rewriter, constant, int32_constant
from tflite2onnx.reader.sparsity import count_memory
from tflite2onnx.tensor import Array, DType, Tensor

PARTS = {DType.COMPLEX64: DType.FLOAT32, DType.COMPLEX128: DType.FLOAT64}
_PAIR = 2
_SIGNS = {dtype: np.array([1, -1], dtype.numpy) for dtype in PARTS.values()}
_TIMES, _BYTES = 4, 1 << 26


def lower_complex(graph: Graph) -> Graph:
    """Return the graph with pairs of real numbers in place of complex numbers.

    Raises:
        UnsupportedOperators: operators on complex tensors have no rule.
        ModelFileError: the complex constants are far larger than their bytes in the file.
    """
    numbers = dict.fromkeys(t for t in _list_tensors(graph) if t.dtype in PARTS)
    if not numbers:
        return graph
    _check_room([t.data for t in numbers if t.data is not None] + [*graph.initial])
    pairs = {t: _pair(t) for t in numbers}
    ops: list[Op] = []
    with collect_errors() as errors:
        for op in graph.ops:
            with errors.at(op.place):
                ops += _rewrite_op(op, pairs)
    ends = ([pairs.get(t, t) for t in tensors] for tensors in (graph.inputs, graph.outputs))
    inputs, outputs = map(tuple, ends)
    tensors = tuple(pairs.get(t, t) for t in graph.tensors)
    initial = tuple(_split_complex(a) if np.iscomplexobj(a) else a for a in graph.initial)
    return replace(
        graph, inputs=inputs, outputs=outputs, ops=tuple(ops), tensors=tensors, initial=initial
    )


def _check_room(arrays: Sequence[Array]) -> None:
    """Raise ModelFileError if complex constants, which may share bytes, are too large."""
    complex_ones = [a for a in arrays if np.iscomplexobj(a)]
    if sum(a.nbytes for a in complex_ones) > _TIMES * count_memory(complex_ones) + _BYTES:
        raise ModelFileError("the complex constants must not take far more memory than the file")


def _split_complex(data: Array) -> Array:
    return np.stack([data.real, data.imag], -1)


def _list_tensors(graph: Graph) -> Iterator[Tensor]:
    yield from graph.tensors
    yield from (*graph.inputs, *graph.outputs)
    for op in graph.ops:
        yield from (t for t in (*op.inputs, *op.outputs) if t is not None)


def _pair(tensor: Tensor) -> Tensor:
    part, data, signature = PARTS[tensor.dtype], tensor.data, tensor.shape_signature
    return replace(
        tensor,
        dtype=part,
        shape=(*tensor.shape, _PAIR),
        data=None if data is None else _split_complex(data),
        shape_signature=(*signature, _PAIR) if signature else (),
    )


class _PairRewriter(Rewriter):
    """Makes the operators that replace an operator on complex numbers.

    `pairs` are the tensors of pairs by the complex tensors that they replace.
    """

    def __init__(self, source: Op, pairs: Mapping[Tensor, Tensor]) -> None:
        super().__init__(source)
        self.pairs = pairs

    @property
    def inputs(self) -> list[Tensor]:
        """The inputs, all of which must be present."""
        op = self.source
        if None in op.inputs or not op.inputs or not op.outputs:
            raise OperatorError("an input or output is missing")
        return [self.pairs.get(t, t) for t in op.inputs if t is not None]

    @property
    def output(self) -> Tensor:
        """The first output."""
        return self.pairs.get(self.source.outputs[0], self.source.outputs[0])

    def expect_one_type(self, *operands: int) -> None:
        """Raise OperatorError unless some inputs and the output have one complex dtype."""
        tensors = [*(self.source.inputs[i] for i in operands), self.source.outputs[0]]
        types = [t.dtype.label for t in tensors if t is not None]
        if len({*types}) > 1:
            raise OperatorError(f"its operands must have one complex type, got {', '.join(types)}")

    def add_changed(self, **changes: Any) -> None:  # noqa: ANN401 - the fields of `Op`
        """Add the operator itself with changes."""
        self.ops.append(replace(self.source, **changes))

    def keep_operator(self) -> None:
        """Add the operator on pairs, which it takes as they are."""
        inputs = tuple(t if t is None else self.pairs.get(t, t) for t in self.source.inputs)
        outputs = tuple(self.pairs.get(t, t) for t in self.source.outputs)
        self.add_changed(inputs=inputs, outputs=outputs)

    def reshape_pairs(self) -> None:
        """Add a RESHAPE of pairs."""
        self.expect_one_type(0)
        y = self.output
        (shape,) = operator_for(self.source).infer_outputs()
        if all(isinstance(size, int) for size in shape) and (*shape, _PAIR) != y.shape:
            raise OperatorError(
                f"the shape of its output must be {list(shape)}, got {list(y.shape[:-1])}"
            )
        self.op("RESHAPE", self.inputs[0], output=y, new_shape=y.shape)

    def extend_constants(self, *extensions: tuple[int, Sequence[int]]) -> None:
        """Add the operator with more elements in some constant inputs: (input, elements)."""
        self.expect_one_type(0)
        inputs = self.inputs
        for index, more in extensions:
            tensor = inputs[index]
            if tensor.data is None:
                raise OperatorError(f"{tensor.name} must be constant")
            rows = np.asarray(more, tensor.data.dtype)
            inputs[index] = constant(tensor.name, np.concatenate([tensor.data, rows]), tensor)
        self.add_changed(inputs=tuple(inputs), outputs=(self.output,))

    def part(self, code: str, pair: Tensor, name: str = "") -> Tensor:
        """Add REAL or IMAG of a tensor of pairs."""
        return self.op(code, pair, output=_make_part(pair, name or code))

    def pack_parts(self, *parts: Tensor) -> None:
        """Add a PACK of real parts and imaginary parts, which are broadcast to one shape."""
        expect_rank(self.source.outputs[0], max(t.rank for t in self.source.inputs if t))
        axis = self.output.rank - 1
        self.op("PACK", *parts, output=self.output, axis=axis, values_count=_PAIR)


def _make_part(pair: Tensor, name: str) -> Tensor:
    """Return a new real tensor with one element for each pair."""
    signature = pair.shape_signature[:-1]
    return Tensor(f"{pair.name}/{name}", pair.shape[:-1], pair.dtype, shape_signature=signature)


def _multiply_pairs(rw: _PairRewriter) -> None:
    """Multiply: (a + bi) (c + di) = (ac - bd) + (ad + bc) i."""
    if rw.source.activation != "NONE":
        raise OperatorError("its activation function must be NONE for complex numbers")
    (left, right), y = rw.inputs, rw.output
    rw.expect_one_type(0, 1)
    a, b = (rw.part(code, left, f"left_{code}") for code in ("REAL", "IMAG"))
    c, d = (rw.part(code, right, f"right_{code}") for code in ("REAL", "IMAG"))
    ac = rw.op("MUL", a, c, output=_make_part(y, "REAL_REAL"))
    bd = rw.op("MUL", b, d, output=_make_part(y, "IMAG_IMAG"))
    real = rw.op("SUB", ac, bd, output=_make_part(y, "REAL"))
    ad = rw.op("MUL", a, d, output=_make_part(y, "REAL_IMAG"))
    bc = rw.op("MUL", b, c, output=_make_part(y, "IMAG_REAL"))
    rw.pack_parts(real, rw.op("ADD", ad, bc, output=_make_part(y, "IMAG")))


def _cast_pairs(rw: _PairRewriter) -> None:
    """Make complex numbers with an imaginary part of 0, or drop the imaginary part."""
    x, y = rw.inputs[0], rw.output
    from_complex, to_complex = (t in rw.pairs for t in (rw.source.inputs[0], rw.source.outputs[0]))
    if from_complex and to_complex:
        if x.dtype is y.dtype:
            rw.reshape_pairs()
        else:
            rw.keep_operator()
    elif from_complex:
        rw.op("CAST", rw.part("REAL", x), output=y)
    elif x.shape != y.shape[:-1]:
        raise OperatorError(
            f"the shape of its output must be {list(x.shape)}, got {list(y.shape[:-1])}"
        )
    else:
        real = rw.op("CAST", x, output=_make_part(y, "REAL"))
        column = Tensor(f"{y.name}/column", (*y.shape[:-1], 1), y.dtype)
        rw.op("RESHAPE", real, output=column, new_shape=column.shape)
        pads = np.zeros((y.rank, 2), np.int32)
        pads[-1, 1] = 1
        rw.op("PAD", column, int32_constant(f"{y.name}/pads", pads), output=y)


def _bitcast_pairs(rw: _PairRewriter) -> None:
    """Keep the operator: the axis of the pairs is that of the words of a complex number."""
    x, y = rw.inputs[0], rw.output
    if y.dtype.bits < x.dtype.bits and rw.source.outputs[0] not in rw.pairs:
        raise OperatorError(
            f"{y.name} must have as many bits as a real part or more, got {y.dtype.label}"
        )
    rw.keep_operator()


def _read_shape(rw: _PairRewriter) -> None:
    """Take SHAPE and RANK of the real part."""
    rw.add_changed(inputs=(rw.part("REAL", rw.inputs[0]),))


def _slice_pairs(rw: _PairRewriter) -> None:
    """Keep the whole axis of the pairs; its bits in the masks stay 0."""
    o, rank, count = rw.source.options, rw.inputs[0].rank - 1, rw.inputs[1].elements
    # Axes without a range are kept whole too; an ellipsis may stand for these axes.
    named = count - (o.new_axis_mask & (1 << count) - 1).bit_count()
    left = [] if o.ellipsis_mask else rw.inputs[0].shape[named:rank]
    ends = [*left, _PAIR]
    rw.extend_constants((1, [0] * len(ends)), (2, ends), (3, [1] * len(ends)))


def _conjugate_pairs(rw: _PairRewriter) -> None:
    """Negate imaginary parts: times (1, -1)."""
    y = rw.output
    signs = constant(f"{y.name}/signs", _SIGNS[y.dtype], y)
    rw.add_changed(code="FlexMul", inputs=(rw.inputs[0], signs), outputs=(y,))


def _compute_angle(rw: _PairRewriter) -> None:
    """Compute the angle: atan2(imaginary part, real part)."""
    real, imaginary = (rw.part(code, rw.inputs[0]) for code in ("REAL", "IMAG"))
    rw.op("ATAN2", imaginary, real, output=rw.source.outputs[0])


def _select_pairs(rw: _PairRewriter) -> None:
    condition, x, y = rw.inputs
    rw.expect_one_type(1, 2)
    shape = (*condition.shape, 1)
    both = Tensor(f"{rw.output.name}/condition", shape, condition.dtype)
    rw.op("RESHAPE", condition, output=both, new_shape=shape)
    rw.add_changed(code="SELECT_V2", inputs=(both, x, y), outputs=(rw.output,))


_RULES: dict[str, Callable[[_PairRewriter], None]] = {
    # These operators read or write pairs.
    **dict.fromkeys(("REAL", "IMAG", "COMPLEX_ABS", "RFFT2D"), _PairRewriter.keep_operator),
    "BITCAST": _bitcast_pairs,
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), _PairRewriter.reshape_pairs),
    **dict.fromkeys(("SHAPE", "RANK"), _read_shape),
    "CAST": _cast_pairs,
    "MUL": _multiply_pairs,
    "SELECT_V2": _select_pairs,
    "SLICE": lambda rw: rw.extend_constants((1, [0]), (2, [_PAIR])),
    "STRIDED_SLICE": _slice_pairs,
    "TRANSPOSE": lambda rw: rw.extend_constants((1, [rw.inputs[0].rank - 1])),
    "BROADCAST_TO": lambda rw: rw.extend_constants((1, [_PAIR])),
}


_CUSTOM_RULES: dict[str, Callable[[_PairRewriter], None]] = {
    **dict.fromkeys(
        (
            "IRFFT2D",
            "FlexAdd",
            "FlexAddV2",
            "FlexIdentity",
            "FlexNeg",
            "FlexSub",
            *(f"Flex{kind}FFT{axes}" for kind in ("", "I", "R", "IR") for axes in ("", "2D", "3D")),
        ),
        _PairRewriter.keep_operator,
    ),
    "FlexAngle": _compute_angle,
    "FlexComplex": lambda rw: rw.pack_parts(*rw.inputs),
    "FlexConj": _conjugate_pairs,
    "FlexMul": _multiply_pairs,
}


def _rewrite_op(op: Op, pairs: Mapping[Tensor, Tensor]) -> list[Op]:
    if not any(t in pairs for t in (*op.inputs, *op.outputs)):
        return [op]
    rule = (_CUSTOM_RULES if op.custom else _RULES).get(op.code)
    if rule is None:
        raise OperatorError(
            "this operator is not supported for complex numbers: split them into their parts"
        )
    rw = _PairRewriter(op, pairs)
    rule(rw)
    return rw.ops
