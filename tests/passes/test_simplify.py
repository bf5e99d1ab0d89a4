"""The passes before planning, alone and in whole conversions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support import Build, check, sparsify
from tests.support.graph_text import assert_rewritten
from tflite2onnx import passes
from tflite2onnx.errors import OperatorError
from tflite2onnx.graph import Graph, Model, Op, Options
from tflite2onnx.op import find_operator
from tflite2onnx.op.base import Operator
from tflite2onnx.op.facts import Fact
from tflite2onnx.op.traits import Foldable, ReshapesInputs
from tflite2onnx.passes import apply_passes, list_canonical_passes
from tflite2onnx.passes.fold_constants import fold_operators
from tflite2onnx.passes.simplify import (
    absorb_flatten,
    align_axes,
    densify_constants,
    eliminate_dead_operators,
    keep_axes,
)
from tflite2onnx.quantization.declarations import Moves
from tflite2onnx.reader.model import read_model
from tflite2onnx.tensor import DType, Quantization, Shape, Tensor
from tflite2onnx.utils.constant_budget import SizeLimit

if TYPE_CHECKING:
    from tests import support

Array = np.ndarray[Any, Any]
FLOATS = np.arange(6, dtype=np.float32).reshape(2, 3)


def stub(
    evaluate: Callable[..., Sequence[Array] | None] = lambda *_: None,
    shapes: Sequence[Shape | None] = (),
    **traits: bool | Moves | tuple[Fact, ...],
) -> type[Operator]:
    """Return a class for an operator that TFLite does not have."""
    methods = {
        "evaluate": lambda _, *arrays: evaluate(*arrays),
        "broadcast_shapes": lambda _: shapes,
    }
    return type("Stub", (Foldable, ReshapesInputs), {**traits, **methods})


Classes = dict[str, type[Operator] | None]


@pytest.fixture
def classes(monkeypatch: pytest.MonkeyPatch) -> Classes:
    """Return the table in which passes look up operator classes; it is empty at first."""
    table: Classes = {}

    def find_stub(op: Op) -> Operator | None:
        cls = table.get(op.code)
        return None if cls is None else cls(op)

    def find_facts(op: Op) -> tuple[Fact, ...]:
        return (find_stub(op) or find_operator(op)).facts

    monkeypatch.setattr(passes.fold_constants, "find_facts", find_facts)
    for module in (passes.fold_constants, passes.simplify):
        monkeypatch.setattr(module, "find_operator", lambda op: find_stub(op) or find_operator(op))
    return table


def tensor(data: Array | None = None, shape: Shape = (2, 3), **fields: Any) -> Tensor:
    """Return a tensor, by default float32."""
    own = shape if data is None else data.shape
    return replace(Tensor("t", own, DType.FLOAT32, data), **fields)


HALF = tensor(FLOATS.astype(np.float16), dtype=DType.FLOAT16)


def graph(*ops: Op, outputs: Sequence[Tensor] | None = None) -> Graph:
    """Return a model of operators in sequence; the outputs are those of the last one."""
    return Graph("g", (), tuple(ops[-1].outputs if outputs is None else outputs), ops)


def op(code: str, inputs: Sequence[Tensor | None], *outputs: Tensor, **fields: Any) -> Op:
    return Op(code, 0, tuple(inputs), outputs, **fields)


def codes(of: Graph) -> list[str]:
    return [each.code for each in of.ops]


def make_canonical(m: Build) -> Graph:
    """Return the primary sub-graph of a model after the passes."""
    (graph,) = densify_constants(read_model(m.bytes())).graphs
    return apply_passes(list_canonical_passes(), graph)


def quantization(*scales: float, axis: int = 0, block_size: int = 0) -> Quantization:
    scale = np.array(scales, np.float32)
    return Quantization(scale, np.zeros(len(scale), np.int64), axis, block_size)


def in_int8(like: Tensor, scale: float) -> Tensor:
    return replace(like, dtype=DType.INT8, quantization=quantization(scale))


# densify_constants


def test_sparse_float16_weights_become_dense_constants() -> None:
    """DENSIFY and DEQUANTIZE of a constant are removed, and the weights stay float16."""
    dense = np.where(np.arange(32).reshape(4, 8) % 3, 0, 1.5).astype(np.float16)
    values, sparsity = sparsify(dense, ["dense", "csr"])
    m = Build()
    (w,) = m.op("DENSIFY", [m.constant(values, shape=[4, 8], sparsity=sparsity)], [[4, 8]])
    (w,) = m.op("DEQUANTIZE", [w], [[4, 8]], dtype="float32")
    m.output(*m.op("FULLY_CONNECTED", [m.input([3, 8]), w, None], [[3, 4]]))
    (connected,) = make_canonical(m).ops
    weights = connected.inputs[1]
    assert weights is not None
    assert weights.dtype is DType.FLOAT32
    assert weights.data is not None
    assert weights.data.dtype == np.float16
    np.testing.assert_array_equal(weights.data, dense)
    check(m.bytes())


@pytest.mark.parametrize(
    "odd",
    [
        op("DENSIFY", [tensor()], tensor()),
        op("DENSIFY", [None], tensor()),
        op("DENSIFY", [], tensor()),
        op("DENSIFY", [tensor(FLOATS)]),
        op("DENSIFY", [tensor(FLOATS)], tensor(dtype=DType.INT32)),
        op("DENSIFY", [tensor(FLOATS)], tensor(), custom=True),
    ],
)
def test_invalid_densify_stays(odd: Op) -> None:
    """An invalid DENSIFY stays, so that a later error names it."""
    (kept,) = densify_constants(Model((graph(odd),), (), {}, "", 3)).graphs
    assert codes(kept) == ["DENSIFY"]


# fold_operators


def fold_one(classes: Classes, one: Op, cls: type[Operator] | None) -> Graph:
    classes[one.code] = cls
    return fold_operators(graph(one))


def test_operators_on_constants_are_folded(classes: Classes) -> None:
    """Operators on constants are folded, also chains of operators."""
    a, b = tensor(), tensor()
    chain = graph(op("X", [tensor(FLOATS)], a), op("X", [a], b))
    classes["X"] = stub(lambda x: [x + 1])
    made = fold_operators(chain)
    assert made.ops == ()
    (output,) = made.outputs
    np.testing.assert_array_equal(output.data, FLOATS + 2)


def test_scalars_stay_scalars(classes: Classes) -> None:
    made = fold_one(classes, op("X", [tensor(FLOATS)], tensor(shape=())), stub(lambda x: [x.sum()]))
    data = made.outputs[0].data
    assert data is not None
    assert data.shape == ()


def refuses(*_: Array) -> Sequence[Array]:
    raise OperatorError("no")


@pytest.mark.parametrize(
    ("cls", "x", "y"),
    [
        (None, tensor(FLOATS), tensor()),
        (stub(), tensor(FLOATS), tensor()),
        (stub(refuses), tensor(FLOATS), tensor()),
        (stub(lambda x: [x]), tensor(), tensor()),
        (stub(lambda x: [x]), None, tensor()),
        (stub(lambda x: [x, x]), tensor(FLOATS), tensor(shape=(3, 2))),
        (stub(lambda _: []), tensor(FLOATS), tensor()),
        (stub(lambda x: [x.T]), tensor(FLOATS), tensor()),
        (stub(lambda x: [x.astype(np.float64)]), tensor(FLOATS), tensor()),
        (stub(lambda x: [x.astype(np.float16)]), tensor(FLOATS), tensor()),
        (stub(lambda x: [x]), tensor(FLOATS, quantization=quantization(1)), tensor()),
        (stub(lambda x: [x]), tensor(FLOATS), tensor(quantization=quantization(1))),
        (stub(lambda x: [x]), tensor(np.zeros(9, np.uint8), dtype=DType.STRING), tensor()),
        (stub(lambda x: [x]), tensor(shape=(0, 3), shape_signature=(-1, 3)), tensor(shape=(0, 3))),
        (
            stub(lambda x: [x]),
            tensor(np.zeros(3, np.uint16), dtype=DType.BFLOAT16),
            tensor(shape=(3,), dtype=DType.BFLOAT16),
        ),
    ],
)
def test_operators_that_cannot_be_evaluated_stay(
    cls: type[Operator] | None, x: Tensor | None, y: Tensor, classes: Classes
) -> None:
    assert codes(fold_one(classes, op("X", [x], y), cls)) == ["X"]


@pytest.mark.parametrize("terms", [(0,), (0, 1), (0, 0.5, 1)], ids=str)
@pytest.mark.parametrize("reads", ["indices", "numbers too", "source too"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_constants_of_a_shared_source_store_the_source_once(
    dtype: type[np.generic], reads: str, terms: Sequence[float]
) -> None:
    """Indices of a grid that several operators compute of the same stored numbers."""
    m, count = Build(), 20000
    grid = np.random.default_rng(0).uniform(0, 6, (count, 2)).astype(dtype)
    source, image, other = m.constant(grid), m.input([8, 8, 3]), m.input([count, 2])
    if dtype is not np.float32:
        code = "CAST" if dtype is np.int32 else "DEQUANTIZE"
        (source,) = m.op(code, [source], [[count, 2]], dtype=np.float32)
    for term in terms:
        numbers = source
        if term:
            numbers = m.op("ADD", [source, m.constant(np.float32(term))], [[count, 2]])[0]
        indices = m.op("CAST", [numbers], [m.tensor([count, 2], dtype="int32")])
        m.output(*m.op("GATHER_ND", [image, *indices], [[count, 3]]))
        if reads == "numbers too":
            m.output(*m.op("MUL", [other, numbers], [[count, 2]]))
    if reads == "source too":
        m.output(*m.op("MUL", [other, source], [[count, 2]]))
    result = check(m.bytes())
    assert len(result.model.SerializeToString()) <= 1.02 * len(m.bytes())


def test_operators_on_empty_tensors_are_folded(classes: Classes) -> None:
    made = fold_one(
        classes, op("X", [tensor(shape=(0, 3))], tensor(shape=(0, 3))), stub(lambda x: [x])
    )
    assert made.ops == ()


def test_bits_of_small_floats_are_moved(classes: Classes) -> None:
    """bfloat16 constants can be moved as bits, although numpy cannot compute with them."""
    x = tensor(np.arange(3, dtype=np.uint16), dtype=DType.BFLOAT16)
    y = tensor(shape=(3,), dtype=DType.BFLOAT16)
    assert (
        fold_one(classes, op("X", [x], y), stub(lambda x: [x[::-1]], quantization=Moves())).ops
        == ()
    )


def test_shapes_are_known_without_elements(classes: Classes) -> None:
    y = tensor(shape=(2,), dtype=DType.INT32)
    cls = stub(lambda *_: [np.array([2, 3], np.int32)], facts=(Fact.SHAPE_ONLY,))
    assert fold_one(classes, op("X", [tensor()], y), cls).ops == ()


def test_half_precision_stays_narrow_while_it_is_moved(classes: Classes) -> None:
    """Moved float16 constants stay float16; computed constants become float32."""
    wide, moved, added = tensor(), tensor(shape=(3, 2)), tensor(shape=(3, 2))
    ops = [op("DEQUANTIZE", [HALF], wide), op("M", [wide], moved), op("A", [moved], added)]
    classes |= {"M": stub(lambda x: [x.T], quantization=Moves()), "A": stub(lambda x: [x + x])}
    made = fold_operators(graph(*ops, outputs=[wide, moved, added]))
    types = [t.data.dtype for t in made.outputs if t.data is not None]
    assert types == [np.float16, np.float16, np.float32]
    assert {t.dtype for t in made.outputs} == {DType.FLOAT32}


@pytest.mark.parametrize(
    "odd",
    [
        op("DEQUANTIZE", [tensor()], tensor()),
        op("DEQUANTIZE", [tensor(dtype=DType.FLOAT16)], tensor()),
        op("DEQUANTIZE", [], tensor()),
        op("DEQUANTIZE", [HALF], tensor(shape=(6,))),
        op("DEQUANTIZE", [tensor(FLOATS.astype(np.int8), dtype=DType.INT8)], tensor()),
    ],
)
def test_dequantize_of_no_float16_constant_stays(odd: Op, classes: Classes) -> None:
    assert codes(fold_one(classes, odd, None)) == ["DEQUANTIZE"]


def test_a_small_model_does_not_become_large(
    monkeypatch: pytest.MonkeyPatch, classes: Classes
) -> None:
    """The total size of folded constants is bounded."""
    monkeypatch.setattr(passes.fold_constants, "_LIMIT", SizeLimit(times=4, more=100))
    seed = tensor(np.ones(5, np.float32))
    classes["X"] = stub(lambda x: [np.repeat(x, 10)])
    growing = [op("X", [seed], tensor(shape=(50,))) for _ in range(4)]
    assert len(fold_operators(graph(*growing)).ops) == 4  # 200 bytes exceed 100 + 4 * 20
    same = [op("X", [seed], tensor(shape=(5,))) for _ in range(12)]
    classes["X"] = stub(lambda x: [x])
    assert len(fold_operators(graph(*same)).ops) == 3


# align_axes


def test_constants_are_aligned_at_conversion(classes: Classes) -> None:
    channels = tensor(
        np.arange(3, dtype=np.float32), quantization=quantization(1, 2, 3), name="alpha"
    )
    y = tensor(shape=(2, 5, 3))
    both = op("X", [tensor(shape=(2, 5, 3)), channels, None], y)
    classes["X"] = stub(shapes=[None, (1, 1, 3), (9,)])
    (made,) = align_axes(graph(both)).ops
    assert made.inputs[0] is both.inputs[0]
    alpha = made.inputs[1]
    assert alpha is not None
    assert alpha.data is not None
    assert alpha.data.shape == alpha.shape == (1, 1, 3)
    assert alpha.quantization is not None
    assert alpha.quantization.axis == 2
    assert alpha.name == "alpha/1x1x3"


def test_computed_operands_are_reshaped_once(classes: Classes) -> None:
    x, y = tensor(shape=(3,), quantization=quantization(1)), tensor()
    ops = [op("X", [x, x], y), op("X", [x, y], y)]
    classes["X"] = stub(shapes=[(1, 3), None])
    made = align_axes(graph(*ops))
    assert codes(made) == ["RESHAPE", "X", "X"]
    assert made.ops[0].inputs == (x,)
    assert made.ops[1].inputs[0] is made.ops[2].inputs[0] is made.ops[0].outputs[0]


def test_unknown_operators_keep_their_inputs() -> None:
    one = op("X", [tensor(shape=(3,))], tensor())
    assert align_axes(graph(one)).ops[0].inputs == one.inputs


def test_operands_of_differing_ranks_are_reshaped_once() -> None:
    m = Build()
    x, y = m.input([2, 5, 7, 3]), m.input([7, 1])
    (z,) = m.op("ADD", [y, m.constant(np.arange(3, dtype=np.float32))], [[7, 3]])
    m.output(*m.op("MUL", [x, z], [[2, 5, 7, 3]]), *m.op("SUB", [z, x], [[2, 5, 7, 3]]))
    assert codes(make_canonical(m)).count("RESHAPE") == 1
    check(m.bytes())


# keep_axes


def image(m: Build, y: support.Tensor, **fields: Any) -> support.Tensor:
    """Return a RESHAPE to an image."""
    return m.op("RESHAPE", [y], [[2, 5, 7, 11]], new_shape=[2, 5, 7, 11], **fields)[0]


def dense(m: Build, **fields: Any) -> support.Tensor:
    """Return FULLY_CONNECTED on each pixel of an image."""
    weights = m.constant(np.ones((11, 3), np.float32))
    return m.op("FULLY_CONNECTED", [m.input([2, 5, 7, 3]), weights, None], [[70, 11]], **fields)[0]


def test_axes_of_an_image_are_kept() -> None:
    m = Build()
    m.output(image(m, dense(m)))
    (op,) = make_canonical(m).ops
    assert op.outputs[0].shape == (2, 5, 7, 11)
    assert op.options.keep_num_dims
    check(m.bytes(), seeds=[0])


def test_axes_that_another_reader_needs_stay_merged() -> None:
    m = Build()
    y = dense(m)
    m.output(image(m, y))
    m.output(*m.op("ABS", [y], [[70, 11]]))
    assert codes(make_canonical(m)) == ["FULLY_CONNECTED", "RESHAPE", "ABS"]
    m = Build()
    y = dense(m)
    m.output(image(m, y))
    m.output(y)
    assert codes(make_canonical(m)) == ["FULLY_CONNECTED", "RESHAPE"]


def test_reshape_to_other_axes_stays() -> None:
    m = Build()
    m.output(*m.op("RESHAPE", [dense(m)], [[2, 7, 5, 11]], new_shape=[2, 7, 5, 11]))
    assert codes(make_canonical(m)) == ["FULLY_CONNECTED", "RESHAPE"]
    m = Build()
    weights = m.constant(np.ones((11, 1), np.float32))
    y = m.op("FULLY_CONNECTED", [m.input([2, 5, 7, 3]), weights, None], [[210, 11]])[0]
    m.output(*m.op("RESHAPE", [y], [[2, 5, 7, 33]], new_shape=[2, 5, 7, 33]))
    assert codes(make_canonical(m)) == ["FULLY_CONNECTED", "RESHAPE"]


@pytest.mark.parametrize(
    ("shape", "axes", "reduced", "kept"),
    [("5", [-1], "", "1"), ("2,5,7", [0, -1], "5", "1,5,1"), ("1,5", [0], "5", "1,5")],
)
def test_axes_of_a_reduction_are_kept(shape: str, axes: list[int], reduced: str, kept: str) -> None:
    """A reduction keeps its axes if a RESHAPE restores them."""
    assert_rewritten(
        keep_axes,
        f"""
        inputs x: float32[{shape}]
        y: float32[{reduced}] = MEAN(x, {axes}, keep_dims=False)
        z: float32[{kept}] = RESHAPE(y, [{kept}])
        return z
        """,
        f"""
        inputs x: float32[{shape}]
        z: float32[{kept}] = MEAN(x, {axes}, keep_dims=True)
        return z
        """,
    )


# absorb_flatten


def add_fully_connected(m: Build, x: support.Tensor, features: int, **fields: Any) -> None:
    """Add FULLY_CONNECTED as the output of the model."""
    weights = m.constant(np.ones((11, features), np.int8 if fields else np.float32), **fields)
    rows = int(np.prod(x.shape)) // features
    m.output(*m.op("FULLY_CONNECTED", [x, weights, None], [[rows, 11]]))


@pytest.mark.parametrize(
    ("source", "flat", "weights"),
    [
        ((2, 5, 7, 3), (2, 105), (11, 5, 7, 3)),
        ((2, 5, 7, 3), (10, 21), (11, 7, 3)),
        ((2, 5, 7), (2, 35), (11, 5, 7)),
        ((2, 5, 7, 1), (2, 35), (11, 5, 7, 1)),
        ((2, 1, 1, 3), (2, 3), None),
        ((2, 5, 7), (10, 7), None),
        ((5, 7, 3), (1, 105), None),
        ((2, 5, 7, 3), (6, 35), None),
    ],
    ids=str,
)
@pytest.mark.parametrize("reshapes", [True, False])
def test_flattened_input_is_absorbed_by_weights(
    source: Shape, flat: Shape, weights: Shape | None, *, reshapes: bool
) -> None:
    """A flattened input is absorbed: the weights get the axes of the input instead."""
    m = Build()
    x = m.input(source)
    y = m.op("RESHAPE", [x], [flat], new_shape=flat)[0] if reshapes else x
    add_fully_connected(m, y, flat[1])
    made = make_canonical(m)
    assert codes(made) == ["RESHAPE"] * (reshapes and weights is None) + ["FULLY_CONNECTED"]
    shaped = made.ops[-1].inputs[1]
    assert shaped is not None
    assert shaped.shape == (weights or (11, flat[1]))
    check(m.bytes(), seeds=[0])


def test_flattened_tensor_with_another_reader_stays() -> None:
    m = Build()
    (y,) = m.op("RESHAPE", [m.input([2, 5, 7, 3])], [[2, 105]], new_shape=[2, 105])
    add_fully_connected(m, y, 105)
    m.output(*m.op("ABS", [y], [[2, 105]]))
    made = make_canonical(m)
    assert codes(made) == ["RESHAPE", "FULLY_CONNECTED", "ABS"]
    assert made.ops[1].inputs[0] is made.inputs[0]


FLAT = tensor(shape=(2, 12))
DEEP = tensor(shape=(2, 3, 4))
WEIGHTS = tensor(np.ones((5, 12), np.float32))
MADE = tensor(shape=(2, 5))


def connect(weights: Tensor | None, x: Tensor | None = FLAT, y: Tensor = MADE) -> Op:
    return op("FULLY_CONNECTED", [x, weights], y)


@pytest.mark.parametrize(
    "reader",
    [
        connect(tensor(shape=(5, 12))),
        connect(None),
        connect(WEIGHTS, None),
        connect(WEIGHTS, y=tensor(shape=(2, 1, 5))),
        connect(tensor(np.ones((5, 3, 4), np.float32))),
        connect(tensor(np.ones((5, 7), np.float32))),
        connect(replace(WEIGHTS, quantization=quantization(1, 2, axis=1))),
        connect(replace(WEIGHTS, quantization=quantization(1, 2, block_size=6))),
        op("FULLY_CONNECTED", [FLAT], MADE),
        op("FULLY_CONNECTED", [], MADE),
        op("FULLY_CONNECTED", [FLAT, WEIGHTS], MADE, custom=True),
        op("ABS", [FLAT, WEIGHTS], MADE),
    ],
)
def test_only_dense_layers_absorb_a_flatten(reader: Op) -> None:
    made = absorb_flatten(graph(op("RESHAPE", [DEEP], FLAT), reader))
    assert made.ops[1].inputs == reader.inputs


@pytest.mark.parametrize(
    ("flat", "reshape"),
    [
        (FLAT, op("RESHAPE", [None], FLAT)),
        (FLAT, op("RESHAPE", [], FLAT)),
        (FLAT, op("RESHAPE", [DEEP], FLAT, custom=True)),
        (FLAT, op("RESHAPE", [tensor(shape=(3, 3, 4))], FLAT)),
        (FLAT, op("RESHAPE", [in_int8(DEEP, 1)], FLAT)),
        *((flat, op("RESHAPE", [in_int8(DEEP, 1)], flat)) for flat in [in_int8(FLAT, 2)]),
    ],
)
def test_reshapes_that_dense_layers_cannot_absorb_stay(flat: Tensor, reshape: Op) -> None:
    """Other operators, invalid RESHAPEs, and a RESHAPE that changes the scale are not absorbed."""
    made = absorb_flatten(graph(reshape, connect(WEIGHTS, flat)))
    assert made.ops[1].inputs == (flat, WEIGHTS)


def test_absorbed_flatten_keeps_scales_of_rows() -> None:
    """Scales of the rows are kept by the reshaped weights."""
    deep, flat = (replace(t, quantization=quantization(0.5)) for t in (DEEP, FLAT))
    weights = replace(WEIGHTS, quantization=quantization(1, 2, 3, 4, 5))
    made = absorb_flatten(graph(op("RESHAPE", [deep], flat), connect(weights, flat)))
    assert made.ops[1].inputs[0] is deep
    shaped = made.ops[1].inputs[1]
    assert shaped is not None
    assert shaped.shape == (5, 3, 4)
    assert shaped.quantization is weights.quantization


def test_shared_weights_stay_shared() -> None:
    readers = [connect(WEIGHTS, DEEP), connect(WEIGHTS, DEEP)]
    one, other = absorb_flatten(graph(*readers)).ops
    assert one.inputs[1] is other.inputs[1] is not WEIGHTS


# eliminate_dead_operators


def test_operators_whose_outputs_nothing_reads_are_removed() -> None:
    """Operators whose outputs nothing reads are removed; operators without outputs stay."""
    x, a, b, c = (tensor() for _ in range(4))
    used, dead, deader = op("U", [x], a), op("D", [x], b), op("E", [b], c)
    acts = op("ASSIGN", [x])
    assert codes(eliminate_dead_operators(graph(used, dead, deader, acts, outputs=[a]))) == [
        "U",
        "ASSIGN",
    ]


def test_operator_with_one_used_output_stays() -> None:
    x, a, b = tensor(), tensor(), tensor()
    assert codes(eliminate_dead_operators(graph(op("X", [x], a, b), outputs=[b]))) == ["X"]


def test_inserted_reshape_has_its_options(classes: Classes) -> None:
    """An inserted RESHAPE has its options as an operator of the file has them."""
    classes["X"] = stub(shapes=[(1, 3)])
    made = align_axes(graph(op("X", [tensor(shape=(3,))], tensor())))
    assert made.ops[0].options == Options({"new_shape": (1, 3)})
