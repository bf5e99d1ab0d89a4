"""The helpers of the tests: LiteRT runs models of `Build` and gives the same result as NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from tests.support import (
    Build,
    difference,
    random_inputs,
    run_signature,
    run_tflite,
    sparsify,
)
from tests.support.facts import OPERATORS

if TYPE_CHECKING:
    from tests.support.runtimes import Array

RANDOM = np.random.default_rng(0)


def convolution(x: Array, weights: Array, bias: Array) -> Array:
    """A VALID convolution of stride 1: x NHWC, weights OHWI."""
    _, height, width, _ = weights.shape
    windows = np.lib.stride_tricks.sliding_window_view(x, (height, width), axis=(1, 2))
    result: Array = np.einsum("nyxihw,ohwi->nyxo", windows, weights) + bias
    return result


def test_convolution_of_build_equals_numpy() -> None:
    """Options by name; the output takes the type of the input."""
    m = Build()
    weights = RANDOM.standard_normal((11, 3, 2, 3)).astype(np.float32)
    bias = RANDOM.standard_normal(11).astype(np.float32)
    x = m.input([2, 5, 7, 3])
    (y,) = m.op(
        "CONV_2D",
        [x, m.constant(weights), m.constant(bias)],
        [[2, 3, 6, 11]],
        stride_h=1,
        stride_w=1,
        padding="VALID",
        fused_activation_function="RELU",
    )
    m.output(y)
    (value,) = random_inputs(m.bytes(), 0)
    (result,) = run_tflite(m.bytes(), [value])
    np.testing.assert_allclose(
        result, np.maximum(convolution(value, weights, bias), 0), rtol=1e-4, atol=1e-4
    )


def test_quantized_convolution_of_build_equals_numpy() -> None:
    """Weights with a scale per output channel, an int32 bias, an output with its own scale."""
    m = Build()
    scales = np.array([0.01, 0.02, 0.005, 0.03, 0.04])
    weights = RANDOM.integers(-127, 128, (5, 3, 2, 3)).astype(np.int8)
    bias = RANDOM.integers(-500, 500, 5).astype(np.int32)
    x = m.input([2, 5, 7, 3], dtype=np.int8, scale=0.5, zero_point=-3)
    w = m.constant(weights, scale=scales, axis=0)
    b = m.constant(bias, scale=scales * 0.5)
    options: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "VALID"}
    (y,) = m.op("CONV_2D", [x, w, b], [[2, 3, 6, 5]], scale=4.0, zero_point=7, **options)
    m.output(y)
    (value,) = random_inputs(m.bytes(), 0)
    real = convolution(value + 3.0, weights.astype(float), bias) * 0.5 * scales
    expected = np.clip(np.round(real / 4.0) + 7, -128, 127)
    assert np.ptp(expected) > 100
    (result,) = run_tflite(m.bytes(), [value])
    assert np.abs(result - expected).max() <= 1


def test_outputs_take_the_type_of_the_data() -> None:
    """Outputs take the type and a single scale of the data, but not a per-axis quantization."""
    m = Build()
    x = m.input([4], dtype="int8", scale=0.5, zero_point=3)
    channels = m.input([4], dtype="int8", scale=[1, 2, 3, 4])
    (first, second) = m.op("SPLIT", [m.constant(0), x], [[2], m.tensor([2], dtype="int8")])
    (third,) = m.op("ABS", [channels], [[4]])
    (fourth,) = m.op("QUANTIZE", [x], [[4]], scale=0.25)
    (fifth,) = m.op("DEQUANTIZE", [x], [[4]], dtype="float32")
    assert (first.dtype, second.dtype, third.dtype, fifth.dtype) == ("int8",) * 3 + ("float32",)
    assert first.quantization == x.quantization
    assert second.quantization is third.quantization is fifth.quantization is None
    assert (fourth.quantization.scale, fourth.quantization.zeroPoint) == ([0.25], [0])


def test_lists_become_int32_and_int32_wraps() -> None:
    """A list is int32, and int32 wraps."""
    m = Build()
    x = m.input([3], dtype="int32")
    m.output(*m.op("ADD", [x, m.constant([1, 2, 2**31 - 1])], [[3]]))
    (result,) = run_tflite(m.bytes(), [np.array([5, -7, 1], np.int32)])
    assert result.tolist() == [6, -5, -(2**31)]


@pytest.mark.parametrize(("dtype", "low", "high"), [("int4", -8, 7), ("int2", -2, 1)])
def test_packed_constants_may_end_in_a_partial_byte(dtype: str, low: int, high: int) -> None:
    """The last byte of 15 values is not full, with two and with four values per byte."""
    m = Build()
    values = np.resize(np.arange(low, high + 1), (3, 5))
    w = m.constant(values, dtype=dtype, scale=0.5)
    m.output(*m.op("DEQUANTIZE", [w], [[3, 5]], dtype="float32"))
    (result,) = run_tflite(m.bytes(), [])
    np.testing.assert_array_equal(result, values * 0.5)
    with pytest.raises(ValueError, match=f"fits {dtype}"):
        m.constant([high + 1], dtype=dtype)
    with pytest.raises(ValueError, match="fits uint8"):
        m.constant([-1], dtype=np.uint8)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_float_constants_are_read_by_litert(dtype: str) -> None:
    """float16 is a type of NumPy, bfloat16 a type of ml_dtypes."""
    m = Build()
    w = m.constant([1.5, -2.0, 0.0], dtype=dtype)
    m.output(*m.op("CAST", [w], [[3]], dtype="float32", out_data_type="float32"))
    assert run_tflite(m.bytes(), [])[0].tolist() == [1.5, -2.0, 0.0]


def test_strings_are_written_and_read_back() -> None:
    """Strings are a table of offsets."""
    m = Build()
    x = m.input([1, 2], dtype="string")
    words = m.constant([["one", "två", ""]])
    m.output(*m.op("EQUAL", [words, m.constant([["one", "två", "x"]])], [[1, 3]], dtype=bool), x)
    result, same = run_tflite(m.bytes(), [np.array([["a", "ö"]], object)])
    assert result.tolist() == [[True, True, False]]
    assert difference(same, np.array([["a", "ö"]], object)) == ""


@pytest.mark.parametrize("index_type", ["int32", "uint16", "uint8"])
@pytest.mark.parametrize(
    ("formats", "blocks", "traversal"),
    [
        (["dense", "csr"], {}, None),
        (["csr", "dense"], {}, [1, 0]),
        (["dense", "csr", "dense", "dense"], {0: 2, 1: 4}, None),
    ],
)
def test_densify_restores_sparse_constants(
    formats: list[str], blocks: dict[int, int], traversal: list[int] | None, index_type: str
) -> None:
    """LiteRT's own DENSIFY undoes every kind of compression."""
    dense = np.zeros((6, 8), np.float32)
    dense[[0, 1, 4], [5, 2, 7]] = [1, 2, 3]
    values, sparsity = sparsify(
        dense, formats, blocks=blocks, traversal=traversal, index_type=index_type
    )
    assert values.size < dense.size
    m = Build()
    w = m.constant(values, shape=dense.shape, sparsity=sparsity)
    m.output(*m.op("DENSIFY", [w], [[6, 8]]))
    np.testing.assert_array_equal(run_tflite(m.bytes(), [])[0], dense)


def test_signatures_may_name_any_subgraph() -> None:
    """Sub-graphs are called by index, and a signature may name any of them."""
    m = Build()
    double, square = m.subgraph("double"), m.subgraph("square")
    for graph, name, code in ((double, "double", "ADD"), (square, "square", "MUL")):
        x = graph.input([3])
        (y,) = graph.op(code, [x, x], [[3]])
        graph.output(y)
        m.signature(name, {"x": x}, {"y": y})
    inputs = [m.input([], dtype=bool), m.input([3])]
    (z,) = m.op("IF", inputs, [[3]], then_subgraph_index=1, else_subgraph_index=2)
    m.output(z)
    value = np.array([1, 2, 5], np.float32)
    for true in (True, False):
        (result,) = run_tflite(m.bytes(), [np.array(true), value])
        np.testing.assert_array_equal(result, value + value if true else value * value)
    assert run_signature(m.bytes(), "square", {"x": value})["y"].tolist() == [1, 4, 25]
    with pytest.raises(ValueError, match="sub-graph 0 cannot use"):
        m.output(y)


def test_external_buffers_are_aligned_and_found() -> None:
    """External data is aligned after the flatbuffer, and LiteRT finds it."""
    m = Build()
    values = RANDOM.standard_normal((1000, 3)).astype(np.float32)
    x = m.input([1000, 3])
    w = m.constant(values, external=True)
    (y,) = m.op("ADD", [x, w], [[1000, 3]])
    (z,) = m.op("ADD", [y, m.constant([1.0, 2.0, 3.0], external=True)], [[1000, 3]])
    m.output(z)
    data = m.bytes()
    file = schema.ModelT.InitFromPackedBuf(data)
    (first, second) = [buffer for buffer in file.buffers if buffer.size]
    assert first.offset % 16 == second.offset % 16 == 0
    assert data[first.offset : first.offset + first.size] == values.tobytes()
    assert first.offset + first.size <= second.offset < len(data)
    (result,) = run_tflite(data, [values])
    np.testing.assert_allclose(result, 2 * values + np.array([1, 2, 3]), rtol=1e-6)


@pytest.mark.parametrize("external", [False, True])
def test_custom_options_become_a_flexbuffer(*, external: bool) -> None:
    """A mapping becomes a flexbuffer, in its place or after the flatbuffer."""
    m = Build()
    options = {"window_size": 4, "stride": 2, "magnitude_squared": True}
    x = m.input([8, 1])
    m.output(*m.custom("AudioSpectrogram", [x], [[1, 3, 3]], options, external=external))
    value = RANDOM.standard_normal((8, 1)).astype(np.float32)
    (result,) = run_tflite(m.bytes(), [value])
    frames = np.stack([value[start : start + 4, 0] for start in (0, 2, 4)])
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(4) / 4)
    np.testing.assert_allclose(result[0], np.abs(np.fft.rfft(frames * window)) ** 2, atol=1e-5)


def test_bias_may_be_absent_and_states_start_at_zero() -> None:
    """An absent bias; a state that starts at zero in every fresh interpreter."""
    m = Build()
    weights = RANDOM.standard_normal((4, 3)).astype(np.float32)
    recurrent = RANDOM.standard_normal((4, 4)).astype(np.float32)
    x, bias = m.input([2, 3]), m.constant(np.ones(4, np.float32))
    state = m.tensor([2, 4], variable=True)
    (y,) = m.op("FULLY_CONNECTED", [x, m.constant(weights), None], [[2, 4]])
    inputs = [x, m.constant(weights), m.constant(recurrent), bias, state]
    (z,) = m.op("RNN", inputs, [[2, 4]], fused_activation_function="NONE")
    m.output(y, z)
    (value,) = random_inputs(m.bytes(), 0)
    for _ in range(2):
        product, step = run_tflite(m.bytes(), [value])
        np.testing.assert_allclose(product, value @ weights.T, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(step, product + 1, rtol=1e-4, atol=1e-4)


def test_none_is_a_dynamic_size_of_1() -> None:
    """None is 1 in the shape and -1 in its signature; another input resizes the model."""
    m = Build()
    x = m.input([None, 3], name="x")
    m.output(*m.op("ABS", [x], [[None, 3]]))
    tensor = schema.Model.GetRootAs(m.bytes()).Subgraphs(0).Tensors(0)
    assert tensor.ShapeAsNumpy().tolist() == [1, 3]
    assert tensor.ShapeSignatureAsNumpy().tolist() == [-1, 3]
    (result,) = run_tflite(m.bytes(), [np.full((5, 3), -1, np.float32)])
    np.testing.assert_array_equal(result, np.ones((5, 3)))


def test_operator_codes_are_listed_once_and_files_repeat() -> None:
    """Codes are listed once, the old field stays a byte, and the file is the same each time."""
    m = Build("what it is")
    x = m.input([2])
    for code in ("ABS", "GELU", "ABS"):
        (x,) = m.op(code, [x], [[2]])
    m.output(x)
    m.metadata("min_runtime_version", b"1.5.0")
    file = schema.ModelT.InitFromPackedBuf(m.bytes())
    codes = [(code.deprecatedBuiltinCode, code.builtinCode) for code in file.operatorCodes]
    assert codes == [(OPERATORS["ABS"],) * 2, (127, OPERATORS["GELU"])]
    assert bytes(file.buffers[file.metadata[0].buffer].data) == b"1.5.0"
    assert file.description == b"what it is"
    assert m.bytes() == m.bytes()


def test_wrong_number_of_inputs_is_refused() -> None:
    """LiteRT itself would run with uninitialized memory."""
    m = Build()
    m.output(m.input([2]))
    with pytest.raises(ValueError, match="1 inputs, not 2"):
        run_tflite(m.bytes(), [np.zeros(2, np.float32)] * 2)


def test_random_inputs_depend_on_seed_and_ranges() -> None:
    """The same seed gives the same inputs; ranges are looked up by name first, then by type."""
    m = Build()
    names = {"a": "float32", "b": "float32", "c": "int8", "d": "bool", "e": "string"}
    for name, dtype in names.items():
        m.input([100], dtype=dtype, name=name)
    m.output(m.input([100], dtype="int64"))
    arrays = random_inputs(m.bytes(), 3, float32=(2, 3), b=(5, 6))
    again = random_inputs(m.bytes(), 3, float32=(2, 3), b=(5, 6))
    assert all(np.array_equal(*pair) for pair in zip(arrays, again, strict=True))
    types = ["float32", "float32", "int8", "bool", "object", "int64"]
    assert [array.dtype.name for array in arrays] == types
    assert 2 <= arrays[0].min() < arrays[0].max() <= 3
    assert 5 <= arrays[1].min() < arrays[1].max() <= 6
    assert np.ptp(arrays[2].astype(int)) > 200
    assert set(arrays[3].tolist()) == {False, True}
    assert np.abs(arrays[5]).max() <= 100
