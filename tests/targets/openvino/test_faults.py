"""What the runtime computes wrongly, and what is right: the forms and the advice of the target."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest

from tests.runtimes.environments import OPENVINO, RUNTIMES, Runtime
from tests.runtimes.remote import RemoteSession
from tests.support import Build
from tests.support.runtimes import Array, reference
from tflite2onnx import convert

pytestmark = pytest.mark.skipif(not OPENVINO.is_made, reason="scripts/runtimes.py --make openvino")


def assert_right(runtime: Runtime, data: bytes, inputs: list[Array], **options: Any) -> None:
    """Assert that the runtime's output is LiteRT's, integers within a step."""
    result = convert(data, target="openvino", **options)
    ((want,),), _ = reference(data, [inputs])
    pairs = zip(result.inputs, inputs, strict=True)
    feeds = {end.name: np.ascontiguousarray(x.transpose(end.order)) for end, x in pairs}
    with closing(RemoteSession(runtime.command, result.skeleton.serialize(), 60)) as session:
        (have,) = session.run([result.outputs[0].name], feeds)
    have = have.transpose(np.argsort(result.outputs[0].order))
    limit = 1e-5 if want.dtype.kind == "f" else 1
    np.testing.assert_allclose(have.astype(float), want.astype(float), atol=limit)


def list_betas(data: bytes, **options: Any) -> list[float]:
    """Return the attribute beta of each HardSigmoid."""
    nodes = convert(data, **options).model.graph.node
    attributes = [a for node in nodes if node.op_type == "HardSigmoid" for a in node.attribute]
    return [a.f for a in attributes if a.name == "beta"]


def build_bounded_layer() -> bytes:
    """Return a convolution whose RELU6 / 6 becomes a HardSigmoid with the attribute beta 0."""
    m = Build()
    weights = np.random.default_rng(0).standard_normal((5, 1, 1, 4)).astype(np.float32)
    inputs = [m.input([1, 2, 3, 4]), m.constant(weights), m.constant(np.full(5, 3, np.float32))]
    words: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "fused_activation_function": "RELU6"}
    (bounded,) = m.op("CONV_2D", inputs, [[1, 2, 3, 5]], **words)
    m.output(*m.op("MUL", [bounded, m.constant(np.float32(1 / 6))], [[1, 2, 3, 5]]))
    return m.bytes()


def test_an_attribute_of_0_is_not_read_as_the_default() -> None:
    data = build_bounded_layer()
    assert list_betas(data) == [0]
    assert 0 < list_betas(data, target="openvino")[0] < 1e-22
    x = np.random.default_rng(1).standard_normal((1, 2, 3, 4)).astype(np.float32)
    assert_right(OPENVINO, data, [x])


def build_product() -> bytes:
    """Return a product of two activations of int8."""
    m = Build()
    stored: dict[str, Any] = {"dtype": "int8", "scale": 0.02, "zero_point": 0}
    x, y = m.input([32, 16], **stored), m.input([16, 24], **stored)
    m.output(*m.op("BATCH_MATMUL", [x, y], [m.tensor([32, 24], **{**stored, "scale": 0.05})]))
    return m.bytes()


@pytest.mark.parametrize("activations", ["uint8", "int8"])
def test_products_of_activations_are_right_as_the_warning_says(
    activations: str, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = np.random.default_rng(0)
    inputs = [numbers.integers(-128, 128, each).astype(np.int8) for each in ((32, 16), (16, 24))]
    assert_right(RUNTIMES["openvino-floats"], build_product(), inputs, activations=activations)
    assert "compile with LP_TRANSFORMS_MODE NO" in caplog.text
