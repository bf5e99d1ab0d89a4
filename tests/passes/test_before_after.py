"""Passes as text: the graph before and after each pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.passes.graph_text import check_pass
from tests.support import Build
from tflite2onnx.graph import Graph
from tflite2onnx.passes.expand_output_sigmoid import expand_output_sigmoid
from tflite2onnx.passes.fold_constants import fold_operators
from tflite2onnx.passes.fold_hash_tables import fold_hash_tables
from tflite2onnx.passes.inline_subgraphs import inline_subgraphs
from tflite2onnx.passes.lower_complex import lower_complex
from tflite2onnx.passes.normalise import absorb_flatten, align_axes, keep_axes
from tflite2onnx.passes.patterns.convolutions.fuse_convolutions import (
    fuse_dilated_convolutions,
    fuse_pads_into_convolutions,
)
from tflite2onnx.passes.tensor_lists.fuse_list_assignment import fuse_list_assignment
from tflite2onnx.reader.model import read_model


def int32(numbers: Any) -> np.ndarray[Any, Any]:
    return np.array(numbers, np.int32)


def int64(numbers: Any) -> np.ndarray[Any, Any]:
    return np.array(numbers, np.int64)


def read_graph(m: Build) -> Graph:
    return read_model(m.bytes()).graphs[0]


def test_expand_output_sigmoid() -> None:
    """A LOGISTIC with a small output that is a model output."""
    m = Build()
    x = m.input([2, 3])
    m.output(*m.op("LOGISTIC", [x], [[2, 3]]))
    before = """
        inputs %0: float32[2,3]
        %1: float32[2,3] = LOGISTIC(%0)
        return %1
    """
    after = """
        inputs %0: float32[2,3]
        %1: float32[2,3] = NEG(%0)
        %2: float32[2,3] = EXP(%1)
        %3: float32[2,3] = ADD(%2, 1.0)
        %4: float32[2,3] = DIV(1.0, %3)
        return %4
    """
    check_pass(expand_output_sigmoid, read_graph(m), before, after)


def test_fuse_dilated_convolutions() -> None:
    """SPACE_TO_BATCH_ND stays until dead operators are eliminated."""
    m = Build()
    x = m.input([1, 6, 9, 2])
    block, pads = int32([2, 3]), int32([[2, 2], [3, 3]])
    (x,) = m.op("SPACE_TO_BATCH_ND", [x, m.constant(block), m.constant(pads)], [[6, 5, 5, 2]])
    inputs = [x, m.constant(np.ones((4, 3, 3, 2), np.float32))]
    (x,) = m.op(
        "CONV_2D",
        inputs,
        [[6, 3, 3, 4]],
        padding="VALID",
        stride_h=1,
        stride_w=1,
        dilation_h_factor=1,
        dilation_w_factor=1,
    )
    inputs = [x, m.constant(block), m.constant(np.zeros((2, 2), np.int32))]
    m.output(*m.op("BATCH_TO_SPACE_ND", inputs, [[1, 6, 9, 4]]))
    before = """
        inputs %0: float32[1,6,9,2]
        %1: float32[6,5,5,2] = SPACE_TO_BATCH_ND(%0, [2, 3], [[2, 2], [3, 3]])
        %2: float32[6,3,3,4] = CONV_2D(%1, constant[4,3,3,2], dilation_h_factor=1)
        %3: float32[1,6,9,4] = BATCH_TO_SPACE_ND(%2, [2, 3], [[0, 0], [0, 0]])
        return %3
    """
    after = """
        inputs %0: float32[1,6,9,2]
        %1: float32[6,5,5,2] = SPACE_TO_BATCH_ND(%0, [2, 3], [[2, 2], [3, 3]])
        %2: float32[1,6,9,4] = CONV_2D(%0, constant[4,3,3,2], pads=(2,3,2,3), dilation_h_factor=2)
        return %2
    """
    check_pass(fuse_dilated_convolutions, read_graph(m), before, after, "pads", "dilation_h_factor")


def test_fuse_pads_into_convolutions() -> None:
    """PAD stays until dead operators are eliminated."""
    m = Build()
    pads = m.constant(int32([[0, 0], [1, 0], [2, 1], [0, 0]]))
    (x,) = m.op("PAD", [m.input([1, 7, 5, 2]), pads], [[1, 8, 8, 2]])
    inputs = [x, m.constant(np.ones((1, 3, 3, 2), np.float32))]
    m.output(*m.op("CONV_2D", inputs, [[1, 6, 6, 1]], padding="VALID", stride_h=1, stride_w=1))
    before = """
        inputs %0: float32[1,7,5,2]
        %1: float32[1,8,8,2] = PAD(%0, [[0, 0], [1, 0], [2, 1], [0, 0]])
        %2: float32[1,6,6,1] = CONV_2D(%1, constant[1,3,3,2], padding=VALID)
        return %2
    """
    after = """
        inputs %0: float32[1,7,5,2]
        %1: float32[1,8,8,2] = PAD(%0, [[0, 0], [1, 0], [2, 1], [0, 0]])
        %2: float32[1,6,6,1] = CONV_2D(%0, constant[1,3,3,2], padding=EXPLICIT, pads=(1,2,0,1))
        return %2
    """
    check_pass(fuse_pads_into_convolutions, read_graph(m), before, after, "padding", "pads")


def test_fuse_transposed_pads_into_convolutions() -> None:
    """The TRANSPOSE before the convolution is that of the input of PAD."""
    m = Build()
    pads = m.constant(int32([[0, 0], [0, 0], [1, 0], [2, 1]]))
    (x,) = m.op("PAD", [m.input([1, 2, 7, 5]), pads], [[1, 2, 8, 8]])
    (image,) = m.op("TRANSPOSE", [x, m.constant(int32([0, 2, 3, 1]))], [[1, 8, 8, 2]])
    inputs = [image, m.constant(np.ones((1, 3, 3, 2), np.float32))]
    m.output(*m.op("CONV_2D", inputs, [[1, 6, 6, 1]], padding="VALID", stride_h=1, stride_w=1))
    before = """
        inputs %0: float32[1,2,7,5]
        %1: float32[1,2,8,8] = PAD(%0, [[0, 0], [0, 0], [1, 0], [2, 1]])
        %2: float32[1,8,8,2] = TRANSPOSE(%1, [0, 2, 3, 1])
        %3: float32[1,6,6,1] = CONV_2D(%2, constant[1,3,3,2], padding=VALID)
        return %3
    """
    after = """
        inputs %0: float32[1,2,7,5]
        %1: float32[1,2,8,8] = PAD(%0, [[0, 0], [0, 0], [1, 0], [2, 1]])
        %2: float32[1,8,8,2] = TRANSPOSE(%1, [0, 2, 3, 1])
        %3: float32[1,7,5,2] = TRANSPOSE(%0, [0, 2, 3, 1])
        %4: float32[1,6,6,1] = CONV_2D(%3, constant[1,3,3,2], padding=EXPLICIT, pads=(1,2,0,1))
        return %4
    """
    check_pass(fuse_pads_into_convolutions, read_graph(m), before, after, "padding", "pads")


def test_fuse_list_assignment() -> None:
    """The slices stay until dead operators are eliminated."""
    m = Build()
    items, item, index = m.input([7, 3]), m.input([1, 3]), m.input([], dtype="int32")
    (following,) = m.op("ADD", [index, m.constant(np.int32(1))], [[]])
    (first,) = m.op("RESHAPE", [index, m.constant(int32([1]))], [[1]])
    (size,) = m.op("CONCATENATION", [first, m.constant(int32([-1]))], [[2]], axis=0)
    (head,) = m.op("SLICE", [items, m.constant(int32([0, 0])), size], [m.tensor([1, 3])])
    (last,) = m.op("RESHAPE", [following, m.constant(int32([1]))], [[1]])
    (begin,) = m.op("CONCATENATION", [last, m.constant(int32([0]))], [[2]], axis=0)
    (tail,) = m.op("SLICE", [items, begin, m.constant(int32([-1, -1]))], [m.tensor([1, 3])])
    m.output(*m.op("CONCATENATION", [head, item, tail], [[7, 3]], axis=0))
    before = """
        inputs %0: float32[7,3], %1: float32[1,3], %2: int32[]
        %3: int32[] = ADD(%2, 1)
        %4: int32[1] = RESHAPE(%2, [1])
        %5: int32[2] = CONCATENATION(%4, [-1])
        %6: float32[1,3] = SLICE(%0, [0, 0], %5)
        %7: int32[1] = RESHAPE(%3, [1])
        %8: int32[2] = CONCATENATION(%7, [0])
        %9: float32[1,3] = SLICE(%0, %8, [-1, -1])
        %10: float32[7,3] = CONCATENATION(%6, %1, %9)
        return %10
    """
    after = """
        inputs %0: float32[7,3], %1: float32[1,3], %2: int32[]
        %3: int32[] = ADD(%2, 1)
        %4: int32[1] = RESHAPE(%2, [1])
        %5: int32[2] = CONCATENATION(%4, [-1])
        %6: float32[1,3] = SLICE(%0, [0, 0], %5)
        %7: int32[1] = RESHAPE(%3, [1])
        %8: int32[2] = CONCATENATION(%7, [0])
        %9: float32[1,3] = SLICE(%0, %8, [-1, -1])
        %10: int32[2] = CONCATENATION(%4, [0])
        %11: float32[7,3] = DYNAMIC_UPDATE_SLICE(%0, %1, %10)
        return %11
    """
    check_pass(fuse_list_assignment, read_graph(m), before, after)


def test_lower_complex() -> None:
    """A product of complex numbers becomes (ac - bd) + (ad + bc) i."""
    m = Build()
    x, y = m.input([3], dtype="complex64"), m.input([3], dtype="complex64")
    m.output(*m.op("MUL", [x, y], [[3]], dtype="complex64"))
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
    check_pass(lower_complex, read_graph(m), before, after, "axis")


def test_align() -> None:
    """A computed operand gets a leading axis by RESHAPE; a constant is reshaped at conversion."""
    m = Build()
    (z,) = m.op("ADD", [m.input([2, 5, 3]), m.input([5, 1])], [[2, 5, 3]])
    m.output(*m.op("MUL", [z, m.constant(np.ones(3, np.float32))], [[2, 5, 3]]))
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
    check_pass(align_axes, read_graph(m), before, after)


def test_keep_axes() -> None:
    """A dense layer on each pixel of an image keeps the axes of the image."""
    m = Build()
    inputs = [m.input([1, 2, 5, 3]), m.constant(np.ones((4, 3), np.float32))]
    (y,) = m.op("FULLY_CONNECTED", inputs, [[10, 4]])
    m.output(*m.op("RESHAPE", [y], [[1, 2, 5, 4]], new_shape=[1, 2, 5, 4]))
    before = """
        inputs %0: float32[1,2,5,3]
        %1: float32[10,4] = FULLY_CONNECTED(%0, constant[4,3], keep_num_dims=False)
        %2: float32[1,2,5,4] = RESHAPE(%1)
        return %2
    """
    after = """
        inputs %0: float32[1,2,5,3]
        %1: float32[1,2,5,4] = FULLY_CONNECTED(%0, constant[4,3], keep_num_dims=True)
        return %1
    """
    check_pass(keep_axes, read_graph(m), before, after, "keep_num_dims")


def test_absorb_flatten() -> None:
    """RESHAPE stays until dead operators are eliminated."""
    m = Build()
    (y,) = m.op("RESHAPE", [m.input([1, 2, 2, 3])], [[1, 12]], new_shape=[1, 12])
    inputs = [y, m.constant(np.ones((4, 12), np.float32))]
    m.output(*m.op("FULLY_CONNECTED", inputs, [[1, 4]]))
    before = """
        inputs %0: float32[1,2,2,3]
        %1: float32[1,12] = RESHAPE(%0)
        %2: float32[1,4] = FULLY_CONNECTED(%1, constant[4,12])
        return %2
    """
    after = """
        inputs %0: float32[1,2,2,3]
        %1: float32[1,12] = RESHAPE(%0)
        %2: float32[1,4] = FULLY_CONNECTED(%0, constant[4,2,2,3])
        return %2
    """
    check_pass(absorb_flatten, read_graph(m), before, after)


def test_fold() -> None:
    """SHAPE is constant, so the sum is constant, too."""
    m = Build()
    (shape,) = m.op("SHAPE", [m.input([2, 3])], [[2]], dtype="int32", out_type=2)
    m.output(*m.op("ADD", [shape, m.constant(int32([1, 2]))], [[2]]))
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
    check_pass(fold_operators, read_graph(m), before, after)


def test_fold_hash_tables() -> None:
    """The first of two equal keys counts."""
    m = Build()
    (table,) = m.op("HASHTABLE", [], [[1]], dtype="resource", table_id=7)
    m.op(
        "HASHTABLE_IMPORT",
        [table, m.constant(int64([3, 5, 3])), m.constant(int64([10, 20, 30]))],
        [],
    )
    inputs = [table, m.input([2], dtype="int64"), m.constant(int64([0]))]
    m.output(*m.op("HASHTABLE_FIND", inputs, [[2]], dtype="int64"))
    before = """
        inputs %0: int64[2]
        %1: resource[1] = HASHTABLE()
        HASHTABLE_IMPORT(%1, [3, 5, 3], [10, 20, 30])
        %2: int64[2] = HASHTABLE_FIND(%1, %0, [0])
        return %2
    """
    after = """
        inputs %0: int64[2]
        %1: int64[2] = HASHTABLE_FIND([3, 5], [10, 20], %0, [0])
        return %1
    """
    model = read_model(m.bytes())
    check_pass(lambda _: fold_hash_tables(model).graphs[0], model.graphs[0], before, after)


def test_inline_subgraphs() -> None:
    """A call is replaced by the operators of its sub-graph."""
    m = Build()
    inner = m.subgraph("inner")
    inner.output(*inner.op("NEG", [inner.input([2])], [[2]]))
    (y,) = m.op("ABS", [m.input([2])], [[2]])
    m.output(*m.op("CALL", [y], [[2]], subgraph=1))
    before = """
        inputs %0: float32[2]
        %1: float32[2] = ABS(%0)
        %2: float32[2] = CALL(%1)
        return %2
    """
    after = """
        inputs %0: float32[2]
        %1: float32[2] = ABS(%0)
        %2: float32[2] = NEG(%1)
        return %2
    """
    model = read_model(m.bytes())
    check_pass(lambda _: inline_subgraphs(model), model.graphs[0], before, after)
