"""Dilated and padded convolutions composed of several operators (fuse_convolutions.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.dynamic_sizes.test_networks import compare_sizes
from tests.support import Build, Tensor, check
from tflite2onnx.convert import convert

CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D")


def add_spread_convolution(
    m: Build, code: str, block: list[int], pads: list[list[int]], crops: list[list[int]],
    dtype: str = "float32", **options: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return a convolution between SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND, and its input."""
    quantized = dtype != "float32"
    fields: dict[str, Any] = {"dtype": dtype, "scale": 0.5, "zero_point": 3} if quantized else {}
    x = m.input([1, 7, 11, 3], **fields)
    sizes = [(n + sum(p)) // b for n, p, b in zip((7, 11), pads, block, strict=True)]
    batch = block[0] * block[1]
    blocks, edges = m.constant(np.array(block, np.int32)), m.constant(np.array(pads, np.int32))
    (parts,) = m.op("SPACE_TO_BATCH_ND", [x, blocks, edges], [[batch, *sizes, 3]])
    channels = 5 if code == "CONV_2D" else 3
    shape = [5, 3, 3, 3] if code == "CONV_2D" else [1, 3, 3, 3]
    weights = np.random.default_rng(0).standard_normal(shape)
    if quantized:
        w = m.constant((weights * 40).clip(-127, 127).astype(np.int8), scale=0.02)
        b = m.constant(np.arange(channels, dtype=np.int32) * 50, scale=0.01)
    else:
        w = m.constant(weights.astype(np.float32))
        b = m.constant(np.arange(channels, dtype=np.float32))
    stride, padding = options.pop("stride", 1), options.pop("padding", "VALID")
    less = 0 if padding == "SAME" else 2
    made = [-(-(n - less) // stride) for n in sizes]
    fields = {"dtype": dtype, "scale": 0.9, "zero_point": -5} if quantized else {}
    extra: dict[str, Any] = {"depth_multiplier": 1} if code != "CONV_2D" else {}
    (y,) = m.op(
        code, [parts, w, b], [m.tensor([batch, *made, channels], **fields)],
        stride_h=stride, stride_w=stride, padding=padding, dilation_h_factor=1,
        dilation_w_factor=1, **extra, **options,
    )  # fmt: skip
    cut = [n * b - sum(c) for n, b, c in zip(made, block, crops, strict=True)]
    edges = m.constant(np.array(crops, np.int32))
    (z,) = m.op("BATCH_TO_SPACE_ND", [y, blocks, edges], [[1, *cut, channels]])
    m.output(z)
    return y, parts


def nodes(result: Any) -> list[str]:
    return [node.op_type for node in result.model.graph.node]


@pytest.mark.parametrize("code", CONVOLUTIONS)
@pytest.mark.parametrize(
    ("block", "pads", "crops"),
    [
        ([2, 2], [[2, 3], [2, 3]], [[0, 1], [0, 1]]),
        ([2, 1], [[0, 1], [0, 0]], [[0, 0], [0, 0]]),
        ([4, 3], [[4, 5], [3, 4]], [[1, 2], [3, 1]]),
    ],
    ids=str,
)
def test_operators_become_one_dilated_convolution(
    code: str, block: list[int], pads: list[list[int]], crops: list[list[int]]
) -> None:
    m = Build()
    add_spread_convolution(m, code, block, pads, crops, fused_activation_function="RELU")
    result = check(m.bytes(), seeds=[0])
    kinds = nodes(result)
    assert "Conv" in kinds
    assert "Relu" in kinds
    assert not {"Reshape", "Slice", "Pad"} & {*kinds}


@pytest.mark.parametrize("code", CONVOLUTIONS)
def test_quantized_images_are_padded_with_zero_point(code: str) -> None:
    """Padding of quantized images is the zero point."""
    m = Build()
    add_spread_convolution(m, code, [2, 2], [[2, 3], [2, 3]], [[0, 1], [0, 1]], "int8")
    result = check(m.bytes(), seeds=[0], steps=1)
    assert not {"Reshape", "Slice", "Pad"} & {*nodes(result)}


def test_convolutions_that_are_not_dilated_stay() -> None:
    """SAME padding, strides, large crops, and readers of inner tensors prevent a fusion."""
    pads = [[2, 3], [2, 3]]
    for crops, options in (
        ([[0, 1], [0, 1]], {"padding": "SAME"}),
        ([[0, 1], [0, 1]], {"stride": 2}),
        ([[3, 1], [0, 1]], {}),
    ):
        m = Build()
        add_spread_convolution(m, "CONV_2D", [2, 2], pads, crops, **options)
        assert "Reshape" in nodes(check(m.bytes(), seeds=[0]))
    m = Build()
    y, _ = add_spread_convolution(m, "CONV_2D", [2, 2], pads, [[0, 1], [0, 1]])
    m.output(y)
    assert "Reshape" in nodes(check(m.bytes(), seeds=[0]))


@pytest.mark.parametrize("code", CONVOLUTIONS)
def test_images_of_any_size_need_no_blocks(code: str) -> None:
    m = Build()
    add_spread_convolution(m, code, [2, 2], [[2, 3], [2, 3]], [[0, 1], [0, 1]])
    result = convert(m.bytes(), shapes={"tensor_0": [1, "height", "width", 3]})
    assert "Reshape" not in nodes(result)
    generator = np.random.default_rng(0)
    sizes = ([1, 7, 11, 3], [1, 9, 5, 3])
    images = [[generator.uniform(-1, 1, size).astype(np.float32)] for size in sizes]
    compare_sizes(m.bytes(), result, images)


def test_blocks_with_other_readers_are_computed_too() -> None:
    """If another operator reads the blocks, they are computed in addition to the convolution."""
    m = Build()
    _, parts = add_spread_convolution(m, "CONV_2D", [2, 2], [[2, 3], [2, 3]], [[0, 1], [0, 1]])
    m.output(*m.op("NEG", [parts], [parts.shape]))
    result = check(m.bytes(), seeds=[0])
    (conv,) = (node for node in result.model.graph.node if node.op_type == "Conv")
    (pads,) = (a.ints for a in conv.attribute if a.name == "pads")
    assert list(pads) == [2, 2, 2, 2]


# Padding


def add_padded_convolution(
    m: Build, code: str, pads: list[list[int]], dtype: str = "float32", *, padding: str = "VALID",
    rescaled: bool = False, value: int | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return a padded image, and a convolution of it with stride 2.

    PADV2 with a `value`, otherwise PAD.
    """
    quantized = dtype != "float32"
    fields: dict[str, Any] = {"dtype": dtype, "scale": 0.5, "zero_point": 3} if quantized else {}
    x = m.input([2, 7, 11, 3], **fields)
    sizes = [n + sum(p) for n, p in zip(x.shape, pads, strict=True)]
    if rescaled:
        fields["zero_point"] = 5
    edges = m.constant(np.array(pads, np.int32))
    operands = [x, edges]
    if value is not None:
        operands.append(m.constant(np.array([value], fields.get("dtype", "float32")), **fields))
    (wide,) = m.op("PADV2" if value is not None else "PAD", operands, [m.tensor(sizes, **fields)])
    channels = 5 if code == "CONV_2D" else sizes[-1]
    shape = [5, 3, 3, sizes[-1]] if code == "CONV_2D" else [1, 3, 3, channels]
    weights = np.random.default_rng(0).standard_normal(shape)
    if quantized:
        w = m.constant((weights * 40).clip(-127, 127).astype(np.int8), scale=0.02)
        b = m.constant(np.arange(channels, dtype=np.int32) * 50, scale=0.01)
        fields = {"dtype": dtype, "scale": 0.9, "zero_point": -5}
    else:
        w = m.constant(weights.astype(np.float32))
        b = m.constant(np.arange(channels, dtype=np.float32))
    less = 0 if padding == "SAME" else 2
    made = [sizes[0], *(-(-(n - less) // 2) for n in sizes[1:-1]), channels]
    extra: dict[str, Any] = {"depth_multiplier": 1} if code != "CONV_2D" else {}
    (y,) = m.op(
        code, [wide, w, b], [m.tensor(made, **fields)], stride_h=2, stride_w=2, padding=padding,
        dilation_h_factor=1, dilation_w_factor=1, **extra,
    )  # fmt: skip
    m.output(y)
    return wide, y


AROUND = [[0, 0], [0, 1], [2, 3], [0, 0]]


@pytest.mark.parametrize("code", CONVOLUTIONS)
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_pad_becomes_padding_of_the_convolution(code: str, dtype: str) -> None:
    m = Build()
    add_padded_convolution(m, code, AROUND, dtype)
    result = check(m.bytes(), seeds=[0], steps=1)
    assert "Pad" not in nodes(result)
    (conv,) = (node for node in result.model.graph.node if node.op_type == "Conv")
    (pads,) = (a.ints for a in conv.attribute if a.name == "pads")
    assert list(pads) == [0, 2, 1, 3]


@pytest.mark.parametrize(
    ("dtype", "value", "pads"),
    [("float32", 0, 0), ("float32", 1, 1), ("int8", 3, 0), ("int8", 0, 1)],
)
def test_padding_with_the_zero_point_is_fused(dtype: str, value: int, pads: int) -> None:
    """PADV2 with the zero point, here 3, is fused."""
    m = Build()
    add_padded_convolution(m, "CONV_2D", AROUND, dtype, value=value)
    assert nodes(check(m.bytes(), seeds=[0], steps=1)).count("Pad") == pads


def test_pads_that_no_convolution_can_do_stay() -> None:
    """Padding of other axes, a SAME convolution, and another scale prevent a fusion."""
    for pads, options in (
        ([[1, 0], [0, 1], [0, 1], [0, 0]], {}),
        ([[0, 0], [0, 1], [0, 1], [0, 2]], {}),
        (AROUND, {"padding": "SAME"}),
        (AROUND, {"dtype": "int8", "rescaled": True}),
    ):
        m = Build()
        add_padded_convolution(m, "CONV_2D", pads, **options)
        assert "Pad" in nodes(check(m.bytes(), seeds=[0], steps=1))


def test_pad_with_another_reader_stays() -> None:
    """If another operator reads the padded image, PAD is kept in addition to the convolution."""
    m = Build()
    wide, _ = add_padded_convolution(m, "CONV_2D", AROUND)
    m.output(wide)
    kinds = nodes(check(m.bytes(), seeds=[0]))
    assert kinds.count("Pad") == 1
