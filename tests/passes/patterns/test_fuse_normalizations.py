"""normalizations/fuse_normalizations.py: normalizations composed of several operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support import Build, Tensor, check
from tests.support.graph_text import check_pass, check_unchanged, eliminate_dead_after, parse_graph
from tflite2onnx import convert
from tflite2onnx.passes.patterns.fuse_normalizations import fuse_normalizations
from tflite2onnx.reader.model import read_model

fuse = eliminate_dead_after(fuse_normalizations)

EPSILON = np.float32(1e-3)


class Spelled(Build):
    """A model that computes mean and variance over some axes."""

    def __init__(self, axes: list[int], *, keeps: bool = True) -> None:
        super().__init__()
        self.axes, self.keeps = axes, keeps

    def apply(self, code: str, *inputs: Tensor, **options: Any) -> Tensor:
        """Add an elementwise operator."""
        shape = np.broadcast_shapes(*(tuple(each.shape) for each in inputs))
        return self.op(code, list(inputs), [list(shape)], **options)[0]

    def mean(self, x: Tensor) -> Tensor:
        """Add MEAN."""
        axes = self.constant(np.array(self.axes, np.int32))
        over = [axis % len(x.shape) for axis in self.axes]
        shape = [1 if i in over else n for i, n in enumerate(x.shape)]
        return self.op("MEAN", [x, axes], [shape], keep_dims=self.keeps)[0]

    def vector(self, channels: int, least: float) -> Tensor:
        """Add a scale or a bias."""
        return self.constant(np.linspace(least, 2, channels, dtype=np.float32))

    def inverse(self, squares: Tensor, code: str = "RSQRT") -> Tensor:
        """Add the operators from the squares to 1 / deviation, or to the deviation itself."""
        shifted = self.apply("ADD", self.mean(squares), self.constant(EPSILON))
        return self.apply(code, shifted)


Spelling = Callable[[Spelled, Tensor], Tensor]


def keras(m: Spelled, x: Tensor, **options: Any) -> Tensor:
    mean = m.mean(x)
    inverse = m.inverse(m.apply("SQUARED_DIFFERENCE", x, mean))
    factor = m.apply("MUL", inverse, m.vector(x.shape[-1], 0.5))
    offset = m.apply("SUB", m.vector(x.shape[-1], -1), m.apply("MUL", mean, factor))
    return m.apply("ADD", m.apply("MUL", x, factor), offset, **options)


def mediapipe(m: Spelled, x: Tensor) -> Tensor:
    mean = m.mean(x)
    factor = m.inverse(m.apply("SQUARED_DIFFERENCE", mean, x))
    factor = m.apply("MUL", factor, m.vector(x.shape[-1], 0.5))
    offset = m.apply("MUL", m.apply("NEG", mean), factor)
    return m.apply("ADD", m.apply("MUL", x, factor), offset)


def divide_by_deviation(m: Spelled, x: Tensor) -> Tensor:
    centred = m.apply("SUB", x, m.mean(x))
    deviation = m.inverse(m.apply("MUL", centred, centred), "SQRT")
    ratio = m.apply("MUL", m.apply("DIV", centred, deviation), m.vector(x.shape[-1], 0.5))
    return m.apply("ADD", m.vector(x.shape[-1], -1), ratio)


def centred_product(m: Spelled, x: Tensor) -> Tensor:
    centred = m.apply("SUB", x, m.mean(x))
    inverse = m.inverse(m.apply("SQUARE", centred))
    factor = m.apply("MUL", m.vector(x.shape[-1], 0.5), inverse)
    return m.apply("MUL", centred, factor)


def without_parameters(m: Spelled, x: Tensor) -> Tensor:
    centred = m.apply("SUB", x, m.mean(x))
    return m.apply("MUL", centred, m.inverse(m.apply("SQUARE", centred)))


def with_activation(m: Spelled, x: Tensor) -> Tensor:
    return keras(m, x, fused_activation_function="RELU")


SPELLINGS = [
    keras,
    mediapipe,
    divide_by_deviation,
    centred_product,
    without_parameters,
    with_activation,
]


def spell(spelling: Spelling, shape: list[int], axes: list[int], **options: Any) -> bytes:
    m = Spelled(axes, **options)
    m.output(spelling(m, m.input(shape)))
    return m.bytes()


def nodes(data: bytes, **options: Any) -> list[str]:
    result = check(data, ranges={"tensor_0": (-2.0, 5.0)}, **options)
    return [node.op_type for node in result.model.graph.node]


def test_operators_become_one_normalization() -> None:
    before = """
        inputs %0: float32[2,3,4]
        %1: float32[2,3,1] = MEAN(%0, [-1])
        %2: float32[2,3,4] = SQUARED_DIFFERENCE(%0, %1)
        %3: float32[2,3,1] = MEAN(%2, [-1])
        %4: float32[2,3,1] = ADD(%3, 0.0010000000474974513)
        %5: float32[2,3,1] = RSQRT(%4)
        %6: float32[2,3,4] = MUL(%5, [0.5, 1.0, 1.5, 2.0])
        %7: float32[2,3,4] = MUL(%1, %6)
        %8: float32[2,3,4] = SUB([-1.0, 0.0, 1.0, 2.0], %7)
        %9: float32[2,3,4] = MUL(%0, %6)
        %10: float32[2,3,4] = ADD(%9, %8)
        return %10
    """
    parameters = "[0.5, 1.0, 1.5, 2.0], [-1.0, 0.0, 1.0, 2.0]"
    after = f"""
        inputs %0: float32[2,3,4]
        %1: float32[2,3,4] = NORMALIZATION(%0, {parameters}, axes=(2,))
        return %1
    """
    check_pass(fuse, read_model(spell(keras, [2, 3, 4], [-1])).graphs[0], before, after, "axes")


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings_become_layer_normalization(spelling: Spelling) -> None:
    data = spell(spelling, [2, 3, 8], [-1])
    found = nodes(data)
    assert found == ["LayerNormalization"] + ["Relu"] * (spelling is with_activation)


def normalize_rows(m: Spelled, x: Tensor, *, scaled: bool = True, zero: float = 0) -> Tensor:
    """As litert-torch writes the normalization of rows, with means of one axis."""

    def restore(y: Tensor) -> Tensor:
        return m.op("RESHAPE", [y, m.constant(np.array([1, 5, 1], np.int32))], [[1, 5, 1]])[0]

    def reduce(y: Tensor) -> Tensor:
        axes = m.constant(np.array([0, 2], np.int32))
        return m.op("MEAN", [y, axes], [[5]], keep_dims=False)[0]

    mean = reduce(x)
    variance = reduce(m.apply("SQUARED_DIFFERENCE", x, restore(mean)))
    epsilon, nothing = (m.constant(np.array(n, np.float32)) for n in (1e-3, zero))
    inverse = m.apply("RSQRT", m.apply("ADD", variance, epsilon))
    offset = m.apply("SUB", nothing, m.apply("MUL", inverse, mean))
    y = m.apply("ADD", m.apply("MUL", x, restore(inverse)), restore(offset))
    numbers = m.constant(np.linspace(0.5, 2, 8, dtype=np.float32))
    return m.apply("ADD", m.apply("MUL", y, numbers), numbers) if scaled else y


@pytest.mark.parametrize("scaled", [False, True])
def test_normalizations_of_rows_become_layer_normalization(*, scaled: bool) -> None:
    m = Spelled([-1])
    m.output(normalize_rows(m, m.input([1, 5, 8]), scaled=scaled))
    assert nodes(m.bytes()) == ["LayerNormalization"]


def normalize_instances(m: Spelled, x: Tensor, *, keeps: bool) -> Tensor:
    """As litert-torch writes InstanceNorm: one mean keeps the axes, which a RESHAPE restores."""
    axes = m.constant(np.array([0, 2], np.int32))
    reduced = [1, x.shape[1], 1] if keeps else [x.shape[1]]
    mean = m.op("MEAN", [x, axes], [reduced], keep_dims=keeps)[0]
    centred = m.apply("SUB", x, mean)
    (variance,) = m.op(
        "MEAN", [m.apply("MUL", centred, centred), axes], [[x.shape[1]]], keep_dims=False
    )
    shifted = m.apply("ADD", variance, m.constant(EPSILON))
    size = m.constant(np.array([1, x.shape[1], 1], np.int32))
    (wide,) = m.op("RESHAPE", [shifted, size], [[1, x.shape[1], 1]])
    return m.apply("MUL", centred, m.apply("RSQRT", wide))


@pytest.mark.parametrize("keeps", [True, False])
def test_mean_without_its_axes_stays_unfused(*, keeps: bool) -> None:
    """A mean without its axes is subtracted from the columns of a square."""
    m = Spelled([-1])
    m.output(normalize_instances(m, m.input([1, 8, 8]), keeps=keeps))
    assert ("LayerNormalization" in nodes(m.bytes())) == keeps


def test_means_of_rows_that_meet_columns_are_not_fused() -> None:
    """Of a square, means without their axes are subtracted from the columns."""
    before = """
        inputs x: float32[1,8,8]
        short: float32[8] = MEAN(x, [0, 2])
        mean: float32[1,8,1] = RESHAPE(short, [1, 8, 1])
        squares: float32[1,8,8] = SQUARED_DIFFERENCE(x, mean)
        variance: float32[8] = MEAN(squares, [0, 2])
        shifted: float32[8] = ADD(variance, 0.001)
        inverse: float32[8] = RSQRT(shifted)
        factor: float32[1,8,1] = RESHAPE(inverse, [1, 8, 1])
        offset: float32[1,8,8] = MUL(short, factor)
        scaled: float32[1,8,8] = MUL(x, factor)
        y: float32[1,8,8] = SUB(scaled, offset)
        return y
    """
    check_unchanged(fuse_normalizations, parse_graph(before))
    restored = before.replace(
        "offset: float32[1,8,8] = MUL(short", "offset: float32[1,8,1] = MUL(mean"
    )
    assert "NORMALIZATION" in fuse_normalizations(parse_graph(restored)).codes


def test_normalizations_with_an_offset_but_0_are_not_fused() -> None:
    """Keras subtracts the scaled mean from 0; another number prevents a fusion."""
    m = Spelled([-1])
    m.output(normalize_rows(m, m.input([1, 5, 8]), zero=1))
    assert "LayerNormalization" not in nodes(m.bytes())


@pytest.mark.parametrize(
    ("shape", "axis"), [([1, 5, 1, 8], -2), ([2, 1, 1, 1, 8], -3), ([2, 5, 3, 8], -1), ([5, 8], -1)]
)
def test_axes_of_one_element_are_normalized_too(shape: list[int], axis: int) -> None:
    """OpenVINO has a kernel that also normalizes axes of size 1 before the last axis."""
    result = check(spell(keras, shape, [-1]), ranges={"tensor_0": (-2.0, 5.0)})
    (node,) = result.model.graph.node
    assert {each.name: each.i for each in node.attribute}["axis"] == axis


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_images_are_normalized_with_two_reduce_mean(spelling: Spelling) -> None:
    """Instance normalization of a channels-last image is computed with two ReduceMean."""
    found = nodes(spell(spelling, [2, 5, 7, 3], [1, 2]))
    assert found.count("ReduceMean") == 2


def test_images_after_convolutions_use_instance_normalization() -> None:
    """After a convolution channels are first, and InstanceNormalization is used."""
    m = Spelled([1, 2])
    filters = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    inputs = [m.input([2, 5, 7, 3]), m.constant(filters), m.constant(np.zeros(4, np.float32))]
    (x,) = m.op("CONV_2D", inputs, [[2, 5, 7, 4]], stride_h=1, stride_w=1, padding="SAME")
    m.output(keras(m, x))
    result = check(m.bytes())
    assert "InstanceNormalization" in {node.op_type for node in result.model.graph.node}


@pytest.mark.parametrize(
    ("shape", "axes"), [([2, 5, 3, 4], [1, 2, 3]), ([2, 6, 4], [1, 2]), ([6], [0]), ([3, 4], [0])]
)
@pytest.mark.parametrize("spelling", [keras, without_parameters])
def test_normalizations_of_any_axes_are_fused(
    spelling: Spelling, shape: list[int], axes: list[int]
) -> None:
    graph = fuse(read_model(spell(spelling, shape, axes)).graphs[0])
    assert [op.code for op in graph.ops] == ["NORMALIZATION"]
    nodes(spell(spelling, shape, axes))


def test_opset_16_has_no_layer_normalization() -> None:
    """Opset 16 lacks LayerNormalization, so that older nodes compute it."""
    data = spell(keras, [2, 3, 8], [-1])
    assert "LayerNormalization" not in nodes(data, opset=16)
    assert "LayerNormalization" in nodes(data, forms="canonical")


def test_number_of_rows_may_be_dynamic() -> None:
    """The number of rows may be dynamic."""
    m = Spelled([-1])
    m.output(keras(m, m.input([1, 3, 8], shape_signature=[-1, 3, 8])))
    (node,) = convert(m.bytes()).model.graph.node
    assert node.op_type == "LayerNormalization"


def other_axes(m: Spelled, x: Tensor) -> Tensor:
    centred = m.apply("SUB", x, m.mean(x))
    m.axes = [1]
    return m.apply("MUL", centred, m.inverse(m.apply("SQUARE", centred)))


def given_scale(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("MUL", without_parameters(m, x), m.input([x.shape[-1]]))


def read_mean(m: Spelled, x: Tensor) -> Tensor:
    mean = m.mean(x)
    m.output(mean)
    centred = m.apply("SUB", x, mean)
    return m.apply("MUL", centred, m.inverse(m.apply("SQUARE", centred)))


def several_epsilons(m: Spelled, x: Tensor) -> Tensor:
    centred = m.apply("SUB", x, m.mean(x))
    epsilons = m.constant(np.full((3, 1), 0.1, np.float32))
    shifted = m.apply("ADD", m.mean(m.apply("SQUARE", centred)), epsilons)
    return m.apply("MUL", centred, m.apply("RSQRT", shifted))


@pytest.mark.parametrize("spelling", [other_axes, read_mean, several_epsilons])
def test_normalizations_with_other_axes_or_epsilons_stay(spelling: Spelling) -> None:
    graph = read_model(spell(spelling, [2, 3, 8], [-1])).graphs[0]
    check_unchanged(fuse_normalizations, graph)


def test_scale_that_is_an_input_stays_a_product() -> None:
    """A scale that is an input stays a product after the normalization."""
    graph = fuse(read_model(spell(given_scale, [2, 3, 8], [-1])).graphs[0])
    assert [op.code for op in graph.ops] == ["NORMALIZATION", "MUL"]


@pytest.mark.parametrize("shape", [(3, 1), (3, 8), (1,)], ids=str)
def test_scale_along_another_axis_stays_a_product(shape: tuple[int, ...]) -> None:
    """A scale along another axis stays a product; a scalar becomes the scale of all channels."""

    def scale(m: Spelled, x: Tensor) -> Tensor:
        factor = m.constant(np.full(shape, 1.5, np.float32))
        return m.apply("MUL", without_parameters(m, x), factor)

    graph = fuse(read_model(spell(scale, [2, 3, 8], [-1])).graphs[0])
    assert [op.code for op in graph.ops] == ["NORMALIZATION"] + ["MUL"] * (shape != (1,))
    nodes(spell(scale, [2, 3, 8], [-1]))
