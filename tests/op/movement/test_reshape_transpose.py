"""RESHAPE and related operators, TRANSPOSE, SHAPE and RANK; and the axis names of a reshape."""

from __future__ import annotations

from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.op.ports import add_input, check_outputs, folds
from tests.support import Build, check, random_inputs, run_onnx, run_tflite
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError
from tflite2onnx.layout import make_order
from tflite2onnx.op.movement.reshape_transpose import Reshape, match_reshape_axes

if TYPE_CHECKING:
    from tests.support import Converted
    from tflite2onnx.tensor import Shape

TYPES = [
    "float32",
    "float16",
    "float64",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "bool",
    "string",
    "bfloat16",
]
PERMUTATIONS = [[0], [1, 0], [2, 0, 1], [0, 3, 1, 2], [-1, 0, -2, 1], [5, 4, 3, 2, 1, 0]]


def nodes(result: Converted) -> list[str]:
    return [node.op_type for node in result.model.graph.node]


@st.composite
def regroupings(draw: st.DrawFn) -> tuple[Shape, Shape]:
    """Return two shapes with the same factors in different groups."""
    factors = draw(st.lists(st.sampled_from([1, 1, 2, 2, 3, 5]), max_size=6))

    def draw_shape() -> Shape:
        sizes = [1] * draw(st.integers(0, 2))
        for factor in factors:
            merged: bool = draw(st.booleans())
            if sizes and merged:
                sizes[-1] *= factor
            else:
                sizes.append(factor)
        return tuple(sizes)

    return draw_shape(), draw_shape()


@given(regroupings(), st.randoms(use_true_random=False))
def test_any_label_of_a_reshape_gives_the_right_numbers(
    shapes: tuple[Shape, Shape], generator: Any
) -> None:
    """For every label, reshaping the stored array equals storing the reshaped tensor."""
    source, target = shapes
    axes, made = match_reshape_axes(source, target)
    label = list(dict.fromkeys((*axes, *made)))
    generator.shuffle(label)
    x = np.arange(np.prod(source, dtype=int)).reshape(source)
    stored = x.transpose(make_order(axes, tuple(label)))
    wanted = x.reshape(target).transpose(make_order(made, tuple(label)))
    np.testing.assert_array_equal(stored.reshape(wanted.shape), wanted)


@given(regroupings())
def test_axis_names_of_a_reshape_form_minimal_groups(shapes: tuple[Shape, Shape]) -> None:
    """Axes of one name are adjacent, shared names have equal sizes, and groups are minimal."""
    source, target = shapes
    axes, made = match_reshape_axes(source, target)
    for names in (axes, made):
        changes = [b for a, b in pairwise((None, *names)) if a != b]
        assert len(changes) == len(set(names))
    shared = set(axes) & set(made)
    for name in shared:
        a = [size for size, own in zip(source, axes, strict=True) if own == name]
        b = [size for size, own in zip(target, made, strict=True) if own == name]
        assert np.prod(a) == np.prod(b)
        inner = [set(np.cumprod(sizes)[:-1].tolist()) - {1, np.prod(a)} for sizes in (a, b)]
        assert not inner[0] & inner[1]
    alone = [
        s for s, name in zip((*source, *target), (*axes, *made), strict=True) if name not in shared
    ]
    assert set(alone) <= {1}


def test_axes_of_a_reshape_are_matched_in_groups() -> None:
    assert match_reshape_axes((2, 5, 7, 3), (2, 35, 3)) == (
        ("r0", "r1", "r1", "r2"),
        ("r0", "r1", "r2"),
    )
    assert match_reshape_axes((2, 1, 1, 3), (2, 3)) == (("r0", "in1", "in2", "r3"), ("r0", "r3"))
    assert match_reshape_axes((6, 5), (2, 3, 1, 5)) == (("r0", "r2"), ("r0", "r0", "out2", "r2"))
    assert match_reshape_axes((0, 5), (7, 0, 2)) == (("in0", "in1"), ("out0", "out1", "out2"))


@pytest.mark.parametrize("dtype", TYPES)
def test_operators_of_every_type_equal_litert(dtype: str) -> None:
    m = Build()
    x = add_input(m, [2, 3, 5], dtype)
    (a,) = m.op("RESHAPE", [x, m.constant([6, 5])], [[6, 5]])
    (b,) = m.op("EXPAND_DIMS", [a, m.constant(1)], [[6, 1, 5]])
    outputs = [a, b, *m.op("SQUEEZE", [b], [[6, 5]])]
    if dtype != "string":
        outputs += m.op("TRANSPOSE", [x, m.constant([2, 0, 1])], [[5, 2, 3]])
    check_outputs(m, *outputs)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ((2, 3, 5, 7), (2, 105)),
        ((2, 3, 5, 7), (6, 35)),
        ((2, 3, 5, 7), (210,)),
        ((2, 3, 5, 7), (2, 15, 7)),
        ((2, 15, 7), (2, 3, 5, 7)),
        ((2, 15, 7), (2, 5, 3, 7)),
        ((4, 9), (6, 6)),
        ((4, 1, 9), (6, 1, 6)),
        ((1, 1, 1), ()),
        ((), (1, 1)),
        ((2, 0, 3), (0, 7)),
    ],
    ids=str,
)
def test_reshapes_of_many_shapes_equal_litert(source: Shape, target: Shape) -> None:
    m = Build()
    check_outputs(m, *m.op("RESHAPE", [m.input(source)], [target], new_shape=target))


def test_shape_may_be_an_option_or_a_tensor() -> None:
    """The shape of RESHAPE is an option or a tensor, and may contain -1."""
    m = Build()
    x = m.input([2, 3, 5])
    check_outputs(
        m,
        *m.op("RESHAPE", [x, m.constant([-1, 5])], [[6, 5]]),
        *m.op("RESHAPE", [x], [[10, 3]], new_shape=[-1, 3]),
        *m.op("RESHAPE", [m.input([1])], [[]], new_shape=[0]),
    )


@pytest.mark.parametrize("axes", [[], [1], [-2], [1, 3], [1, 1, -4]], ids=str)
def test_squeeze_of_any_axes_equals_litert(axes: list[int]) -> None:
    gone = {axis % 5 for axis in axes} or {1, 3}
    shape = [3, 1, 5, 1, 7]
    left = [size for axis, size in enumerate(shape) if axis not in gone]
    m = Build()
    check_outputs(m, *m.op("SQUEEZE", [m.input(shape)], [left], squeeze_dims=axes))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("axis", [0, 1, 3, -1, -4])
def test_expand_dims_along_any_axis_equals_litert(axis: int, dtype: str) -> None:
    shape = [2, 3, 5]
    shape.insert(axis % 4, 1)
    m = Build()
    check_outputs(
        m, *m.op("EXPAND_DIMS", [m.input([2, 3, 5]), m.constant([axis], dtype=dtype)], [shape])
    )


@pytest.mark.parametrize("permutation", PERMUTATIONS, ids=str)
def test_transpose_by_any_permutation_equals_litert(permutation: list[int]) -> None:
    shape = [2, 3, 5, 7, 1, 11][: len(permutation)]
    made = [shape[axis] for axis in permutation]
    m = Build()
    check_outputs(m, *m.op("TRANSPOSE", [m.input(shape), m.constant(permutation)], [made]))


def test_transpose_and_its_inverse_leave_no_node() -> None:
    m = Build()
    (y,) = m.op("TRANSPOSE", [m.input([2, 3, 5]), m.constant([2, 0, 1])], [[5, 2, 3]])
    (y,) = m.op("ABS", [y], [[5, 2, 3]])
    result = check_outputs(m, *m.op("TRANSPOSE", [y, m.constant([1, 2, 0])], [[2, 3, 5]]))
    assert nodes(result) == ["Abs"]


def test_shape_and_rank_fold() -> None:
    """SHAPE and RANK are folded for computed, quantized and string tensors."""
    m = Build()
    quantized = m.input([2, 7], dtype="int8", scale=0.5)
    for x in (m.input([2, 3, 5]), quantized, m.input([3], dtype="string")):
        m.output(*m.op("SHAPE", [x], [[len(x.shape)]], dtype="int32", out_type="int32"))
        m.output(*m.op("SHAPE", [x], [[len(x.shape)]], dtype="int64", out_type="int64"))
        m.output(*m.op("RANK", [x], [[]], dtype="int32"))
    assert set(nodes(check(m.bytes()))) == {"Identity"}


def test_reshape_to_a_computed_shape_folds() -> None:
    """A RESHAPE to a computed shape is folded, as converters write it."""
    m = Build()
    x = m.input([2, 3, 5, 7])
    (shape,) = m.op("SHAPE", [x], [[4]], dtype="int32", out_type="int32")
    one = [m.constant([1]), m.constant([1])]
    (batch,) = m.op("STRIDED_SLICE", [shape, m.constant([0]), *one], [[]], shrink_axis_mask=1)
    (target,) = m.op("PACK", [batch, m.constant(-1)], [[2]], values_count=2)
    result = check_outputs(
        m, *m.op("RESHAPE", [x, target], [m.tensor([2, 105], shape_signature=[-1, -1])])
    )
    assert nodes(result) == ["Reshape"]


def test_reshapes_and_transposes_of_constants_are_folded() -> None:
    m = Build()
    x = m.constant(np.arange(30, dtype=np.float32).reshape(2, 3, 5))
    folds(
        m,
        *m.op("RESHAPE", [x], [[6, 5]], new_shape=[6, 5]),
        *m.op("TRANSPOSE", [x, m.constant([2, 0, 1])], [[5, 2, 3]]),
        *m.op("EXPAND_DIMS", [x, m.constant(0)], [[1, 2, 3, 5]]),
    )


@pytest.mark.parametrize("layout", ["NHWC", "NCHW", "WCNH"])
def test_shape_is_in_tflite_order_for_any_layout(
    layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SHAPE returns sizes in TFLite's order, whatever the stored order is."""
    module = import_module("tflite2onnx.canonical")
    monkeypatch.setattr(module, "list_canonical_passes", lambda _: ())
    m = Build()
    x = m.input([2, 3, None, 7], name="x")
    m.output(*m.op("SHAPE", [x], [[4]], dtype="int32", out_type="int32"))
    m.output(*m.op("SHAPE", [x], [[4]], dtype="int64", out_type="int64"))
    m.output(*m.op("RANK", [x], [[]], dtype="int32"))
    result = check(m.bytes(), layouts={"x": ("NHWC", layout)})
    assert "Shape" in nodes(result)
    assert "Transpose" not in nodes(result)


def refuse(m: Build, reason: str) -> None:
    with pytest.raises(ConversionError, match=reason):
        convert(m.bytes())


@pytest.mark.parametrize("declared", [[8], [2, 4], [2, 2, 2], [1, 1, 8], [3]], ids=str)
@pytest.mark.parametrize("code", Reshape.codes)
def test_operand_decides_the_output_shape(code: str, declared: list[int]) -> None:
    """The operand decides the output shape, not the declared shape, as in LiteRT."""
    m = Build()
    x = m.input([1, 8] if code == "SQUEEZE" else [4, 2])
    operand = {"RESHAPE": [2, 4], "EXPAND_DIMS": 1}.get(code)
    operands = [] if operand is None else [m.constant(np.array(operand, np.int32))]
    (y,) = m.op(code, [x, *operands], [declared])
    made = {"RESHAPE": [2, 4], "EXPAND_DIMS": [4, 1, 2], "SQUEEZE": [8]}[code]
    (z,) = m.op("NEG", [y], [declared])
    m.output(y, *m.op("ADD", [z, m.constant(np.ones(made, np.float32))], [declared]))
    result = convert(m.bytes(), io_layout="tflite")
    assert [list(end.tflite_shape) for end in result.outputs] == [made, made]
    inputs = random_inputs(m.bytes(), 0)
    feeds = {end.name: each for end, each in zip(result.inputs, inputs, strict=True)}
    have = run_onnx(result.model, feeds, optimize=True)
    for want, each in zip(run_tflite(m.bytes(), inputs), have, strict=True):
        np.testing.assert_array_equal(want, each)


@pytest.mark.parametrize("code", ["RESHAPE", "EXPAND_DIMS"])
def test_reshapes_to_more_elements_are_refused(code: str) -> None:
    m = Build()
    m.output(*m.op(code, [m.input([2, 3])], [[7]]))
    refuse(m, r"6 elements of float32, as tensor_0 is float32\[2, 3\], got float32\[7\]")


@pytest.mark.parametrize("shape", [[1], [4, 9]])
def test_only_one_size_of_a_reshape_may_be_missing(shape: list[int]) -> None:
    m = Build()
    m.output(*m.op("RESHAPE", [m.input(shape)], [shape], new_shape=[-1, -1]))
    refuse(m, r"got \[-1, -1\]")


def test_reshapes_to_another_type_are_refused() -> None:
    m = Build()
    m.output(*m.op("RESHAPE", [m.input([2, 3])], [[6]], dtype="int32"))
    refuse(m, r"6 elements of float32, as tensor_0 is float32\[2, 3\], got int32\[6\]")


def test_computed_shapes_keep_the_sizes_that_they_list() -> None:
    m = Build()
    parts = [m.input([], dtype="int32"), m.constant(3), m.constant(5)]
    (shape,) = m.op("PACK", parts, [[3]], dtype="int32", axis=0, values_count=3)
    m.output(*m.op("RESHAPE", [m.input([None, 15]), shape], [m.tensor([None] * 3)]))
    (end,) = convert(m.bytes()).outputs
    assert (end.onnx_shape, {*end.symbols}) == ((1, 3, 5), {0})


@pytest.mark.parametrize("rows", [8, 5])
def test_single_computed_size_is_the_number_of_elements(rows: int) -> None:
    """Whatever the computed size is, LiteRT makes all elements or refuses."""
    m = Build()
    (y,) = m.op("RESHAPE", [m.input([4, 2]), m.input([1], dtype="int32")], [[1, 1]])
    m.output(*m.op("ADD", [y, m.constant(np.ones(rows, np.float32))], [[1, rows]]))
    if rows == 5:
        refuse(m, r"broadcast to each other, got \[8\] and \[5\]")
    else:
        assert convert(m.bytes()).outputs[0].tflite_shape == (8,)


@pytest.mark.parametrize(
    ("permutation", "made", "reason"),
    [
        ([0, 0], [2, 2], r"permutation of 2 axes, got \[0, 0\]"),
        ([0], [2], r"permutation of 2 axes, got \[0\]"),
        ([0, 2], [2, 3], "below 2, got 2"),
    ],
)
def test_refuses_invalid_permutations(permutation: Any, made: Any, reason: str) -> None:
    m = Build()
    m.output(*m.op("TRANSPOSE", [m.input([2, 3]), m.constant(permutation)], [made]))
    refuse(m, reason)


@pytest.mark.parametrize(
    ("code", "made", "dtype", "reason"),
    [
        ("SHAPE", [2], "float32", "int32 or int64, got float32"),
        ("RANK", [1], "int64", "int32, got int64"),
    ],
)
def test_shape_and_rank_refuse_unsupported_output_types(
    code: str, made: Any, dtype: str, reason: str
) -> None:
    m = Build()
    m.output(*m.op(code, [m.input([2, 3])], [made], dtype=dtype))
    refuse(m, reason)
