"""Nodes that files for NPUs share: weights of several scales, and moved integers of states."""

from __future__ import annotations

from typing import Literal

import numpy as np
import onnx
import pytest

from tests.op.recurrent import cells
from tests.op.recurrent.cells import Form
from tests.runtimes.environments import QNN, RKNN, Runtime
from tests.support import Build, check
from tests.targets.one_operator import measure_distance
from tflite2onnx import convert
from tflite2onnx.targets.checker import check_model

FEATURES = 16


def convert_shared_layers(target: str) -> onnx.ModelProto:
    """Return two dense layers of one buffer of weights, whose scales differ."""
    m = Build()
    x = m.input([1, FEATURES], name="x", dtype="int8", scale=0.05, zero_point=3)
    integers = np.random.default_rng(0).integers(-100, 100, (FEATURES, FEATURES), np.int8)
    one, two = (m.constant(integers, scale=scale, zero_point=0) for scale in (0.01, 0.003))
    tensors = m.model().subgraphs[0].tensors
    tensors[two.index].buffer = tensors[one.index].buffer
    for name, weights in (("hidden", one), ("y", two)):
        y = m.tensor([1, FEATURES], name=name, dtype="int8", scale=0.05, zero_point=-5)
        (x,) = m.op("FULLY_CONNECTED", [x, weights, None], [y])
    m.output(x)
    data = np.random.default_rng(1).integers(-128, 128, (1, FEATURES)).astype(np.int8)
    model: onnx.ModelProto = check(m.bytes(), inputs=[data], steps=1, target=target).model
    return model


@pytest.mark.parametrize("target", ["qnn", "rknn"])
def test_shared_weights_are_copied_for_each_scale(target: str) -> None:
    assert not check_model(convert_shared_layers(target), target)


@pytest.mark.nightly
@pytest.mark.skipif(not RKNN.is_made, reason="scripts/runtimes.py --make rknn")
def test_the_simulator_reads_both_scales() -> None:
    assert measure_distance(convert_shared_layers("rknn"), RKNN) <= 1


@pytest.mark.parametrize("target", ["qnn", "rknn"])
def test_states_are_moved_as_real_numbers(target: Literal["qnn", "rknn"]) -> None:
    data = cells.integer_svdf(Form(), dtype="int8")
    found = check_model(convert(data, target=target).model, target)
    assert not [rule for rule in found if "type must not be" in rule.rule]
    check(cells.integer_svdf(Form(), dtype="int16"), runs=20, seeds=[0], steps=2, target=target)


@pytest.mark.nightly
@pytest.mark.parametrize("runtime", [each for each in (QNN, RKNN) if each.is_made])
def test_simulators_move_states(runtime: Runtime) -> None:
    model = convert(cells.integer_svdf(Form(), dtype="int8"), target=runtime.target).model
    assert measure_distance(model, runtime) <= 1
