"""targets.onnxruntime.forms.pool_before_functions.py: functions of the inputs of pools."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import Build, check
from tests.support.graph_text import assert_rewritten, read_graph
from tflite2onnx.targets.onnxruntime.forms.functions.pool_before_functions import (
    pool_before_functions,
)

SHAPE = [2, 24, 32, 4]
POOL: dict[str, Any] = {"stride_h": 2, "stride_w": 2, "filter_height": 2, "filter_width": 2}


def build_pool(
    *steps: tuple[str, Any], code: str = "MAX_POOL_2D", stride: int = 2, shape: list[int] = SHAPE
) -> Build:
    """Return a pool of functions; each step is a code and a constant, or None."""
    m = Build()
    x = m.input(shape)
    for function, constant in steps:
        inputs = [x] if constant is None else [x, m.constant(np.asarray(constant, np.float32))]
        (x,) = m.op(function, inputs, [shape])
    n, height, width, channels = shape
    pooled = [n, height // stride, width // stride, channels]
    options = POOL | {"stride_h": stride, "stride_w": stride, "padding": "SAME"}
    m.output(*m.op(code, [x], [pooled], **options))
    return m


def list_codes(m: Build) -> list[str]:
    return [op.code for op in pool_before_functions(read_graph(m.bytes())).ops]


def test_pool_moves_before_functions() -> None:
    pool = "stride_w=2, stride_h=2, filter_width=2, filter_height=2"
    before = f"""
        inputs %0: float32[1,40,40,2]
        %1: float32[1,40,40,2] = MUL(%0, [0.0, 2.0])
        %2: float32[1,40,40,2] = ADD(%1, [-1.0, 3.0])
        %3: float32[1,20,20,2] = MAX_POOL_2D(%2, {pool})
        return %3
    """
    after = f"""
        inputs %0: float32[1,40,40,2]
        %1: float32[1,20,20,2] = MAX_POOL_2D(%0, {pool})
        %2: float32[1,20,20,2] = MUL(%1, [0.0, 2.0])
        %3: float32[1,20,20,2] = ADD(%2, [-1.0, 3.0])
        return %3
    """
    assert_rewritten(pool_before_functions, before, after)


FACTORS, OFFSETS = [0.5, 2, 0, 1], [1, -1, 0, 3]
MOVING = [
    *([(code, None)] for code in ("ELU", "EXP", "LOGISTIC", "TANH")),
    [("MUL", FACTORS), ("ADD", OFFSETS)],
    [("MUL", FACTORS)],
    [("ADD", OFFSETS)],
    [("MUL", 0.5)],
]


@pytest.mark.parametrize("steps", MOVING, ids=str)
def test_functions_that_never_fall_move(steps: list[tuple[str, Any]]) -> None:
    m = build_pool(*steps)
    assert list_codes(m) == ["MAX_POOL_2D", *(code for code, _ in steps)]
    check(m.bytes(), ranges={"float32": (-3, 3)}, tolerance=1e-6)


@pytest.mark.parametrize(
    "m",
    [
        build_pool(("MUL", [0.5, -2, 0, 1])),
        build_pool(("ADD", np.ones((24, 32, 4)))),
        build_pool(("ABS", None)),
        build_pool(("ELU", None), stride=1),
        build_pool(("ELU", None), code="AVERAGE_POOL_2D"),
        build_pool(("ELU", None), shape=[2, 6, 8, 4]),
    ],
    ids=["negative", "pixels", "falls", "as many", "average", "few"],
)
def test_functions_that_fall_or_differ_by_pixel_stay(m: Build) -> None:
    codes = [op.code for op in read_graph(m.bytes()).ops]
    assert list_codes(m) == codes
    check(m.bytes(), seeds=[0])
