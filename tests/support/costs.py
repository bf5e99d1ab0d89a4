"""The expected times of ONNX Runtime, changed so that small graphs get the forms of large ones."""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

import pytest

from tflite2onnx.targets.onnxruntime import costs, forms


def prefer_integers(monkeypatch: pytest.MonkeyPatch, *kernels: str) -> None:
    """Expect a long time of convolutions of floats, and no time of nodes of these kernels."""
    # A module that is first imported while costs are changed would keep them.
    for module in walk_packages(forms.__path__, f"{forms.__name__}."):
        import_module(module.name)
    monkeypatch.setattr(costs, "estimate_convolution", lambda *_: 1e9)
    for factors in costs.FACTORS.values():
        for kernel in kernels:
            monkeypatch.setitem(factors, kernel, factors[kernel]._replace(node=0))
