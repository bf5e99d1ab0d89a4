"""scripts/benchmark_composites.py: all forms of a composite compute the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    "name",
    [
        "rms_norm",
        "rope",
        "scaled_dot_product_attention",
        "cache_update",
        "gated_delta_update",
        "swiglu",
    ],
)
def test_all_forms_of_a_composite_compute_the_same(script: Any, name: str, rows: int) -> None:
    """Forms with the same inputs have the same output; forms with other inputs run."""
    generator = np.random.default_rng(0)
    results: dict[str, list[Any]] = {}
    feeds: dict[str, dict[str, Any]] = {}
    for inputs, nodes in script.FORMS[name].values():
        model = script.build_form(inputs, nodes, rows)
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        if inputs not in feeds:
            ports = session.get_inputs()
            shapes = {port.name: port.shape for port in ports}
            feeds[inputs] = {n: generator.random(s, np.float32) for n, s in shapes.items()}
        (y,) = session.run(None, feeds[inputs])
        results.setdefault(inputs, []).append(y)
    for first, *others in results.values():
        for other in others:
            np.testing.assert_allclose(other.reshape(first.shape), first, 1e-4, 1e-5)
