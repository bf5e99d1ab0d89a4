"""Files of the target portable load in the oldest ONNX Runtime that it was tried in, 1.17."""

from __future__ import annotations

import pytest

from tests.passes.patterns.test_fuse_normalizations import Spelled
from tests.support import check
from tflite2onnx.targets.table import Target


@pytest.mark.parametrize(("target", "inputs"), [("onnxruntime", 2), ("portable", 3)])
def test_layer_normalization_has_a_bias(target: Target, inputs: int) -> None:
    """Without one, ONNX Runtime 1.17 ends the process if two nodes read the result."""
    m = Spelled([-1])
    x = m.input((2, 5, 8))
    centred = m.apply("SUB", x, m.mean(x))
    y = m.apply("DIV", centred, m.inverse(m.apply("MUL", centred, centred), "SQRT"))
    m.output(m.apply("ADD", m.apply("ABS", y), m.apply("NEG", y)))
    model = check(m.bytes(), target=target).model
    (node,) = (node for node in model.graph.node if node.op_type == "LayerNormalization")
    assert len(node.input) == inputs
