"""normalizations/fuse_normalizations.py: normalizations of groups of channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.passes.patterns.test_fuse_normalizations import (
    Spelled,
    without_parameters,
)
from tests.support import Build, Tensor, check
from tests.support.fusions import count_optimized_nodes
from tests.support.graph_text import check_pass, check_unchanged, eliminate_dead_after
from tflite2onnx.passes.patterns.fuse_normalizations import (
    fuse_group_normalizations,
)
from tflite2onnx.reader.model import read_model

fuse = eliminate_dead_after(fuse_group_normalizations)

GROUPS = 2


def keras(m: Spelled, x: Tensor, parameter: list[int]) -> Tensor:
    """Normalize x, [N, H, W, groups, C]; `parameter` is the shape of the scale and the bias."""
    count = int(np.prod(parameter))
    scale, bias = (
        m.constant(np.linspace(least, 2, count, dtype=np.float32).reshape(parameter))
        for least in (0.5, -1)
    )
    mean = m.mean(x)
    factor = m.apply("MUL", m.inverse(m.apply("SQUARED_DIFFERENCE", x, mean)), scale)
    offset = m.apply("ADD", bias, m.apply("MUL", m.apply("NEG", mean), factor))
    return m.apply("ADD", m.apply("MUL", x, factor), offset, fused_activation_function="RELU")


def plain(m: Spelled, x: Tensor, _: list[int]) -> Tensor:
    return without_parameters(m, x)


def reshape(m: Spelled, x: Tensor, shape: list[int]) -> Tensor:
    return m.op("RESHAPE", [x], [shape], new_shape=[-1, *shape[1:]])[0]


def spell(
    spelling: Any = keras,
    *,
    parameter: tuple[int, ...] = (1, 1, 1, GROUPS, 3),
    axes: tuple[int, ...] = (1, 2, 4),
    grouped: tuple[int, ...] = (2, 5, 7, GROUPS, 3),
    twice: bool = False,
) -> bytes:
    m = Spelled([*axes])
    x = m.input([2, 5, 7, 6])
    y = spelling(m, reshape(m, x, [*grouped]), [*parameter])
    m.output(reshape(m, y, [2, 5, 7, 6]))
    if twice:
        m.output(y)
    return m.bytes()


def test_operators_become_one_group_normalization() -> None:
    before = """
        inputs %0: float32[2,5,7,6]
        %1: float32[2,5,7,2,3] = RESHAPE(%0)
        %2: float32[2,1,1,2,1] = MEAN(%1, [1, 2, 4])
        %3: float32[2,5,7,2,3] = SUB(%1, %2)
        %4: float32[2,5,7,2,3] = SQUARE(%3)
        %5: float32[2,1,1,2,1] = MEAN(%4, [1, 2, 4])
        %6: float32[2,1,1,2,1] = ADD(%5, 0.0010000000474974513)
        %7: float32[2,1,1,2,1] = RSQRT(%6)
        %8: float32[2,5,7,2,3] = MUL(%3, %7)
        %9: float32[2,5,7,6] = RESHAPE(%8)
        return %9
    """
    after = """
        inputs %0: float32[2,5,7,6]
        %1: float32[2,5,7,6] = GROUP_NORMALIZATION(%0, none, none, num_groups=2)
        return %1
    """
    check_pass(fuse, read_model(spell(plain)).graphs[0], before, after, "num_groups")


@pytest.mark.parametrize(
    "parameter", [(1, 1, 1, GROUPS, 3), (GROUPS, 3), (3,), (GROUPS, 1), (1,)], ids=str
)
def test_group_normalizations_equal_litert(parameter: tuple[int, ...]) -> None:
    result = check(spell(parameter=parameter), ranges={"tensor_0": (-2.0, 5.0)})
    counts = count_optimized_nodes(result.model)
    assert counts["InstanceNormalization"] == 1
    assert counts["ReduceMean"] == 0


def test_dynamic_batch_is_normalized_by_instance_normalization() -> None:
    m = Spelled([1, 2, 4])
    x = m.input([1, 5, 7, 6], shape_signature=[-1, 5, 7, 6])
    m.output(reshape(m, plain(m, reshape(m, x, [1, 5, 7, GROUPS, 3]), []), [1, 5, 7, 6]))
    result = check(m.bytes())
    assert "InstanceNormalization" in {node.op_type for node in result.model.graph.node}
    assert result.model.graph.input[0].type.tensor_type.shape.dim[0].dim_param


def pack_image(m: Build, x: Tensor, last: list[int]) -> Tensor:
    """Return the sizes of an image, with other last axes, as Keras computes them."""
    (shape,) = m.op("SHAPE", [x], [m.tensor([4], dtype="int32")], out_type="INT32")
    sides = []
    for axis in (1, 2):
        bounds = [m.constant(np.array([i], np.int32)) for i in (axis, axis + 1, 1)]
        side = m.tensor([], dtype="int32")
        sides += m.op("STRIDED_SLICE", [shape, *bounds], [side], shrink_axis_mask=1)
    parts = [m.constant(np.int32(1)), *sides, *(m.constant(np.int32(n)) for n in last)]
    made = m.tensor([len(parts)], dtype="int32")
    return m.op("PACK", parts, [made], values_count=len(parts))[0]


@pytest.mark.parametrize("count", [3, 1])
def test_images_of_any_size_are_normalized_by_instance_normalization(count: int) -> None:
    """Groups of several channels, and of one channel each."""
    last = [6 // count, count]
    split, whole = [1, None, None, *last], [1, None, None, 6]
    m = Build()
    x = m.input(whole)
    axes = m.constant(np.array([1, 2, 4], np.int32))
    scale, bias = (
        m.constant(np.linspace(0.5, n, 6, dtype=np.float32).reshape(last)) for n in (1, 2)
    )

    def apply(code: str, *operands: Tensor, reduced: bool = False) -> Tensor:
        shape = [1, 1, 1, 6 // count, 1] if reduced else split
        options: dict[str, Any] = {"keep_dims": True} if code == "MEAN" else {}
        return m.op(code, operands, [m.tensor(shape)], **options)[0]

    (groups,) = m.op("RESHAPE", [x, pack_image(m, x, last)], [m.tensor(split)])
    mean = apply("MEAN", groups, axes, reduced=True)
    centered = apply("SUB", groups, mean)
    variance = apply("MEAN", apply("SQUARE", centered), axes, reduced=True)
    stable = apply("ADD", variance, m.constant(np.float32(1e-3)), reduced=True)
    normal = apply("MUL", centered, apply("RSQRT", stable, reduced=True))
    scaled = apply("ADD", apply("MUL", normal, scale), bias)
    m.output(*m.op("RESHAPE", [scaled, pack_image(m, x, [6])], [m.tensor(whole)]))
    for height, width in ((4, 5), (7, 3)):
        image = np.random.default_rng(0).standard_normal((1, height, width, 6)).astype(np.float32)
        result = check(m.bytes(), inputs=[image])
    assert "InstanceNormalization" in {node.op_type for node in result.model.graph.node}


@pytest.mark.parametrize(
    "data",
    [
        spell(axes=(1, 2)),
        spell(parameter=(1, 5, 1, GROUPS, 3)),
        spell(twice=True),
        spell(grouped=(2, 7, 5, GROUPS, 3)),
        spell(parameter=(1, 5, 7, 1, 1)),
    ],
    ids=["axes", "parameter", "two readers", "pixels", "parameter of pixels"],
)
def test_normalizations_of_other_axes_than_groups_stay(data: bytes) -> None:
    graph = read_model(data).graphs[0]
    check_unchanged(fuse_group_normalizations, graph)
    check(data)
