"""The expected times of ONNX Runtime, changed so that small graphs get the forms of large ones."""

from __future__ import annotations

import pytest

from tflite2onnx.targets.onnxruntime.costs import FACTORS


def ignore_nodes(monkeypatch: pytest.MonkeyPatch, *kernels: str) -> None:
    """Expect no time of the nodes that copy windows, and of nodes of other kernels."""
    for factors in FACTORS.values():
        for kernel in ("gather", *kernels):
            monkeypatch.setitem(factors, kernel, factors[kernel]._replace(node=0))
