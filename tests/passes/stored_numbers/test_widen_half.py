"""Products, sums and functions of float16 equal those of LiteRT's default delegate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from tests.support import Build, run_onnx
from tflite2onnx.convert import convert

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.runtimes import Array

_IMAGE = {"padding": "SAME", "stride_h": 1, "stride_w": 1}
# The operator, the shapes of its data and of its constants, the shape of the output, options.
CASES: list[tuple[str, list[list[int]], list[list[int]], list[int], dict[str, Any]]] = [
    ("FULLY_CONNECTED", [[2, 5]], [[3, 5], [3]], [2, 3], {}),
    (
        "FULLY_CONNECTED", [[2, 5]], [[3, 5]], [2, 3], {"fused_activation_function": "RELU"},
    ),
    ("BATCH_MATMUL", [[2, 3, 4], [2, 4, 5]], [], [2, 3, 5], {}),
    ("CONV_2D", [[1, 4, 4, 3]], [[5, 3, 3, 3], [5]], [1, 4, 4, 5], _IMAGE),
    (
        "DEPTHWISE_CONV_2D", [[1, 4, 4, 3]], [[1, 3, 3, 3], [3]], [1, 4, 4, 3],
        {**_IMAGE, "depth_multiplier": 1},
    ),
    (
        "AVERAGE_POOL_2D", [[1, 4, 4, 3]], [], [1, 2, 2, 3],
        {"padding": "VALID", "stride_h": 2, "stride_w": 2, "filter_height": 2, "filter_width": 2},
    ),
]  # fmt: skip


def draw_half(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def run_delegate(data: bytes, inputs: Sequence[Array]) -> Array:
    """Return the output of LiteRT's default delegate."""
    litert = Interpreter(model_content=data)
    litert.allocate_tensors()
    for detail, each in zip(litert.get_input_details(), inputs, strict=True):
        litert.set_tensor(detail["index"], each)
    litert.invoke()
    made: Array = litert.get_tensor(litert.get_output_details()[0]["index"])
    return made


def check_half(m: Build, inputs: Sequence[Array]) -> None:
    result = convert(m.bytes(), io_layout="tflite")
    feeds = {end.name: each for end, each in zip(result.inputs, inputs, strict=True)}
    (got,) = run_onnx(result.model, feeds)
    want = run_delegate(m.bytes(), inputs)
    assert got.dtype == np.float16
    # One step of float16: the runtimes add in different sequences, and round once.
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize(("code", "shapes", "constants", "made", "options"), CASES)
def test_half_precision_equals_the_default_delegate(
    code: str,
    shapes: list[list[int]],
    constants: list[list[int]],
    made: list[int],
    options: dict[str, Any],
) -> None:
    m, inputs = Build(), [draw_half(*shape, seed=i) for i, shape in enumerate(shapes)]
    operands = [m.input(shape, dtype="float16") for shape in shapes]
    operands += [m.constant(draw_half(*shape, seed=9)) for shape in constants]
    m.output(*m.op(code, operands, [m.tensor(made, dtype="float16")], **options))
    check_half(m, inputs)


@pytest.mark.parametrize(
    ("code", "options"),
    [
        *(("ABS", {}), ("CEIL", {}), ("ELU", {}), ("EXP", {}), ("HARD_SWISH", {}), ("RELU", {})),
        *(("LEAKY_RELU", {"alpha": 0.25}), ("RELU6", {}), ("RELU_N1_TO_1", {}), ("SQUARE", {})),
        *(("LOG", {}), ("RSQRT", {}), ("SQRT", {}), ("SQUARED_DIFFERENCE", {}), ("PRELU", {})),
    ],
)
def test_functions_of_half_precision_equal_the_default_delegate(
    code: str, options: dict[str, Any]
) -> None:
    """XNNPACK has kernels of float16 for functions that LiteRT's own kernels refuse."""
    m, x = Build(), draw_half(3, 50)
    if code in {"LOG", "RSQRT", "SQRT"}:
        x = np.abs(x) + np.float16(0.1)
    second = {"SQUARED_DIFFERENCE": x[:1], "PRELU": np.full(50, 0.5, np.float16)}
    operands = [m.input(x.shape, dtype="float16")]
    operands += [m.constant(second[code])] if code in second else []
    m.output(*m.op(code, operands, [m.tensor(x.shape, dtype="float16")], **options))
    check_half(m, [x])


@pytest.mark.parametrize("code", ["MEAN", "REDUCE_MAX", "REDUCE_MIN", "SUM"])
def test_reductions_of_half_precision_equal_the_default_delegate(code: str) -> None:
    m, x = Build(), draw_half(2, 3, 4)
    operands = [m.input(x.shape, dtype="float16"), m.constant(np.array([1], np.int32))]
    m.output(*m.op(code, operands, [m.tensor([2, 1, 4], dtype="float16")], keep_dims=True))
    check_half(m, [x])


@pytest.mark.parametrize("code", ["ADD", "DIV", "MUL", "SUB"])
def test_sums_and_products_between_casts_are_rounded(code: str) -> None:
    m, x = Build(), np.linspace(-3, 3, 15, dtype=np.float32).reshape(3, 5)
    three = np.array([3], np.float16)
    (half,) = m.op("CAST", [m.input(x.shape)], [m.tensor(x.shape, dtype="float16")])
    (made,) = m.op(code, [half, m.constant(three)], [m.tensor(x.shape, dtype="float16")])
    m.output(*m.op("CAST", [made], [m.tensor(x.shape)]))
    result = convert(m.bytes(), io_layout="tflite")
    (got,) = run_onnx(result.model, {result.inputs[0].name: x})
    numpy = {"ADD": np.add, "DIV": np.divide, "MUL": np.multiply, "SUB": np.subtract}[code]
    np.testing.assert_array_equal(got, numpy(x.astype(np.float16), three).astype(np.float32))


def test_any_number_of_rows_is_kept() -> None:
    m = Build()
    x = m.input([None, 5], dtype="float16")
    w = m.constant(draw_half(3, 5))
    m.output(*m.op("FULLY_CONNECTED", [x, w], [m.tensor([None, 3], dtype="float16")]))
    result = convert(m.bytes())
    (got,) = run_onnx(result.model, {result.inputs[0].name: draw_half(4, 5)})
    assert got.shape == (4, 3)
