"""passes/stored_numbers/move_zero_points.py: integers that stay, without their zero points."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from tests.support import Build
from tests.support.graph_text import make_model, parse_graph
from tests.support.runtimes import session
from tests.support.streams import SHAPE, assign, handle, initialise, read_variable
from tflite2onnx import ConversionError, Stateful, convert
from tflite2onnx.passes.stored_numbers.move_zero_points import MovedZeroPoints
from tflite2onnx.verification import verify

STEP = "stride_h=1, stride_w=1"
PADDED, PLAIN = f"padding=SAME, {STEP}", f"padding=VALID, {STEP}"
WEIGHTS = "int8(0.01, 0)[4,3,3,4], int32(0.0004, 0)[4]"
DEEP = "int8(0.02, 0)[1,3,3,4], int32(0.0008, 0)[4]"
ONE, TWO = "int8(0.04, -128)[1,6,6,4]", "int8(0.06, -30)[1,6,6,4]"
POOL = f"filter_height=2, filter_width=2, {STEP}"


def enclose(text: str, shape: str = "1,6,6,4", last: str = "y") -> str:
    """Return operators on "x", int8(0.04, -128)[1,6,6,4], as a network of floats."""
    return f"""
        inputs r: float32[1,6,6,4]
        x: {ONE} = QUANTIZE(r)
        {text}
        z: float32[{shape}] = DEQUANTIZE({last})
        return z
        """


# Networks, and how many of their tensors of 8 bits keep their integers.
NETWORKS: dict[str, tuple[str, int]] = {
    "padded convolution": (enclose(f"y: {TWO} = CONV_2D(x, {WEIGHTS}, {PADDED})"), 2),
    "without a bias": (
        enclose(f"y: {TWO} = FULLY_CONNECTED(x, int8(0.02, 0)[4,4], none, keep_num_dims=True)"),
        2,
    ),
    "activation of the range": (
        enclose(
            f"y: {ONE} = DEPTHWISE_CONV_2D(x, {DEEP}, {PADDED}, depth_multiplier=1,"
            " fused_activation_function=RELU)"
        ),
        2,
    ),
    "activation inside of the range": (
        enclose(f"y: {TWO} = CONV_2D(x, {WEIGHTS}, {PADDED}, fused_activation_function=RELU)"),
        1,
    ),
    "moved elements": (
        enclose(
            f"""p: int8(0.04, -128)[1,8,6,4] = PAD(x, [[0, 0], [1, 1], [0, 0], [0, 0]])
        m: int8(0.04, -128)[1,7,5,4] = MAX_POOL_2D(p, padding=VALID, {POOL})
        a: int8(0.04, -128)[1,7,5,4] = AVERAGE_POOL_2D(m, padding=SAME, {POOL})
        c: int8(0.04, -128)[1,7,5,8] = CONCATENATION(m, a, axis=3)
        t: int8(0.04, -128)[1,280] = RESHAPE(c, [1, 280])
        y: int8(0.1, 20)[1,3] = FULLY_CONNECTED(t, int8(0.02, 0)[3,280], int32(0.0008, 0)[3])""",
            "1,3",
        ),
        7,
    ),
    "sums": (
        enclose(
            f"""a: {TWO} = CONV_2D(x, {WEIGHTS}, {PADDED})
        b: {ONE} = ADD(a, x, fused_activation_function=RELU)
        c: {TWO} = SUB(b, x)
        d: int8(0.07, 11)[1,6,6,4] = QUANTIZE(c)
        y: {TWO} = ADD(d, a, fused_activation_function=RELU)"""
        ),
        5,
    ),
    "products and curves": (
        enclose(
            f"""a: int8(0.00390625, -128)[1,6,6,4] = LOGISTIC(x)
        b: {TWO} = MUL(a, x)
        c: {ONE} = MUL(b, int8(0.01, 5)[4])
        y: int8(0.00390625, -128)[1,6,6,4] = SOFTMAX(c, beta=1.0)"""
        ),
        5,
    ),
    "activations": (
        enclose(
            f"""a: {TWO} = LEAKY_RELU(x, alpha=0.25)
        b: int8(0.0078125, 0)[1,6,6,4] = TANH(a)
        c: {TWO} = HARD_SWISH(b)
        y: {ONE} = RELU(c)"""
        ),
        4,
    ),
    "several scales": (
        """
        inputs r: float32[1,6,6,4]
        a: uint8(0.04, 0)[1,6,6,4] = QUANTIZE(r)
        b: uint8(0.06, 98)[1,6,6,4] = QUANTIZE(r)
        c: uint8(0.05, 121)[1,6,6,8] = CONCATENATION(a, b, axis=3)
        y: uint8(0.03, 133)[1,8] = MEAN(c, [1, 2])
        z: float32[1,8] = DEQUANTIZE(y)
        return z
        """,
        4,
    ),
    "transposed convolution": (
        enclose(
            """y: int8(0.01, -30)[1,12,12,4] = TRANSPOSE_CONV([1, 12, 12, 4],
            int8(0.01, 0)[4,2,2,4], x, padding=VALID, stride_h=2, stride_w=2)""",
            "1,12,12,4",
        ),
        1,
    ),
    "resized image": (
        enclose(
            f"y: {ONE.replace('6,6', '12,12')} ="
            " RESIZE_BILINEAR(x, [12, 12], align_corners=False, half_pixel_centers=True)",
            "1,12,12,4",
        ),
        2,
    ),
    "largest elements": (
        f"""
        inputs r: float32[1,6,6,4]
        x: {ONE} = QUANTIZE(r)
        a: {TWO} = CONV_2D(x, {WEIGHTS}, {PADDED})
        y: int64[1,6,6] = ARG_MAX(a, 3, output_type=INT64)
        z: float32[1,6,6] = CAST(y)
        s: float32[1,6,6,4] = DEQUANTIZE(a)
        return s, z
        """,
        2,
    ),
    "an operator that needs the zero point": (
        enclose(f"a: {ONE} = MAX_POOL_2D(x, padding=SAME, {POOL})\n        y: {TWO} = ABS(a)"),
        0,
    ),
    "constants beside data": (
        enclose(f"y: {ONE} = MAXIMUM(x, int8(0.04, -128)[4])"),
        0,
    ),
    "int8 ends": (
        f"""
        inputs x: {ONE}
        a: {TWO} = CONV_2D(x, {WEIGHTS}, {PADDED})
        y: {ONE} = CONV_2D(a, {WEIGHTS}, {PADDED})
        return y
        """,
        1,
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("forms", ["fastest", "canonical"])
def test_numbers_equal_litert_up_to_a_step(name: str, forms: Any) -> None:
    """Outputs equal LiteRT's up to a step if all integers are kept."""
    text, kept = NETWORKS[name]
    assert len(MovedZeroPoints(parse_graph(text)).tensors) == kept
    model = make_model(text)
    result = convert(model, quantization="symmetric", forms=forms)
    known = {each.name: numpy_helper.to_array(each) for each in result.model.graph.initializer}
    points = [
        known[node.input[2]]
        for node in result.model.graph.node
        if node.op_type.endswith("tizeLinear") and node.input[2:]
    ]
    assert not any(point.any() for point in points)
    report = verify(model, result, samples=2, per_operator=True)
    assert report.ok
    assert report.outputs[0].decibels > 24
    assert min(each.difference.decibels for each in report.operators) > 24


@pytest.mark.parametrize("batch", [1, None])
def test_bias_takes_up_both_zero_points(batch: int | None) -> None:
    """Zeros of the padding are the zero point, and the bias takes up both zero points."""
    m = Build()
    shape = [batch, 2, 2, 1]
    r = m.input(shape, dtype="float32")
    (x,) = m.op("QUANTIZE", [r], [m.tensor(shape, dtype="int8", scale=0.5, zero_point=-100)])
    w = m.constant(np.array([[[[1], [2]]]], np.int8), scale=0.25, zero_point=0)
    b = m.constant(np.array([7], np.int32), scale=0.125, zero_point=0)
    y = m.tensor(shape, dtype="int8", scale=0.5, zero_point=10)
    m.op("CONV_2D", [x, w, b], [y], padding="SAME", stride_h=1, stride_w=1)
    m.output(*m.op("DEQUANTIZE", [y], [m.tensor(shape, dtype="float32")]))
    result = convert(m.bytes(), quantization="symmetric")
    kinds = [node.op_type for node in result.model.graph.node]
    assert [kinds.count(kind) for kind in ("Pad", "Add", "Relu")] == [1, 2, 0]
    known = [numpy_helper.to_array(each) for each in result.model.graph.initializer]
    (bias,) = [each for each in known if each.dtype == np.int32]
    assert bias.tolist() == [7 + 100 * (1 + 2) + 10 * 4]  # 4 steps of sums are one of the result
    assert any(each.dtype == np.int8 and -100 in each.reshape(-1) for each in known)
    # A sum is often half a step, which LiteRT's plain kernel rounds away from 0: a step is 0.5.
    assert verify(m.bytes(), result).outputs[0].largest <= 0.5


def test_tiny_weights_get_a_scale_fitting_the_bias() -> None:
    """A channel of tiny weights gets a larger scale, so that the moved bias fits into 32 bits."""
    m = Build()
    r = m.input([1, 4], dtype="float32")
    (x,) = m.op("QUANTIZE", [r], [m.tensor([1, 4], dtype="int8", scale=0.5, zero_point=-128)])
    scale = np.array([0.02, 1e-9], np.float32)
    w = m.constant(
        np.array([[100, 3, 5, -100], [1, 1, 1, 1]], np.int8), scale=scale, zero_point=[0, 0]
    )
    y = m.tensor([1, 2], dtype="int8", scale=0.5, zero_point=-128)
    m.op("FULLY_CONNECTED", [x, w], [y])
    m.output(*m.op("DEQUANTIZE", [y], [m.tensor([1, 2], dtype="float32")]))
    result = convert(m.bytes(), quantization="symmetric")
    assert verify(m.bytes(), result).outputs[0].decibels > 30


def test_refuses_inputs_with_too_few_axes() -> None:
    """An input with too few axes is an error of the operator."""
    text = enclose(
        f"f: int8(0.04, -128)[144] = RESHAPE(x, [144])\n        y: {TWO} = CONV_2D(f, {WEIGHTS})"
    )
    with pytest.raises(ConversionError, match="must have the axes NHWC"):
        convert(make_model(text), quantization="symmetric")


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_states_keep_their_integers(dtype: str) -> None:
    """A state of one sign would lose a bit in another scale, in each run again."""
    m, rng = Build(), np.random.default_rng(0)
    lowest, highest = np.iinfo(dtype).min, np.iinfo(dtype).max
    kind: dict[str, Any] = {"dtype": dtype, "scale": 0.02, "zero_point": lowest}
    first = rng.integers(lowest, highest, SHAPE, dtype)
    places = [m.constant(np.array(each, np.int32)) for each in ([0, 1, 0], SHAPE)]
    shape = m.constant(np.array([2, 20], np.int32))
    initialise(m, memory=first)
    memory = handle(m, "memory")
    (x,) = m.op("QUANTIZE", [m.input([2, 1, 5], dtype="float32")], [m.tensor([2, 1, 5], **kind)])
    (rows,) = m.op(
        "CONCATENATION",
        [read_variable(m, memory, **kind), x],
        [m.tensor([2, 4, 5], **kind)],
        axis=1,
    )
    (last,) = m.op("SLICE", [rows, *places], [m.tensor(SHAPE, **kind)])
    assign(m, memory, last)
    (row,) = m.op("RESHAPE", [rows, shape], [m.tensor([2, 20], **kind)])
    numbers = rng.integers(lowest + 1, highest, (3, 20), dtype)
    w = m.constant(numbers, scale=0.01, zero_point=lowest + 128)
    y = m.tensor([2, 3], dtype=dtype, scale=0.01, zero_point=lowest + 128)
    m.op("FULLY_CONNECTED", [row, w], [y])
    m.output(*m.op("DEQUANTIZE", [y], [m.tensor([2, 3], dtype="float32")]))
    result = convert(m.bytes(), quantization="symmetric", states="required")
    (state,) = result.states
    assert state.initial.dtype == np.int8
    assert np.array_equal(state.initial, first.astype(int) - lowest - 128)
    whole = convert(m.bytes())
    lives = [Stateful(session(each.model, optimize=True)) for each in (whole, result)]
    for _ in range(9):
        feed = rng.uniform(0, 5, [2, 1, 5]).astype(np.float32)
        want, have = (live.run(None, {whole.inputs[0].name: feed})[0] for live in lives)
        assert np.abs(want - have).max() <= 1.001 * 0.01
