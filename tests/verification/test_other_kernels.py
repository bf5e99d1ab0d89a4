"""tflite2onnx/verification/kernels: LiteRT's other kernels."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from tests.support import Build
from tests.support.small import chain
from tflite2onnx import convert, verify
from tflite2onnx.errors import VerifyError
from tflite2onnx.verification.kernels import isolated, other_kernels
from tflite2onnx.verification.kernels.isolated import IsolatedRuntime
from tflite2onnx.verification.runtimes import (
    FASTEST_KERNELS,
    REFERENCE_KERNELS,
    LiteRTError,
    open_interpreter,
    read_inner_tensor,
    run_litert,
)


def build_narrow_product(weights: np.ndarray[Any, Any], *, rows: int = 2) -> bytes:
    """Return "x" -> ABS -> "positive" -> FULLY_CONNECTED by int4 -> "product" -> NEG -> "y"."""
    m = Build()
    count, features = weights.shape
    (positive,) = m.op(
        "ABS", [m.input((rows, features), name="x")], [m.tensor((rows, features), name="positive")]
    )
    scales = np.full(count, 0.1)
    w = m.constant(weights, dtype="int4", scale=scales, axis=0, name="w")
    (product,) = m.op("FULLY_CONNECTED", [positive, w], [m.tensor((rows, count), name="product")])
    m.output(*m.op("NEG", [product], [m.tensor((rows, count), name="y")]))
    return m.bytes()


def draw_weights(lowest: int) -> np.ndarray[Any, Any]:
    """Return int4 weights from a lowest number to 7, the lowest among them."""
    weights = np.random.default_rng(3).integers(lowest, 8, (8, 64)).astype(np.int8)
    weights[:, ::7] = lowest
    return weights


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_kernel_for_int4_that_overwrites_weights_does_not_blame_the_product(rows: int) -> None:
    """LiteRT's plain kernel is wrong beside weights of -8, unlike its other kernels."""
    report = verify(build_narrow_product(draw_weights(-8), rows=rows), per_operator=True)
    product = next(c.difference for c in report.operators if c.name == "product")
    assert product.kernels == "default kernels (XNNPACK)"
    assert report.outputs[0].kernels == "default kernels (XNNPACK)"
    assert report.ok
    assert report.diverging is None


def test_kernel_for_int4_is_compared_alone_without_weights_of_minus_8() -> None:
    """Without weights of -8 the plain kernels are right, and no others run."""
    report = verify(build_narrow_product(draw_weights(-7)), per_operator=True)
    assert report.ok
    assert {c.difference.kernels for c in report.operators} == {""}


@pytest.mark.parametrize("batch", [None, 3])
def test_product_of_a_batch_is_compared_with_other_kernels(batch: int | None) -> None:
    """The other kernels run each sample of a batch."""
    data = build_narrow_product(draw_weights(-8), rows=1)
    assert verify(data, convert(data, batch=batch), per_operator=True).ok


def test_wrong_product_is_wrong_for_all_kernels() -> None:
    """A product that no kernel of LiteRT computes stays wrong."""
    data, other = (build_narrow_product(draw_weights(-8) // part) for part in (1, 2))
    report = verify(data, convert(other).model, per_operator=True)
    assert report.diverging is not None
    assert report.diverging.name == "product"
    assert not report.ok


def test_crash_of_other_kernels_leaves_the_comparison_with_plain_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If LiteRT ends the process of its other kernels, the plain kernels count."""
    ends = isolated.PROGRAM.replace("interpreter.allocate_tensors()", "os._exit(1)")
    monkeypatch.setattr(isolated, "PROGRAM", ends)
    report = verify(build_narrow_product(draw_weights(-8)), per_operator=True)
    assert not report.ok
    assert {c.difference.kernels for c in report.operators} == {""}


def test_process_begins_again_after_a_crash() -> None:
    """An interpreter fails after a crash, and the next one runs in another process."""
    (x,) = [np.linspace(-1, 1, 30, dtype=np.float32).reshape(2, 3, 5)]
    data = chain("RELU", "NEG")
    with closing(IsolatedRuntime()) as runtime:
        first = runtime.open(data, REFERENCE_KERNELS, inner=True)
        np.testing.assert_array_equal(run_litert(first, [x])[0], -np.maximum(x, 0))
        names = [detail["name"] for detail in first.get_input_details()]
        assert names == ["x"]
        process = runtime._process  # noqa: SLF001
        assert process is not None
        os.kill(process.running.pid, signal.SIGKILL)
        with pytest.raises(LiteRTError, match="has ended its process"):
            run_litert(first, [x])
        second = runtime.open(data, FASTEST_KERNELS)
        np.testing.assert_array_equal(run_litert(second, [x])[0], -np.maximum(x, 0))
        second.close()
        with pytest.raises(LiteRTError, match="cannot run the model"):
            run_litert(second, [x])


def test_errors_of_litert_keep_their_kind() -> None:
    """A model that LiteRT refuses is an error, and a tensor that it has not kept is None."""
    with closing(IsolatedRuntime()) as runtime:
        with pytest.raises(LiteRTError, match="cannot run the model"):
            runtime.open(b"no model", FASTEST_KERNELS)
        plain = open_interpreter(chain("ABS", "NEG"))
        other = runtime.open(chain("ABS", "NEG"), FASTEST_KERNELS)
        assert read_inner_tensor(other, 99) is None
        details = (plain.get_output_details(), other.get_output_details())
        assert [each[0]["index"] for each in details] == [2, 2]


def test_kernels_that_litert_lacks_yield_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that cannot be cut out is compared with the plain kernels only."""

    def refuse(*_: Any) -> bytes:
        raise VerifyError("no")

    monkeypatch.setattr(other_kernels, "cut_entry_point", refuse)
    assert not verify(build_narrow_product(draw_weights(-8)), per_operator=True).ok


def test_sums_begin_at_the_tensor_that_a_reshape_brings_into_the_model() -> None:
    """A sum of a product and its input has the input that both models have as rows."""
    m, shape, rows = Build(), (1, 2, 8), (2, 8)
    x = m.input((1, 2, 64), name="x")
    first, second = (
        m.constant(draw_weights(-8)[:, :n], dtype="int4", scale=np.full(8, 0.1), axis=0)
        for n in (64, 8)
    )
    (added,) = m.op("FULLY_CONNECTED", [x, first], [m.tensor(shape)], keep_num_dims=True)
    (flat,) = m.op("RESHAPE", [added, m.constant(np.array(rows, np.int32))], [rows])
    (product,) = m.op("FULLY_CONNECTED", [flat, second], [rows])
    (back,) = m.op("RESHAPE", [product, m.constant(np.array(shape, np.int32))], [shape])
    m.output(*m.op("ADD", [back, added], [shape]))
    report = verify(m.bytes(), per_operator=True)
    assert report.ok
