"""Pooling: all kinds of windows, padding, and what is refused."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

from tests.support import Build, check
from tests.support.runtimes import run_onnx
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Sequence

CODES = ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
FUSED = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1", "TANH")


def steps(size: int, kernel: int, stride: int, padding: str) -> int:
    """Return the number of window positions; LiteRT rejects a wrong number (see `check`)."""
    return len(range(0, size if padding == "SAME" else size - kernel + 1, stride))


def options(
    kernel: Sequence[int], strides: Sequence[int], padding: str, activation: str = "NONE"
) -> dict[str, Any]:
    return {
        "filter_height": kernel[0],
        "filter_width": kernel[1],
        "padding": padding,
        "stride_h": strides[0],
        "stride_w": strides[1],
        "fused_activation_function": activation,
    }


def build_pool(code: str, image: Sequence[int], chosen: dict[str, Any], **fields: Any) -> bytes:
    """Return a model that pools its input."""
    batch, *size, channels = image
    window = [("filter_height", "stride_h"), ("filter_width", "stride_w")]
    made = [
        steps(n, chosen[kernel], chosen[stride], chosen["padding"])
        for n, (kernel, stride) in zip(size, window, strict=True)
    ]
    m = Build()
    m.output(*m.op(code, [m.input(image, **fields)], [[batch, *made, channels]], **chosen))
    return m.bytes()


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("strides", [(1, 1), (2, 3), (7, 5)])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 2), (2, 5), (11, 13)])
def test_pooling_of_all_windows_equals_litert(
    code: str, kernel: tuple[int, int], strides: tuple[int, int], padding: str
) -> None:
    """All windows with all activations; the largest window is global pooling."""
    for activation in FUSED:
        chosen = options(kernel, strides, padding, activation)
        for channels in (3, 16):  # ONNX Runtime uses a blocked layout for multiples of 8 or 16
            check(build_pool(code, [2, 11, 13, channels], chosen), random_layouts=[0])


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("height", range(1, 10))
def test_same_padding_of_every_size_equals_litert(height: int, code: str) -> None:
    """Windows that exceed the image on one or both sides, or that are larger than it."""
    for kernel, stride in product([1, 2, 3, 5, 11], [1, 2, 3, 4]):
        chosen = options((kernel, 2), (stride, 1), "SAME")
        check(build_pool(code, [1, height, 5, 3], chosen), seeds=[0], random_layouts=[])


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("kernel", [(3, 1), (2, 2), (11, 1)])
def test_pooling_of_columns_equals_litert(kernel: tuple[int, int], padding: str, code: str) -> None:
    """A sequence in a column is stored as a row, with the window."""
    width = 1 if padding == "SAME" else kernel[1]
    chosen = options(kernel, (2, 1), padding)
    check(build_pool(code, [2, 11, width, 3], chosen), random_layouts=[0])


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("height", range(5, 12))
def test_same_padding_of_dynamic_sizes_equals_litert(height: int, code: str) -> None:
    """Windows that are smaller than their stride do not read the last rows of some images."""
    for kernel, stride, width in product([1, 2, 3], [2, 4, 5], [1, 2]):
        chosen = options((kernel, width), (stride, 2), "SAME")
        data = build_pool(code, [1, height, 6, 3], chosen, shape_signature=[1, -1, -1, 3])
        check(data, seeds=[0], random_layouts=[0])


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("opset", [13, 18, 22])
def test_pooling_in_every_opset_equals_litert(opset: int, code: str) -> None:
    check(build_pool(code, [2, 5, 7, 3], options((3, 2), (2, 1), "SAME")), opset=opset)


@pytest.mark.parametrize("code", CODES)
def test_padding_is_excluded_from_averages_and_maxima(code: str) -> None:
    """Padded elements are excluded from averages and maxima; here all inputs are below 0."""
    data = build_pool(code, [2, 5, 7, 3], options((3, 3), (2, 2), "SAME"))
    check(data, ranges={"float32": (-8, -7)})


@pytest.mark.parametrize("activation", ["NONE", "RELU6"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_max_pool_of_integers_equals_litert(dtype: str, activation: str) -> None:
    """The maximum of stored integers equals LiteRT's."""
    chosen = options((3, 2), (2, 1), "SAME", activation)
    quantized = {"dtype": dtype, "scale": 0.25, "zero_point": 5}
    check(build_pool("MAX_POOL_2D", [2, 5, 7, 3], chosen, **quantized))


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("io_layout", ["auto", "onnx", "tflite"])
def test_images_smaller_than_windows_end_with_the_least_size(code: str, io_layout: Any) -> None:
    """Two windows in sequence need 4 rows and 7 columns; runtimes would make one row of fewer."""
    m = Build()
    images, chosen = [m.input([None, None, None, 3])], options((2, 3), (2, 2), "VALID")
    for _ in range(2):
        images += m.op(code, [images[-1]], [[1, 1, 1, 3]], **chosen)
    m.output(images[-1])
    rng = np.random.default_rng(7)
    for size in ([1, 4, 7, 3], [2, 9, 8, 3], [3, 5, 12, 3]):
        check(m.bytes(), inputs=[rng.random(size, np.float32)], io_layout=io_layout)
    result = convert(m.bytes(), io_layout=io_layout)
    for size in ([1, 3, 7, 3], [1, 4, 6, 3], [1, 1, 1, 3]):
        (x,) = result.inputs
        with pytest.raises(Fail, match="requested shape"):
            run_onnx(result.model, {x.name: np.zeros(size, np.float32).transpose(x.order)})


def build_any_pool(**bad: Any) -> bytes:
    """Return pooling of an image with any shapes, types and options, valid or not."""
    shapes = {"x": [2, 5, 7, 3], "y": [2, 5, 7, 3]}
    fields = {name: bad.pop(f"{name}_type", "float32") for name in shapes}
    shapes = {name: bad.pop(name, shape) for name, shape in shapes.items()}
    code = bad.pop("code", "AVERAGE_POOL_2D")
    m = Build()
    x = m.input(shapes["x"], dtype=fields["x"])
    y = m.tensor(shapes["y"], dtype=fields["y"])
    m.output(*m.op(code, [x], [y], **options((3, 2), (1, 1), "SAME") | bad))
    return m.bytes()


def test_unchanged_models_of_refusals_are_converted() -> None:
    for code in CODES:
        convert(build_any_pool(code=code))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"filter_height": 0}, r"window of \(0, 2\)"),
        ({"filter_width": -1}, r"window of \(3, -1\)"),
        ({"stride_h": 0}, r"strides \(0, 1\)"),
        ({"stride_w": -3}, r"strides \(1, -3\)"),
        ({"padding": 9}, "padding must be SAME or VALID, got 9"),
        (
            {"padding": "VALID", "filter_width": 8},
            r"must fit into the image \(5, 7\), got \(3, 8\)",
        ),
        ({"x": [5, 7, 3]}, "axes NHWC"),
        ({"x": [2, 5, 7, 0], "y": [2, 5, 7, 0]}, "axes NHWC"),
        ({"x_type": "int32", "y_type": "int32"}, "must be float32 or quantized, got int32"),
        ({"y_type": "float16"}, "must be float32, got float16"),
    ],
)
def test_refuses_invalid_options_and_shapes(bad: dict[str, Any], message: str) -> None:
    """Options and shapes that no kernel accepts are errors with the reason."""
    for code in CODES:
        with pytest.raises(ConversionError, match=f"{code} .*: .*{message}"):
            convert(build_any_pool(code=code, **bad))


def test_pad_of_positive_images_becomes_padding_of_max_pool() -> None:
    """PAD of zeros becomes the padding of MaxPool."""
    m, shape = Build(), [2, 9, 8, 5]
    (x,) = m.op("RELU", [m.input([2, 7, 6, 5])], [[2, 7, 6, 5]])
    (padded,) = m.op("PAD", [x, m.constant(np.array([[0, 0], [1, 1], [1, 1], [0, 0]]))], [shape])
    m.output(*m.op("MAX_POOL_2D", [padded], [[2, 4, 3, 5]], **options((3, 3), (2, 2), "VALID")))
    result = check(m.bytes())
    assert "Pad" not in {node.op_type for node in result.model.graph.node}
