"""Float data with integer weights ("dynamic range"): the weights stay integers in the file.

LiteRT quantizes the data at run time, XNNPACK with zero points and some other kernels without. The
data here are multiples of 1/8 from -128/8 to 127/8 (or -127/8) with both extremes in every row, so
that their quantization is exact and the outputs must agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto

from tests.quantized.layers import LIMITS, Shape
from tests.quantized.test_products import SHAPES
from tests.support import Build, check
from tests.support.facts import carrier
from tests.support.fusions import count_optimized_nodes
from tflite2onnx import verify

if TYPE_CHECKING:
    from tests.support import Converted

Array = np.ndarray[Any, Any]

# Operator, weight type, whether there is a scale for each channel, and whether the kernel quantizes
# the data with a zero point: then the smallest integer is -128, otherwise -127.
CASES = [
    *(("CONV_2D", dtype, False, False) for dtype in ("int8", "uint8", "int4")),
    *(("CONV_2D", dtype, True, True) for dtype in ("int8", "int4")),
    ("groups", "int8", True, True),
    ("DEPTHWISE_CONV_2D", "int8", True, True),
    *(("TRANSPOSE_CONV", "int8", per_channel, True) for per_channel in (False, True)),
    ("FULLY_CONNECTED", "uint8", False, False),
    *(
        ("FULLY_CONNECTED", dtype, per_channel, asymmetric)
        for dtype in ("int8", "int4", "int2")
        for per_channel in (False, True)
        for asymmetric in (False, True)
    ),
    *(("kept axes", dtype, True, False) for dtype in ("int8", "int4")),
    *(("flattened", dtype, True, False) for dtype in ("int8", "int4")),
]


def weights(dtype: str, *shape: int) -> Array:
    # LiteRT's kernels for AVX2 read -128 as 128, because they multiply absolute values.
    low, high = max(LIMITS[dtype][0], -127), LIMITS[dtype][1]
    generator = np.random.default_rng(shape)
    return generator.integers(low, high, shape, carrier(dtype), endpoint=True)


def exact_rows(shape: tuple[int, ...], least: int) -> Array:
    """Return data with both extremes in each row of the last axis."""
    integers = np.random.default_rng(shape).integers(least, 127, shape, endpoint=True)
    integers.reshape(-1, shape[-1])[:, :2] = least, 127
    return (integers / 8).astype(np.float32)


def hybrid(
    shape: Shape,
    dtype: str,
    *,
    per_channel: bool,
    bias: bool = True,
    integers: Array | None = None,
    **options: Any,
) -> bytes:
    """Return a model of one hybrid layer, by default with random weights."""
    m, channels = Build(), shape.w[shape.channel]
    generator = np.random.default_rng(1)
    scale = generator.uniform(0.01, 0.1, channels if per_channel else 1).astype(np.float32)
    # The hybrid kernels ignore the zero point of uint8 weights.
    zero = 100 if dtype == "uint8" else 0
    integers = weights(dtype, *shape.w) if integers is None else integers
    w = m.constant(integers, dtype=dtype, scale=scale, zero_point=zero, axis=shape.channel)
    b = m.constant(generator.standard_normal(channels).astype(np.float32)) if bias else None
    x = m.input(shape.x)
    operands = [x, w, b]
    if shape.code == "TRANSPOSE_CONV":
        operands = [m.constant(np.array(shape.y, np.int32)), w, x, b]
    m.output(*m.op(shape.code, operands, [shape.y], **{**shape.options, **options}))
    return m.bytes()


def extremes(shape: Shape, *, asymmetric: bool = False) -> list[Array]:
    return [exact_rows(tuple(shape.x), -128 if asymmetric else -127)]


def takes(layer: Shape, dtype: str) -> bool:
    """Return whether XNNPACK takes a layer by these weights; their rows must be whole bytes."""
    if layer.code != "FULLY_CONNECTED":
        return dtype == "int8"
    features = int(np.prod(layer.w[1:]))
    return features % {"int8": 1, "int4": 2, "int2": 4}.get(dtype, features + 1) == 0


def initializers(result: Converted) -> set[int]:
    """Return the element types of the large initializers."""
    return {i.data_type for i in result.model.graph.initializer if len(i.dims) > 1}


@pytest.mark.parametrize(("shape", "dtype", "per_channel", "asymmetric"), CASES)
def test_every_type_equals_litert_with_exact_data(
    shape: str, dtype: str, *, per_channel: bool, asymmetric: bool
) -> None:
    """The runtimes agree; the weights are dequantized at load, and the data are rounded."""
    layer = SHAPES[shape]
    dense = layer.code == "FULLY_CONNECTED"
    options: dict[str, Any] = {"asymmetric_quantize_inputs": True} if asymmetric and dense else {}
    data = hybrid(layer, dtype, per_channel=per_channel, **options)
    delegated = takes(layer, dtype)
    inputs = extremes(layer, asymmetric=asymmetric or delegated)
    result = check(data, inputs=inputs, default_kernels=delegated)
    left = count_optimized_nodes(result.model)
    assert left["MatMulNBits"] == 0, left
    assert left["DequantizeLinear"] == 1, left
    stored = "int8" if dtype == "uint8" else dtype
    assert initializers(result) <= {getattr(TensorProto, stored.upper()), TensorProto.FLOAT}


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("rows_of_data", [1, 3])
def test_many_weights_are_multiplied_as_integers(dtype: str, rows_of_data: int) -> None:
    """Weights of many multiplications stay integers, and are multiplied as integers."""
    layer = Shape("FULLY_CONNECTED", [rows_of_data, 350], [300, 350], [rows_of_data, 300])
    integers = weights("int8", *layer.w).view(carrier(dtype))  # LiteRT reads -128 as 128
    data = hybrid(layer, dtype, per_channel=dtype == "int8", integers=integers)
    delegated = dtype == "int8"
    inputs = extremes(layer, asymmetric=delegated)
    result = check(data, inputs=inputs, default_kernels=delegated)
    left = count_optimized_nodes(result.model)
    assert left["MatMulIntegerToFloat"] + left["DynamicQuantizeMatMul"] == 1, left
    assert left["Gemm"] == (1 if delegated and rows_of_data > 1 else 0), left


def test_one_row_keeps_its_axes_without_a_reshape() -> None:
    options = {"keep_num_dims": True}
    layer = Shape("FULLY_CONNECTED", [1, 1, 350], [300, 350], [1, 1, 300], options=options)
    data = hybrid(layer, "int8", per_channel=True, bias=False)
    result = check(data, inputs=extremes(layer, asymmetric=True), default_kernels=True)
    assert "Reshape" not in {node.op_type for node in result.model.graph.node}


STEPS = {"padding": "SAME", "stride_h": 1, "stride_w": 1}


@pytest.mark.parametrize("activation", ["NONE", "RELU", "RELU6"])
def test_windows_with_a_bias_of_0_are_multiplied_as_integers(activation: str) -> None:
    """Between MatMul and another node, Relu and Clip would end in dequantized weights."""
    m, w = Build(), weights("int8", 192, 3, 3, 48)
    kernel = m.constant(w, scale=np.full(192, 0.1, np.float32), axis=0)
    inputs = [m.input([1, 13, 13, 48]), kernel, m.constant(np.zeros(192, np.float32))]
    options: dict[str, Any] = {**STEPS, "fused_activation_function": activation}
    (y,) = m.op("CONV_2D", inputs, [[1, 13, 13, 192]], **options)
    m.output(*m.op("NEG", [y], [y.shape]))
    result = check(m.bytes(), tolerance=0.01, default_kernels=True)
    left = count_optimized_nodes(result.model)
    assert left["MatMulIntegerToFloat"] == 1, left
    assert left["DequantizeLinear"] == 0, left


@pytest.mark.parametrize("code", ["FULLY_CONNECTED", "BATCH_MATMUL"])
def test_other_data_are_added_after_a_product_of_integers(code: str) -> None:
    """A Gemm of both would dequantize all weights in each run."""
    m, w = Build(), weights("int8", 300, 350)
    kernel = m.constant(w, scale=np.full(300, 0.1, np.float32), axis=0)
    options: dict[str, Any] = {"adj_y": True} if code == "BATCH_MATMUL" else {}
    x = m.input([1, 350])
    (product,) = m.op(code, [x, kernel], [[1, 300]], dtype="float32", **options)
    other = m.input([1, 300])
    m.output(*m.op("ADD", [product, other], [[1, 300]]))
    result = check(m.bytes(), default_kernels=True)
    left = count_optimized_nodes(result.model)
    assert left["MatMulIntegerToFloat"] + left["DynamicQuantizeMatMul"] == 1, left
    assert left["Gemm"] + left["DequantizeLinear"] == 0, left


@pytest.mark.parametrize("dtype", ["int8", "int4"])
@pytest.mark.parametrize("shape", ["CONV_2D", "FULLY_CONNECTED"])
def test_random_data_agree_within_their_quantization(shape: str, dtype: str) -> None:
    """With random data the runtimes differ by the quantization of the data."""
    check(hybrid(SHAPES[shape], dtype, per_channel=True), tolerance=0.01)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    "activation", ["NONE", "RELU", "RELU6", "RELU_N1_TO_1", "TANH", "SIGN_BIT"]
)
def test_every_activation_equals_litert(activation: str, *, keep: bool) -> None:
    """The kernel applies all activation functions."""
    layer = SHAPES["kept axes" if keep else "FULLY_CONNECTED"]
    data = hybrid(layer, "int8", per_channel=True, fused_activation_function=activation)
    delegated = activation not in ("TANH", "SIGN_BIT")
    inputs = extremes(layer, asymmetric=delegated)
    check(data, inputs=inputs, default_kernels=delegated)


def test_product_without_bias_is_one_gemm() -> None:
    layer = SHAPES["FULLY_CONNECTED"]
    data = hybrid(layer, "int4", per_channel=True, bias=False)
    result = check(data, inputs=extremes(layer))
    assert [n.op_type for n in result.model.graph.node][-2:] == ["DequantizeLinear", "Gemm"]


@pytest.mark.parametrize(
    ("shape", "dtype", "opset", "stored"),
    [
        *(
            (shape, "int4", opset, stored)
            for shape in ("FULLY_CONNECTED", "CONV_2D")
            for opset, stored in ((None, "INT4"), (13, "INT8"), (20, "INT8"), (21, "INT4"))
        ),
        ("FULLY_CONNECTED", "int2", None, "INT2"),
        ("FULLY_CONNECTED", "int2", 13, "INT8"),
        ("FULLY_CONNECTED", "int2", 24, "INT8"),
        ("FULLY_CONNECTED", "int2", 25, "INT2"),
    ],
)
def test_narrow_weights_are_packed_if_opset_allows(
    shape: str, dtype: str, opset: int | None, stored: str
) -> None:
    """Weights of 4 and 2 bits are packed if the opset has the type; the default opset has it."""
    layer = SHAPES[shape]
    data = hybrid(layer, dtype, per_channel=False)
    result = check(data, inputs=extremes(layer), opset=opset)
    assert initializers(result) == {getattr(TensorProto, stored)}


@pytest.mark.parametrize("multiplier", [1, 2])
def test_litert_reads_a_scale_for_each_filter_in_verification(multiplier: int) -> None:
    """LiteRT's kernels for depthwise filters of one scale read the memory after it."""
    m, filters = Build(), 8 * multiplier
    w = m.constant(weights("int8", 1, 3, 3, filters), scale=0.01, zero_point=0)
    operands = [m.input([1, 6, 6, 8]), w, m.constant(np.zeros(filters, np.float32))]
    options: dict[str, Any] = {
        "stride_w": 1,
        "stride_h": 1,
        "dilation_w_factor": 1,
        "dilation_h_factor": 1,
    }
    shape = [1, 6, 6, filters]
    m.output(
        *m.op(
            "DEPTHWISE_CONV_2D",
            operands,
            [shape],
            padding="SAME",
            depth_multiplier=multiplier,
            **options,
        )
    )
    report = verify(m.bytes(), per_operator=True)
    assert (report.ok, report.operators[0].difference.ok) == (True, True)
    assert report.misread == ("DEPTHWISE_CONV_2D (operator 0)",)


def test_misread_weights_are_replaced_in_a_file_with_bytes_after_the_flatbuffer() -> None:
    """Weights and options of custom operators stay, as ai-edge-quantizer writes them."""
    m, shape = Build(), [1, 4, 5, 8]
    options = {"hadamard_size": 4, "random_binary_vector": [1, -1, 1, 1]}
    x = m.input([20, 8])
    (turned,) = m.custom("aeq.hadamard_rotation", [x], [[20, 8]], options, external=True)
    (image,) = m.op("RESHAPE", [turned, m.constant(shape, external=True)], [shape])
    weights = np.random.default_rng(0).integers(-127, 128, (1, 3, 3, 8), np.int8)
    w, bias = m.constant(weights, scale=0.01, external=True), m.constant(np.zeros(8, np.float32))
    (y,) = m.op("DEPTHWISE_CONV_2D", [image, w, bias], [shape], stride_h=1, stride_w=1)
    m.output(*m.op("ADD", [y, m.constant(np.ones(8, np.float32), external=True)], [shape]))
    report = verify(m.bytes())
    assert report.misread == ("DEPTHWISE_CONV_2D (operator 2)",)
    assert report.ok
