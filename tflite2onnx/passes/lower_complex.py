"""Complex numbers become pairs, real part first: TFLite to TFLite, of plain dataflow.

ONNX Runtime computes with no complex tensors. A tensor of complex64 becomes one of float32 with
one axis more, of size 2, behind all others (complex128: float64); ONNX's own DFT has the same
form. What an operator of complex numbers does with pairs is said here, once; the operators
themselves never see anything but real numbers. An input or output that is complex in the file
is a tensor of pairs in the ONNX model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tflite2onnx.errors import (
    ModelFileError,
    OperatorError,
    UnsupportedOperators,
    as_operator_error,
)
from tflite2onnx.graph import Graph, Op, Options
from tflite2onnx.reader.sparsity import bytes_behind
from tflite2onnx.tensor import Array, DType, Shape, Tensor

PARTS = {DType.COMPLEX64: DType.FLOAT32, DType.COMPLEX128: DType.FLOAT64}
_PAIR = 2
_SIGNS = {dtype: np.array([1, -1], dtype.numpy) for dtype in PARTS.values()}
_TIMES, _BYTES = 4, 1 << 26


def lower_complex(graph: Graph) -> Graph:
    """Return a graph without complex numbers.

    Raises:
        UnsupportedOperators: an operator does something with them that nobody said.
        ModelFileError: there are far more of them than the file spells out.
    """
    numbers = dict.fromkeys(t for t in _tensors(graph) if t.dtype in PARTS)
    if not numbers:
        return graph
    _check_room([t.data for t in numbers if t.data is not None] + [*graph.initial])
    pairs = {t: _pair(t) for t in numbers}
    ops, problems = [], []
    for op in graph.ops:
        try:
            with as_operator_error():
                ops += _rewrite_op(op, pairs)
        except OperatorError as error:
            problems.append(error.with_place(op.place))
    if problems:
        raise UnsupportedOperators(problems)
    ends = ([pairs.get(t, t) for t in tensors] for tensors in (graph.inputs, graph.outputs))
    inputs, outputs = map(tuple, ends)
    tensors = tuple(pairs.get(t, t) for t in graph.tensors)
    initial = tuple(_split_complex(a) if np.iscomplexobj(a) else a for a in graph.initial)
    return replace(
        graph, inputs=inputs, outputs=outputs, ops=tuple(ops), tensors=tensors, initial=initial
    )


def _check_room(arrays: Sequence[Array]) -> None:
    """Raise ModelFileError if numbers are far more than the file spells out: each gets its own."""
    complex_ones = [a for a in arrays if np.iscomplexobj(a)]
    if sum(a.nbytes for a in complex_ones) > _TIMES * bytes_behind(complex_ones) + _BYTES:
        raise ModelFileError("the complex constants take far more room than the file has for them")


def _split_complex(data: Array) -> Array:
    return np.stack([data.real, data.imag], -1)


def _tensors(graph: Graph) -> Iterator[Tensor]:
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


class _Rewriter(NamedTuple):
    """An operator of complex numbers, and what each of these has become."""

    op: Op
    pairs: Mapping[Tensor, Tensor]

    @property
    def inputs(self) -> list[Tensor]:
        """The inputs, which have to be there."""
        if None in self.op.inputs or not self.op.inputs or not self.op.outputs:
            raise OperatorError("an input or output is missing")
        return [self.pairs.get(t, t) for t in self.op.inputs if t is not None]

    @property
    def output(self) -> Tensor:
        """The first output."""
        return self.pairs.get(self.op.outputs[0], self.op.outputs[0])

    def keep_operator(self) -> list[Op]:
        """Return the operator on pairs, which it takes as they are."""
        inputs = tuple(t if t is None else self.pairs.get(t, t) for t in self.op.inputs)
        outputs = tuple(self.pairs.get(t, t) for t in self.op.outputs)
        return [replace(self.op, inputs=inputs, outputs=outputs)]

    def reshape_pairs(self) -> list[Op]:
        """Return a RESHAPE of pairs."""
        return [self.make_op("RESHAPE", self.inputs[:1], self.output, new_shape=self.output.shape)]

    def with_constants(self, *constants: tuple[int, Sequence[int]]) -> list[Op]:
        """Return the operator with more elements in some of its constants: (input, elements)."""
        inputs = self.inputs
        for index, more in constants:
            tensor = inputs[index]
            if tensor.data is None:
                raise OperatorError(f"{tensor.name} is not constant")
            rows = np.asarray(more, tensor.data.dtype)
            inputs[index] = _constant(tensor.name, np.concatenate([tensor.data, rows]), tensor)
        return [replace(self.op, inputs=tuple(inputs), outputs=(self.output,))]

    def make_op(self, code: str, inputs: Sequence[Tensor], output: Tensor, **options: object) -> Op:
        """Return an operator beside this one."""
        return Op(code, self.op.index, tuple(inputs), (output,), Options(options))


def _constant(name: str, data: Array, like: Tensor) -> Tensor:
    return Tensor(name, data.shape, like.dtype, data)


def _part_tensor(pair: Tensor, name: str, shape: Shape | None = None) -> Tensor:
    """Return a new tensor of real numbers, in the shape of what is paired unless told otherwise."""
    signature = pair.shape_signature[:-1] if shape is None else ()
    sizes = pair.shape[:-1] if shape is None else shape
    return Tensor(f"{pair.name}/{name}", sizes, pair.dtype, shape_signature=signature)


def _product(r: _Rewriter) -> list[Op]:
    """Return a product: (a + bi) (c + di) = (ac - bd) + (ad + bc) i."""
    if r.op.activation != "NONE":
        raise OperatorError("it applies an activation function to complex numbers")
    (one, other), y, ops = r.inputs, r.output, []
    parts = {}
    for factor, tensor in (("left", one), ("right", other)):
        for code in ("REAL", "IMAG"):
            parts[factor, code] = _part_tensor(tensor, f"{factor}_{code}")
            ops.append(r.make_op(code, [tensor], parts[factor, code]))
    sums = []
    for joined, second, code in (("REAL", "REAL", "SUB"), ("IMAG", "IMAG", "ADD")):
        terms = []
        for left, right in (("REAL", joined), ("IMAG", "IMAG" if second == "REAL" else "REAL")):
            terms.append(_part_tensor(y, f"{left}_{right}"))
            factors = [parts["left", left], parts["right", right]]
            ops.append(r.make_op("MUL", factors, terms[-1]))
        sums.append(_part_tensor(y, joined))
        ops.append(r.make_op(code, terms, sums[-1]))
    pack = r.make_op("PACK", sums, y, axis=y.rank - 1, values_count=_PAIR)
    return [*ops, pack]


def _cast(r: _Rewriter) -> list[Op]:
    """Make complex numbers with an imaginary part of 0, or leave them their real part."""
    (x,), y = r.inputs[:1], r.output
    was, now = r.op.inputs[0] in r.pairs, r.op.outputs[0] in r.pairs
    if was and now:
        return r.reshape_pairs() if x.dtype is y.dtype else r.keep_operator()
    if was:
        real = _part_tensor(x, "REAL")
        return [r.make_op("REAL", [x], real), r.make_op("CAST", [real], y)]
    real, column = _part_tensor(y, "REAL"), _part_tensor(y, "column", (*y.shape[:-1], 1))
    pads = np.zeros((y.rank, 2), np.int32)
    pads[-1, 1] = 1
    return [
        r.make_op("CAST", [x], real),
        r.make_op("RESHAPE", [real], column, new_shape=column.shape),
        r.make_op("PAD", [column, Tensor(f"{y.name}/pads", pads.shape, DType.INT32, pads)], y),
    ]


def _sizes(r: _Rewriter) -> list[Op]:
    """Ask SHAPE and RANK of the real part."""
    real = _part_tensor(r.inputs[0], "REAL")
    return [
        r.make_op("REAL", r.inputs, real),
        replace(r.op, inputs=(real,), outputs=r.op.outputs),
    ]


def _strided_slice(r: _Rewriter) -> list[Op]:
    """Take the axis of the pairs whole; its bits in the masks stay 0."""
    o, rank, count = r.op.options, r.inputs[0].rank - 1, r.inputs[1].elements
    # Axes that are not spoken of are taken whole too; an ellipsis may stand for them.
    named = count - (o.new_axis_mask & (1 << count) - 1).bit_count()
    left = [] if o.ellipsis_mask else r.inputs[0].shape[named:rank]
    ends = [*left, _PAIR]
    return r.with_constants((1, [0] * len(ends)), (2, ends), (3, [1] * len(ends)))


def _join_parts(r: _Rewriter) -> list[Op]:
    """Make complex numbers of their real parts and their imaginary parts."""
    return [r.make_op("PACK", r.inputs, r.output, axis=r.output.rank - 1, values_count=_PAIR)]


def _conjugate(r: _Rewriter) -> list[Op]:
    """Make imaginary parts negative: times (1, -1)."""
    signs = Tensor(f"{r.output.name}/signs", (_PAIR,), r.output.dtype, _SIGNS[r.output.dtype])
    return [replace(r.op, code="FlexMul", inputs=(r.inputs[0], signs), outputs=(r.output,))]


def _angle(r: _Rewriter) -> list[Op]:
    parts = {code: _part_tensor(r.inputs[0], code) for code in ("REAL", "IMAG")}
    return [
        *(r.make_op(code, r.inputs, part) for code, part in parts.items()),
        r.make_op("ATAN2", [parts["IMAG"], parts["REAL"]], r.op.outputs[0]),
    ]


def _select(r: _Rewriter) -> list[Op]:
    condition, x, y = r.inputs
    both = Tensor(f"{r.output.name}/condition", (*condition.shape, 1), condition.dtype)
    return [
        r.make_op("RESHAPE", [condition], both, new_shape=both.shape),
        replace(r.op, code="SELECT_V2", inputs=(both, x, y), outputs=(r.output,)),
    ]


_RULES: dict[str, Callable[[_Rewriter], list[Op]]] = {
    # Those that are about complex numbers take pairs, and a change of width is one of the shape.
    **dict.fromkeys(("REAL", "IMAG", "COMPLEX_ABS", "RFFT2D", "BITCAST"), _Rewriter.keep_operator),
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), _Rewriter.reshape_pairs),
    **dict.fromkeys(("SHAPE", "RANK"), _sizes),
    "CAST": _cast,
    "MUL": _product,
    "SELECT_V2": _select,
    "SLICE": lambda r: r.with_constants((1, [0]), (2, [_PAIR])),
    "STRIDED_SLICE": _strided_slice,
    "TRANSPOSE": lambda r: r.with_constants((1, [r.inputs[0].rank - 1])),
    "BROADCAST_TO": lambda r: r.with_constants((1, [_PAIR])),
}


_OF_CUSTOM: dict[str, Callable[[_Rewriter], list[Op]]] = {
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
        _Rewriter.keep_operator,
    ),
    "FlexAngle": _angle,
    "FlexComplex": _join_parts,
    "FlexConj": _conjugate,
    "FlexMul": _product,
}


def _rewrite_op(op: Op, pairs: Mapping[Tensor, Tensor]) -> list[Op]:
    if not any(t in pairs for t in (*op.inputs, *op.outputs)):
        return [op]
    rule = (_OF_CUSTOM if op.custom else _RULES).get(op.code)
    if rule is None:
        raise OperatorError(
            "it takes complex numbers, of which only their parts can be converted here"
        )
    return rule(_Rewriter(op, pairs))
