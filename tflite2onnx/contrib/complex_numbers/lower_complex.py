"""Replace complex tensors by real tensors of pairs (real part, imaginary part).

ONNX's operators do not compute with complex tensors. A complex64 tensor becomes a float32 tensor
with one more axis of size 2, the last axis (complex128: float64). ONNX's DFT uses the same form.
Complex inputs and outputs of the file are tensors of pairs in the ONNX model. A rule of this file
replaces each operator with a complex input or output:

1. Operators that read pairs (REAL, COMPLEX_ABS, FFTs) and elementwise sums stay.
2. SQUEEZE and EXPAND_DIMS count their axes from the first, because the axis of pairs is the last.
3. RESHAPE, SLICE, STRIDED_SLICE, TRANSPOSE and BROADCAST_TO get lists with one more element,
   which may be computed.
4. SHAPE and RANK read the real part.
5. Products, also of matrices, quotients, exponentials, logarithms, roots, CAST, FlexComplex,
   FlexConj, FlexAngle and SELECT_V2 become several operators.
6. Operators that move or add elements compute real parts and imaginary parts on their own.

Other operators on complex tensors are errors. The pass runs between two inferences of shapes: it
reads ranks, but no sizes of computed tensors, which may be dynamic.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tflite2onnx.operators import Array, DType, Op, OperatorError, Tensor, axis_of, expect_rank
from tflite2onnx.rewriting import (
    Graph,
    ModelFileError,
    Rewriter,
    collect_errors,
    count_distinct_bytes,
    make_constant,
    make_like,
)

PARTS = {DType.COMPLEX64: DType.FLOAT32, DType.COMPLEX128: DType.FLOAT64}
_PAIR = 2
_AXES = ("", "2D", "3D")  # of Fourier transforms, in names of operators
_END = np.iinfo(np.int32).max  # a slice to the end of an axis
_SIGNS = {dtype: np.array([1, -1], dtype.numpy) for dtype in PARTS.values()}
_WIDE = {"ADD": "FlexAddV2", "MUL": "FlexMul", "SUB": "FlexSub"}
_MORE_BYTES = 1 << 26  # of complex constants than four times the bytes of the file


def lower_complex(graph: Graph) -> Graph:
    """Return the graph with pairs of real numbers in place of complex numbers.

    Raises:
        UnsupportedOperators: operators on complex tensors have no rule.
        ModelFileError: the complex constants are far larger than their bytes in the file.
    """
    numbers = dict.fromkeys(t for t in graph.walk_tensors() if t.dtype in PARTS)
    if not numbers:
        return graph
    _check_constant_bytes([t.values for t in numbers if t.has_data] + [*graph.initial])
    pairs = {t: _make_pair(t) for t in numbers}
    ops: list[Op] = []
    with collect_errors() as errors:
        for op in graph.ops:
            with errors.at(op.place):
                ops += _rewrite_op(op, pairs)
    endpoints = ([pairs.get(t, t) for t in tensors] for tensors in (graph.inputs, graph.outputs))
    inputs, outputs = map(tuple, endpoints)
    listed = tuple(pairs.get(t, t) for t in graph.tensors)
    initial = tuple(_split_complex(a) if np.iscomplexobj(a) else a for a in graph.initial)
    return replace(
        graph, inputs=inputs, outputs=outputs, ops=tuple(ops), tensors=listed, initial=initial
    )


def _check_constant_bytes(arrays: Sequence[Array]) -> None:
    """Raise ModelFileError if complex constants, which may share bytes, are too large."""
    complex_arrays = [a for a in arrays if np.iscomplexobj(a)]
    most = 4 * count_distinct_bytes(complex_arrays) + _MORE_BYTES
    if sum(a.nbytes for a in complex_arrays) > most:
        raise ModelFileError("the complex constants must not take far more memory than the file")


def _split_complex(data: Array) -> Array:
    return np.stack([data.real, data.imag], -1)


def _make_pair(tensor: Tensor) -> Tensor:
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
        op = self.source
        if None in op.inputs or not op.inputs or not op.outputs:
            raise OperatorError("an input or output is missing")
        return [self.pairs.get(t, t) for t in op.present]

    @property
    def output(self) -> Tensor:
        return self.pairs.get(self.source.outputs[0], self.source.outputs[0])

    def add_changed(self, **changes: Any) -> None:  # noqa: ANN401 - the fields of `Op`
        self.ops.append(replace(self.source, **changes))

    def keep_operator(self) -> None:
        """Add the operator unchanged: it supports pairs."""
        outputs = tuple(self.pairs.get(t, t) for t in self.source.outputs)
        self.add_changed(inputs=self.source.with_inputs(self.pairs).inputs, outputs=outputs)

    def extend_lists(self, *extensions: tuple[int, Sequence[int]]) -> None:
        """Add the operator with more elements in some list inputs: (input, elements)."""
        inputs = self.inputs
        for index, items in extensions:
            inputs[index] = self._extend_list(inputs[index], items)
        self.add_changed(inputs=tuple(inputs), outputs=(self.output,))

    def _extend_list(self, tensor: Tensor, items: Sequence[int]) -> Tensor:
        expect_rank(tensor, 1)
        rest = make_constant(f"{tensor.name}/rest", np.asarray(items, tensor.dtype.numpy), tensor)
        longer = replace(rest, name=f"{tensor.name}/longer", shape=(tensor.elements + len(items),))
        if not tensor.has_data:
            return self.op("CONCATENATION", tensor, rest, output=replace(longer, data=None))
        return replace(longer, data=np.concatenate([tensor.data, rest.data]))

    def add_last_axis(self, tensor: Tensor) -> Tensor:
        """Add EXPAND_DIMS of a real tensor, for pairs to share its elements."""
        shape = (*tensor.shape, 1)
        last = [tensor.rank]
        return self.op("EXPAND_DIMS", tensor, last, like=tensor, name="column", shape=shape)

    def add_part(self, code: str, pair: Tensor, name: str = "") -> Tensor:
        return self.op(code, pair, output=_make_part(pair, name or code))

    def add_parts(self, pair: Tensor, prefix: str = "") -> tuple[Tensor, Tensor]:
        real, imaginary = (self.add_part(code, pair, prefix + code) for code in ("REAL", "IMAG"))
        return real, imaginary

    def pack_parts(self, *parts: Tensor) -> None:
        """Add a PACK of real parts and imaginary parts, which have one shape."""
        axis = max(t.rank for t in self.source.inputs if t)
        self.op("PACK", *parts, output=self.output, axis=axis, values_count=_PAIR)


def _make_part(pair: Tensor, name: str) -> Tensor:
    """Return a new real tensor with one element for each pair."""
    signature = pair.shape_signature[:-1]
    return Tensor(f"{pair.name}/{name}", pair.shape[:-1], pair.dtype, shape_signature=signature)


def _multiply_pairs(
    rw: _PairRewriter,
    code: str = "MUL",
    conjugates: Sequence[bool] = (),
    factor: Tensor | None = None,
    **options: Any,  # noqa: ANN401 - as in the options table
) -> None:
    """Multiply: (a + bi) (c + di) = (ac - bd) + (ad + bc) i; each factor may be conjugated.

    `factor` is the second factor in place of the second input.
    """
    if rw.source.activation != "NONE":
        raise OperatorError("its activation function must be NONE for complex numbers")
    (left, right), y = rw.inputs, rw.output
    right = factor or right
    first, second = conjugates or (False, False)
    # The operators that combine two products. Only TensorFlow's take float64.
    real_sum, imaginary_sum = ("SUB", "ADD") if first is second else ("ADD", "SUB")
    if y.dtype is DType.FLOAT64:
        names = (code, real_sum, imaginary_sum)
        code, real_sum, imaginary_sum = (_WIDE.get(name, name) for name in names)
    a, b = rw.add_parts(left, "left_")
    c, d = rw.add_parts(right, "right_")
    ac = rw.op(code, a, c, output=_make_part(y, "REAL_REAL"), **options)
    bd = rw.op(code, b, d, output=_make_part(y, "IMAG_IMAG"), **options)
    real_part = rw.op(real_sum, ac, bd, output=_make_part(y, "REAL"))
    ad = rw.op(code, a, d, output=_make_part(y, "REAL_IMAG"), **options)
    bc = rw.op(code, b, c, output=_make_part(y, "IMAG_REAL"), **options)
    terms = (bc, ad) if second else (ad, bc)
    imaginary = rw.op(imaginary_sum, *terms, output=_make_part(y, "IMAG"))
    if first and second:
        imaginary = rw.op("FlexNeg", imaginary, output=_make_part(y, "NEGATED"))
    rw.pack_parts(real_part, imaginary)


def _divide_pairs(rw: _PairRewriter) -> None:
    """Divide: x / y is x times the conjugate of y / |y| / |y|."""
    divisor = rw.inputs[1]
    size = rw.add_last_axis(rw.add_part("COMPLEX_ABS", divisor))
    for name in ("unit", "inverse"):
        divisor = rw.op("FlexRealDiv", divisor, size, like=divisor, name=name)
    _multiply_pairs(rw, conjugates=(False, True), factor=divisor)


def _multiply_matrices(rw: _PairRewriter) -> None:
    """Multiply matrices: BatchMatMul conjugates what it transposes, MatMul does not."""
    o = rw.source.options
    turns: dict[str, Any] = {name: bool(o.get(name, False)) for name in ("adj_x", "adj_y")}
    conjugates = (False, False) if rw.source.code == "FlexMatMul" else [*turns.values()]
    _multiply_pairs(rw, rw.source.code, conjugates, **turns)


def _join_parts(rw: _PairRewriter) -> None:
    """Join real and imaginary parts, which are broadcast to one shape."""
    parts = rw.inputs
    if len({part.shape for part in parts}) > 1:
        ranks = [part.rank for part in parts]
        sizes = [
            rw.op("SHAPE", part, output=Tensor(f"{part.name}/sizes", (rank,), DType.INT32))
            for part, rank in zip(parts, ranks, strict=True)
        ]
        joined = Tensor(f"{rw.output.name}/sizes", (max(ranks),), DType.INT32)
        shape = rw.op("BROADCAST_ARGS", *sizes, output=joined)
        whole = _make_part(rw.output, "part").shape
        parts = [rw.op("BROADCAST_TO", part, shape, like=part, shape=whole) for part in parts]
    rw.pack_parts(*parts)


def _compute_exponential(rw: _PairRewriter) -> None:
    """Compute exp(a + bi) = exp(a) (cos b + i sin b)."""
    a, b = rw.add_parts(rw.inputs[0])
    size = rw.op("FlexExp", a, like=a)
    directions = (rw.op(code, b, like=b) for code in ("FlexCos", "FlexSin"))
    rw.pack_parts(*(rw.op("FlexMul", size, each, like=each) for each in directions))


def _compute_logarithm(rw: _PairRewriter) -> None:
    """Compute log(a + bi) = log |a + bi| + i atan2(b, a)."""
    a, b = rw.add_parts(rw.inputs[0])
    size = rw.add_part("COMPLEX_ABS", rw.inputs[0])
    rw.pack_parts(rw.op("FlexLog", size, like=a), rw.op("ATAN2", b, a, like=b))


def _compute_root(rw: _PairRewriter) -> None:
    """Compute the root whose real part is not negative.

    The larger of its parts is t = sqrt((|a + bi| + |a|) / 2), without a difference, which would
    cancel digits. The smaller is b / 2t.
    """
    a, b = rw.add_parts(rw.inputs[0])
    half, zero = (
        make_constant(f"{a.name}/{name}", np.array(number, a.dtype.numpy), a)
        for name, number in (("half", 0.5), ("zero", 0))
    )
    size = rw.op("FlexAddV2", rw.add_part("COMPLEX_ABS", rw.inputs[0]), rw.op("FlexAbs", a, like=a),
                 like=a, name="sum")  # fmt: skip
    large = rw.op("FlexSqrt", rw.op("FlexMul", size, half, like=a, name="mean"), like=a)
    ratio = rw.op("FlexDivNoNan", b, large, like=a)
    small = rw.op("FlexMul", ratio, half, like=a, name="small")

    def select(test: Tensor, yes: Tensor, no: Tensor, name: str) -> Tensor:
        condition = replace(make_like(a, f"{name}/condition"), dtype=DType.BOOL)
        is_negative = rw.op("FlexLess", test, zero, output=condition)
        return rw.op("SELECT_V2", is_negative, yes, no, like=a, name=name)

    turned = select(b, rw.op("FlexNeg", large, like=a), large, "turned")
    rw.pack_parts(
        select(a, rw.op("FlexAbs", small, like=a, name="size"), large, "real"),
        select(a, turned, small, "imaginary"),
    )


def _cast_pairs(rw: _PairRewriter) -> None:
    """Make complex numbers with an imaginary part of 0, or drop the imaginary part."""
    x, y = rw.inputs[0], rw.output
    from_complex, to_complex = (t in rw.pairs for t in (rw.source.inputs[0], rw.source.outputs[0]))
    if from_complex and to_complex:
        rw.keep_operator()
    elif from_complex:
        rw.op("CAST", rw.add_part("REAL", x), output=y)
    else:
        column = rw.add_last_axis(rw.op("CAST", x, output=_make_part(y, "REAL")))
        pads = np.zeros((column.rank, 2), np.int32)
        pads[-1, 1] = 1
        rw.op("PAD", column, pads.tolist(), output=y)


def _keep_bitcast(rw: _PairRewriter) -> None:
    """Keep the operator: the axis of pairs is the axis of the words of a complex number."""
    x, y = rw.inputs[0], rw.output
    if y.dtype.bits < x.dtype.bits and rw.source.outputs[0] not in rw.pairs:
        raise OperatorError(
            f"{y.name} must have as many bits as a real part or more, got {y.dtype.label}"
        )
    rw.keep_operator()


def _reshape_pairs(rw: _PairRewriter) -> None:
    if len(rw.inputs) > 1 and rw.inputs[1].rank == 1:
        rw.extend_lists((1, [_PAIR]))
        return
    listed = rw.source.options.new_shape or ()
    shape = (*(listed if list(listed) != [0] else ()), _PAIR)
    rw.op("RESHAPE", rw.inputs[0], output=rw.output, new_shape=shape)


def _squeeze_pairs(rw: _PairRewriter) -> None:
    rank = rw.inputs[0].rank - 1
    axes = tuple(axis_of(axis, rank) for axis in rw.source.options.get("squeeze_dims") or ())
    rw.op("SQUEEZE", rw.inputs[0], output=rw.output, squeeze_dims=axes)


def _expand_pairs(rw: _PairRewriter) -> None:
    pairs, number = rw.inputs
    if not number.has_data:
        rank = np.array(pairs.rank, number.dtype.numpy)
        count = make_constant(f"{number.name}/count", rank, number)
        number = rw.op("FLOOR_MOD", number, count, output=make_like(number, "axis"))
    else:
        number = replace(number, data=np.asarray(number.values % pairs.rank))
    rw.op("EXPAND_DIMS", pairs, number, output=rw.output)


def _slice_pairs(rw: _PairRewriter) -> None:
    """Add the slice with the whole axis of pairs, whose bits in the masks are 0."""
    o, rank, count = rw.source.options, rw.inputs[0].rank - 1, rw.inputs[1].elements
    # Axes without a range are kept whole, whether or not an ellipsis stands for them.
    named = count - (o.new_axis_mask & (1 << count) - 1).bit_count()
    more = 1 if o.ellipsis_mask else 1 + max(rank - named, 0)
    ends = [_END] * more
    rw.extend_lists((1, [0] * more), (2, ends), (3, [1] * more))


def _conjugate_pairs(rw: _PairRewriter) -> None:
    """Negate imaginary parts: multiply pairs by (1, -1)."""
    y = rw.output
    signs = make_constant(f"{y.name}/signs", _SIGNS[y.dtype], y)
    rw.add_changed(code="FlexMul", inputs=(rw.inputs[0], signs), outputs=(y,))


def _compute_angle(rw: _PairRewriter) -> None:
    """Compute the angle: atan2(imaginary part, real part)."""
    real, imaginary = (rw.add_part(code, rw.inputs[0]) for code in ("REAL", "IMAG"))
    rw.op("ATAN2", imaginary, real, output=rw.source.outputs[0])


def _select_pairs(rw: _PairRewriter) -> None:
    condition, x, y = rw.inputs
    conditions = rw.add_last_axis(condition)
    rw.add_changed(code="SELECT_V2", inputs=(conditions, x, y), outputs=(rw.output,))


def _apply_to_parts(rw: _PairRewriter) -> None:
    """Compute the real parts of all outputs, the imaginary parts, and the pairs of both."""
    op, pairs = rw.source, rw.pairs
    wholes = [pairs.get(t, t) for t in op.outputs]
    parts = []
    for code in ("REAL", "IMAG"):
        inputs = [rw.add_part(code, pairs[t]) if t in pairs else t for t in op.present]
        parts.append(tuple(_make_part(whole, code) for whole in wholes))
        rw.add_changed(inputs=tuple(inputs), outputs=parts[-1])
    for whole, *both in zip(wholes, *parts, strict=True):
        rw.op("PACK", *both, output=whole, axis=whole.rank - 1, values_count=_PAIR)


_LINEAR = (
    "CONCATENATION CUMSUM GATHER GATHER_ND MEAN MIRROR_PAD PACK PAD PADV2 REVERSE_V2 SPLIT SUM TILE"
    " UNPACK"
)
_RULES: dict[str, Callable[[_PairRewriter], None]] = {
    **dict.fromkeys(_LINEAR.split(), _apply_to_parts),
    # These operators read or write pairs of real numbers already.
    **dict.fromkeys(("REAL", "IMAG", "COMPLEX_ABS", "RFFT2D"), _PairRewriter.keep_operator),
    "BITCAST": _keep_bitcast,
    "RESHAPE": _reshape_pairs,
    "SQUEEZE": _squeeze_pairs,
    "EXPAND_DIMS": _expand_pairs,
    **dict.fromkeys(
        ("SHAPE", "RANK"), lambda rw: rw.add_changed(inputs=(rw.add_part("REAL", rw.inputs[0]),))
    ),
    "CAST": _cast_pairs,
    "MUL": _multiply_pairs,
    "SELECT_V2": _select_pairs,
    "SLICE": lambda rw: rw.extend_lists((1, [0]), (2, [_PAIR])),
    "STRIDED_SLICE": _slice_pairs,
    "TRANSPOSE": lambda rw: rw.extend_lists((1, [rw.inputs[0].rank - 1])),
    "BROADCAST_TO": lambda rw: rw.extend_lists((1, [_PAIR])),
}


_CUSTOM_RULES: dict[str, Callable[[_PairRewriter], None]] = {
    **dict.fromkeys(
        (
            *("IRFFT2D", "FlexAdd", "FlexAddV2", "FlexIdentity", "FlexNeg", "FlexSub"),
            *(f"Flex{kind}FFT{axes}" for kind in ("", "I", "R", "IR") for axes in _AXES),
        ),
        _PairRewriter.keep_operator,
    ),
    "FlexAngle": _compute_angle,
    "Roll": _apply_to_parts,
    **dict.fromkeys(
        ("FlexBatchMatMul", "FlexBatchMatMulV2", "FlexBatchMatMulV3", "FlexMatMul"),
        _multiply_matrices,
    ),
    "FlexComplex": _join_parts,
    "FlexConj": _conjugate_pairs,
    "FlexExp": _compute_exponential,
    "FlexLog": _compute_logarithm,
    "FlexSqrt": _compute_root,
    "FlexMul": _multiply_pairs,
    **dict.fromkeys(("FlexDiv", "FlexRealDiv"), _divide_pairs),
}


# These operators have real numbers, or integers, on one of their sides.
_CHANGE_TYPES = {
    *("REAL", "IMAG", "COMPLEX_ABS", "BITCAST", "SHAPE", "RANK", "CAST", "RFFT2D", "IRFFT2D"),
    *("FlexAngle", "FlexComplex"),
    *(f"Flex{kind}FFT{axes}" for kind in ("R", "IR") for axes in _AXES),
}


def _expect_one_type(op: Op, pairs: Mapping[Tensor, Tensor]) -> None:
    """Raise OperatorError unless all data and outputs have one complex dtype."""
    tensors = (*op.present, *op.outputs)
    types = [t.dtype for t in tensors if not (t.dtype.is_integer or t.dtype is DType.BOOL)]
    both = any(t in pairs for t in op.present) and all(t in pairs for t in op.outputs)
    if not both or len({*types}) > 1:
        labels = ", ".join(t.dtype.label for t in tensors)
        raise OperatorError(f"its operands must have one complex type, got {labels}")


def _rewrite_op(op: Op, pairs: Mapping[Tensor, Tensor]) -> list[Op]:
    if not any(t in pairs for t in (*op.inputs, *op.outputs)):
        return [op]
    rule = (_CUSTOM_RULES if op.custom else _RULES).get(op.code)
    if not rule:
        raise OperatorError(
            "this operator is not supported for complex numbers: split them into their parts"
        )
    if op.code not in _CHANGE_TYPES:
        _expect_one_type(op, pairs)
    rw = _PairRewriter(op, pairs)
    rule(rw)
    return rw.ops
