"""Small models that together have most features of the file format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.fuzz.rarer import RARER
from tests.op.recurrent import cells
from tests.op.recurrent.cells import Form
from tests.support import Build, sparsify
from tests.support.control import (
    add_if,
    add_less,
    apply_operator,
    count_rounds,
    graph,
    like,
    loop,
    number,
    op,
)
from tests.support.keras import Keras
from tests.support.reading import float32, int32
from tests.support.small import build_flattening, convolve, network
from tests.support.streams import SHAPE, assign, handle, initialise, read_variable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support import Subgraph, Tensor


_UNARY = (
    "ABS",
    "RELU",
    "RELU6",
    "LOGISTIC",
    "TANH",
    "EXP",
    "NEG",
    "SQRT",
    "HARD_SWISH",
    "GELU",
    "LEAKY_RELU",
    "ELU",
)


def unary() -> bytes:
    """Build a chain of elementwise operators."""
    m = Build()
    x = m.input([2, 3, 5], name="x")
    for code in _UNARY:
        (x,) = m.op(code, [x], [x.shape])
    (x,) = m.op("SOFTMAX", [x], [x.shape], beta=1.0)
    (x,) = m.op("CAST", [x], [x.shape], dtype="int32", in_data_type=0, out_data_type=2)
    m.output(x)
    return m.bytes()


def binary() -> bytes:
    """Build broadcasting, comparisons, selections and fused activations."""
    m = Build()
    x, y, c = m.input([2, 3, 5]), m.input([3, 1]), m.constant(float32([[1], [2], [3]]))
    for code in ("ADD", "SUB", "MUL", "DIV"):
        (x,) = m.op(code, [x, y], [[2, 3, 5]], fused_activation_function="RELU")
    for code in ("MAXIMUM", "MINIMUM", "POW", "SQUARED_DIFFERENCE"):
        (x,) = m.op(code, [x, c], [[2, 3, 5]])
    (less,) = m.op("LESS", [x, y], [[2, 3, 5]], dtype="bool")
    m.output(*m.op("SELECT_V2", [less, x, c], [m.tensor([2, 3, 5])]))
    return m.bytes()


def axes() -> bytes:
    """Build operators that move, slice and gather along axes."""
    m = Build()
    x = m.input([2, 3, 5, 7], name="x")
    (x,) = m.op("TRANSPOSE", [x, m.constant(int32([0, 3, 1, 2]))], [[2, 7, 3, 5]])
    (x,) = m.op("PAD", [x, m.constant(int32([[0, 0], [1, 1], [0, 0], [2, 0]]))], [[2, 9, 3, 7]])
    (x,) = m.op(
        "MIRROR_PAD",
        [x, m.constant(int32([[0, 0], [1, 1], [0, 0], [2, 0]]))],
        [[2, 11, 3, 9]],
        mode="SYMMETRIC",
    )
    bounds = [m.constant(int32(b)) for b in ([0, 1, 0, 0], [2, 11, 3, 9], [1, 2, 1, 1])]
    (x,) = m.op("STRIDED_SLICE", [x, *bounds], [[2, 5, 3, 9]], begin_mask=1)
    (x,) = m.op("CONCATENATION", [x, x], [[2, 10, 3, 9]], axis=1)
    halves = m.op("SPLIT", [m.constant(int32([1])), x], [[2, 5, 3, 9]] * 2, num_splits=2)
    (x,) = m.op("PACK", halves, [[2, 2, 5, 3, 9]], axis=1, values_count=2)
    x, _ = m.op("UNPACK", [x], [[2, 5, 3, 9]] * 2, axis=1, num=2)
    (x,) = m.op("GATHER", [x, m.constant(int32([4, 0, 1]))], [[2, 3, 3, 9]], axis=1)
    (x,) = m.op("TILE", [x, m.constant(int32([1, 2, 1, 1]))], [[2, 6, 3, 9]])
    (x,) = m.op("MEAN", [x, m.constant(int32([2]))], [[2, 6, 9]])
    (x,) = m.op("EXPAND_DIMS", [x, m.constant(int32([1]))], [[2, 1, 6, 9]])
    (x,) = m.op("SQUEEZE", [x], [[2, 6, 9]], squeeze_dims=[1])
    m.output(*m.op("ARG_MAX", [x, m.constant(int32([2]))], [[2, 6]], dtype="int32", output_type=2))
    indices = m.tensor([2, 6, 3], dtype="int32")
    m.output(*m.op("TOPK_V2", [x, m.constant(int32(3))], [m.tensor([2, 6, 3]), indices]))
    return m.bytes()


def images() -> bytes:
    """Build convolutions, pooling, resizing, and blocks of pixels."""
    m = Build()
    x = convolve(m, m.input([1, 8, 8, 3], name="x"), 4, "conv")
    weights = m.constant(np.ones((1, 3, 3, 4), np.float32))
    window: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
    (x,) = m.op(
        "DEPTHWISE_CONV_2D",
        [x, weights, m.constant(np.ones(4, np.float32))],
        [[1, 8, 8, 4]],
        depth_multiplier=1,
        fused_activation_function="RELU6",
        **window,
    )
    (x,) = m.op(
        "MAX_POOL_2D",
        [x],
        [[1, 4, 4, 4]],
        filter_height=2,
        filter_width=2,
        stride_h=2,
        stride_w=2,
        padding="VALID",
    )
    (x,) = m.op("AVERAGE_POOL_2D", [x], [x.shape], filter_height=3, filter_width=3, **window)
    for code in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"):
        side = x.shape[1] * 2
        (x,) = m.op(code, [x, m.constant(int32([side, side]))], [[1, side, side, 4]])
    (x,) = m.op("SPACE_TO_DEPTH", [x], [[1, 8, 8, 16]], block_size=2)
    m.output(*m.op("DEPTH_TO_SPACE", [x], [[1, 16, 16, 4]], block_size=2))
    return m.bytes()


def build_quantized() -> bytes:
    """Build quantized operators, also with scales along an axis."""
    m = Build()
    q: dict[str, Any] = {"dtype": "int8", "scale": 0.05, "zero_point": 3}
    (x,) = m.op("QUANTIZE", [m.input([1, 6, 6, 2], name="x")], [m.tensor([1, 6, 6, 2], **q)])
    scales = float32([0.5, 0.25, 0.125])
    weights = m.constant(np.ones((3, 3, 3, 2), np.int8), scale=scales)
    bias = m.constant(int32([1, 2, 3]), scale=scales * 0.05)
    (y,) = m.op(
        "CONV_2D",
        [x, weights, bias],
        [m.tensor([1, 4, 4, 3], **q)],
        stride_h=1,
        stride_w=1,
        padding="VALID",
        fused_activation_function="RELU",
    )
    (y,) = m.op("ADD", [y, y], [m.tensor([1, 4, 4, 3], **q)])
    (y,) = m.op("RESHAPE", [y, m.constant(int32([1, 48]))], [m.tensor([1, 48], **q)])
    fc = m.constant(np.ones((5, 48)), dtype="int4", scale=0.1)
    (y,) = m.op("FULLY_CONNECTED", [y, fc, None], [m.tensor([1, 5], **q)])
    probability = m.tensor([1, 5], dtype="int8", scale=1 / 256, zero_point=-128)
    (y,) = m.op("SOFTMAX", [y], [probability], beta=1.0)
    m.output(*m.op("DEQUANTIZE", [y], [[1, 5]], dtype="float32"))
    return m.bytes()


def constants() -> bytes:
    """Build sparse, narrow, string and external constants, and operators on constants only."""
    m = Build()
    x = m.input([2, 4], name="x")
    dense = np.diag(float32([1, 2, 3, 4]))
    values, levels = sparsify(dense, ["dense", "csr"])
    sparse = m.constant(values, shape=[4, 4], sparsity=levels)
    (weights,) = m.op("DENSIFY", [sparse], [[4, 4]])
    (x,) = m.op("FULLY_CONNECTED", [x, weights, None], [[2, 4]])
    half = m.constant(np.ones((2, 4), np.float16), external=True)
    (c,) = m.op("DEQUANTIZE", [half], [[2, 4]], dtype="float32")
    (x,) = m.op("ADD", [x, c], [[2, 4]])
    (shape,) = m.op("SHAPE", [x], [[2]], dtype="int32", out_type="int32")
    (shape,) = m.op("CONCATENATION", [shape, m.constant(int32([1]))], [[3]], axis=0)
    m.output(*m.op("RESHAPE", [x, shape], [[2, 4, 1]]))
    text = m.constant(np.array(["a", "bc"], object))
    m.output(*m.op("EQUAL", [m.input([2], dtype="string"), text], [[2]], dtype="bool"))
    m.metadata("about", b"of the test")
    m.signature("main", {"x": x}, {"y": x})
    return m.bytes()


def composite() -> bytes:
    """Build a composite operator with a sub-graph and an intermediate tensor."""
    m = Build()
    x = m.input([None, 3], name="x")
    body = m.subgraph("body")
    y = body.input([1, 3])
    body.output(*body.op("RELU", [y], [[1, 3]]))
    m.output(
        *m.op(
            "STABLEHLO_COMPOSITE",
            [x],
            [[1, 3]],
            name="mine",
            decomposition_subgraph_index=1,
            intermediates=[m.tensor([1], scale=0.5)],
        )
    )
    return m.bytes()


def custom() -> bytes:
    """Build custom operators that the converter does not know."""
    m = Build()
    x = m.input([1, 3], name="x")
    m.output(*m.custom("Mine", [x, None], [[1, 3]], {"size": 3, "deep": {"er": [1, 2.5, "x"]}}))
    m.output(*m.custom("Other", [x], [[1, 3]], b"a struct", external=True))
    return m.bytes()


def control() -> bytes:
    """Build loops and branches, also nested."""
    m = Build()
    count, x = m.input([], dtype="int32", name="count"), m.input([1, 4, 5, 3], name="x")

    def branch(inner: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        return add_if(
            m, add_less(inner, xs, 2), xs, image, count_rounds(apply_operator("ABS")), at=inner
        )

    def image(inner: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        return [op(inner, "ADD", xs[0], number(inner, 1)), convolve(inner, xs[1], 3, "inside")]

    count, x = loop(m, [count, x], branch)
    branches = [graph(m, code, [x], apply_operator(code)).index for code in ("ABS", "NEG", "TANH")]
    (x,) = m.op("STABLEHLO_CASE", [count, x], [like(m, x)], branch_subgraph_indices=branches)
    m.output(
        x,
        *loop(
            m, [count, m.constant(np.ones((2, 3), np.float32))], count_rounds(apply_operator("EXP"))
        ),
    )
    return m.bytes()


def build_variables() -> bytes:
    """Build variables of all kinds, also in a branch, and two signatures."""
    m = Build()
    x, ones = m.input(SHAPE, name="x"), np.ones(SHAPE, np.float32)
    initialise(m, memory=ones, other=ones)
    (y,) = m.op("ADD", [read_variable(m, handle(m)), x], [SHAPE])
    state = m.tensor(SHAPE, name="state", variable=True)
    (y,) = m.op("ADD", [y, state], [SHAPE])
    m.op("ABS", [y], [state])
    assign(m, handle(m), y)
    other = m.subgraph("other")
    z = other.input(SHAPE)
    (more,) = other.op("ADD", [z, read_variable(other, handle(other, "other"))], [SHAPE])
    assign(other, handle(other, "other"), more)
    other.output(more)
    branches = [other.index, graph(m, "NEG", [y], apply_operator("NEG")).index]
    (y,) = m.op(
        "STABLEHLO_CASE",
        [m.input([], dtype="int32"), y],
        [m.tensor(SHAPE)],
        branch_subgraph_indices=branches,
    )
    m.output(y)
    m.signature("main", {"x": x}, {"y": y})
    m.signature("other", {"z": z}, {"more": more})
    return m.bytes()


MODELS: dict[str, Callable[[], bytes]] = {
    "network": lambda: network(shape=(1, 4, 5, 3)),
    "flattening": build_flattening,
    "unary": unary,
    "binary": binary,
    "axes": axes,
    "images": images,
    "quantized": build_quantized,
    "constants": constants,
    "composite": composite,
    "custom": custom,
    "control": control,
    "remembering": build_variables,
    "recurrent": lambda: Keras(batch=1, times=3).model().bytes(),
    "lstm": lambda: cells.lstm(Form(weights="int8", peephole=True, projection=True)),
    "filtering": lambda: cells.integer_svdf(Form(), dtype="int8"),
    "gated": lambda: Keras("GRU", batch=1, times=2, last=True).model().bytes(),
    "listed": lambda: Keras("RNN", listed=True, batch=None, turned=True, times=2).model().bytes(),
    **RARER,
}
