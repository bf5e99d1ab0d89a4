"""Operators that move, interpolate or reduce stored integers, compared with LiteRT.

Moved integers are equal, whatever the scales are. Computed integers differ by at most one step
(see test_values.py). A test with a larger bound gives the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.quantized.layers import LIMITS
from tests.quantized.values import (
    Scale,
    add_constant,
    add_input,
    all_integers,
    check_float_conversion,
    check_integers,
    output_tensor,
    scales,
    unary,
)
from tests.support import Build, check, run_onnx
from tests.support.fusions import count_optimized_nodes
from tflite2onnx.convert import convert

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.support import Converted

Array = np.ndarray[Any, Any]

TYPES = ("int8", "uint8", "int16")


def node_types(result: Converted) -> set[str]:
    return {node.op_type for node in result.model.graph.node}


def random(dtype: str, shape: Sequence[int]) -> Array:
    """Return random integers of the whole range, with both extremes."""
    low, high = LIMITS[dtype]
    array = np.random.default_rng(0).integers(low, high, shape, endpoint=True).astype(dtype)
    array.reshape(-1)[:2] = low, high
    return array


def make_numbers(*integers: int, shape: Sequence[int] = (-1,)) -> Array:
    return np.array(integers, np.int32).reshape(shape)


@dataclass(frozen=True)
class Move:
    """An operator on data of a shape; its constant parameters come before or after the data."""

    code: str
    shape: Sequence[int]
    parameters: Sequence[Array] = ()
    makes: Sequence[Sequence[int]] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    first: bool = False
    count: int = 1
    types: Sequence[str] = TYPES

    def model(self, arrays: Sequence[Array], given: Sequence[Scale], wanted: Scale) -> bytes:
        """Return a model of the operator; each input has its scale, all outputs have one scale."""
        m = Build()
        xs = [add_input(m, array, scale) for array, scale in zip(arrays, given, strict=True)]
        extra = [m.constant(array) for array in self.parameters]
        ys = [output_tensor(m, shape, arrays[0].dtype.name, wanted) for shape in self.makes]
        m.output(*m.op(self.code, [*extra, *xs] if self.first else xs + extra, ys, **self.options))
        return m.bytes()


IMAGE = (2, 5, 7, 3)
BOX = [make_numbers(0, 1, 2, 0), make_numbers(2, 3, 4, 3)]
PADS = make_numbers(1, 2, 3, 0, shape=(2, 2))
BYTES = ("int8", "uint8")
# Kernels that copy integers and ignore scales.
COPIES = [
    Move("RESHAPE", IMAGE, [make_numbers(10, 21)], [[10, 21]], {"new_shape": [10, 21]}),
    Move("SQUEEZE", (1, 5, 7), [], [[5, 7]], {"squeeze_dims": [0]}),
    Move("TRANSPOSE", IMAGE, [make_numbers(0, 3, 1, 2)], [[2, 3, 5, 7]]),
    Move("SLICE", IMAGE, BOX, [[2, 3, 4, 3]]),
    Move(
        "STRIDED_SLICE",
        IMAGE,
        [BOX[0], make_numbers(2, 4, 6, 3), make_numbers(1, 1, 1, 1)],
        [[2, 3, 4, 3]],
    ),
    Move("GATHER", (5, 7), [make_numbers(1, 3, 2)], [[3, 7]], {"axis": 0}),
    Move("GATHER_ND", (5, 7), [make_numbers(1, 3, 2, shape=(3, 1))], [[3, 7]]),
    Move("TILE", (5, 7), [make_numbers(2, 3)], [[10, 21]]),
    Move(
        "SPLIT",
        (6, 7),
        [make_numbers(0, shape=())],
        [[3, 7], [3, 7]],
        {"num_splits": 2},
        first=True,
    ),
    Move(
        "SPLIT_V",
        (6, 7),
        [make_numbers(2, 4), make_numbers(0, shape=())],
        [[2, 7], [4, 7]],
        {"num_splits": 2},
    ),
    Move("SPACE_TO_DEPTH", (2, 6, 10, 3), [], [[2, 3, 5, 12]], {"block_size": 2}, types=BYTES),
    Move("DEPTH_TO_SPACE", (2, 3, 5, 12), [], [[2, 6, 10, 3]], {"block_size": 2}, types=BYTES),
    Move("RESIZE_NEAREST_NEIGHBOR", IMAGE, [make_numbers(11, 9)], [[2, 11, 9, 3]]),
    Move("PAD", (5, 7), [PADS], [[8, 10]]),
]
# Kernels that refuse different scales.
CAREFUL = [
    Move("EXPAND_DIMS", (5, 7), [make_numbers(0, shape=())], [[1, 5, 7]]),
    Move("MIRROR_PAD", (5, 7), [PADS], [[8, 10]], {"mode": "REFLECT"}),
    Move("PACK", (5, 7), [], [[2, 5, 7]], {"values_count": 2, "axis": 0}, count=2),
    Move("UNPACK", (2, 7), [], [[7], [7]], {"num": 2, "axis": 0}),
    Move("REDUCE_MAX", IMAGE, [make_numbers(1, 2)], [[2, 3]]),
    Move("REDUCE_MIN", IMAGE, [make_numbers(3)], [[2, 5, 7]]),
    Move("CONCATENATION", (5, 7), [], [[10, 7]], {"axis": 0}, count=2),
]


def cases(moves: Sequence[Move]) -> list[Any]:
    """Return each operator with each of its types."""
    return [pytest.param(m, dtype, id=f"{m.code} {dtype}") for m in moves for dtype in m.types]


@pytest.mark.parametrize(("move", "dtype"), cases(COPIES + CAREFUL))
def test_moved_integers_are_not_dequantized(move: Move, dtype: str) -> None:
    (scale,) = scales(dtype, 0.05)
    arrays = [random(dtype, move.shape)] * move.count
    result = check_integers(move.model(arrays, [scale] * move.count, scale), arrays)
    assert not node_types(result) & {"DequantizeLinear", "QuantizeLinear"}


@pytest.mark.parametrize(("move", "dtype"), cases(COPIES))
def test_integers_are_moved_to_another_scale(move: Move, dtype: str) -> None:
    """Stored integers do not change; PAD adds the zero point of the output."""
    given, wanted = scales(dtype, 0.05, 0.08)
    x = random(dtype, move.shape)
    check_integers(move.model([x], [given], wanted), [x])


@pytest.mark.parametrize("move", CAREFUL[1:], ids=lambda move: move.code)
def test_numbers_are_moved_where_the_kernel_refuses(move: Move) -> None:
    """If the kernel refuses different scales, real numbers are preserved."""
    given, wanted = (0.05, 3), (0.1, -5)
    arrays = [random("int8", move.shape)] * move.count
    with pytest.raises(RuntimeError):
        check(move.model(arrays, [given] * move.count, wanted), inputs=arrays)
    same = convert(move.model(arrays, [given] * move.count, given), io_layout="tflite").model
    other = convert(move.model(arrays, [given] * move.count, wanted), io_layout="tflite").model
    feeds = dict(zip([port.name for port in same.graph.input], arrays, strict=True))
    for before, after in zip(run_onnx(same, feeds), run_onnx(other, feeds), strict=True):
        real = (before.astype(float) - given[1]) * given[0]
        steps = np.clip(real / wanted[0] + wanted[1], -128, 127)
        assert np.abs(steps - after).max() <= 0.51


def test_concatenation_of_uint8_rescales_its_operands() -> None:
    """uint8 operands are rescaled to the output scale by one fused QLinearConcat."""
    m, arrays = Build(), [random("uint8", (5, 7)), random("uint8", (5, 2))]
    xs = [add_input(m, x, scale) for x, scale in zip(arrays, [(0.05, 131), (0.03, 7)], strict=True)]
    m.output(*m.op("CONCATENATION", xs, [output_tensor(m, [5, 9], "uint8", (0.08, 120))], axis=1))
    result = check_integers(m.bytes(), arrays, steps=1)
    assert count_optimized_nodes(result.model)["QLinearConcat"] == 1


def test_concatenation_of_int16_ignores_scales() -> None:
    """The int16 kernel ignores scales."""
    move = Move("CONCATENATION", (5, 7), [], [[10, 7]], {"axis": 0}, count=2)
    arrays = [random("int16", (5, 7)), random("int16", (5, 7))[::-1].copy()]
    check_integers(move.model(arrays, [(0.01, 0), (0.03, 0)], (0.02, 0)), arrays)


@pytest.mark.parametrize("dtype", TYPES)
def test_padding_value_has_the_scale_of_the_output(dtype: str) -> None:
    """The value of PADV2 has the scale of the output, which the kernel requires."""
    m, (scale,), x = Build(), scales(dtype, 0.05), random(dtype, (5, 7))
    value = add_constant(m, np.array(9, dtype), scale)
    inputs = [add_input(m, x, scale), m.constant(PADS), value]
    m.output(*m.op("PADV2", inputs, [output_tensor(m, [8, 10], dtype, scale)]))
    check_integers(m.bytes(), [x])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("code", ["SELECT", "SELECT_V2"])
@pytest.mark.parametrize("same", [True, False])
def test_selection_copies_integers_of_any_scale(code: str, dtype: str, *, same: bool) -> None:
    """SELECT copies stored integers, whatever the scales are."""
    m, scale = Build(), scales(dtype, 0.05, 0.05 if same else 0.03, 0.05 if same else 0.08)
    kinds = [scale[0]] * 3 if same else scale
    arrays = [random(dtype, (5, 7)), random(dtype, (5, 7))[::-1].copy()]
    condition = np.random.default_rng(0).integers(0, 2, (5, 7)).astype(bool)
    operands = zip([condition, *arrays], [None, *kinds[:2]], strict=True)
    inputs = [add_input(m, array, kind) for array, kind in operands]
    m.output(*m.op(code, inputs, [output_tensor(m, [5, 7], dtype, kinds[2])]))
    check_integers(m.bytes(), [condition, *arrays])


@pytest.mark.parametrize("code", ["ARG_MAX", "ARG_MIN", "TOPK_V2"])
@pytest.mark.parametrize("dtype", TYPES)
def test_ranking_compares_stored_integers(code: str, dtype: str) -> None:
    """Stored integers are ranked; ARG_MAX and ARG_MIN have no int16 kernel."""
    m, (scale,), x = Build(), scales(dtype, 0.05), random(dtype, (5, 7, 37))
    if code == "TOPK_V2":
        ys = [output_tensor(m, [5, 7, 3], dtype, scale), m.tensor([5, 7, 3], dtype="int32")]
        m.output(*m.op(code, [add_input(m, x, scale), m.constant(np.int32(3))], ys))
    elif dtype == "int16":
        return
    else:
        y = m.tensor([5, 37], dtype="int32")
        m.output(
            *m.op(code, [add_input(m, x, scale), m.constant(np.int32(1))], [y], output_type="int32")
        )
    check_integers(m.bytes(), [x])


WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "corners": {"align_corners": True},
    "centers": {"half_pixel_centers": True},
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [(11, 9), (3, 4), (10, 14), (97, 61), (1, 7)])
def test_bilinear_resize_is_within_a_step(dtype: str, way: str, size: tuple[int, int]) -> None:
    """Interpolation of stored integers differs by at most one step; scales are ignored.

    LiteRT's default kernel computes 8-bit integers, and refuses two scales. The int16 kernel counts
    positions in 1/1024 of an element, which adds up over 97 rows.
    """
    move = Move("RESIZE_BILINEAR", IMAGE, [make_numbers(*size)], [[2, *size, 3]], WAYS[way])
    x, (given, wanted) = random(dtype, IMAGE), scales(dtype, 0.05, 0.08)
    data = move.model([x], [given], given)
    check_integers(data, [x], steps=1, default_kernels=dtype in BYTES)
    if dtype not in BYTES:
        check_integers(move.model([x], [given], wanted), [x], steps=1)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("way", "size"),
    [
        ("plain", (10, 14)),
        ("centers", (10, 14)),
        ("centers", (20, 28)),
        ("corners", (9, 13)),
        ("corners", (33, 97)),
    ],
)
def test_halves_are_rounded_as_by_the_kernel(dtype: str, way: str, size: tuple[int, int]) -> None:
    """The default kernel rounds halves upwards, and the int16 kernel rounds halves away from 0."""
    move = Move("RESIZE_BILINEAR", IMAGE, [make_numbers(*size)], [[2, *size, 3]], WAYS[way])
    x, (given,) = random(dtype, IMAGE), scales(dtype, 0.05)
    check(move.model([x], [given], given), inputs=[x], default_kernels=dtype in BYTES)


@pytest.mark.parametrize("dtype", BYTES)
def test_bilinear_bytes_become_one_resize(dtype: str) -> None:
    """Integers of 8 bits are resized by one Resize node, whatever the distance of elements is."""
    move = Move("RESIZE_BILINEAR", IMAGE, [make_numbers(97, 61)], [[2, 97, 61, 3]], WAYS["corners"])
    given = scales(dtype, 0.05)[0]
    data = move.model([random(dtype, IMAGE)], [given], given)
    expected = {"DequantizeLinear", "Resize", "QuantizeLinear"}
    assert node_types(convert(data)) == expected


AXES = {"image": (1, 2), "channels": (3,), "rows": (1,), "all": (0, 1, 2, 3)}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("code", ["MEAN", "SUM"])
def test_means_and_sums_are_within_a_step(code: str, axes: str, dtype: str) -> None:
    """MEAN and SUM are tested over all kinds of axes, with equal and with different scales."""
    x, over = random(dtype, IMAGE), AXES[axes]
    for keep in (False, True):
        left = [1 if i in over else n for i, n in enumerate(IMAGE) if keep or i not in over]
        move = Move(code, IMAGE, [make_numbers(*over)], [left], {"keep_dims": keep})
        for wanted in (0.05, 0.08):
            given, target = scales(dtype, 0.05, wanted)
            target = given if wanted == given[0] else target
            data = move.model([x], [given], target)
            check_integers(data, [x], steps=1)


@pytest.mark.parametrize(("step", "count"), [(0.02, 1), (1e-6, 0)])
@pytest.mark.parametrize("dtype", BYTES)
def test_mean_of_an_image_is_pooled(dtype: str, step: float, count: int) -> None:
    """A mean of a channels-first image is fused, unless the kernel refuses its scales."""
    m, x, (given, wanted) = Build(), random(dtype, IMAGE), scales(dtype, 0.05, step)
    window: dict[str, Any] = dict.fromkeys(
        ("filter_height", "filter_width", "stride_h", "stride_w"), 1
    )
    image = output_tensor(m, IMAGE, dtype, given)
    m.op("MAX_POOL_2D", [add_input(m, x, given)], [image], padding="VALID", **window)
    m.output(
        *m.op(
            "MEAN",
            [image, m.constant(make_numbers(1, 2))],
            [output_tensor(m, [2, 3], dtype, wanted)],
        )
    )
    result = check_integers(m.bytes(), [x], steps=1)
    assert count_optimized_nodes(result.model)["QLinearGlobalAveragePool"] == count


@pytest.mark.parametrize("code", ["MEAN", "SUM", "REDUCE_PROD"])
@pytest.mark.parametrize("axes", [(1,), ()])
def test_reductions_over_no_elements_rescale_or_copy(code: str, axes: tuple[int, ...]) -> None:
    """Over axes of size 1 or no axes MEAN and SUM rescale; REDUCE_PROD copies integers."""
    shape = (2, 1, 7)
    move = Move(code, shape, [make_numbers(*axes)], [[2, 7] if axes else shape])
    x = random("int8", shape)
    check_integers(
        move.model([x], [(0.05, 3)], (0.08, -5)), [x], steps=0 if code == "REDUCE_PROD" else 1
    )


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("factors", [2, 3])
def test_products_over_an_axis_are_within_three_steps(dtype: str, factors: int) -> None:
    """The kernel rounds after each factor, and later factors amplify the error.

    The difference is up to three steps for three factors. The factors are small, because the kernel
    wraps around beyond 32 bits where ONNX saturates.
    """
    (low, high), shape = LIMITS[dtype], (50, factors)
    x = (random(dtype, shape).astype(int) // 4).clip(low, high).astype(dtype)
    (given, wanted) = scales(dtype, 0.05, 0.06)
    move = Move("REDUCE_PROD", shape, [make_numbers(1)], [[50]])
    data = move.model([x], [given], (wanted[0] * (256 if dtype == "int16" else 1), wanted[1]))
    check(data, inputs=[x], steps=factors * (factors - 1) // 2)


def test_float_reshape_to_another_scale_rescales() -> None:
    """With float quantization a RESHAPE to another scale rescales, because integers are copied."""
    m, x = Build(), random("int8", (5, 7))
    (y,) = m.op(
        "RESHAPE",
        [add_input(m, x, (0.05, 3)), m.constant(make_numbers(35))],
        [output_tensor(m, [35], "int8", (0.5, -7))],
        new_shape=[35],
    )
    m.output(*m.op("DEQUANTIZE", [y], [m.tensor([35])]))
    data = m.bytes()
    (port,) = convert(data, quantization="float").model.graph.input
    assert port.type.tensor_type.elem_type == 1
    check(data, inputs=[x])
    half = unary("ABS", all_integers("int8").reshape(2, -1), (0.05, 3), (0.05, 3))
    check_float_conversion(half, [all_integers("int8").reshape(2, -1)])
