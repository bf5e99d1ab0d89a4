"""Convolutions: all kinds of windows, groups, and what is refused."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support import Build, check
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support import Converted, Tensor
    from tests.support.runtimes import Array

FUSED = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1", "TANH", "SIGN_BIT")


def random(*shape: int) -> Array:
    generator = np.random.default_rng(shape)
    return generator.standard_normal(shape).astype(np.float32)


def steps(size: int, kernel: int, stride: int, dilation: int, padding: str) -> int:
    """Return the number of window positions; LiteRT rejects a wrong number (see `check`)."""
    extent = (kernel - 1) * dilation + 1
    return len(range(0, size if padding == "SAME" else size - extent + 1, stride))


def options(
    strides: Sequence[int], padding: str, dilations: Sequence[int] = (1, 1), **more: Any
) -> dict[str, Any]:
    return {
        "stride_h": strides[0],
        "stride_w": strides[1],
        "padding": padding,
        "dilation_h_factor": dilations[0],
        "dilation_w_factor": dilations[1],
        **more,
    }


def convolution(
    image: Sequence[int],
    filters: Sequence[int],
    code: str = "CONV_2D",
    *,
    signature: Sequence[int] = (),
    **chosen: Any,
) -> bytes:
    """Return a model of one convolution with constant weights and biases."""
    m = Build()
    channels = filters[0] if code == "CONV_2D" else filters[3]
    x = m.input(image, shape_signature=signature)
    w, b = m.constant(random(*filters)), m.constant(random(channels))
    m.output(*m.op(code, [x, w, b], [output_shape(image, filters, channels, chosen)], **chosen))
    return m.bytes()


def output_shape(
    image: Sequence[int], filters: Sequence[int], channels: int, chosen: dict[str, Any]
) -> list[int]:
    rows, columns = (
        steps(
            image[i],
            filters[i],
            chosen[f"stride_{a}"],
            chosen[f"dilation_{a}_factor"],
            chosen["padding"],
        )
        for i, a in ((1, "h"), (2, "w"))
    )
    return [image[0], rows, columns, channels]


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("strides", [(1, 1), (2, 3), (7, 5)])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 2), (2, 5), (5, 3)])
def test_convolutions_of_all_windows_equal_litert(
    kernel: tuple[int, int], strides: tuple[int, int], padding: str
) -> None:
    """All windows, dilations, groups and activations."""
    for dilations, (inputs, filters, outputs), activation in product(
        [(1, 1), (2, 3)], [(3, 3, 5), (6, 2, 9), (3, 1, 3), (1, 1, 7)], FUSED
    ):
        chosen = options(strides, padding, dilations, fused_activation_function=activation)
        data = convolution([2, 11, 13, inputs], [outputs, *kernel, filters], **chosen)
        check(data, seeds=[0], random_layouts=[0])


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("filters", [[32, 3, 2, 16], [48, 1, 1, 16], [32, 5, 3, 8], [32, 1, 3, 1]])
def test_convolutions_of_many_channels_equal_litert(filters: list[int], padding: str) -> None:
    """Multiples of 8 or 16 channels, for which ONNX Runtime uses a blocked layout."""
    for dilations, activation in product([(1, 1), (2, 3)], FUSED[:2]):
        chosen = options((1, 1), padding, dilations, fused_activation_function=activation)
        check(convolution([2, 11, 13, 16], filters, **chosen), random_layouts=[0])


@pytest.mark.parametrize("code", ["CONV_2D", "DEPTHWISE_CONV_2D"])
@pytest.mark.parametrize("height", range(1, 10))
def test_same_padding_of_every_size_equals_litert(height: int, code: str) -> None:
    """SAME padding for many sizes, kernels, strides and dilations; it is often one-sided."""
    for kernel, stride, dilation in product([1, 2, 3, 5], [1, 2, 3, 4], [1, 2]):
        filters = [3, kernel, 3, 3] if code == "CONV_2D" else [1, kernel, 3, 3]
        chosen = options((stride, stride), "SAME", (dilation, dilation))
        check(convolution([1, height, 7, 3], filters, code, **chosen), seeds=[0], optimize=[True])


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("code", ["CONV_2D", "DEPTHWISE_CONV_2D"])
@pytest.mark.parametrize("kernel", [(1, 1), (4, 1), (11, 1), (3, 2)])
def test_convolutions_of_columns_equal_litert(
    kernel: tuple[int, int], code: str, padding: str
) -> None:
    """A sequence in a column is stored as a row, with the window."""
    width = 1 if padding == "SAME" else kernel[1]
    filters = [16, *kernel, 3] if code == "CONV_2D" else [1, *kernel, 3]
    for stride, dilation in [(1, 1), (2, 1), (1, 1), (1, 3)]:
        if dilation == 1 or kernel[0] < 5:
            chosen = options((stride, 1), padding, (dilation, 1))
            check(convolution([2, 11, width, 3], filters, code, **chosen), random_layouts=[0])


def test_columns_stay_rows_between_convolutions() -> None:
    """The numbers of the input keep their place, and no Reshape is between operators."""
    m = Build()
    x = m.input([1, 48, 1, 16])
    chosen = options((1, 1), "SAME")
    pooled: dict[str, Any] = {"filter_height": 2, "filter_width": 1, "stride_h": 2, "stride_w": 1}
    pooled["padding"] = "VALID"
    y = x
    for size in (48, 24):
        w, b = m.constant(random(16, 5, 1, 16)), m.constant(random(16))
        (y,) = m.op("CONV_2D", [y, w, b], [[1, size, 1, 16]], **chosen)
        (y,) = m.op("SQUARED_DIFFERENCE", [y, y], [[1, size, 1, 16]])
        (y,) = m.op("MAX_POOL_2D", [y], [[1, size // 2, 1, 16]], **pooled)
    m.output(y)
    result: Any = check(m.bytes())
    nodes = result.model.graph.node
    assert "Transpose" not in {node.op_type for node in nodes}
    windows = [list(a.ints) for n in nodes for a in n.attribute if a.name == "kernel_shape"]
    assert windows == [[1, 5], [1, 2]] * 2
    first, *between, last = [node.op_type for node in nodes]
    assert (first, last) == ("Reshape", "Reshape")
    assert "Reshape" not in between
    assert [e.layout for e in (*result.inputs, *result.outputs)] == [("NHWC", "NCHW")] * 2


@pytest.mark.parametrize("code", ["CONV_2D", "DEPTHWISE_CONV_2D"])
@pytest.mark.parametrize("height", range(5, 12))
def test_same_padding_of_dynamic_sizes_equals_litert(height: int, code: str) -> None:
    """Windows that are smaller than their stride do not read the last rows of some images."""
    for kernel, stride, width in product([1, 2, 3], [2, 4, 5], [1, 2]):
        filters = [3, kernel, width, 3] if code == "CONV_2D" else [1, kernel, width, 3]
        chosen = options((stride, 2), "SAME")
        signature = [1, -1, -1, 3]
        data = convolution([1, height, 6, 3], filters, code, signature=signature, **chosen)
        check(data, seeds=[0], random_layouts=[0])


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2), (3, 2)])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 2), (2, 5), (3, 3)])
def test_depthwise_convolutions_equal_litert(
    kernel: tuple[int, int], strides: tuple[int, int], padding: str
) -> None:
    """Several filters for each channel, also with a wrong depth_multiplier: LiteRT ignores it."""
    for dilations, (channels, multiplier), (named, activation) in product(
        [(1, 1), (2, 3)], [(5, 1), (3, 2), (1, 7), (16, 2)], zip((0, 1, 7), FUSED, strict=False)
    ):
        chosen = options(
            strides,
            padding,
            dilations,
            depth_multiplier=named,
            fused_activation_function=activation,
        )
        filters = [1, *kernel, channels * multiplier]
        data = convolution([2, 11, 13, channels], filters, "DEPTHWISE_CONV_2D", **chosen)
        check(data, seeds=[0], random_layouts=[0])


def sizes_before(size: int, kernel: int, stride: int, padding: str) -> list[int]:
    """Return all input sizes for which a convolution has the output size `size`."""
    return [n for n in range(1, 99) if steps(n, kernel, stride, 1, padding) == size]


def build_transpose_conv(
    image: Sequence[int],
    filters: Sequence[int],
    made: Sequence[int],
    bias: Array | None = None,
    **chosen: Any,
) -> bytes:
    """Return a model of one transposed convolution with constant weights and biases."""
    m = Build()
    shape = m.constant(np.array(made, np.int32))
    inputs: list[Tensor | None] = [shape, m.constant(random(*filters)), m.input(image)]
    if bias is not None:
        inputs.append(m.constant(bias))
    m.output(*m.op("TRANSPOSE_CONV", inputs, [made], **chosen))
    return m.bytes()


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("strides", [(1, 1), (2, 3), (3, 2), (4, 1), (5, 5)])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 2), (2, 5), (4, 3)])
def test_transpose_conv_to_every_output_size_equals_litert(
    kernel: tuple[int, int], strides: tuple[int, int], padding: str
) -> None:
    """Every output size that has the input size: padded, natural and larger."""
    sizes = (
        sizes_before(n, k, s, padding) for n, k, s in zip((3, 2), kernel, strides, strict=True)
    )
    for i, (height, width) in enumerate(product(*sizes)):
        chosen: dict[str, Any] = {
            "stride_h": strides[0],
            "stride_w": strides[1],
            "padding": padding,
            "fused_activation_function": FUSED[i % len(FUSED)],
        }
        data = build_transpose_conv(
            [2, 3, 2, 5],
            [7, *kernel, 5],
            [2, height, width, 7],
            bias=random(7) if i % 2 else None,
            **chosen,
        )
        check(data, seeds=[0], random_layouts=[0])


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("size", range(1, 6))
def test_transpose_conv_of_every_input_size_equals_litert(size: int, stride: int) -> None:
    """Many sizes along one axis at a time."""
    for kernel, padding in product(range(1, 6), ["SAME", "VALID"]):
        for height in sizes_before(size, kernel, stride, padding):
            chosen: dict[str, Any] = {"stride_h": stride, "stride_w": 1, "padding": padding}
            data = build_transpose_conv(
                [1, size, 3, 2], [3, kernel, 1, 2], [1, height, 3, 3], **chosen
            )
            check(data, seeds=[0], random_layouts=[], optimize=[True])


def test_computed_output_shape_gives_the_declared_shape() -> None:
    """The declared output shape is used if the shape operand is an input."""
    m = Build()
    shape, x = m.input([4], dtype="int32"), m.input([2, 3, 5, 3])
    made, values = [2, 6, 10, 7], np.ones((2, 3, 5, 3), np.float32)
    (y,) = m.op(
        "TRANSPOSE_CONV",
        [shape, m.constant(random(7, 3, 3, 3)), x],
        [made],
        stride_h=2,
        stride_w=2,
        padding="SAME",
    )
    m.output(y)
    check(m.bytes(), inputs=[np.array(made, np.int32), values])


@pytest.mark.parametrize(
    ("code", "shapes", "made"),
    [
        ("CONV_2D", [[2, 5, 7, 6], [9, 3, 2, 2], [9]], [2, 5, 7, 9]),
        ("DEPTHWISE_CONV_2D", [[2, 5, 7, 3], [1, 3, 2, 6], [6]], [2, 5, 7, 6]),
        ("TRANSPOSE_CONV", [[7, 3, 2, 3], [2, 5, 7, 3], [7]], [2, 5, 7, 7]),
    ],
)
def test_computed_weights_and_biases_equal_litert(
    code: str, shapes: Sequence[Sequence[int]], made: list[int]
) -> None:
    """Weights and biases may be inputs; they are transposed at run time."""
    m = Build()
    inputs = [m.input(shape) for shape in shapes]
    if code == "TRANSPOSE_CONV":
        inputs.insert(0, m.constant(np.array(made, np.int32)))
    m.output(*m.op(code, inputs, [made], stride_h=1, stride_w=1, padding="SAME"))
    check(m.bytes())


@pytest.mark.parametrize("code", ["CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"])
def test_float16_weights_are_stored_as_float16(code: str) -> None:
    """float16 weights are stored as float16 in the ONNX file."""
    m = Build()
    x, filters = m.input([2, 5, 7, 3]), [1 if "DEPTH" in code else 3, 3, 2, 3]
    halves = [m.constant(random(*shape).astype(np.float16)) for shape in (filters, [3])]
    w, b = (m.op("DEQUANTIZE", [half], [half.shape], dtype="float32")[0] for half in halves)
    inputs = [x, w, b]
    if code == "TRANSPOSE_CONV":
        inputs = [m.constant(np.array([2, 5, 7, 3], np.int32)), w, x, b]
    m.output(*m.op(code, inputs, [[2, 5, 7, 3]], stride_h=1, stride_w=1, padding="SAME"))
    result = check(m.bytes())
    stored = {len(i.raw_data) for i in result.model.graph.initializer if len(i.dims) > 1}
    assert stored == {2 * int(np.prod(filters))}


@pytest.mark.parametrize(("code", "absent"), [("CONV_2D", True), ("DEPTHWISE_CONV_2D", False)])
def test_missing_bias_equals_a_bias_of_zeros(code: str, *, absent: bool) -> None:
    """A missing bias equals a bias of zeros."""
    m, zeros = Build(), Build()
    chosen: dict[str, Any] = {"stride_h": 2, "stride_w": 1, "padding": "SAME"}
    filters = random(1 if "DEPTH" in code else 3, 3, 2, 3)
    for build in (m, zeros):
        inputs: list[Tensor | None] = [build.input([2, 5, 7, 3]), build.constant(filters)]
        if build is zeros:
            inputs.append(build.constant(np.zeros(3, np.float32)))
        elif absent:
            inputs.append(None)
        build.output(*build.op(code, inputs, [[2, 3, 7, 3]], **chosen))

    def convert_without(_: bytes) -> Converted:
        return convert(m.bytes())

    check(zeros.bytes(), convert=convert_without)


@pytest.mark.parametrize("opset", [13, 18, 22])
def test_convolutions_in_every_opset_equal_litert(opset: int) -> None:
    chosen = options((2, 1), "SAME", (1, 1), fused_activation_function="RELU6")
    check(convolution([2, 5, 7, 6], [9, 3, 2, 2], **chosen), opset=opset)
    check(convolution([2, 5, 7, 3], [1, 3, 2, 6], "DEPTHWISE_CONV_2D", **chosen), opset=opset)
    chosen = {"stride_h": 3, "stride_w": 2, "padding": "VALID"}
    check(build_transpose_conv([2, 2, 3, 3], [5, 2, 3, 3], [2, 6, 8, 5], **chosen), opset=opset)


@pytest.mark.parametrize("scale", [None, 0.125])
def test_integer_biases_are_added_to_integer_products(scale: float | None) -> None:
    """An integer bias is added to the products of integers, with or without its own scale."""
    m, generator = Build(), np.random.default_rng(0)
    x = m.input([2, 5, 7, 3], dtype="int8", scale=0.5, zero_point=3)
    filters = generator.integers(-127, 127, (4, 3, 2, 3)).astype(np.int8)
    w = m.constant(filters, scale=0.25, zero_point=0)
    sums = generator.integers(-999, 999, 4).astype(np.int32)
    b = m.constant(sums) if scale is None else m.constant(sums, scale=scale, zero_point=0)
    chosen = options((2, 1), "SAME", fused_activation_function="RELU")
    m.output(*m.op("CONV_2D", [x, w, b], [[2, 3, 7, 4]], scale=16.0, zero_point=-5, **chosen))
    check(m.bytes(), steps=1)


def test_chain_of_convolutions_needs_no_transpose() -> None:
    """Convolutions pass channels-first tensors on without a Transpose."""
    m = Build()
    chosen = options((1, 1), "SAME", fused_activation_function="RELU6")
    x = m.input([2, 5, 7, 3])
    for outputs, inputs in ((5, 3), (11, 5)):
        w, b = m.constant(random(outputs, 3, 3, inputs)), m.constant(random(outputs))
        (x,) = m.op("CONV_2D", [x, w, b], [[2, 5, 7, outputs]], **chosen)
    m.output(x)
    check(m.bytes())
    assert convert(m.bytes()).transposes == 0


GOOD: dict[str, dict[str, Any]] = {
    "CONV_2D": {"x": [2, 5, 7, 6], "w": [4, 3, 2, 3], "b": [4], "y": [2, 5, 7, 4]},
    "DEPTHWISE_CONV_2D": {"x": [2, 5, 7, 3], "w": [1, 3, 2, 6], "b": [6], "y": [2, 5, 7, 6]},
    "TRANSPOSE_CONV": {
        "x": [2, 5, 7, 3],
        "w": [4, 3, 2, 3],
        "b": [4],
        "y": [2, 5, 7, 4],
        "shape": [2, 5, 7, 4],
    },
}


def build_convolution(
    code: str, shapes: dict[str, Any], types: dict[str, str], **chosen: Any
) -> bytes:
    """Return a convolution of inputs with any shapes and types, valid or not."""
    m = Build()
    inputs = [
        None if shapes[name] is None else m.input(shapes[name], dtype=types.get(name, "float32"))
        for name in (("w", "x", "b") if code == "TRANSPOSE_CONV" else ("x", "w", "b"))
    ]
    if code == "TRANSPOSE_CONV":
        inputs.insert(0, m.constant(np.array(shapes["shape"], np.int32)))
    y = m.tensor(shapes["y"], dtype=types.get("y", "float32"))
    plain: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
    m.output(*m.op(code, inputs, [y], **plain | chosen))
    return m.bytes()


@pytest.mark.parametrize("code", ["CONV_2D", "TRANSPOSE_CONV"])
def test_computed_biases_of_four_axes_equal_litert(code: str) -> None:
    (biases,) = GOOD[code]["b"]
    check(build_convolution(code, GOOD[code] | {"b": [1, 1, 1, biases]}, {}))


@pytest.mark.parametrize("code", GOOD)
def test_unchanged_models_of_refusals_are_converted(code: str) -> None:
    convert(build_convolution(code, GOOD[code], {}))


@pytest.mark.parametrize(
    ("code", "bad", "message"),
    [
        *((code, {"stride_h": 0}, r"strides \(0, 1\)") for code in GOOD),
        *((code, {"stride_w": -1}, r"strides \(1, -1\)") for code in GOOD),
        ("CONV_2D", {"dilation_w_factor": 0}, r"dilations \(1, 0\)"),
        ("DEPTHWISE_CONV_2D", {"dilation_h_factor": -(2**31)}, r"dilations \(-2147483648, 1\)"),
        *((code, {"padding": 7}, "padding must be SAME or VALID, got 7") for code in GOOD),
        *((code, {"x": [2, 5, 7]}, r"axes NHWC, none empty, got \[2, 5, 7\]") for code in GOOD),
        *(
            (code, {"x": [2, 0, 7, 3]}, r"axes NHWC, none empty, got \[2, 0, 7, 3\]")
            for code in GOOD
        ),
        *((code, {"w": None}, "input 1 is missing") for code in GOOD),
        *(
            (code, {"types": {"x": "int32"}}, "must be float32 or quantized, got int32")
            for code in GOOD
        ),
        *(
            (code, {"types": {"w": "float16"}}, "must be float32 or quantized, got float16")
            for code in GOOD
        ),
        *(
            (code, {"types": {"b": "float64"}}, "must be float32 or quantized, got float64")
            for code in GOOD
        ),
        *((code, {"types": {"y": "float16"}}, "must be float32, got float16") for code in GOOD),
        *((code, {"b": [3]}, "3 biases for") for code in GOOD),
        ("CONV_2D", {"w": [4, 3, 2]}, "axes OHWI"),
        ("CONV_2D", {"w": [4, 3, 0, 3]}, "axes OHWI"),
        ("CONV_2D", {"x": [2, 5, 7, 7]}, "the 7 channels of its input must be"),
        ("CONV_2D", {"x": [2, 5, 7, 2]}, "the 2 channels of its input must be"),
        ("CONV_2D", {"w": [5, 3, 2, 3]}, "the 5 filters a multiple of the groups"),
        (
            "CONV_2D",
            {"w": [4, 6, 2, 3], "padding": "VALID"},
            r"must fit into the image \(5, 7\), got \(6, 2\)",
        ),
        ("DEPTHWISE_CONV_2D", {"w": [2, 3, 2, 6]}, "the first axis of its weights must be 1"),
        ("DEPTHWISE_CONV_2D", {"w": [1, 3, 2, 7]}, "the 7 filters a multiple of the groups"),
        ("TRANSPOSE_CONV", {"w": [4, 3, 2, 7]}, "the 3 channels of its input must be"),
        ("TRANSPOSE_CONV", {"w": [6, 3, 2, 1], "b": [6]}, "the 1 channels of its filters .* got 3"),
        ("TRANSPOSE_CONV", {"shape": [2, 5, 8, 4]}, r"output of \(5, 8\) in \(5, 7\) steps"),
        ("TRANSPOSE_CONV", {"shape": [2, 5]}, r"axes NHWC, .*got \[2, 5\]"),
    ],
)
def test_refuses_invalid_options_and_shapes(code: str, bad: dict[str, Any], message: str) -> None:
    """Options and shapes that no kernel accepts are errors with the reason."""
    shapes = GOOD[code] | {k: v for k, v in bad.items() if k in GOOD[code]}
    chosen = {k: v for k, v in bad.items() if k not in GOOD[code] and k != "types"}
    with pytest.raises(ConversionError, match=f"{code} .*: .*{message}"):
        convert(build_convolution(code, shapes, bad.get("types", {}), **chosen))


@pytest.mark.parametrize("code", GOOD)
def test_refuses_operators_without_options(code: str) -> None:
    """Without its table of options an operator has no strides."""
    m = Build()
    inputs = [m.input(GOOD[code][name]) for name in ("x", "w", "b")]
    if code == "TRANSPOSE_CONV":
        inputs = [m.input([4], dtype="int32"), inputs[1], inputs[0], inputs[2]]
    m.output(*m.op(code, inputs, [GOOD[code]["y"]]))
    operator = m.model().subgraphs[0].operators[0]
    operator.builtinOptions, operator.builtinOptionsType = None, 0
    with pytest.raises(ConversionError, match=r"strides \(0, 0\)"):
        convert(m.bytes())
