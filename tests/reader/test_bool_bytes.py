"""Constant booleans with bytes other than 0 and 1: every byte except 0 is true.

C++ has no such booleans. Kernels that treat these bytes as true are compared with LiteRT;
docs/faq.md describes the other kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import Build, Tensor, check, run_onnx, run_tflite
from tflite2onnx import verify
from tflite2onnx.convert import convert
from tflite2onnx.verification.results import Verdict

BYTES = np.arange(256, dtype=np.uint8)


def constant(m: Build, values: Any) -> Tensor:
    """Return booleans stored as these bytes."""
    return m.constant(np.asarray(values, np.uint8).view(np.bool_))


def outputs(m: Build, code: str) -> list[Tensor]:
    """Return the output of an operator for all byte values."""
    if code in ("SELECT", "SELECT_V2"):
        branches = [m.constant(np.full(256, value, np.float32)) for value in (1, 2)]
        return m.op(code, [constant(m, BYTES), *branches], [[256]], dtype="float32")
    if code == "CAST":
        return m.op(code, [constant(m, BYTES)], [[256]], dtype="float32")
    if code in ("REDUCE_ANY", "REDUCE_ALL"):
        other = np.full(256, code == "REDUCE_ALL", np.uint8)
        pairs = constant(m, np.stack([BYTES, other], 1))
        return m.op(code, [pairs, m.constant([1])], [[256]])
    return m.op(code, [constant(m, BYTES), m.constant(np.full(256, True))], [[256]], dtype="bool")


@pytest.mark.parametrize(
    "code",
    ["SELECT", "SELECT_V2", "CAST", "REDUCE_ANY", "REDUCE_ALL", "EQUAL", "NOT_EQUAL"],
)
def test_all_but_zero_is_true(code: str) -> None:
    m = Build()
    m.output(*outputs(m, code))
    check(m.bytes())


def test_where_finds_what_is_true() -> None:
    """LiteRT counts rows by the sum of the bytes, so the additional rows are never written."""
    m = Build()
    stored = [0, 2, 1, 0, 3]
    m.output(*m.op("WHERE", [constant(m, stored)], [m.tensor([None, 1], dtype="int64")]))
    (want,), (have,) = run_tflite(m.bytes(), []), run_onnx(convert(m.bytes()).model, {})
    assert len(want) == sum(stored)
    np.testing.assert_array_equal(have, want[: len(have)])
    np.testing.assert_array_equal(have, [[1], [2], [4]])


@pytest.mark.parametrize("code", ["WHERE", "LOGICAL_NOT"])
def test_litert_reads_0_and_1_in_verification(code: str) -> None:
    m = Build()
    stored, x = constant(m, [0, 2, 1, 0, 3]), m.input([5], dtype="bool")
    made = m.tensor([None, 1], dtype="int64") if code == "WHERE" else m.tensor([5], dtype="bool")
    m.output(*m.op(code, [stored], [made]), *m.op("LOGICAL_AND", [x, stored], [[5]]))
    report = verify(m.bytes())
    assert report.verdict is Verdict.RIGHT
    assert report.misread == (f"{code} (operator 0)", "LOGICAL_AND (operator 1)")


@pytest.mark.parametrize(("stored", "warned"), [([0, 1, 1], False), ([0, 5, 1], True)])
def test_warning_names_the_constant(
    stored: list[int], *, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    m = Build()
    m.output(*m.op("CAST", [constant(m, stored)], [[3]], dtype="float32"))
    convert(m.bytes())
    text = "BOOL constant tensor_0 must be 0 or 1, got 5"
    assert (text in caplog.text) is warned
