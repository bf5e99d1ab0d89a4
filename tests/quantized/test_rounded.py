"""Float data that is quantized at run time, as in LiteRT's kernels: by default those of XNNPACK.

LiteRT's own kernels quantize matrices by int8 weights in the same way if the file asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto

from tests.support import Build, check
from tests.support.costs import prefer_integers
from tests.support.fusions import count_optimized_nodes
from tflite2onnx.options import WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support import Converted, Tensor

Array = np.ndarray[Any, Any]
FEATURES, OUT = 521, 1031  # more than half a million weights


def data(*shape: int, seed: int = 0) -> Array:
    """Return numbers with a mean of 0.4, with rows of very different size, one of them 0."""
    generator = np.random.default_rng(seed)
    values = generator.standard_normal(shape) + 0.4
    values *= 10.0 ** generator.integers(-2, 3, shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    if shape[0] > 1:
        values[1] = 0
    return values.astype(np.float32)


def dense(
    x: Sequence[int],
    y: Sequence[int],
    w: Sequence[int] = (OUT, FEATURES),
    *,
    bias: bool = True,
    dtype: str = "int8",
    scales: int = OUT,
    axis: int = 0,
    most: int = 127,
    **options: Any,
) -> bytes:
    """Return FULLY_CONNECTED of float data and integer weights; int8 weights are up to `most`."""
    m, generator = Build(), np.random.default_rng(7)
    low, high = (1, 255) if dtype == "uint8" else (-most, most)
    weights = generator.integers(low, high, tuple(w), np.dtype(dtype), endpoint=True)
    weights[weights == (128 if dtype == "uint8" else -128)] = 0
    scale = generator.uniform(0.01, 0.1, scales).astype(np.float32)
    constants = [m.constant(weights, scale=scale, zero_point=0, axis=axis)]
    if bias:
        constants.append(m.constant(generator.standard_normal(w[0]).astype(np.float32)))
    m.output(*m.op("FULLY_CONNECTED", [m.input(x), *constants], [y], **options))
    return m.bytes()


def convolution(
    images: int = 1,
    *,
    scales: int = 1,
    channels: tuple[int, int, int] = (7, 7, 13),
    dtype: str = "int8",
    equal: bool = False,
    **options: Any,
) -> bytes:
    """Return CONV_2D of float data.

    `channels` are those of the data, of a filter, and of the output. `scales` is the number of
    weight scales, which may be `equal`.
    """
    m, generator = Build(), np.random.default_rng(3)
    low, high = {"int8": (-127, 127), "uint8": (0, 127), "int4": (-7, 7)}[dtype]
    c, each, made = channels
    weights = generator.integers(low, high, (made, 3, 3, each), endpoint=True)
    kind = np.uint8 if dtype == "uint8" else np.int8
    drawn = generator.uniform(0.01, 0.1, 1 if equal else scales).astype(np.float32)
    scale = np.broadcast_to(drawn, scales)
    w = m.constant(weights.astype(kind), dtype=dtype, scale=scale, zero_point=0)
    b = m.constant(generator.standard_normal(made).astype(np.float32))
    window = {"stride_h": 1, "stride_w": 1, "padding": "SAME", **options}
    size = -(-11 // window["stride_h"]), -(-17 // window["stride_w"])
    size = (9, 15) if window["padding"] == "VALID" else size
    operands = [m.input([images, 11, 17, c]), w, b]
    m.output(*m.op("CONV_2D", operands, [[images, *size, made]], **window))
    return m.bytes()


def types(result: Converted) -> list[str]:
    return [node.op_type for node in result.model.graph.node]


def stored_types(result: Converted) -> set[int]:
    """Return the types of the stored weights."""
    large = [i for i in result.model.graph.initializer if len(i.dims) > 1 and i.dims[0] > 9]
    return {i.data_type for i in large}


# Matrix products


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("scales", [1, OUT])
@pytest.mark.parametrize("rows", [1, 3])
def test_large_products_are_those_of_the_kernel(
    rows: int, scales: int, *, asymmetric: bool
) -> None:
    """Large products equal the kernel's, because they quantize the data in the same way.

    int8 weights up to 64 are correct on every processor: two of their products fit into 16
    bits.
    """
    options: dict[str, Any] = {"scales": scales, "asymmetric_quantize_inputs": asymmetric}
    for weights in (kind for kind in WEIGHTS if kind != "float"):
        most = 64 if weights == "int8" else 127
        model = dense([rows, FEATURES], [rows, OUT], most=most, **options)
        result = check(model, inputs=[data(rows, FEATURES)], weights=weights, default_kernels=True)
        unsigned = weights == "uint8"
        assert stored_types(result) == {TensorProto.UINT8 if unsigned else TensorProto.INT8}
        left = count_optimized_nodes(result.model)
        assert left["MatMulIntegerToFloat" if rows > 1 else "DynamicQuantizeMatMul"] == 1, left
        assert left["MatMul"] == 0, left


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("rows", [1, 3])
def test_zero_data_give_exactly_the_bias(rows: int, *, asymmetric: bool) -> None:
    """Data of zeros give exactly the bias."""
    model = dense([rows, FEATURES], [rows, OUT], asymmetric_quantize_inputs=asymmetric)
    check(model, inputs=[np.zeros((rows, FEATURES), np.float32)], tolerance=0)


@pytest.mark.parametrize("sign", [-1, 1])
def test_data_of_one_sign_equal_litert(sign: int) -> None:
    """Data of one sign, for which the zero point is the smallest or the largest integer."""
    model = dense([3, FEATURES], [3, OUT], asymmetric_quantize_inputs=True)
    check(model, inputs=[sign * np.abs(data(3, FEATURES))])


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize(
    ("x", "y", "options"),
    [
        ([5, 2, FEATURES], [5, 2, OUT], {"keep_num_dims": True}),
        ([3, 521], [3, OUT], {"bias": False}),
        ([3, 521], [3, OUT], {"dtype": "uint8", "scales": 1}),
        ([3, 521], [3, OUT], {"fused_activation_function": "RELU6"}),
        ([3, 7, 11, 13], [3, 1031], {"w": (1031, 1001)}),
    ],
    ids=str,
)
def test_large_products_of_every_form_equal_litert(
    x: list[int], y: list[int], options: dict[str, Any], *, asymmetric: bool
) -> None:
    """Large products of every form, also in random layouts."""
    model = dense(x, y, asymmetric_quantize_inputs=asymmetric, **options)
    result = check(model, inputs=[data(*x)], random_layouts=range(3), default_kernels=True)
    assert "MatMul" in types(result)


@pytest.mark.parametrize("activation", ["NONE", "RELU"])
def test_one_row_without_bias_keeps_its_axes(activation: str) -> None:
    """One row without a bias keeps its axes, unless an activation has bounds."""
    model = dense(
        [1, 1, FEATURES],
        [1, 1, OUT],
        bias=False,
        most=64,
        keep_num_dims=True,
        fused_activation_function=activation,
    )
    result = check(model, inputs=[data(1, 1, FEATURES)], default_kernels=True)
    assert ("Reshape" in types(result)) == (activation == "RELU")
    assert count_optimized_nodes(result.model)["MatMul"] == 0


def test_tanh_of_a_product_equals_litert() -> None:
    """LiteRT's own kernel applies TANH, around sums of floats if nothing is optimized."""
    model = dense([1, 521], [1, OUT], fused_activation_function="TANH")
    check(model, inputs=[data(1, 521)], optimize=[False], tolerance=1e-4)
    check(model, inputs=[data(1, 521)], optimize=[True])


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_large_products_equal_litert_in_each_opset(opset: int) -> None:
    for rows in (1, 3):
        model = dense([rows, FEATURES], [rows, OUT], asymmetric_quantize_inputs=True)
        check(model, inputs=[data(rows, FEATURES)], opset=opset)


@pytest.mark.parametrize("rows", [1, 3])
def test_small_products_multiply_real_numbers(rows: int) -> None:
    """The data of small products are rounded as by the kernel, and multiplied as floats."""
    small = dense([rows, 31], [rows, 1000], w=(1000, 31), scales=1)
    result = check(small, inputs=[data(rows, 31)], default_kernels=True)
    assert types(result)[-2:] == ["DequantizeLinear", "Gemm"]


@pytest.mark.parametrize("features", [30, 300])
def test_dynamic_rows_are_quantized_each_by_itself(features: int) -> None:
    """Each of a dynamic number of rows is quantized by its own extremes."""
    model = dense([3, features], [3, OUT], w=(OUT, features))
    for rows in (1, 5):
        result = check(
            model,
            inputs=[data(rows, features)],
            shapes={"tensor_2": ["batch", features]},
            default_kernels=True,
            random_layouts=(),
        )
    assert "QuantizeLinear" in types(result)


@pytest.mark.parametrize("dtype", ["int4", "int2"])
@pytest.mark.parametrize("rows", [1, 3])
def test_narrow_weights_stay_packed_and_equal_litert(rows: int, dtype: str) -> None:
    """Large products by weights of 4 and 2 bits equal the kernel's, and the file stays small."""
    m, generator = Build(), np.random.default_rng(1)
    limit = 7 if dtype == "int4" else 1
    integers = generator.integers(-limit, limit, (1024, 512), np.int8, endpoint=True)
    w = m.constant(integers, dtype=dtype, scale=generator.uniform(0.01, 0.1, 1024))
    m.output(*m.op("FULLY_CONNECTED", [m.input([rows, 512]), w], [[rows, 1024]]))
    result = check(m.bytes(), inputs=[data(rows, 512)], default_kernels=True)
    assert stored_types(result) == {getattr(TensorProto, dtype.upper())}
    left = count_optimized_nodes(result.model)
    assert left["MatMulIntegerToFloat" if rows > 1 else "DynamicQuantizeMatMul"] == 1, left


def test_float_quantization_has_no_integer_product() -> None:
    """With `quantization="float"` no product is computed with integers."""
    for model in (dense([3, FEATURES], [3, OUT]), convolution()):
        result = check(model, tolerance=0.02, quantization="float")
        assert not {"QuantizeLinear", "MatMulInteger"} & set(types(result))


# Convolutions


@pytest.mark.parametrize("scales", [1, 13])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int4"])
@pytest.mark.parametrize("images", [1, 3])
def test_images_are_quantized_as_by_the_kernel(images: int, dtype: str, scales: int) -> None:
    """Each image has its own scale, by XNNPACK if the weights are int8."""
    if (dtype, scales) == ("uint8", 13):
        scales = 1  # LiteRT rejects a scale for each channel of uint8
    model = convolution(images, dtype=dtype, scales=scales)
    result = check(model, inputs=[data(images, 11, 17, 7)], default_kernels=True)
    quantizes = {"QuantizeLinear", "DynamicQuantizeLinear"} & set(types(result))
    assert len(quantizes) == 1


def test_equal_scales_are_one() -> None:
    """Equal scales of all channels count as a single scale, as in LiteRT's own kernel."""
    model = convolution(scales=13, equal=True, dtype="int4")
    check(model, inputs=[data(1, 11, 17, 7)], default_kernels=True)


def test_images_of_zeros_equal_litert_exactly() -> None:
    check(convolution(3), inputs=[np.zeros((3, 11, 17, 7), np.float32)], tolerance=0)


def test_groups_quantize_all_channels_together() -> None:
    """A convolution in groups quantizes all channels of an image together."""
    model = convolution(channels=(14, 7, 26), scales=26)
    check(model, inputs=[data(1, 11, 17, 14)], default_kernels=True)


def test_images_of_a_dynamic_batch_are_quantized_one_by_one() -> None:
    """Each image of a dynamic batch is quantized by its own extremes."""
    model = convolution(3, scales=13)
    result = check(
        model,
        inputs=[data(3, 11, 17, 7)],
        shapes={"tensor_2": ["batch", 11, 17, 7]},
        default_kernels=True,
        random_layouts=(),
    )
    assert "QuantizeLinear" in types(result)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("images", [1, 3])
def test_images_of_transposed_convolutions_are_quantized(images: int, *, bias: bool) -> None:
    """XNNPACK quantizes the images of transposed convolutions."""
    m, generator = Build(), np.random.default_rng(3)
    integers = generator.integers(-127, 127, (13, 3, 3, 7), np.int8, endpoint=True)
    shape = m.constant(np.array([images, 22, 34, 13], np.int32))
    w = m.constant(integers, scale=generator.uniform(0.01, 0.1, 13))
    b = m.constant(generator.standard_normal(13).astype(np.float32)) if bias else None
    options: dict[str, Any] = {"stride_h": 2, "stride_w": 2, "padding": "SAME"}
    operands = [shape, w, m.input([images, 11, 17, 7]), b]
    m.output(*m.op("TRANSPOSE_CONV", operands, [[images, 22, 34, 13]], **options))
    result = check(m.bytes(), inputs=[data(images, 11, 17, 7)], default_kernels=True)
    assert "DequantizeLinear" in types(result)


@pytest.mark.parametrize(
    "model",
    [convolution(channels=(7, 7, 3)), convolution(channels=(7, 1, 7), scales=7)],
    ids=["few filters", "groups of one channel"],
)
def test_images_are_quantized_for_few_multiplications(model: bytes) -> None:
    """The images of a convolution with few multiplications are quantized."""
    result = check(model, inputs=[data(1, 11, 17, 7)], default_kernels=True)
    assert "DynamicQuantizeLinear" in types(result)


def pixels(shape: list[int], outputs: int, *, positive: bool = False) -> bytes:
    """Build a convolution of single pixels, of data that are `positive`."""
    m, generator = Build(), np.random.default_rng(3)
    integers = generator.integers(-127, 127, (outputs, 1, 1, shape[-1]), np.int8, endpoint=True)
    w = m.constant(integers, scale=generator.uniform(0.01, 0.1, outputs))
    b = m.constant(generator.standard_normal(outputs).astype(np.float32))
    options: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "VALID"}
    x = m.input(shape)
    if positive:
        (rectified,) = m.op("RELU", [x], [shape])
        (x,) = m.op("MAX_POOL_2D", [rectified], [shape], filter_width=1, filter_height=1, **options)
    m.output(*m.op("CONV_2D", [x, w, b], [[*shape[:-1], outputs]], **options))
    return m.bytes()


@pytest.mark.parametrize(
    ("size", "channels", "images"),
    [((11, 17), 160, 1), ((1, 1), 160, 1), ((11, 17), 256, 1), ((5, 3), 160, 2)],
)
@pytest.mark.parametrize("positive", [False, True])
def test_single_pixels_are_quantized_by_their_own_extremes(
    size: tuple[int, int],
    channels: int,
    images: int,
    monkeypatch: pytest.MonkeyPatch,
    *,
    positive: bool,
) -> None:
    """XNNPACK quantizes each pixel by its own extremes before a 1x1 window."""
    prefer_integers(monkeypatch)
    shape = [images, *size, channels]
    model, arrays = pixels(shape, 160, positive=positive), [data(*shape)]
    result = check(model, inputs=arrays, default_kernels=True)
    one = size == (1, 1)
    assert ("DynamicQuantizeLinear" in types(result)) == one
    assert ("ReduceMin" in types(result)) == (not positive and not one)
    canonical = check(model, inputs=arrays, forms="canonical", tolerance=0.02)
    assert "QuantizeLinear" not in types(canonical)


@pytest.mark.parametrize("size", [(11, 17), (1, 1)])
@pytest.mark.parametrize("is_read_twice", [False, True])
def test_relu_is_removed_if_only_rounded_pixels_read_it(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch, *, is_read_twice: bool
) -> None:
    """RELU is removed if all readers quantize negative numbers to 0."""
    prefer_integers(monkeypatch)
    shape, m, generator = [1, *size, 160], Build(), np.random.default_rng(3)
    w = m.constant(
        generator.integers(-127, 127, (160, 1, 1, 160), np.int8, endpoint=True),
        scale=generator.uniform(0.01, 0.1, 160),
    )
    b, c = (m.constant(generator.standard_normal(160).astype(np.float32)) for _ in range(2))
    options: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "VALID"}
    (x,) = m.op("ADD", [m.input(shape), c], [shape], fused_activation_function="RELU")
    m.output(*m.op("CONV_2D", [x, w, b], [shape], **options))
    if is_read_twice:
        m.output(*m.op("NEG", [x], [shape]))
    result = check(m.bytes(), inputs=[data(*shape)], default_kernels=True)
    assert ("Relu" in types(result)) == (is_read_twice or size == (1, 1))


def test_pixels_of_few_channels_are_real_numbers() -> None:
    """Quantizing the pixels would take longer than integers save.

    Then the data of a depthwise convolution after them are not rounded for equal numbers either.
    """
    m, generator = Build(), np.random.default_rng(3)
    pointwise, depthwise = (
        m.constant(
            generator.integers(-127, 128, shape).astype(np.int8),
            scale=[0.01] * 128,
            axis=shape.index(128),
        )
        for shape in ((128, 1, 1, 64), (1, 3, 3, 128))
    )
    options: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
    shape = [1, 11, 17, 128]
    bias = m.constant(np.zeros(128, np.float32))
    (y,) = m.op("CONV_2D", [m.input([1, 11, 17, 64]), pointwise, bias], [shape], **options)
    m.output(*m.op("DEPTHWISE_CONV_2D", [y, depthwise, bias], [shape], **options))
    result = check(m.bytes(), inputs=[data(1, 11, 17, 64)], tolerance=0.02)
    assert "Quantize" not in "".join(types(result))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize(
    "window",
    [
        {},
        {"stride_h": 2, "stride_w": 2},
        {"padding": "VALID"},
        {"dilation_h_factor": 2, "dilation_w_factor": 3},
    ],
    ids=["same", "strides", "valid", "dilations"],
)
def test_windows_of_many_channels_multiply_integers(
    window: dict[str, Any], images: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many channels integers are multiplied, for each window of an image."""
    prefer_integers(monkeypatch)
    model = convolution(images, channels=(16, 16, 32), dtype=dtype, **window)
    # LiteRT's own kernel for uint8 rounds one of the numbers near a half to the other integer.
    tolerance = 1e-3 if dtype == "uint8" else 1e-5
    inputs = [data(images, 11, 17, 16)]
    result = check(model, inputs=inputs, default_kernels=True, tolerance=tolerance)
    assert "Gather" in types(result)
    # One scale of the data: the product adds the bias itself.
    assert ("MatMul" in types(result)) == (images > 1)
    assert "Conv" not in types(result)


def test_images_of_a_dynamic_batch_have_own_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each image of a dynamic batch has its own scale."""
    prefer_integers(monkeypatch)
    check(
        convolution(3, channels=(16, 16, 32), scales=32),
        inputs=[data(3, 11, 17, 16)],
        shapes={"tensor_2": ["batch", 11, 17, 16]},
        default_kernels=True,
        random_layouts=(),
    )


def test_convolutions_equal_litert_in_each_opset() -> None:
    for opset in (13, 18, 21):
        check(convolution(3), inputs=[data(3, 11, 17, 7)], opset=opset, default_kernels=True)


def convolve_pixels(m: Build, x: Tensor, shape: Sequence[int], filters: int, size: int) -> Tensor:
    """Return CONV_2D of an image of this shape, by int8 filters of `size` rows and columns."""
    generator, (*image, channels) = np.random.default_rng(3), shape
    weights = generator.integers(-127, 128, (filters, size, size, channels)).astype(np.int8)
    w = m.constant(weights, scale=generator.uniform(0.01, 0.1, filters))
    b = m.constant(generator.standard_normal(filters).astype(np.float32))
    options: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
    (y,) = m.op("CONV_2D", [x, w, b], [[*image, filters]], **options)
    return y


@pytest.mark.parametrize("out", [24, 1031])
@pytest.mark.parametrize("activation", ["NONE", "RELU", "RELU6"])
def test_rows_after_relu_have_no_zero_points(activation: str, out: int) -> None:
    """Rows without negative numbers have the zero point 0, which takes half of the nodes."""
    m, generator = Build(), np.random.default_rng(3)
    x = m.input([3, 521])
    for features, layer in ((521, activation), (out, "NONE")):
        weights = generator.integers(-127, 127, (out, features), np.int8, endpoint=True)
        w = m.constant(weights, scale=generator.uniform(0.001, 0.01, out))
        (x,) = m.op("FULLY_CONNECTED", [x, w], [[3, out]], fused_activation_function=layer)
    m.output(x)
    result = check(m.bytes(), inputs=[data(3, 521)], default_kernels=True)
    assert types(result).count("ReduceMin") == 1 + (activation == "NONE")
    canonical = check(m.bytes(), inputs=[data(3, 521)], forms="canonical", default_kernels=True)
    assert types(canonical).count("ReduceMin") == 2


@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("activation", ["NONE", "RELU"])
def test_images_after_relu_have_no_zero_points(
    activation: str, monkeypatch: pytest.MonkeyPatch, *, integers: bool
) -> None:
    """The images of convolutions of floats and of integers are not searched for a minimum."""
    if integers:
        prefer_integers(monkeypatch)
    m, shape = Build(), [3, 11, 17, 16 if integers else 3]
    half = m.constant(np.full(1, 0.5, np.float32))
    (x,) = m.op("SUB", [m.input(shape), half], [shape], fused_activation_function=activation)
    m.output(convolve_pixels(m, x, shape, 16, 3))
    result = check(m.bytes(), inputs=[data(*shape)], default_kernels=True)
    assert types(result).count("ReduceMin") == (activation == "NONE")
    assert ("Conv" in types(result)) != integers


@pytest.mark.parametrize("block", [2, 4])
def test_depth_to_space_moves_rows_of_channels(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """DEPTH_TO_SPACE moves rows of channels, which integers leave last."""
    prefer_integers(monkeypatch)
    m, shape = Build(), (1, 11, 17, 32)
    blocks = convolve_pixels(m, m.input(shape), shape, 48, 3)
    size = [1, 11 * block, 17 * block, 48 // block**2]
    m.output(*m.op("DEPTH_TO_SPACE", [blocks], [size], block_size=block))
    result = check(m.bytes(), inputs=[data(*shape)], default_kernels=True)
    assert "DepthToSpace" not in types(result)
    canonical = check(m.bytes(), inputs=[data(*shape)], forms="canonical", tolerance=0.02)
    assert "Gather" not in types(canonical)


def test_factors_before_integers_apply_with_channels_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image is scaled with channels last, where the products that read it need them."""
    prefer_integers(monkeypatch)
    m, shape, generator = Build(), (1, 11, 17, 160), np.random.default_rng(3)
    filters = m.constant(generator.standard_normal((1, 3, 3, 160)).astype(np.float32))
    b = m.constant(generator.standard_normal(160).astype(np.float32))
    options: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
    (x,) = m.op("DEPTHWISE_CONV_2D", [m.input(shape), filters, b], [shape], **options)
    axes = m.constant(np.array([1, 2], np.int32))
    (mean,) = m.op("MEAN", [x, axes], [[1, 1, 1, 160]], keep_dims=True)
    (factor,) = m.op("LOGISTIC", [mean], [[1, 1, 1, 160]])
    (scaled,) = m.op("MUL", [x, factor], [shape])
    m.output(convolve_pixels(m, scaled, shape, 160, 1))
    result = check(m.bytes(), inputs=[data(*shape)], default_kernels=True)
    nodes = result.model.graph.node
    computed_by = {name: node.op_type for node in nodes for name in node.output}
    moved = [computed_by.get(node.input[0]) for node in nodes if node.op_type == "Transpose"]
    assert "Conv" in moved
    assert "Mul" not in moved
