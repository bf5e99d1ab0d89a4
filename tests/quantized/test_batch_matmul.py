"""BATCH_MATMUL of stored integers, and of float data with integer weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.quantized.layers import LIMITS
from tests.quantized.test_hybrid import exact_rows, weights
from tests.support import Build, Tensor, check, run_onnx, run_tflite
from tests.support.facts import carrier
from tests.support.fusions import count_optimized_nodes
from tflite2onnx import ConversionError, verify
from tflite2onnx.cli.verdict import list_outputs
from tflite2onnx.convert import convert
from tflite2onnx.report import collect_facts, write_page
from tflite2onnx.verification import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

Array = np.ndarray[Any, Any]
SCALES = (np.float32(0.03), np.float32(0.011))
TYPES = {"int8": ("int8", "int8"), "int16": ("int16", "int16"), "int16 by int8": ("int16", "int8")}


def swap_last_axes(shape: Sequence[int], *, swap: bool) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2]) if swap else tuple(shape)


def random_integers(dtype: str, shape: Sequence[int]) -> Array:
    generator = np.random.default_rng(tuple(shape))
    return generator.integers(*LIMITS[dtype], shape, carrier(dtype), endpoint=True)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("adj", [(False, False), (True, True)], ids=str)
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize(
    ("a", "b"), [((3, 5), (5, 7)), ((2, 3, 5), (2, 5, 7)), ((2, 3, 5), (5, 7))], ids=str
)
def test_every_type_is_rounded_correctly(
    a: Sequence[int], b: Sequence[int], types: str, adj: tuple[bool, bool], *, constant: bool
) -> None:
    """Outputs equal LiteRT's to a step, and are rounded correctly."""
    left, right = TYPES[types]
    zeros = (3, -7, 5) if left == "int8" else (0, 0, 0)
    x = random_integers(left, swap_last_axes(a, swap=adj[0]))
    w = random_integers(right, swap_last_axes(b, swap=adj[1]))
    sums = np.matmul(
        *(
            (each.swapaxes(-1, -2) if swap else each).astype(np.int64) - zero
            for each, swap, zero in zip((x, w), adj, zeros, strict=False)
        )
    )
    low, high = LIMITS[left]
    scale = np.float32(np.abs(sums).max() * SCALES[0] * SCALES[1] / (high - low))
    m = Build()
    operands = [m.input(x.shape, dtype=left, scale=SCALES[0], zero_point=zeros[0])]
    fields: dict[str, Any] = {"dtype": right, "scale": SCALES[1], "zero_point": zeros[1]}
    operands.append(m.constant(w, **fields) if constant else m.input(w.shape, **fields))
    y = m.tensor(sums.shape, dtype=left, scale=scale, zero_point=zeros[2])
    m.output(*m.op("BATCH_MATMUL", operands, [y], adj_x=adj[0], adj_y=adj[1]))
    inputs = [x] if constant else [x, w]
    result = check(m.bytes(), inputs=inputs, steps=1)
    assert count_optimized_nodes(result.model)["QLinearMatMul"] == (1 if left == "int8" else 0)
    steps = sums * (np.float64(SCALES[0]) * np.float64(SCALES[1]) / np.float64(scale)) + zeros[2]
    model = convert(m.bytes(), io_layout="tflite").model
    feeds = dict(zip((i.name for i in model.graph.input), inputs, strict=True))
    for optimize in (True, False):
        (made,) = run_onnx(model, feeds, optimize=optimize)
        assert np.abs(made - np.clip(steps, low, high)).max() < (0.501 if left == "int8" else 0.51)


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("adj_y", [False, True])
@pytest.mark.parametrize("b", [(13, 7), (2, 13, 7)], ids=str)
def test_float_data_by_integer_weights_equal_litert(
    b: Sequence[int], *, adj_y: bool, asymmetric: bool
) -> None:
    """Float data with integer weights; see test_hybrid.py."""
    m = Build()
    w = m.constant(weights("int8", *swap_last_axes(b, swap=adj_y)), scale=SCALES[1])
    options: dict[str, Any] = {"adj_y": adj_y, "asymmetric_quantize_inputs": asymmetric}
    m.output(*m.op("BATCH_MATMUL", [m.input([2, 3, 13]), w], [[2, 3, 7]], **options))
    result = check(m.bytes(), inputs=[exact_rows((2, 3, 13), -128)], default_kernels=True)
    assert count_optimized_nodes(result.model)["DequantizeLinear"] == 1


@pytest.mark.parametrize("quantization", ["qdq", "float"])
def test_int32_outputs_are_sums_of_integer_products(quantization: str) -> None:
    """int32 outputs are sums of products of stored integers, also with float quantization."""
    m = Build()
    x, w = (m.input(shape, dtype="int8", scale=0.1, zero_point=3) for shape in ([3, 5], [5, 7]))
    m.output(*m.op("BATCH_MATMUL", [x, w], [[3, 7]], dtype="int32"))
    inputs = [random_integers("int8", shape) for shape in ((3, 5), (5, 7))]
    if quantization == "qdq":
        check(m.bytes(), inputs=inputs)
        return
    real = [(0.1 * (array.astype(np.float32) - 3)).astype(np.float32) for array in inputs]
    model = convert(m.bytes(), quantization="float", io_layout="tflite").model
    feeds = dict(zip((i.name for i in model.graph.input), real, strict=True))
    (made,) = run_onnx(model, feeds)
    np.testing.assert_array_equal(made, run_tflite(m.bytes(), inputs)[0])


@pytest.mark.parametrize("options", [
    {}, {"quantization": "float"}, {"quantization": "symmetric"}, {"target": "tensorrt"},
    {"opset": 13}, {"opset": 25},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("axis", [None, 1, 2])
@pytest.mark.parametrize("rows", [1, 2])
def test_product_of_two_quantized_constants_is_real(
    rows: int, axis: int | None, options: dict[str, Any]
) -> None:
    """Quantizers of weights quantize both; LiteRT's kernel writes integers into the output."""
    data, product = make_product_of_constants(rows, axis)
    result = convert(data, io_layout="tflite", **options)
    for optimize in (False, True):
        (have,) = run_onnx(
            result.model, {result.inputs[0].name: np.ones((2, 3, 5), np.float32)}, optimize=optimize
        )
        np.testing.assert_allclose(have, product + 1, rtol=1e-5, atol=1e-5)


def make_product_of_constants(rows: int, axis: int | None) -> tuple[bytes, Array]:
    """Return a network that adds a product of two int8 constants, and the real product."""
    generator, m = np.random.default_rng(0), Build()
    shapes, reals, constants = ((2, 3, 4), (rows, 4, 5)), [], []
    for shape in shapes:
        integers = generator.integers(-127, 128, shape, np.int8)
        scale = generator.uniform(0.01, 0.02, 1 if axis is None else shape[axis])
        scale = scale.astype(np.float32)
        constants.append(m.constant(integers, scale=scale, axis=axis or 0))
        reals.append(integers * (scale if axis != 1 else scale[:, None]))
    made = m.tensor([2, 3, 5])
    (product,) = m.op("BATCH_MATMUL", constants, [made], adj_x=False, adj_y=False)
    x = m.input([2, 3, 5])
    m.output(*m.op("ADD", [product, x], [[2, 3, 5]]))
    return m.bytes(), reals[0] @ reals[1]


@pytest.mark.parametrize("axis", [None, 1, 2])
@pytest.mark.parametrize("rows", [1, 2])
def test_litert_multiplies_real_numbers_in_verification(rows: int, axis: int | None) -> None:
    data, _ = make_product_of_constants(rows, axis)
    result = convert(data)
    report = verify(data, result, per_operator=True)
    assert report.verdict is Verdict.RIGHT
    assert report.misread == ("BATCH_MATMUL (operator 0)",)
    assert any(
        line.startswith("LiteRT's kernel misreads the constants of BATCH_MATMUL (operator 0)")
        for line in map(str, list_outputs(report))
    )
    page = write_page(collect_facts(data, result, report))
    assert "misreads the constants of BATCH_MATMUL (operator 0): LiteRT ran" in page
    model = onnx.load_from_string(result.model.SerializeToString())
    for constant in model.graph.initializer:
        constant.CopyFrom(
            numpy_helper.from_array(
                numpy_helper.to_array(constant) * np.float32(1.01), constant.name
            )
        )
    wrong = verify(data, model)
    assert (wrong.verdict, wrong.misread) == (Verdict.WRONG, report.misread)


@pytest.mark.parametrize(
    ("of_b", "of_y"), [("int8", "int8"), ("float32", "float32"), ("constant", "int16")]
)
def test_litert_reads_a_constant_before_others_in_verification(of_b: str, of_y: str) -> None:
    """LiteRT multiplies by 0 instead of the scales of each index, and refuses floats after it."""
    m, generator = Build(), np.random.default_rng(0)

    def constant(*shape: int) -> Tensor:
        scale = generator.uniform(0.01, 0.02, shape[2]).astype(np.float32)
        return m.constant(generator.integers(-127, 128, shape, np.int8), scale=scale, axis=2)

    a, steps = constant(2, 3, 4), dict[str, Any]() if of_y == "float32" else {"scale": 0.05}
    b = constant(2, 4, 5) if of_b == "constant" else m.input([2, 4, 5], dtype=of_b, **steps)
    (y,) = m.op(
        "BATCH_MATMUL", [a, b], [m.tensor([2, 3, 5], dtype=of_y, **steps)], adj_x=False, adj_y=False
    )
    if of_b == "constant":  # a network has an input
        other = m.input([2, 3, 5], dtype="int16", scale=0.05)
        (y,) = m.op("ADD", [y, other], [m.tensor([2, 3, 5], dtype="int16", scale=0.1)])
    m.output(y)
    report = verify(m.bytes(), per_operator=True)
    assert report.ok
    assert report.misread == ("BATCH_MATMUL (operator 0)",)


def test_refuses_products_of_integers_that_are_computed_and_float() -> None:
    m = Build()
    x = m.input([2, 3, 4], dtype="int8", scale=0.1)
    w = m.constant(np.ones((2, 4, 5), np.int8), scale=0.1)
    y = m.tensor([2, 3, 5])
    m.output(*m.op("BATCH_MATMUL", [x, w], [y], adj_x=False, adj_y=False))
    with pytest.raises(ConversionError, match="insert DEQUANTIZE after tensor_0"):
        convert(m.bytes())
