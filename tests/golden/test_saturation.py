"""The findings of tests/golden/saturation.py agree with ONNX Runtime on emulated processors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.golden.saturation import find_saturating
from tests.support.emulation import run_models, why_not
from tests.support.fusions import optimize_model
from tests.support.runtimes import Array

# Weights of one column or filter, and whether a pair of them saturates.
COLUMNS = [
    ([127, 1, 127, 1], False),
    ([0, 0, 127, 2], True),
    ([0, 127, 127, 0], False),
    ([-128, 0, 0, 0], False),
    ([-128, -1, 0, 0], True),
    ([-64, -64, 64, 64], False),
    ([-65, -64, 0, 0], True),
    ([127, -128, 0, 127], False),
    ([0, 0, 127], False),
    ([1, 127, 1, 127, 127], False),
    ([0, 0, 0, 0, 100, 29, 0], True),
]


def model(node: Any, x: list[int], y: int, **constants: Array) -> ModelProto:
    """Return a model of one node with uint8 data of shape `x` and an output of type `y`."""
    graph = helper.make_graph(
        [node],
        "main",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, x)],
        [helper.make_tensor_value_info("y", y, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def product(column: list[int]) -> tuple[ModelProto, Array, Array]:
    """Return a matrix product, its data, and its expected output."""
    w = np.array([column] * 3, np.int8).T
    x = np.full((2, len(column)), 255, np.uint8)
    node = helper.make_node("MatMulInteger", ["x", "w"], ["y"])
    return model(node, [*x.shape], TensorProto.INT32, w=w), x, x.astype(np.int32) @ w


def convolution(w: Array, group: int = 1) -> tuple[ModelProto, Array, Array]:
    """Return a convolution by filters [out, in, width], its data, and its expected output.

    A bias cancels most of the sum, so that a byte holds the rest to within a step.
    """
    x = np.full((1, w.shape[1] * group, w.shape[2]), 255, np.uint8)
    sums = w.astype(np.int32).sum((1, 2)) * 255
    one, none = np.float32(1), np.uint8(0)
    node = helper.make_node(
        "QLinearConv",
        ["x", "one", "none", "w", "one", "zero", "one", "none", "bias"],
        ["y"],
        group=group,
    )
    made = model(
        node,
        [*x.shape],
        TensorProto.UINT8,
        w=w,
        one=np.array(one),
        none=np.array(none),
        zero=np.zeros((), w.dtype),
        bias=(200 - sums).astype(np.int32),
    )
    return made, x, np.full((1, len(w), 1), 200, np.uint8)


def filters(column: list[int], channels: int) -> Array:
    """Return two filters; the channels of a position are adjacent in the column."""
    rows = np.array([column] * 2, np.int8)
    return np.ascontiguousarray(rows.reshape(2, -1, channels).swapaxes(1, 2))


FULL = np.full((8, 1, 6), 127, np.int8)
CASES = [
    *((product(column), lossy) for column, lossy in COLUMNS),
    *((convolution(filters(column, 1)), lossy) for column, lossy in COLUMNS),
    *((convolution(filters(column, 2)), lossy) for column, lossy in COLUMNS if len(column) == 4),
    (convolution(FULL, group=8), False),  # depthwise
    (convolution(FULL[:1]), False),
    (convolution(FULL, group=4), True),
    (convolution(FULL), True),
]


@pytest.mark.parametrize(("case", "lossy"), CASES)
def test_products_that_may_saturate_are_found(
    case: tuple[ModelProto, Array, Array], *, lossy: bool
) -> None:
    assert bool(find_saturating(optimize_model(case[0]))) == lossy


@pytest.mark.nightly
@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_only_found_nodes_are_wrong_on_an_emulated_processor(tmp_path: Path) -> None:
    """On AVX2 without VNNI exactly the nodes that may saturate give wrong results."""
    models = [(each.SerializeToString(), [[x]]) for (each, x, _), _ in CASES]
    made = run_models(models, "Haswell", tmp_path)
    for number, ((((have,),), ((_, _, want), lossy))) in enumerate(zip(made, CASES, strict=True)):
        assert np.array_equal(have, want) != lossy, number


def test_two_products_of_minus_128_overflow() -> None:
    """Two products of -128 by -128 overflow on ARM64, even in a depthwise convolution."""
    twice, once = (np.array([[row]] * 8, np.int8) for row in ([-128, 0, 0, -128], [-128, 0, 0, 0]))
    for group in (1, 8):
        assert find_saturating(convolution(np.repeat(twice, 8 // group, 1), group)[0])
    assert not find_saturating(convolution(once, group=8)[0])


def test_transposed_weights_are_paired_along_rows() -> None:
    """With transB the weights of QGemm are paired along rows instead of columns."""
    constants: dict[str, Array] = {"one": np.array(np.float32(1)), "zero": np.array(np.int8(0))}
    constants |= {"none": np.array(np.uint8(0)), "w": np.array([[127, 2], [0, 0]], np.int8)}
    names = ["x", "one", "none", "w", "one", "zero", "", "one", "none"]
    for turned in (0, 1):
        node = helper.make_node("QGemm", names, ["y"], domain="com.microsoft", transB=turned)
        assert len(find_saturating(model(node, [1, 2], TensorProto.UINT8, **constants))) == turned


def test_computed_int8_weights_may_saturate() -> None:
    """Computed int8 weights may have any value, so their products may saturate."""
    for kind, count in ((TensorProto.INT8, 1), (TensorProto.UINT8, 0)):
        node = helper.make_node("MatMulInteger", ["x", "w"], ["y"])
        made = model(node, [2, 3], TensorProto.INT32)
        made.graph.input.append(helper.make_tensor_value_info("w", kind, [3, 5]))
        assert len(find_saturating(made)) == count
    nowhere = model(node, [2, 3], TensorProto.INT32)
    with pytest.raises(AssertionError, match="the type of input 1 of MatMulInteger"):
        find_saturating(nowhere)


def test_signed_data_does_not_saturate() -> None:
    node = helper.make_node("MatMulInteger", ["x", "w"], ["y"])
    made = model(node, [2, 3], TensorProto.INT32, w=np.full((3, 5), 127, np.int8))
    assert len(find_saturating(made)) == 1
    made.graph.input[0].type.tensor_type.elem_type = TensorProto.INT8
    assert not find_saturating(made)


def test_products_in_branches_are_found() -> None:
    """Constants of the outer graph are found for nodes in branches."""
    inner = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["made"])],
        "inner",
        [],
        [helper.make_tensor_value_info("made", TensorProto.INT32, None)],
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    w = np.full((2, 3), 100, np.int8)
    whole = model(node, [1, 2], TensorProto.INT32, w=w, c=np.array(np.True_))
    assert len(find_saturating(whole)) == 2
    assert not find_saturating(
        model(node, [1, 2], TensorProto.INT32, w=w // 2, c=np.array(np.True_))
    )


def test_conv_integer_of_unsigned_weights_is_found() -> None:
    node = helper.make_node("ConvInteger", ["x", "w"], ["y"])
    w = np.ones((1, 1, 2, 2), np.uint8)
    assert find_saturating(model(node, [1, 1, 2, 2], TensorProto.INT32, w=w))
