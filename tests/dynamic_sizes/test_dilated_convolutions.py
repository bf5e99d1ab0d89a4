"""Dilated convolutions of any length: TensorFlow computes the paddings of SPACE_TO_BATCH_ND.

TensorFlow spreads an image over the batch, one image for each offset of the dilation. The padded
sizes must be multiples of the dilation, so the paddings depend on the sizes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.dynamic_sizes.test_networks import compare_sizes
from tests.passes.batch.test_add_batch import check_batch, draw
from tests.support import Build, Tensor
from tests.support.control import number, op
from tflite2onnx import convert

KERNEL, CHANNELS = 3, 4
KINDS = {"Conv1D": 1, "DepthwiseConv1D": 1, "Conv2D": 2, "DepthwiseConv2D": 2}
UNIT: dict[str, Any] = {
    "stride_h": 1,
    "stride_w": 1,
    "dilation_h_factor": 1,
    "dilation_w_factor": 1,
}


def find_size(m: Build, x: Tensor, axis: int) -> Tensor:
    rank = len(x.shape)
    (shape,) = m.op("SHAPE", [x], [[rank]], dtype="int32", out_type="int32")
    bounds = [m.constant([n]) for n in (axis, axis + 1, 1)]
    return m.op("STRIDED_SLICE", [shape, *bounds], [[]], dtype="int32", shrink_axis_mask=1)[0]


def pad_to_multiple(m: Build, x: Tensor, axis: int, dilation: int, base: int) -> Tensor:
    """Return how many elements are missing at the end of an axis that `base` elements pad."""
    size, whole = find_size(m, x, axis), number(m, dilation)
    rest = op(m, "FLOOR_MOD", op(m, "ADD", size, number(m, base)), whole)
    return op(m, "FLOOR_MOD", op(m, "SUB", whole, rest), whole)


def pack_edges(m: Build, pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    rows = [m.op("PACK", pair, [[2]], dtype="int32", values_count=2, axis=0)[0] for pair in pairs]
    shape = [len(rows), 2]
    return m.op("PACK", rows, [shape], dtype="int32", values_count=len(rows), axis=0)[0]


def dilate(kind: str, dilation: int, *, same: bool, batch: int | None = 1) -> bytes:
    """Return a network of one convolution, as Keras writes it; `same` pads the image."""
    m, spaces = Build(), KINDS[kind]
    x = m.input([batch, *[None] * spaces, CHANNELS], name="x")
    base = (KERNEL - 1) * dilation if same else 0
    missing = [pad_to_multiple(m, x, axis, dilation, base) for axis in range(1, 1 + spaces)]
    before, after = number(m, base // 2), number(m, base - base // 2)
    edges = pack_edges(m, [(before, op(m, "ADD", after, each)) for each in missing])
    crops = pack_edges(m, [(number(m, 0), each) for each in missing])
    blocks = m.constant([dilation] * spaces)
    unknown = [None, *[None] * spaces, CHANNELS]
    (y,) = m.op("SPACE_TO_BATCH_ND", [x, blocks, edges], [m.tensor(unknown)])
    if spaces == 1:
        (y,) = m.op("EXPAND_DIMS", [y, m.constant(-3)], [m.tensor([None, 1, None, CHANNELS])])
    depthwise = kind.startswith("Depthwise")
    window = [1] * (2 - spaces) + [KERNEL] * spaces
    filters = [1, *window, CHANNELS] if depthwise else [CHANNELS, *window, CHANNELS]
    code = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    options: dict[str, Any] = {"depth_multiplier": 1} if depthwise else {}
    inputs = [y, m.constant(draw(*filters)), m.constant(draw(CHANNELS))]
    made = m.tensor([None, *([1] * (2 - spaces)), *[None] * spaces, CHANNELS])
    (y,) = m.op(code, inputs, [made], padding="VALID", **UNIT, **options)
    if spaces == 1:
        (y,) = m.op("SQUEEZE", [y], [m.tensor(unknown)], squeeze_dims=[-3])
    m.output(*m.op("BATCH_TO_SPACE_ND", [y, blocks, crops], [m.tensor(unknown)]))
    return m.bytes()


@pytest.mark.parametrize("same", [True, False], ids=["same", "valid"])
@pytest.mark.parametrize("dilation", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_dilated_convolutions_of_any_size_equal_litert(
    kind: str,
    dilation: int,
    caplog: pytest.LogCaptureFixture,
    *,
    same: bool,
) -> None:
    data = dilate(kind, dilation, same=same, batch=None)
    with caplog.at_level(logging.WARNING):
        result = convert(data)
    assert not caplog.records  # no axis is fixed
    assert {*range(1 + KINDS[kind])} == {*result.inputs[0].symbols}
    sizes = [(1, 19, 14), (3, 33, 9), (2, 8, 12)]
    compare_sizes(data, result, [[draw(*size[: 1 + KINDS[kind]], CHANNELS)] for size in sizes])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [3, "n"])
def test_batches_of_dilated_convolutions_equal_single_runs(kind: str, size: int | str) -> None:
    check_batch(dilate(kind, 2, same=True), size)


@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_unpadded_convolutions_have_any_length(kind: str) -> None:
    """A file declares the unknown length as 1, into which no window fits."""
    data = dilate(kind, 2, same=False, batch=None)
    result = convert(data, batch="n")
    sizes = [(1, 19, 14), (3, 33, 9), (2, 8, 12)]
    compare_sizes(data, result, [[draw(*size[: 1 + KINDS[kind]], CHANNELS)] for size in sizes])


def test_length_may_have_a_name() -> None:
    result = convert(dilate("Conv1D", 2, same=True), shapes={"x": [1, "T", CHANNELS]})
    assert result.inputs[0].tflite_sizes == (1, "T", CHANNELS)
    assert np.prod(result.outputs[0].tflite_shape) > 0
    assert result.outputs[0].tflite_sizes[1] == "T"
