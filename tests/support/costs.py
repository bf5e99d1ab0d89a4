"""The expected times of ONNX Runtime, changed so that small graphs get the forms of large ones."""

from __future__ import annotations

import pytest

from tflite2onnx.targets.onnxruntime import costs


def prefer_integers(monkeypatch: pytest.MonkeyPatch, *kernels: str) -> None:
    """Expect a long time of convolutions of floats, and no time of nodes of these kernels."""
    monkeypatch.setattr(costs, "estimate_convolution", lambda *_: 1e9)
    for factors in costs.FACTORS.values():
        for kernel in kernels:
            monkeypatch.setitem(factors, kernel, factors[kernel]._replace(node=0))
