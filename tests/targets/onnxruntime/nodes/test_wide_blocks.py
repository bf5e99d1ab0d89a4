"""Channels that fill blocks of 16 where ONNX Runtime has them; see wide_blocks.py."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.support import Build, check
from tests.support.emulation import EMULATED, NATIVE, run_models, why_not
from tests.support.fusions import count_optimized_nodes
from tflite2onnx import convert
from tflite2onnx.utils.processor import list_instructions

RNG = np.random.default_rng(0)
SIZE = 24


class Network(Build):
    """A chain of convolutions of an image; `x` is the last result.

    With `narrow`, DEQUANTIZE makes the filters of integers.
    """

    def __init__(self, channels: int = 16, *, narrow: bool = False) -> None:
        super().__init__()
        self.x: Any = self.input([1, SIZE, SIZE, channels])
        self._narrow = narrow

    def convolve(self, outputs: int, read: int = 0, window: int = 1, relu: str = "NONE") -> None:
        """Append CONV_2D; `read` are the channels of a group, 0 for one group."""
        shape = (outputs, window, window, read or self.x.shape[-1])
        filters = RNG.standard_normal(shape).astype(np.float32) / np.float32(shape[-1] ** 0.5)
        self._append("CONV_2D", filters, outputs, relu)

    def filter_channels(self) -> None:
        """Append DEPTHWISE_CONV_2D."""
        channels = self.x.shape[-1]
        filters = RNG.standard_normal((1, 3, 3, channels)).astype(np.float32)
        self._append("DEPTHWISE_CONV_2D", filters, channels, "RELU6", depth_multiplier=1)

    def _append(self, code: str, filters: Any, outputs: int, relu: str, **more: Any) -> None:
        bias = self.constant(RNG.standard_normal(outputs).astype(np.float32))
        steps = {"stride_h": 1, "stride_w": 1, "padding": "SAME", **more}
        weights = self._dequantize(filters) if self._narrow else self.constant(filters)
        inputs = [self.x, weights, bias]
        shape = [1, SIZE, SIZE, outputs]
        (self.x,) = self.op(code, inputs, [shape], fused_activation_function=relu, **steps)

    def _dequantize(self, filters: Any) -> Any:
        axis = 0 if filters.shape[0] > 1 else 3
        scale = RNG.uniform(0.01, 0.02, filters.shape[axis]).astype(np.float32)
        integers = np.clip(filters * 60, -127, 127).astype(np.int8)
        stored = self.constant(integers, scale=scale, zero_point=[0] * len(scale), axis=axis)
        (made,) = self.op("DEQUANTIZE", [stored], [self.tensor(filters.shape, dtype="float32")])
        return made

    def finish(self) -> bytes:
        self.output(self.x)
        return self.bytes()


def bottleneck(channels: int = 8, *, narrow: bool = False) -> bytes:
    """Return convolutions between which an image of few channels is, with a sum."""
    m = Network(narrow=narrow)
    m.convolve(channels, relu="RELU")
    m.filter_channels()
    first = m.x
    m.convolve(channels)
    (m.x,) = m.op("ADD", [m.x, first], [list(m.x.shape)])
    m.convolve(48, relu="RELU6")
    return m.finish()


def groups(channels: int, read: int, after: int = 32, *, narrow: bool = False) -> bytes:
    """Return a convolution with groups between others."""
    m = Network(narrow=narrow)
    m.convolve(channels, relu="RELU")
    m.convolve(channels, read, window=3, relu="RELU")
    m.convolve(after)
    return m.finish()


def count_ifs(model: onnx.ModelProto) -> int:
    return sum(node.op_type == "If" for node in model.graph.node)


class Forced(NamedTuple):
    """A converted model."""

    model: onnx.ModelProto
    inputs: Sequence[Any]
    outputs: Sequence[Any]


def force(data: bytes, *, wide: bool) -> Forced:
    """Return a converted model with a constant condition, as on another processor."""
    made = convert(data)
    model = onnx.ModelProto()
    model.CopyFrom(made.model)
    (node,) = (each for each in model.graph.node if each.op_type == "Less")
    (limit,) = (each for each in model.graph.initializer if each.name == node.input[1])
    limit.CopyFrom(numpy_helper.from_array(np.array(2 * wide, np.float32), limit.name))
    return Forced(model, made.inputs, made.outputs)


NETWORKS = {
    "8 channels": (bottleneck(8), 4),
    "8 channels, int8": (bottleneck(8, narrow=True), 4),
    "4 groups of 8": (groups(32, 8), 1),
    "3 groups of 8": (groups(24, 8), 3),
    "3 groups of 8, int8": (groups(24, 8, narrow=True), 3),
    "2 groups of 24": (groups(48, 24), 1),
    "3 groups of 24": (groups(72, 24), 3),
}
EACH = pytest.mark.parametrize(("data", "expected"), NETWORKS.values(), ids=NETWORKS)


@EACH
@pytest.mark.parametrize("wide", [False, True])
def test_branches_with_and_without_wide_blocks_equal_litert(
    data: bytes, expected: int, *, wide: bool
) -> None:
    """The branch for blocks of 16 channels and the branch for 8 give LiteRT's numbers."""
    result = check(data, convert=partial(force, wide=wide), tolerance=1e-4)
    assert count_ifs(result.model) == expected


@EACH
def test_onnxruntime_removes_if_nodes_and_padding(data: bytes, expected: int) -> None:
    """ONNX Runtime leaves neither the choices nor the padding of filters."""
    assert count_ifs(convert(data).model) == expected
    for wide in (False, True):
        nodes = count_optimized_nodes(force(data, wide=wide).model)
        assert nodes.keys().isdisjoint({"Concat", "If", "Mul", "Pad", "Softmax"})


@EACH
def test_random_layouts_equal_litert(data: bytes, expected: int) -> None:
    assert count_ifs(check(data, tolerance=1e-4).model) == expected


def find_blocks(processor: str, folder: Path) -> bool:
    """Return what the condition of a model is on a processor."""
    model = onnx.ModelProto()
    model.CopyFrom(convert(groups(32, 8)).model)
    (node,) = (each for each in model.graph.node if each.op_type == "Less")
    info = onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.BOOL, [])
    model.graph.output.append(info)
    image = np.zeros([d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim])
    ((made,),) = run_models([(model.SerializeToString(), [[image.astype("f")]])], processor, folder)
    return bool(made[1])


@pytest.mark.skipif(not list_instructions(), reason="the blocks of other processors are not known")
def test_condition_is_true_with_avx512(tmp_path: Path) -> None:
    assert find_blocks(NATIVE, tmp_path) is bool(list_instructions().get("AVX-512"))


@pytest.mark.nightly
@pytest.mark.skipif(bool(why_not()), reason=why_not())
@pytest.mark.parametrize("processor", EMULATED)
def test_condition_is_false_without_avx512(processor: str, tmp_path: Path) -> None:
    assert not find_blocks(processor, tmp_path)


def test_even_groups_become_pairs() -> None:
    """The groups of 32 channels become pairs, also if an output or another node reads them."""
    m = Network()
    m.convolve(32, 8, window=3)
    data = m.finish()
    check(data, convert=partial(force, wide=True), tolerance=1e-4)
    assert count_ifs(convert(data).model) == 1


def three_groups_that_end() -> bytes:
    """Return a convolution whose channels are those of an output."""
    m = Network()
    m.convolve(24)
    m.convolve(24, 8, window=3)
    return m.finish()


def three_groups_between_others() -> bytes:
    """Return groups of 8 channels whose image groups of 12 read, which cannot be paired."""
    m = Network()
    m.convolve(24, 8, window=3)
    m.convolve(24, 12, window=3)
    m.convolve(16)
    return m.finish()


def large_windows() -> bytes:
    """Return 3x3 windows of 8 channels, which are slower with 16."""
    m = Network()
    m.convolve(8)
    m.convolve(16, window=3)
    return m.finish()


def slice_channels() -> bytes:
    """Return 8 channels of which others than convolutions read some."""
    m = Network()
    m.convolve(8)
    starts, sizes = (m.constant(np.array(n, np.int32)) for n in ([0] * 4, [1, SIZE, SIZE, 4]))
    (m.x,) = m.op("SLICE", [m.x, starts, sizes], [[1, SIZE, SIZE, 4]])
    m.convolve(64)
    return m.finish()


@pytest.mark.parametrize(
    "data",
    [three_groups_that_end(), three_groups_between_others(), large_windows(), slice_channels()],
)
def test_convolutions_that_gain_no_blocks_get_no_if_node(data: bytes) -> None:
    assert not count_ifs(check(data, tolerance=1e-4, random_layouts=()).model)


@pytest.mark.parametrize(
    "options",
    [{"forms": "canonical"}, {"weights": "int8"}, {"target": "tvm"}, {"float16": True}],
)
def test_options_for_one_processor_give_no_if_node(options: dict[str, Any]) -> None:
    assert not count_ifs(convert(groups(32, 8), **options).model)
