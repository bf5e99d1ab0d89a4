"""scripts/fit_nodes.py: factors of nodes that are no convolutions."""

from __future__ import annotations

import sys
from typing import Any

import onnx
import pytest

from tflite2onnx.targets.onnxruntime.costs import FACTORS


def test_links_have_the_shape_of_their_input(script: Any) -> None:
    """ONNX infers no shapes of QGemm, QLinearAdd and QLinearMul."""
    for link in script.list_links():
        for steps in filter(None, (link.steps, link.others)):
            model = onnx.load_from_string(script.build_chain(link, steps, 2))
            if not any(node.domain for node in model.graph.node):
                model.graph.output[0].type.tensor_type.ClearField("shape")
                inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
                (output,) = inferred.graph.output
                sizes = tuple(size.dim_value for size in output.type.tensor_type.shape.dim)
                assert sizes == link.shape


def test_every_kernel_is_a_row_of_the_costs(script: Any) -> None:
    assert {link.kernel for link in script.list_links()} <= FACTORS[16].keys() & FACTORS[8].keys()


def test_script_prints_the_row_that_stands_above_the_fitted_one(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(sys, "argv", ["fit_nodes.py", "reshape"])
    monkeypatch.setattr(script, "LENGTHS", (64,))
    monkeypatch.setattr(script, "TURNS", 1)
    script.main()
    _, stands, fitted = capsys.readouterr().out.splitlines()
    assert stands.startswith('"reshape": Factors(0.3, 0')
    assert fitted.strip().startswith("Factors(")


def test_unknown_kernel_is_an_error(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["fit_nodes.py", "rope"])
    with pytest.raises(SystemExit):
        script.main()
