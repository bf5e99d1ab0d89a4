"""Averages of targets that know one scale of each tensor."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import Build, check


def build_average(kind: str, zero: int, stride: int = 2) -> bytes:
    m, size = Build(), 64 // stride
    scale: dict[str, Any] = {"dtype": kind, "scale": 0.05}
    scale["zero_point"] = zero if kind == "int8" else zero + 128
    window: dict[str, Any] = {"filter_width": 2, "filter_height": 2, "padding": "VALID"}
    window |= {"stride_w": stride, "stride_h": stride}
    x, y = m.input([1, 64, 64, 8], **scale), m.tensor([1, size, size, 8], **scale)
    m.output(*m.op("AVERAGE_POOL_2D", [x], [y], **window))
    return m.bytes()


def list_codes(model: bytes, **options: Any) -> set[str]:
    return {node.op_type for node in check(model, **options).model.graph.node}


@pytest.mark.parametrize(
    ("target", "zero"),
    [*(("qnn", zero) for zero in (-128, -90, 0, 3)), ("rknn", -128), ("rknn", 3)],
)
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_averages_round_halves_as_the_kernel(kind: str, target: str, zero: int) -> None:
    assert "Conv" in list_codes(build_average(kind, zero), target=target)


def test_longer_strides_and_other_modes_keep_the_average() -> None:
    """The average of a longer stride rounds halves to even."""
    far, near = build_average("int8", 0, stride=4), build_average("int8", 0)
    for model, options in (
        (far, {"target": "qnn", "steps": 1}),
        (near, {"quantization": "qdq-uniform", "steps": 1}),
    ):
        codes = list_codes(model, **options)
        assert "AveragePool" in codes
        assert "Conv" not in codes
