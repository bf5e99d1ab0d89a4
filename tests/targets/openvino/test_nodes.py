"""Every input is read, so that OpenVINO's provider in ONNX Runtime gives each its own data."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest

from tests.runtimes.environments import OPENVINO, RUNTIMES
from tests.runtimes.remote import RemoteSession
from tests.support import Build, check, run_onnx
from tests.support.control import count_rounds, loop, op
from tflite2onnx import convert
from tflite2onnx.targets.checker import check_model

PROVIDER = RUNTIMES["onnxruntime-openvino"]
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def add_beside(*unread: str) -> bytes:
    """Return a sum of an input and 1, after inputs of these types that no operator reads."""
    m = Build()
    for dtype in unread:
        m.input([1, 4], dtype=dtype)
    m.output(*m.op("ADD", [m.input([2, 3]), m.constant(np.float32(1))], [[2, 3]]))
    return m.bytes()


@pytest.mark.parametrize("unread", [["int8"], ["float32", "bool"]], ids=str)
def test_inputs_that_no_operator_reads_are_read(unread: list[str]) -> None:
    kept = convert(add_beside(*unread), target="portable").model
    assert [rule.operator for rule in check_model(kept, "openvino")] == ["input"] * len(unread)
    model = convert(add_beside(*unread), target="openvino").model
    assert not check_model(model, "openvino")
    feeds = dict(
        zip((port.name for port in model.graph.input), [*map(fill, unread), X], strict=True)
    )
    np.testing.assert_array_equal(run_onnx(model, feeds)[0], X + 1)
    for runtime in (PROVIDER, OPENVINO):
        if runtime.is_made:
            with closing(RemoteSession(runtime.command, model.SerializeToString(), 60)) as session:
                (y,) = session.run([model.graph.output[0].name], feeds)
            np.testing.assert_array_equal(y, X + 1)


def test_inputs_of_a_loop_are_no_inputs_of_the_model() -> None:
    """The body does not read the number of its run."""
    m = Build()
    variables = [m.input([], dtype="int32"), m.input([3])]
    m.output(*loop(m, variables, count_rounds(lambda body, xs: [op(body, "NEG", *xs)])))
    plain, read = (convert(m.bytes(), target=name) for name in ("portable", "openvino"))
    assert list(plain.model.graph.node) == list(read.model.graph.node)


def fill(dtype: str) -> np.ndarray:
    return np.ones((1, 4), dtype)


def test_models_that_read_all_inputs_are_unchanged() -> None:
    plain, read = (convert(add_beside(), target=name) for name in ("portable", "openvino"))
    assert list(plain.model.graph.node) == list(read.model.graph.node)


def test_data_of_dead_layers_are_no_inputs_of_the_model() -> None:
    """Only the shape of the layer's result is read, so that no node of the model computes it."""
    m, shape = Build(), [1, 4, 4, 8]
    stored: dict[str, Any] = {"dtype": "int8", "scale": 0.05, "zero_point": 3}
    weights = np.random.default_rng(0).integers(-127, 128, (8, 1, 1, 8)).astype(np.int8)
    w = m.constant(weights, scale=0.01, zero_point=0)
    inputs = [m.input(shape, **stored), w, m.constant(np.zeros(8, np.int32), scale=0.0005)]
    (dead,) = m.op("CONV_2D", inputs, [m.tensor(shape, **stored)], stride_h=1, stride_w=1)
    (real,) = m.op("DEQUANTIZE", [dead], [m.tensor(shape)])
    m.output(*m.op("ZEROS_LIKE", [real], [m.tensor(shape)]))
    check(m.bytes(), steps=0, target="openvino")
