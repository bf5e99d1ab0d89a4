"""Half precision: the operators that compute in float16, and those that stay float32."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tests.support import Build, Subgraph, Tensor
from tests.support.control import add_if, count_rounds, counter, loop, op
from tests.support.decoder import build_decoder
from tests.support.streams import build_sum
from tflite2onnx import Stateful, convert, verify
from tflite2onnx.errors import OptionError
from tflite2onnx.float16 import (
    CONSTANT,
    FOLLOWS,
    NO_FORM,
    NO_KERNEL,
    OVERFLOW,
    QUANTIZED,
    SCAN,
)
from tflite2onnx.reader.model import read_model
from tflite2onnx.verification.runtimes import make_session

ASSETS = Path(__file__).parents[1] / "assets" / "models"
HALF, SINGLE = TensorProto.FLOAT16, TensorProto.FLOAT
SHAPE = (2, 3, 5)


def convert_half(data: Any, **options: Any) -> Any:
    """Return the conversion to half precision, which ONNX accepts."""
    result = convert(data, float16=True, **options)
    onnx.checker.check_model(result.model, full_check=True)
    return result


def list_reasons(result: Any) -> list[tuple[str, str]]:
    """Return the nodes in float32, with the reasons."""
    return [(node.op_type, node.reason) for node in result.float32_nodes]


def list_nodes(result: Any) -> list[str]:
    return [node.op_type for node in result.model.graph.node]


def build(*codes: str | Callable[[Subgraph, Tensor], Tensor]) -> bytes:
    """Return "x" -> operators with one input, or the operators that functions add -> "y"."""
    m = Build()
    x = m.input(SHAPE, name="x")
    for code in codes:
        x = op(m, code, x) if isinstance(code, str) else code(m, x)
    m.output(*m.op("RELU", [x], [m.tensor(x.shape, name="y")]))
    return m.bytes()


def with_constant(code: str, number: float) -> Callable[[Subgraph, Tensor], Tensor]:
    """Return a function that adds an operator with a constant as second input."""
    return lambda m, x: op(m, code, x, m.constant(np.float32(number)))


def reduce_all(code: str) -> Callable[[Subgraph, Tensor], Tensor]:
    """Return a function that adds a reduction of all axes."""

    def add(m: Subgraph, x: Tensor) -> Tensor:
        axes = m.constant(np.arange(len(x.shape), dtype=np.int32))
        return m.op(code, [x, axes], [[1] * len(x.shape)], keep_dims=True)[0]

    return add


# Whole networks


@pytest.mark.parametrize("name", ["mobilenet", "unet", "keywords", "transformer"])
def test_float16_networks_are_close_to_litert_at_half_size(name: str) -> None:
    """Outputs are within a hundredth of their range, and all large weights are float16."""
    file = ASSETS / f"{name}_float32.tflite"
    whole, half = convert(file), convert_half(file)
    report = verify(file, half)
    assert report.ok
    assert all(output.relative < 1e-2 for output in report.outputs)
    assert {end.dtype for end in (*half.inputs, *half.outputs)} == {"float32"}
    sizes = [
        sum(data.nbytes for header, data in result.skeleton.weights if header.data_type == dtype)
        for result, dtype in ((whole, SINGLE), (half, HALF), (half, SINGLE))
    ]
    assert sizes[2] == 0
    assert sizes[1] <= sizes[0] / 2


@pytest.mark.parametrize("name", ["mobilenet", "unet"])
def test_float16_weights_of_the_file_are_stored_once(name: str) -> None:
    """float16 weights of the file are read without Cast, and stored once.

    The fastest forms replace two filters by their product, which is not in the file.
    """
    file = ASSETS / f"{name}_float16.tflite"
    whole, half = (make(file, forms="canonical") for make in (convert, convert_half))
    assert list_nodes(whole).count("Cast") > list_nodes(half).count("Cast") == 2
    same = [
        {data.tobytes() for header, data in each.skeleton.weights if header.data_type == HALF}
        for each in (whole, half)
    ]
    assert same[0] == same[1]
    assert verify(file, half).ok


def test_inputs_and_outputs_stay_float32_unless_requested() -> None:
    """Inputs and outputs stay float32 with a Cast, or become float16 with float16_io."""
    data = build("SIN", "COS")
    assert list_nodes(convert_half(data)) == ["Cast", "Sin", "Cos", "Relu", "Cast"]
    half = convert_half(data, float16_io=True)
    assert list_nodes(half) == ["Sin", "Cos", "Relu"]
    assert [end.dtype for end in (*half.inputs, *half.outputs)] == ["float16", "float16"]
    assert verify(data, half, per_operator=True).ok
    with pytest.raises(OptionError, match="`float16_io` must be given with `float16`"):
        convert(data, float16_io=True)


def test_float16_file_is_verified_tensor_by_tensor() -> None:
    """A file records float16, so that its tensors are matched and compared."""
    data = build("NEG", "EXP", "COS")
    for io in (False, True):
        report = verify(data, convert_half(data, float16_io=io).model, per_operator=True)
        assert report.ok
        assert len(report.tensors) == 4
        assert all(each.allowed > 1e-3 for each in report.outputs)


def test_verification_finds_a_wrong_float16_constant() -> None:
    """The bounds of half precision still find a wrong constant."""
    data = build(with_constant("MUL", 3.0), "NEG")
    model = convert_half(data).model
    (three,) = [each for each in model.graph.initializer if each.data_type == HALF]
    three.raw_data = np.float16(3.2).tobytes()
    report = verify(data, model)
    assert not report.ok
    assert report.diverging is not None
    assert report.diverging.operator == "MUL"


# Operators that stay float32


@pytest.mark.parametrize(
    ("codes", "want"),
    [
        (["EXP"], [("Exp", OVERFLOW)]),
        (["SQUARE"], [("Mul", OVERFLOW), ("Relu", FOLLOWS)]),
        ([with_constant("POW", 3.0)], [("Pow", OVERFLOW), ("Relu", FOLLOWS)]),
        ([with_constant("ADD", 1e6)], [("Add", CONSTANT), ("Relu", FOLLOWS)]),
        ([with_constant("ADD", 1e-9)], [("Add", CONSTANT), ("Relu", FOLLOWS)]),
        ([with_constant("MUL", 6.5)], []),
        ([with_constant("MAXIMUM", 0.0)], []),
        ([reduce_all("SUM")], []),
        ([reduce_all("REDUCE_PROD")], [("ReduceProd", OVERFLOW), ("Relu", FOLLOWS)]),
    ],
)
def test_operators_that_may_overflow_stay_float32(codes: Any, want: list[tuple[str, str]]) -> None:
    """Operators that may overflow stay float32, and operators that read only their outputs, too."""
    data = build(*codes)
    half = convert_half(data)
    found = list_reasons(half)
    assert found[: len(want)] == want
    assert all(reason == FOLLOWS for _, reason in found[len(want) :])
    assert verify(data, half, per_operator=True).ok


@pytest.mark.parametrize(("size", "want"), [(1024, []), (1025, [("ReduceMean", OVERFLOW)])])
def test_reductions_above_1024_elements_stay_float32(
    size: int, want: list[tuple[str, str]]
) -> None:
    """A sum or mean of more than 1024 elements stays float32, because the sum may overflow."""
    m = Build()
    x = m.input((2, size), name="x")
    axes = m.constant(np.array([1], np.int32))
    (mean,) = m.op("MEAN", [x, axes], [[2, 1]], keep_dims=True)
    m.output(*m.op("SUB", [x, mean], [(2, size)]))
    half = convert_half(m.bytes())
    assert list_reasons(half) == want
    assert verify(m.bytes(), half).ok


def test_fourier_transform_stays_float32() -> None:
    """A product with a matrix of large elements is a sum; weights of a network are far smaller."""
    m = Build()
    lengths = m.constant(np.array([1, 256], np.int32))
    (x,) = m.op("RFFT2D", [m.input([3, 1, 256]), lengths], [[3, 1, 129]], dtype="complex64")
    m.output(*m.op("COMPLEX_ABS", [x], [[3, 1, 129]], dtype="float32"))
    half = convert_half(m.bytes())
    assert [node for node, _ in list_reasons(half)].count("MatMul") == 2
    assert verify(m.bytes(), half).ok


@pytest.mark.parametrize(("size", "want"), [(4, []), (40, [("AveragePool", OVERFLOW)])])
def test_average_pools_of_large_windows_stay_float32(
    size: int, want: list[tuple[str, str]]
) -> None:
    """An average pool sums as many elements as its window has."""
    m = Build()
    x = m.input((1, 41, 41, 2), name="x")
    options: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "VALID"}
    shape = (1, 42 - size, 42 - size, 2)
    (y,) = m.op("AVERAGE_POOL_2D", [x], [shape], filter_height=size, filter_width=size, **options)
    m.output(y)
    half = convert_half(m.bytes())
    assert list_reasons(half)[:1] == want
    assert verify(m.bytes(), half).ok


def test_casts_read_values_in_their_computed_type() -> None:
    """A Cast reads the value in the type in which it is computed."""
    m = Build()
    x = m.input([4], name="x")
    for source in (x, op(m, "NEG", x), op(m, "EXP", x)):
        m.output(*m.op("CAST", [source], [[4]], dtype="int32"))
    m.output(*m.op("CAST", [op(m, "ABS", x)], [[4]], dtype="float32"))
    half = convert_half(m.bytes())
    assert verify(m.bytes(), half).ok
    assert list_reasons(half)[0] == ("Exp", OVERFLOW)
    assert list_nodes(half).count("Neg") == 1


def test_float16_weights_may_be_an_output() -> None:
    """float16 weights may be an output of the model."""
    m = Build()
    weights = m.constant(np.arange(600, dtype=np.float16))
    (y,) = m.op("DEQUANTIZE", [weights], [m.tensor([600], name="y")])
    m.output(y, m.op("NEG", [m.input([600], name="x")], [[600]])[0])
    for io in (False, True):
        half = convert_half(m.bytes(), float16_io=io)
        assert verify(m.bytes(), half).ok


def test_reductions_of_unknown_size_stay_float32() -> None:
    """A reduction of a dynamic axis stays float32, because its sum may overflow."""
    m = Build()
    x = m.input([None, 3], name="x")
    m.output(*m.op("SUM", [x, m.constant(np.array([0], np.int32))], [[3]], keep_dims=False))
    half = convert_half(m.bytes())
    assert list_reasons(half) == [("ReduceSum", OVERFLOW)]
    assert verify(m.bytes(), half).ok


def test_squares_and_mean_of_normalization_stay_float32() -> None:
    """Squares, their mean and the root stay float32; the quotient is float16 again."""
    m = Build()
    x = m.input((2, 8), name="x")
    axes = m.constant(np.array([1], np.int32))
    (square,) = m.op("MUL", [x, x], [(2, 8)])
    (variance,) = m.op("MEAN", [square, axes], [[2, 1]], keep_dims=True)
    (shifted,) = m.op("ADD", [variance, m.constant(np.float32(1e-3))], [[2, 1]])
    m.output(*m.op("MUL", [x, *m.op("RSQRT", [shifted], [[2, 1]])], [(2, 8)]))
    half = convert_half(m.bytes())
    kept = [("Pow", OVERFLOW), ("ReduceMean", OVERFLOW), ("Add", FOLLOWS), ("Sqrt", FOLLOWS)]
    assert list_reasons(half) == kept
    assert list_nodes(half).count("Cast") == 3  # x, the root, and the output
    large = {"x": np.full((2, 8), 3e4, np.float32)}
    assert verify(m.bytes(), half, inputs=large).ok


def test_casts_of_int32_stay_float32() -> None:
    """Casts of int32 stay float32, because float16 represents numbers up to 65504 only."""
    m = Build()
    count, small = (
        m.input([2], dtype="int32", name="count"),
        m.input([2], dtype="uint8", name="small"),
    )
    made = [m.op("CAST", [x], [[2]], dtype="float32")[0] for x in (count, small)]
    m.output(*m.op("ADD", made, [m.tensor([2], name="y")]))
    half = convert_half(m.bytes())
    assert list_reasons(half) == [("Cast", OVERFLOW)]
    assert verify(m.bytes(), half).ok


@pytest.mark.parametrize("name", ["mobilenet_int8", "keywords_uint8", "mobilenet_int16x8"])
def test_quantized_networks_stay_as_they_are(name: str) -> None:
    """Quantized operators stay float32: a Cast before QuantizeLinear would prevent fusion."""
    file = ASSETS / f"{name}.tflite"
    # For browsers no convolution has two forms, between which a model without float16 chooses.
    whole, half = convert(file, target="web"), convert_half(file, target="web")
    assert list_nodes(half) == list_nodes(whole)
    assert {reason for _, reason in list_reasons(half)} == {QUANTIZED}
    plain = convert_half(file, quantization="float")
    assert plain.size < 0.7 * convert(file, quantization="float").size
    assert verify(file, plain).ok


def test_operators_without_float16_form_stay_float32() -> None:
    """Operators that ONNX or ONNX Runtime lacks in float16, and custom operators, stay float32."""
    m = Build()
    x = m.input([4], name="x")
    limits = [m.constant(np.float32(each)) for each in (0, 4, 1)]
    (row,) = m.op("RANGE", limits, [[4]])
    (y,) = m.custom("Mystery", [*m.op("ADD", [x, row], [[4]])], [[4]])
    m.output(y)
    half = convert(m.bytes(), float16=True, allow_custom=True)
    assert ("Mystery", NO_KERNEL) in list_reasons(half)
    m = Build()
    x, index = m.input([4], name="x"), m.input([4], dtype="int32", name="index")
    (y,) = m.op("UNSORTED_SEGMENT_SUM", [x, index, m.constant(np.int32(3))], [[3]])
    m.output(y)
    assert ("ScatterND", NO_KERNEL) in list_reasons(convert_half(m.bytes()))
    m = Build()
    x = m.input([4], name="x")
    (y,) = m.op("BITCAST", [m.op("NEG", [x], [[4]])[0]], [m.tensor([4], dtype="int32")])
    m.output(y)
    half = convert_half(m.bytes(), opset=26)
    assert list_reasons(half) == [("BitCast", NO_FORM)]


# Sub-graphs and states


def test_operators_in_subgraphs_compute_in_float16() -> None:
    """Operators in sub-graphs compute in float16; loop variables stay float32."""
    m = Build()
    x, count = m.input(SHAPE, name="x"), counter(m)
    scale = m.constant(np.linspace(0.5, 1.5, 30, dtype=np.float32).reshape(SHAPE))

    def change(inner: Subgraph, xs: Any) -> list[Tensor]:
        return [op(inner, "TANH", op(inner, "NEG", xs[0]))]

    hidden = op(m, "MUL", x, scale)
    _, looped = loop(m, [count, hidden], count_rounds(change))
    choice = m.input([], dtype="bool", name="choice")
    (y,) = add_if(m, choice, [looped], change, lambda g, xs: [op(g, "EXP", xs[0])])
    m.output(y)
    half = convert_half(m.bytes())
    assert [reason for _, reason in list_reasons(half)] == [OVERFLOW]
    assert verify(m.bytes(), half, samples=4).ok


def test_recurrent_layers_have_only_weights_in_float16() -> None:
    """Weights are float16, but operators are not: ONNX Runtime crashes on float16 beside a Scan."""
    generator = np.random.default_rng(0)

    def weights(m: Build, *shape: int) -> Tensor:
        return m.constant(generator.standard_normal(shape).astype(np.float32) / 8)

    m = Build()
    x = m.input((2, 5, 32), name="x")
    state = m.tensor([2, 32], variable=True, name="state")
    operands = [x, weights(m, 32, 32), weights(m, 32, 32), weights(m, 32), state]
    options: dict[str, Any] = {"time_major": False, "fused_activation_function": "RELU6"}
    (y,) = m.op("UNIDIRECTIONAL_SEQUENCE_RNN", operands, [(2, 5, 32)], **options)
    m.output(y)
    whole, half = convert(m.bytes()), convert_half(m.bytes())
    assert "Scan" in list_nodes(whole)
    assert {reason for _, reason in list_reasons(half)} == {SCAN}
    assert half.size < 0.7 * whole.size
    assert verify(m.bytes(), half, samples=3).ok


@pytest.mark.parametrize("io", [False, True])
def test_states_have_the_element_type_of_inputs(*, io: bool) -> None:
    """A state and its initial value have the element type of the inputs."""
    half = convert_half(build_sum(), float16_io=io)
    dtype = "float16" if io else "float32"
    assert half.states[0].input.dtype == half.states[0].output.dtype == dtype
    assert half.states[0].initial.dtype == dtype
    assert verify(build_sum(), half, samples=5).ok
    session = Stateful(make_session(half.skeleton.serialize()))
    x = np.ones((2, 3, 5), dtype)
    for _ in range(2):
        (y,) = session.run(None, {"x": x})
    np.testing.assert_array_equal(y.ravel(), np.arange(30) + 2)


def test_outputs_that_are_inputs_or_constants_are_right() -> None:
    """Outputs that are inputs or constants, and repeated outputs, are separate values."""
    m = Build()
    x = m.input([2], name="x")
    constant = m.constant(np.array([1, 2], np.float32), name="constant")
    y = op(m, "NEG", x)
    m.output(x, constant, y, y)
    for io in (False, True):
        half = convert_half(m.bytes(), float16_io=io)
        assert verify(m.bytes(), half).ok


@pytest.mark.parametrize("opset", [17, 23])
def test_rows_that_are_quantized_at_run_time_stay_float32(opset: int) -> None:
    """From opset 23 on the scale gives the type of DequantizeLinear."""
    m = Build()
    weights = np.random.default_rng(0).integers(-8, 8, (7, 13), np.int8)
    w = m.constant(weights, dtype="int4", scale=0.1)
    m.output(*m.op("FULLY_CONNECTED", [m.input([5, 13]), w], [[5, 7]]))
    convert_half(m.bytes(), opset=opset)


def test_products_by_constants_without_elements_convert() -> None:
    m = Build()
    empty = m.constant(np.zeros((3, 0), np.float32))
    m.output(*m.op("BATCH_MATMUL", [m.input([2, 3]), empty], [[2, 0]]))
    convert_half(m.bytes())


def test_shapes_are_read_without_a_cast() -> None:
    """The shape of a value does not depend on its element type."""
    m = Build()
    x = m.input([None, 3], name="x")
    (shape,) = m.op("SHAPE", [x], [m.tensor([2], dtype="int32")], out_type="int32")
    m.output(*m.op("FILL", [shape, m.constant(np.float32(2))], [m.tensor([None, 3], name="y")]))
    assert verify(m.bytes(), convert_half(m.bytes())).ok


def test_output_of_a_float32_node_may_be_read_in_float16() -> None:
    """The result of attention has float32; it is an output here, and an operand of a sum."""
    data = build_decoder(mask="bool", depth=16, extra="shared")
    graph = read_model(data).graphs[0]
    attended = [op.outputs[0].name for op in graph.ops if op.code == "RESHAPE"][-2]
    names = [attended, *(tensor.name for tensor in graph.outputs)]
    result = convert(data, signature="decode", outputs=names, float16=True)
    onnx.checker.check_model(result.model)
    assert [output.name for output in result.outputs] == names
    make_session(result.model.SerializeToString())


@pytest.mark.parametrize("opset", [13, 19, 21])
def test_int16_saturates(opset: int) -> None:
    """float16 has no 32,767: the limit of int16 must stay float32, as 32,768 is -32,768."""
    m, x = Build(), np.linspace(-32768, 32767, 16).astype(np.int16).reshape(1, 4, 4, 1)
    weights = m.constant(np.full((2, 1, 1, 1), 127, np.int8), scale=0.02)
    bias = m.constant(np.zeros(2, np.int64), scale=2e-5)
    y = m.tensor((1, 4, 4, 2), dtype="int16", scale=1e-3)
    inputs = [m.input(x.shape, dtype="int16", scale=1e-3), weights, bias]
    m.output(*m.op("CONV_2D", inputs, [y], stride_w=1, stride_h=1))
    result = convert(m.bytes(), float16=True, opset=opset)
    assert verify(m.bytes(), result, inputs={result.inputs[0].name: x}).ok
