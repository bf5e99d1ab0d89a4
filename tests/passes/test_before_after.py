"""Passes as text: the graph before and after each pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import check
from tests.support.graph_text import assert_rewritten, check_unchanged, make_model, parse_graph
from tflite2onnx.contrib.complex_numbers.lower_complex import lower_complex
from tflite2onnx.contrib.hash_tables.fold_hash_tables import fold_hash_tables
from tflite2onnx.graph import Graph, Model
from tflite2onnx.passes import fold_constants
from tflite2onnx.passes.expand_output_sigmoid import expand_output_sigmoid
from tflite2onnx.passes.fold_constants import fold_operators
from tflite2onnx.passes.inline_subgraphs import inline_subgraphs
from tflite2onnx.passes.patterns.convolutions.fuse_convolutions import (
    fuse_dilated_convolutions,
    fuse_pads_into_convolutions,
)
from tflite2onnx.passes.patterns.fuse_list_assignment import fuse_list_assignment
from tflite2onnx.passes.simplify import absorb_flatten, align_axes, keep_axes, remove_copies
from tflite2onnx.tensor import DType


def as_model(*graphs: Graph) -> Model:
    return Model(graphs, (), {}, "", 3)


def test_output_sigmoid_becomes_exp_and_division() -> None:
    """A LOGISTIC with a small output that is a model output."""
    before = """
        inputs %0: float32[2,3]
        %1: float32[2,3] = LOGISTIC(%0)
        return %1
    """
    after = """
        inputs %0: float32[2,3]
        %1: float32[2,3] = MUL(%0, -1.0)
        %2: float32[2,3] = EXP(%1)
        %3: float32[2,3] = ADD(%2, 1.0)
        %4: float32[2,3] = DIV(1.0, %3)
        return %4
    """
    assert_rewritten(expand_output_sigmoid, before, after)


def test_convolution_between_blocks_becomes_dilated() -> None:
    before = """
        inputs %0: float32[1,6,9,2]
        %1: float32[6,5,5,2] = SPACE_TO_BATCH_ND(%0, [2, 3], [[2, 2], [3, 3]])
        %2: float32[6,3,3,4] = CONV_2D(%1, float32[4,3,3,2], padding=VALID, stride_h=1,
          stride_w=1, dilation_h_factor=1, dilation_w_factor=1)
        %3: float32[1,6,9,4] = BATCH_TO_SPACE_ND(%2, [2, 3], [[0, 0], [0, 0]])
        return %3
    """
    after = """
        inputs %0: float32[1,6,9,2]
        %2: float32[1,6,9,4] = CONV_2D(%0, float32[4,3,3,2], padding=VALID, stride_h=1,
          stride_w=1, pads=(2,3,2,3), dilation_h_factor=2, dilation_w_factor=3)
        return %2
    """
    assert_rewritten(fuse_dilated_convolutions, before, after)


def test_pad_becomes_padding_of_a_convolution() -> None:
    before = """
        inputs %0: float32[1,7,5,2]
        %1: float32[1,8,8,2] = PAD(%0, [[0, 0], [1, 0], [2, 1], [0, 0]])
        %2: float32[1,6,6,1] = CONV_2D(%1, float32[1,3,3,2], padding=VALID)
        return %2
    """
    after = """
        inputs %0: float32[1,7,5,2]
        %2: float32[1,6,6,1] = CONV_2D(%0, float32[1,3,3,2], padding=VALID, pads=(1,2,0,1))
        return %2
    """
    assert_rewritten(fuse_pads_into_convolutions, before, after)


def test_pad_becomes_padding_of_a_maximum() -> None:
    """Zeros around an image without negative numbers are never the maximum alone."""
    graph = """
        inputs %0: float32[1,7,5,2]
        %1: float32[1,7,5,2] = {}(%0)
        %2: float32[1,9,7,2] = PAD(%1, [[0, 0], [1, 1], [1, 1], [0, 0]])
        %3: float32[1,4,3,2] = MAX_POOL_2D(%2, padding=VALID, filter_height={}, filter_width=3,
          stride_h=2, stride_w=2)
        return %3
    """
    after = """
        inputs %0: float32[1,7,5,2]
        %1: float32[1,7,5,2] = RELU(%0)
        %3: float32[1,4,3,2] = MAX_POOL_2D(%1, padding=VALID, filter_height=3, filter_width=3,
          stride_h=2, stride_w=2, pads=(1,1,1,1))
        return %3
    """
    assert_rewritten(fuse_pads_into_convolutions, graph.format("RELU", 3), after)
    check_unchanged(fuse_pads_into_convolutions, parse_graph(graph.format("NEG", 3)))
    check_unchanged(fuse_pads_into_convolutions, parse_graph(graph.format("RELU", 1)))


def test_pad_before_a_transpose_becomes_padding() -> None:
    """PAD is removed, and the TRANSPOSE before the convolution reads the input of PAD."""
    before = """
        inputs %0: float32[1,2,7,5]
        %1: float32[1,2,8,8] = PAD(%0, [[0, 0], [0, 0], [1, 0], [2, 1]])
        %2: float32[1,8,8,2] = TRANSPOSE(%1, [0, 2, 3, 1])
        %3: float32[1,6,6,1] = CONV_2D(%2, float32[1,3,3,2], padding=VALID)
        return %3
    """
    after = """
        inputs %0: float32[1,2,7,5]
        %3: float32[1,7,5,2] = TRANSPOSE(%0, [0, 2, 3, 1])
        %4: float32[1,6,6,1] = CONV_2D(%3, float32[1,3,3,2], padding=VALID, pads=(1,2,0,1))
        return %4
    """
    assert_rewritten(fuse_pads_into_convolutions, before, after)


def test_list_assignment_becomes_dynamic_update_slice() -> None:
    before = """
        inputs items: float32[7,3], item: float32[1,3], index: int32[]
        next: int32[] = ADD(index, 1)
        first: int32[1] = RESHAPE(index, [1])
        size: int32[2] = CONCATENATION(first, [-1], axis=0)
        head: float32[1,3] = SLICE(items, [0, 0], size)
        last: int32[1] = RESHAPE(next, [1])
        begin: int32[2] = CONCATENATION(last, [0], axis=0)
        tail: float32[1,3] = SLICE(items, begin, [-1, -1])
        set: float32[7,3] = CONCATENATION(head, item, tail, axis=0)
        return set
    """
    after = """
        inputs items: float32[7,3], item: float32[1,3], index: int32[]
        first: int32[1] = RESHAPE(index, [1])
        starts: int32[2] = CONCATENATION(first, [0], axis=0)
        set: float32[7,3] = DYNAMIC_UPDATE_SLICE(items, item, starts)
        return set
    """
    assert_rewritten(fuse_list_assignment, before, after)


def test_complex_product_becomes_real_products() -> None:
    """A product of complex numbers becomes (ac - bd) + (ad + bc) i."""
    before = """
        inputs %0: complex64[3], %1: complex64[3]
        %2: complex64[3] = MUL(%0, %1)
        return %2
    """
    after = """
        inputs %0: float32[3,2], %1: float32[3,2]
        %2: float32[3] = REAL(%0)
        %3: float32[3] = IMAG(%0)
        %4: float32[3] = REAL(%1)
        %5: float32[3] = IMAG(%1)
        %6: float32[3] = MUL(%2, %4)
        %7: float32[3] = MUL(%3, %5)
        %8: float32[3] = SUB(%6, %7)
        %9: float32[3] = MUL(%2, %5)
        %10: float32[3] = MUL(%3, %4)
        %11: float32[3] = ADD(%9, %10)
        %12: float32[3,2] = PACK(%8, %11, axis=1)
        return %12
    """
    assert_rewritten(lower_complex, before, after)


def test_lower_rank_operands_get_leading_axes() -> None:
    """A computed operand gets a leading axis by RESHAPE; a constant is reshaped at conversion."""
    before = """
        inputs %0: float32[2,5,3], %1: float32[5,1]
        %2: float32[2,5,3] = ADD(%0, %1)
        %3: float32[2,5,3] = MUL(%2, [1.0, 1.0, 1.0])
        return %3
    """
    after = """
        inputs %0: float32[2,5,3], %1: float32[5,1]
        %2: float32[1,5,1] = RESHAPE(%1)
        %3: float32[2,5,3] = ADD(%0, %2)
        %4: float32[2,5,3] = MUL(%3, [[[1.0, 1.0, 1.0]]])
        return %4
    """
    assert_rewritten(align_axes, before, after)


def test_inner_copies_are_removed() -> None:
    before = """
        inputs x: float32[2,3]
        absolute: float32[2,3] = ABS(x)
        copy: float32[2,3] = RESHAPE(absolute, [-1, 3])
        power: float32[2,3] = EXP(copy)
        turned: float32[3,2] = RESHAPE(power, [3, 2])
        result: float32[3,2] = RESHAPE(turned, [3, 2])
        return result
    """
    after = """
        inputs x: float32[2,3]
        absolute: float32[2,3] = ABS(x)
        power: float32[2,3] = EXP(absolute)
        turned: float32[3,2] = RESHAPE(power, [3, 2])
        result: float32[3,2] = RESHAPE(turned, [3, 2])
        return result
    """
    assert_rewritten(remove_copies, before, after)


@pytest.mark.parametrize(
    "call", ["RESIZE_BILINEAR(x, [4, 5], align_corners=True)", "RESIZE_NEAREST_NEIGHBOR(x, [4, 5])"]
)
def test_resizes_to_the_same_size_are_removed(call: str) -> None:
    """SegFormer resizes its largest image to its own size."""
    before = f"""
        inputs x: float32[1,4,5,3]
        same: float32[1,4,5,3] = {call}
        larger: float32[1,8,10,3] = RESIZE_BILINEAR(same, [8, 10])
        return larger
    """
    after = """
        inputs x: float32[1,4,5,3]
        larger: float32[1,8,10,3] = RESIZE_BILINEAR(x, [8, 10])
        return larger
    """
    assert_rewritten(remove_copies, before, after)
    check(make_model(before))


def test_dense_layer_keeps_axes_of_the_image() -> None:
    """A dense layer on each pixel of an image keeps the axes of the image."""
    before = """
        inputs %0: float32[1,2,5,3]
        %1: float32[10,4] = FULLY_CONNECTED(%0, float32[4,3], keep_num_dims=False)
        %2: float32[1,2,5,4] = RESHAPE(%1)
        return %2
    """
    after = """
        inputs %0: float32[1,2,5,3]
        %1: float32[1,2,5,4] = FULLY_CONNECTED(%0, float32[4,3], keep_num_dims=True)
        return %1
    """
    assert_rewritten(keep_axes, before, after)


def test_reductions_keep_axes() -> None:
    """A mean keeps the axes that a RESHAPE restores after it."""
    before = """
        inputs %0: float32[1,2,5,3]
        %1: float32[1,3] = MEAN(%0, int32[1, 2], keep_dims=False)
        %2: float32[1,1,1,3] = RESHAPE(%1)
        return %2
    """
    after = """
        inputs %0: float32[1,2,5,3]
        %1: float32[1,1,1,3] = MEAN(%0, int32[1, 2], keep_dims=True)
        return %1
    """
    assert_rewritten(keep_axes, before, after)


def test_reductions_of_another_scale_stay() -> None:
    graph = parse_graph(
        """
        inputs %0: int8(0.1, 0)[1,2,5,3]
        %1: int8(0.1, 0)[1,3] = MEAN(%0, int32[1, 2], keep_dims=False)
        %2: int8(0.2, 0)[1,1,1,3] = RESHAPE(%1)
        return %2
        """
    )
    check_unchanged(keep_axes, graph)


def test_flatten_is_absorbed_by_the_weights() -> None:
    before = """
        inputs %0: float32[1,2,2,3]
        %1: float32[1,12] = RESHAPE(%0)
        %2: float32[1,4] = FULLY_CONNECTED(%1, float32[4,12])
        return %2
    """
    after = """
        inputs %0: float32[1,2,2,3]
        %2: float32[1,4] = FULLY_CONNECTED(%0, float32[4,2,2,3])
        return %2
    """
    assert_rewritten(absorb_flatten, before, after)


def test_operators_on_known_shapes_become_constants() -> None:
    """SHAPE of a known shape is constant, so the sum of sizes is constant."""
    before = """
        inputs %0: float32[2,3]
        %1: int32[2] = SHAPE(%0)
        %2: int32[2] = ADD(%1, [1, 2])
        return %2
    """
    after = """
        inputs %0: float32[2,3]
        return [3, 5]
    """
    assert_rewritten(fold_operators, before, after)


def test_cast_of_float16_constants_stays_float16_in_the_file() -> None:
    """The constant is float32 for operators, and float16 in memory and in the file."""
    text = """
        inputs x: float32[2,3]
        w: float32[2,3] = CAST(float16[2,3])
        y: float32[2,3] = ADD(x, w)
        return y
    """
    (add,) = fold_operators(parse_graph(text)).ops
    assert add.operand(1).dtype is DType.FLOAT32
    assert add.operand(1).values.dtype == np.float16


GROWING = """
    inputs x: float32[64,64]
    a: int32[64,64] = BROADCAST_TO(int32[64,1], [64, 64])
    b: int32[64,64] = ADD(a, int32[1,64])
    c: int32[64,64,1] = RESHAPE(b, [64, 64, 1])
    y: float32[64,64,64] = GATHER_ND(x, c)
    z: int32[4096] = RESHAPE(b, [4096])
    return y, z
"""


@pytest.mark.parametrize("more", [0, 1 << 14])
def test_large_constants_of_small_ones_are_computed(
    more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operators stay if the file would grow by more; an output of the graph stays a constant."""
    monkeypatch.setattr(fold_constants, "_MORE", more)
    codes = [op.code for op in fold_operators(parse_graph(GROWING)).ops]
    before = [] if more else ["BROADCAST_TO", "ADD", "RESHAPE"]
    assert codes == [*before, "GATHER_ND"]


def test_computed_indices_equal_litert_and_take_no_room() -> None:
    text = GROWING.replace("int32[64,1]", str([[0]] * 128)).replace(
        "int32[1,64]", str([list(range(64)) * 2])
    )
    text = text.replace("y, z", "y").replace("[64, 64", "[128, 128").replace("4096", "16384")
    text = text.replace("[64,64] = ", "[128,128] = ").replace("[64,64,", "[128,128,")
    data = make_model(text)
    result: Any = check(data, tolerance=0, random_layouts=[0])
    assert result.model.ByteSize() < len(data) + (1 << 15)


def test_constants_that_an_operator_has_to_know_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_constants, "_MORE", 0)
    text = """
        inputs x: float32[3,2,32], h: float32[2,32]
        w: float32[64,64] = BROADCAST_TO(float32[1,64], [64, 64])
        y: float32[3,2,32], z: float32[2,32] = UNIDIRECTIONAL_SEQUENCE_GRU(x, h, w, float32[64],
            float32[32,64], float32[32])
        return y
    """
    assert [op.code for op in fold_operators(parse_graph(text)).ops] == [
        "UNIDIRECTIONAL_SEQUENCE_GRU"
    ]


def test_hash_table_becomes_constant_keys_and_values() -> None:
    """The first of two equal keys counts."""
    before = """
        inputs x: int64[2]
        table: resource[1] = HASHTABLE(table_id=7)
        HASHTABLE_IMPORT(table, int64([3, 5, 3]), int64([10, 20, 30]))
        y: int64[2] = HASHTABLE_FIND(table, x, int64([0]))
        return y
    """
    after = """
        inputs x: int64[2]
        y: int64[2] = HASHTABLE_FIND(int64([3, 5]), int64([10, 20]), x, int64([0]))
        return y
    """
    assert_rewritten(lambda graph: fold_hash_tables(as_model(graph)).graphs[0], before, after)


def test_call_becomes_operators_of_its_sub_graph() -> None:
    """A call is replaced by the operators of its sub-graph."""
    before = """
        inputs x: float32[2]
        y: float32[2] = ABS(x)
        z: float32[2] = CALL(y, subgraph=1)
        return z
    """
    called = """
        inputs x: float32[2]
        y: float32[2] = NEG(x)
        return y
    """
    after = """
        inputs x: float32[2]
        y: float32[2] = ABS(x)
        z: float32[2] = NEG(y)
        return z
    """
    inner = parse_graph(called)
    assert_rewritten(lambda graph: inline_subgraphs(as_model(graph, inner)), before, after)
