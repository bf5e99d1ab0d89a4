"""Lists of sizes, axes and counts whose length the file does not know, against LiteRT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.dynamic_sizes.test_functions import draw, ints
from tests.dynamic_sizes.test_networks import compare_sizes
from tests.support import Build
from tests.support.runtimes import Array
from tests.support.tensor import Tensor
from tflite2onnx import ConversionError, convert

# The inputs of one run after those of the reshaped tensor.
Runs = Sequence[Sequence[Array]]


def open_list(m: Build) -> Tensor:
    return m.input([None], dtype="int32")


def open_tensor(m: Build, rank: int, dtype: str = "float32") -> Tensor:
    return m.tensor([None] * rank, dtype=dtype)


def reshape_to_list(m: Build, rank: int) -> Tensor:
    """Return x [4, 12] in a shape that is an input of unknown length."""
    x, given = m.input([4, 12]), m.input([None], dtype="int64")
    shape = m.tensor([None], dtype="int32")
    m.op("CAST", [given], [shape])
    return m.op("RESHAPE", [x, shape], [open_tensor(m, rank)])[0]


def join(m: Build, *lists: Tensor) -> Tensor:
    shape = m.tensor([None], dtype="int32")
    return m.op("CONCATENATION", lists, [shape], axis=0)[0]


LISTS: dict[str, tuple[Callable[[Build], Tensor], Runs]] = {
    "pad": (
        lambda m: m.op(
            "PADV2",
            [open_list(m), m.constant(np.array([[1, 0]], np.int32)), m.constant(1)],
            [m.tensor([None], dtype="int32")],
        )[0],
        [[ints(3, 4, 4)], [ints(3, 8, 2)]],
    ),
    "concatenation": (
        lambda m: join(m, m.constant(ints(1)), open_list(m)),
        [[ints(3, 4, 4)], [ints(3, 8, 2)]],
    ),
    "two_lists": (
        lambda m: join(m, open_list(m), open_list(m)),
        [[ints(3, 4, 4), ints(1)], [ints(3, 8), ints(1, 2)]],
    ),
    "slice": (
        lambda m: m.op(
            "STRIDED_SLICE",
            [open_list(m), *(m.constant(ints(n)) for n in (1, 0, 1))],
            [m.tensor([None], dtype="int32")],
            end_mask=1,
        )[0],
        [[ints(9, 1, 3, 4, 4)], [ints(7, 1, 3, 8, 2)]],
    ),
    "gather": (
        lambda m: m.op("GATHER", [open_list(m), open_list(m)], [m.tensor([None], dtype="int32")])[
            0
        ],
        [[ints(9, 3, 4, 1), ints(1, 2, 2, 3)], [ints(8, 3, 2, 1, 7), ints(1, 0, 2, 3)]],
    ),
}


@pytest.mark.parametrize("name", LISTS)
def test_computed_lists_of_unknown_length_equal_litert(name: str) -> None:
    make, runs = LISTS[name]
    m = Build()
    x = m.input([4, 12])
    (y,) = m.op("RESHAPE", [x, make(m)], [open_tensor(m, 4)])
    (z,) = m.op("SQUEEZE", [y], [open_tensor(m, 3)])
    m.output(y, z)
    compare_sizes(m.bytes(), convert(m.bytes()), [[draw(4, 12), *run] for run in runs])


# After a shape of unknown length, each with lists of unknown length of its own: the rank of the
# reshaped tensor, the output, and for each run the shape and the other inputs.
AFTER: dict[str, tuple[int, Callable[[Build, Tensor], Sequence[Tensor]], Runs]] = {
    "SQUEEZE": (
        4,
        lambda m, y: m.op("SQUEEZE", [y], [open_tensor(m, 2)]),
        [[ints(1, 3, 16, 1)], [ints(4, 1, 1, 12)]],
    ),
    "TILE": (
        3,
        lambda m, y: m.op("TILE", [y, open_list(m)], [open_tensor(m, 3)]),
        [[ints(4, 3, 4), ints(1, 2, 1)], [ints(2, 24, 1), ints(2, 1, 3)]],
    ),
    "TRANSPOSE": (
        3,
        lambda m, y: m.op("TRANSPOSE", [y, open_list(m)], [open_tensor(m, 3)]),
        [[ints(4, 3, 4), ints(2, 0, 1)], [ints(2, 8, 3), ints(1, 0, 2)]],
    ),
    "PAD": (
        2,
        lambda m, y: m.op("PAD", [y, m.input([None, 2], dtype="int32")], [open_tensor(m, 2)]),
        [
            [ints(4, 12), np.array([[0, 1], [2, 0]], np.int32)],
            [ints(2, 24), np.array([[1, 1], [0, 0]], np.int32)],
        ],
    ),
    "SLICE": (
        2,
        lambda m, y: m.op("SLICE", [y, open_list(m), open_list(m)], [open_tensor(m, 2)]),
        [[ints(4, 12), ints(1, 0), ints(2, 5)], [ints(2, 24), ints(0, 9), ints(1, 7)]],
    ),
    "SPLIT_V": (
        2,
        lambda m, y: m.op(
            "SPLIT_V",
            [y, open_list(m), m.constant(1)],
            [open_tensor(m, 2), open_tensor(m, 2)],
            num_splits=2,
        ),
        [[ints(4, 12), ints(5, 7)], [ints(2, 24), ints(1, 23)]],
    ),
    "BROADCAST_TO": (
        3,
        lambda m, y: m.op("BROADCAST_TO", [y, open_list(m)], [open_tensor(m, 4)]),
        [[ints(4, 3, 4), ints(2, 4, 3, 4)], [ints(2, 24, 1), ints(5, 2, 24, 3)]],
    ),
    "SEGMENT_SUM": (
        3,
        lambda m, y: m.op("SEGMENT_SUM", [y, open_list(m)], [open_tensor(m, 3)]),
        [[ints(4, 3, 4), ints(0, 0, 1, 1)], [ints(2, 12, 2), ints(0, 1)]],
    ),
    "SUM": (
        3,
        lambda m, y: m.op("SUM", [y, open_list(m)], [open_tensor(m, 3)], keep_dims=True),
        [[ints(4, 3, 4), ints(1)], [ints(2, 24, 1), ints(-1, 0)]],
    ),
    "ADD": (
        3,
        lambda m, y: m.op("ADD", [y, m.input([None, None])], [open_tensor(m, 3)]),
        [[ints(4, 3, 4), draw(3, 4)], [ints(6, 2, 4), draw(1, 4)]],
    ),
    "CONCATENATION": (
        3,
        lambda m, y: m.op("CONCATENATION", [y, m.input([None] * 3)], [open_tensor(m, 3)], axis=-2),
        [[ints(4, 3, 4), draw(4, 2, 4)], [ints(2, 24, 1), draw(2, 5, 1)]],
    ),
    "FULLY_CONNECTED": (
        3,
        lambda m, y: m.op(
            "FULLY_CONNECTED", [y, m.constant(draw(5, 4)), None], [open_tensor(m, 2)]
        ),
        [[ints(4, 3, 4)], [ints(3, 2, 8)]],
    ),
}


@pytest.mark.parametrize("code", AFTER)
def test_operators_after_a_shape_of_unknown_length_equal_litert(code: str) -> None:
    rank, make, runs = AFTER[code]
    m = Build()
    m.output(*make(m, reshape_to_list(m, rank)))
    cases = [[draw(4, 12), shape.astype(np.int64), *rest] for shape, *rest in runs]
    compare_sizes(m.bytes(), convert(m.bytes()), cases)


@pytest.mark.parametrize("code", ["FILL", "SCATTER_ND"])
def test_lists_of_sizes_of_unknown_length_equal_litert(code: str) -> None:
    m = Build()
    if code == "FILL":
        m.output(*m.op("FILL", [open_list(m), m.constant(1.5)], [open_tensor(m, 3)]))
        cases = [[ints(2, 3, 12)], [ints(1, 7, 2)]]
    else:
        operands = [m.input([None, None], dtype="int32"), m.input([None]), open_list(m)]
        m.output(*m.op("SCATTER_ND", operands, [open_tensor(m, 2)]))
        indices = np.array([[0, 1], [1, 0], [2, 2]], np.int32)
        cases = [[indices[:n], draw(n), ints(n + 1, 3)] for n in (2, 3)]
    compare_sizes(m.bytes(), convert(m.bytes()), cases)


@pytest.mark.parametrize("code", ["RESHAPE", "SEGMENT_SUM", "SQUEEZE"])
def test_results_of_unknown_rank_have_an_axis_for_each_element_before_padding(code: str) -> None:
    """The paddings of the list are an input; they are 0 where the file does not know the rank."""
    m = Build()
    x, given = m.input([8, 6]), m.input([4], dtype="int64")
    pads, zero = m.input([1, 2], dtype="int32"), m.constant(np.int64(0))
    (padded,) = m.op("PADV2", [given, pads, zero], [m.tensor([None], dtype="int64")])
    (shape,) = m.op("CAST", [padded], [m.tensor([None], dtype="int32")])
    (y,) = m.op("RESHAPE", [x, shape], [m.tensor(None)])
    if code == "SEGMENT_SUM":
        (y,) = m.op(code, [y, m.constant(ints(0, 0, 0, 1, 2, 2, 3, 3))], [m.tensor(None)])
    if code == "SQUEEZE":
        (y,) = m.op(code, [y], [m.tensor(None)], squeeze_dims=[-1, 1])
    m.output(y)
    shapes = ((8, 1, 6, 1), (8, 1, -1, 1) if code != "RESHAPE" else (4, 3, 2, 2))
    cases = [[draw(8, 6), np.array(s, np.int64), np.zeros((1, 2), np.int32)] for s in shapes]
    compare_sizes(m.bytes(), convert(m.bytes()), cases)


@pytest.mark.parametrize("signed", [True, False])
def test_squeeze_of_unknown_counts_removes_them_if_they_are_1(*, signed: bool) -> None:
    """WHERE finds one element or several; LiteRT removes the axis of one."""
    m = Build()
    condition = m.input([4, 1], dtype="bool")
    sizes = [None, 2] if signed else [1, 2]
    (found,) = m.op("WHERE", [condition], [m.tensor(sizes, dtype="int64")])
    m.output(*m.op("SQUEEZE", [found], [m.tensor(sizes, dtype="int64")]))
    flags = [np.array(rows, np.bool_)[:, None] for rows in ([1, 0, 1, 1], [1, 0, 0, 1])]
    compare_sizes(m.bytes(), convert(m.bytes()), [[each] for each in flags])


def test_squeeze_keeps_the_dynamic_axes_of_an_input() -> None:
    m = Build()
    x = m.input([None, 1, None])
    m.output(*m.op("SQUEEZE", [x], [open_tensor(m, 2)]))
    compare_sizes(m.bytes(), convert(m.bytes()), [[draw(4, 1, 12)], [draw(3, 1, 5)]])


def test_squeeze_to_an_unknown_rank_is_refused() -> None:
    m = Build()
    x, shape = m.input([4, 12]), m.input([4], dtype="int32")
    (y,) = m.op("RESHAPE", [x, shape], [m.tensor(None)])
    m.output(*m.op("SQUEEZE", [y], [m.tensor(None)]))
    with pytest.raises(ConversionError, match="it must list the axes to remove"):
        convert(m.bytes())


def test_refusal_after_a_list_says_why_its_length_is_fixed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The length of an input is believed to be 1; the warning names the option that changes it."""
    m = Build()
    x, given = m.input([4, 12]), open_list(m)
    (y,) = m.op("RESHAPE", [x, given], [[1]])
    (z,) = m.op("SEGMENT_SUM", [y, m.constant(ints(0, 0, 1, 2))], [[3]])
    m.output(z)
    with pytest.raises(ConversionError):
        convert(m.bytes())
    assert "--shape" in caplog.text


def test_computed_length_leaves_the_sizes_of_inputs_apart() -> None:
    """Segments that WHERE counts are as many as the rows of x, but not as the numbers of n."""
    m = Build()
    x, n = m.input([None]), m.input([None], dtype="int32")
    (chosen,) = m.op("GREATER", [n, m.constant(ints(0))], [m.tensor([None], dtype="bool")])
    (places,) = m.op("WHERE", [chosen], [m.tensor([None, 1], dtype="int64")])
    flat = m.tensor([None], dtype="int64")
    m.op("RESHAPE", [places, m.constant(ints(-1))], [flat])
    numbers = m.tensor([None], dtype="int32")
    m.op("CAST", [flat], [numbers])
    count = m.constant(np.array(9, np.int32))
    m.output(*m.op("UNSORTED_SEGMENT_SUM", [x, numbers, count], [[9]]))
    data = m.bytes()
    result = convert(data)
    assert result.inputs[0].tflite_sizes != result.inputs[1].tflite_sizes
    runs = [[draw(3), ints(1, 0, 2, 0, 0, 3, 0)], [draw(4), ints(1, 1, 1, 0, 1)]]
    compare_sizes(data, result, runs)


WINDOW: dict[str, Any] = {"padding": "VALID", "stride_h": 1, "stride_w": 1}
# After images of unknown sizes and channels: an operator that needs a number of channels, or an
# image that is larger than the size that the file declares, 1.
IMAGES: dict[str, Callable[[Build, Tensor], Sequence[Tensor]]] = {
    "CONV_2D": lambda m, y: m.op(
        "CONV_2D",
        [y, m.constant(draw(5, 3, 2, 3)), m.constant(draw(5))],
        [open_tensor(m, 4)],
        **WINDOW,
    ),
    "DEPTHWISE_CONV_2D": lambda m, y: m.op(
        "DEPTHWISE_CONV_2D",
        [y, m.constant(draw(1, 2, 3, 3)), m.constant(draw(3))],
        [open_tensor(m, 4)],
        **WINDOW,
    ),
    "DEPTHWISE_CONV_2D with two filters for a channel": lambda m, y: m.op(
        "DEPTHWISE_CONV_2D",
        [y, m.constant(draw(1, 2, 3, 6)), m.constant(draw(6))],
        [open_tensor(m, 4)],
        depth_multiplier=2,
        **WINDOW,
    ),
    "LOCAL_RESPONSE_NORMALIZATION": lambda m, y: m.op(
        "LOCAL_RESPONSE_NORMALIZATION",
        [y],
        [open_tensor(m, 4)],
        radius=1, bias=1.0, alpha=0.5, beta=0.5,
    ),
    "STRIDED_SLICE": lambda m, y: m.op(
        "STRIDED_SLICE",
        [y, *(m.constant(ints(*each)) for each in ([0, 2, 0, 1], [1, 3, 9, 2], [1] * 4))],
        [open_tensor(m, 2)],
        shrink_axis_mask=10,
    ),
    "GATHER_ND": lambda m, y: m.op(
        "GATHER_ND",
        [y, m.constant(np.array([[0, 2, 1], [0, 1, 2]], np.int32))],
        [open_tensor(m, 2)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", IMAGES)
def test_operators_after_an_image_of_unknown_size_equal_litert(name: str) -> None:
    m = Build()
    x, shape = m.input([None, 3]), m.input([4], dtype="int32")
    (y,) = m.op("RESHAPE", [x, shape], [open_tensor(m, 4)])
    m.output(*IMAGES[name](m, y))
    cases = [[draw(24, 3), ints(1, 4, 6, 3)], [draw(15, 3), ints(1, 3, 5, 3)]]
    compare_sizes(m.bytes(), convert(m.bytes()), cases)


def test_one_unknown_size_may_be_on_two_axes() -> None:
    """Products of all rows, as `tf.tensordot` writes them: Reshape infers one size."""
    m = Build()
    x = m.input([None, 3])
    rows = m.tensor([None, 3])
    m.op("CONCATENATION", [x, x], [rows], axis=0)
    products = m.tensor([None, None])
    m.op("BATCH_MATMUL", [rows, rows], [products], adj_x=False, adj_y=True)
    (sizes,) = m.op("SHAPE", [x], [[2]], dtype="int32", out_type="INT32")
    bounds = [m.constant(ints(n)) for n in (0, 1, 1)]
    (count,) = m.op("STRIDED_SLICE", [sizes, *bounds], [[1]], dtype="int32")
    two = m.constant(ints(2))
    (shape,) = m.op("CONCATENATION", [two, count, two, count], [[4]], dtype="int32", axis=0)
    m.output(*m.op("RESHAPE", [products, shape], [m.tensor([2, None, 2, None])]))
    compare_sizes(m.bytes(), convert(m.bytes()), [[draw(2, 3)], [draw(5, 3)]])
