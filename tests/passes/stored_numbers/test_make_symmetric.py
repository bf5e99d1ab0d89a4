"""passes/stored_numbers/make_symmetric.py: zero points of 0, and what they cost."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.golden.records import assets
from tests.op.recurrent import cells
from tests.op.recurrent.cells import Form
from tests.quantized.layers import Layer, Scheme, Shape
from tests.references.filters import filter_frames
from tests.support import Build, check, random_inputs, run_onnx, run_tflite
from tests.support.control import add_if
from tests.support.graph_text import assert_rewritten, make_model, parse_graph
from tests.support.runtimes import session
from tflite2onnx import ConversionError, Stateful, convert
from tflite2onnx.cli import main
from tflite2onnx.errors import OptionError, UnsupportedOperators
from tflite2onnx.passes.stored_numbers.make_symmetric import make_symmetric
from tflite2onnx.reader.model import read_model
from tflite2onnx.tensor import Quantization
from tflite2onnx.verification import verify

RANDOM = np.random.default_rng(0)
QUANTIZED = [case for case in assets() if "int8" in case.name]


def every_node(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from every_node(attribute.g)


def list_zero_points(model: onnx.ModelProto) -> list[Any]:
    """Return the zero points of all QuantizeLinear and DequantizeLinear."""
    known = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    pairs = ("QuantizeLinear", "DequantizeLinear")
    nodes = [node for node in every_node(model.graph) if node.op_type in pairs]
    return [known[node.input[2]] for node in nodes if node.input[2:]]


@pytest.mark.parametrize("case", QUANTIZED, ids=lambda case: case.name)
def test_networks_have_only_zero_points_of_zero(case: Any) -> None:
    """All zero points are 0, all types int8, and each operator keeps the signal."""
    result = convert(case.path, quantization="symmetric")
    points = list_zero_points(result.model)
    assert points
    assert not any(point.any() for point in points)
    types = {point.dtype.name for point in points} | {end.dtype for end in result.inputs}
    assert types <= {"int8", "int16", "float32"}
    report = verify(case.path, result, samples=1, per_operator=True)
    assert report.operators
    assert min(each.difference.decibels for each in report.operators) > 20


def test_scale_is_largest_magnitude_divided_by_127() -> None:
    """A scale is the largest magnitude / 127; what is symmetric stays."""
    assert_rewritten(
        make_symmetric,
        """
        inputs x: uint8(0.5, 0)[2], z: int8(0.5, 0)[2]
        a: int8(0.127, 0)[2] = ABS(z)
        b: uint8(0.127, 255)[2] = NEG(x)
        return a, b
        """,
        """
        inputs x: int8(1.00394, 0)[2], z: int8(0.5, 0)[2]
        a: int8(0.127, 0)[2] = ABS(z)
        b: int8(0.255, 0)[2] = NEG(x)
        return a, b
        """,
    )


def test_uint8_around_its_middle_keeps_its_scale() -> None:
    """uint8 with the zero point 128 keeps its scale, and saturates where int8 does."""
    assert_rewritten(
        make_symmetric,
        "inputs x: float32[2]\ny: uint8(0.5, 128)[2] = QUANTIZE(x)\nreturn y",
        "inputs x: float32[2]\ny: int8(0.5, 0)[2] = QUANTIZE(x)\nreturn y",
    )


@pytest.mark.parametrize(
    ("zero", "limit"),
    [(-128, "RELU(x)"), (-100, "MAXIMUM(x, -14.0)"), (100, "MINIMUM(x, 13.5)")],
)
def test_inputs_saturate_at_the_old_range(zero: int, limit: str) -> None:
    scale = 0.5 * max(-128 - zero, 127 - zero, key=abs) / 127
    assert_rewritten(
        make_symmetric,
        f"inputs x: float32[2]\ny: int8(0.5, {zero})[2] = QUANTIZE(x)\nreturn y",
        f"inputs x: float32[2]\na: float32[2] = {limit}\n"
        f"y: int8({abs(scale):g}, 0)[2] = QUANTIZE(a)\nreturn y",
    )


def test_integers_of_another_scale_saturate_themselves() -> None:
    assert_rewritten(
        make_symmetric,
        "inputs x: int8(1.27, 0)[2]\ny: int8(0.508, -127)[2] = QUANTIZE(x)\nreturn y",
        "inputs x: int8(1.27, 0)[2]\ny: int8(1.016, 0)[2] = QUANTIZE(x)\nreturn y",
    )


def build_layer(code: str, weights: Any, bias: Any, zero: int = 0, **options: Any) -> bytes:
    """Return "x" -> a product -> "y" with uint8 data and weights."""
    m = Build()
    x = m.input([1, 4, 4, 3], name="x", dtype="uint8", scale=0.02, zero_point=120)
    w = m.constant(weights, scale=0.03, zero_point=100)
    b = m.constant(bias, scale=0.0006, zero_point=0)
    y = m.tensor([1, 4, 4, 5], name="y", dtype="uint8", scale=0.05, zero_point=zero)
    if code == "CONV_2D":
        options |= {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
    m.output(*m.op(code, [x, w, b], [y], **options))
    return m.bytes()


@pytest.mark.parametrize(
    ("code", "shape"), [("CONV_2D", (5, 3, 3, 3)), ("FULLY_CONNECTED", (5, 3))]
)
def test_products_keep_bias_and_activation(code: str, shape: tuple[int, ...]) -> None:
    """Weights have a scale per channel; a bias and a RELU in the range are kept at an output."""
    weights = RANDOM.integers(0, 256, shape, np.uint8)
    weights[1] = 100  # only zeros
    bias = RANDOM.integers(-3000, 3000, 5, np.int32)
    options = {"keep_num_dims": True} if code == "FULLY_CONNECTED" else {}
    model = build_layer(code, weights, bias, **options)
    result = convert(model, quantization="symmetric")
    kinds = [node.op_type for node in result.model.graph.node]
    assert kinds.index("Relu") < kinds.index("QuantizeLinear")
    report = verify(model, result)
    assert report.ok
    assert report.outputs[0].decibels > 30


@pytest.mark.parametrize("code", ["AVERAGE_POOL_2D", "MEAN", "RESIZE_BILINEAR"])
def test_averages_equal_litert(code: str) -> None:
    m = Build()
    fields: dict[str, Any] = {"dtype": "int8", "scale": 0.05, "zero_point": 3}
    x, window = m.input([1, 8, 8, 3], **fields), [1, 4, 4, 3]
    inputs, options = [x, m.constant([4, 4])], dict[str, Any]()
    if code == "AVERAGE_POOL_2D":
        sizes = ("stride_w", "stride_h", "filter_width", "filter_height")
        inputs, options = [x], {"padding": "VALID", **dict.fromkeys(sizes, 2)}
    elif code == "MEAN":
        inputs, window = [x, m.constant([1, 2])], [1, 3]
    m.output(*m.op(code, inputs, [m.tensor(window, **fields)], **options))
    result: Any = check(m.bytes(), steps=1, quantization="symmetric")
    points = list_zero_points(result.model)
    assert points
    assert not any(point.any() for point in points)


_SAME: dict[str, Any] = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
_LAYERS = [
    Shape("FULLY_CONNECTED", [3, 8], [5, 8], [3, 5]),
    Shape("CONV_2D", [1, 4, 4, 3], [5, 3, 3, 3], [1, 4, 4, 5], options=_SAME),
    Shape("DEPTHWISE_CONV_2D", [1, 4, 4, 3], [1, 3, 3, 6], [1, 4, 4, 6], 3, {
        **_SAME, "depth_multiplier": 2}),
    Shape("TRANSPOSE_CONV", [1, 4, 4, 3], [5, 3, 3, 3], [1, 4, 4, 5], options=_SAME),
]  # fmt: skip
# Data, weights and bias; LiteRT's convolutions of integers need a bias.
_SCHEMES = [
    ("int8", "int8", None), ("int8", "int4", None), ("uint8", "uint8", None),
    ("int16", "int8", None), ("int8", "int8", "int32"), ("int16", "int8", "int64"),
]  # fmt: skip
_NO_KERNEL = ("int4", "TRANSPOSE_CONV")


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("types", _SCHEMES, ids=str)
@pytest.mark.parametrize("shape", _LAYERS, ids=lambda shape: shape.code)
def test_products_with_and_without_bias_equal_litert(
    shape: Shape, types: tuple[str, str, str | None], *, per_channel: bool
) -> None:
    """A bias that is absent is no bias of 0: it has no scale for each channel."""
    (x, w, bias), is_wide = types, types[0] == "int16"
    zeros = (0 if is_wide else 5, 100 if w == "uint8" else 0, 0 if is_wide else 3)
    layer = Layer(shape, Scheme(x, w, x, bias, zeros, per_channel=per_channel and w != "uint8"))
    choices: list[dict[str, Any]] = [{"quantization": "symmetric"}, {"target": "tensorrt"}]
    for options in choices:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TensorRT has no type of 16 bits
            result = convert(layer.model(), io_type="float", io_layout="tflite", **options)
        if (bias is None and "CONV_2D" in shape.code) or (w, shape.code) == _NO_KERNEL:
            continue
        data, scale = layer.inputs[0], layer.scales
        numbers = (data.astype(np.float32) - zeros[0]) * scale[0]
        name = result.model.graph.input[0].name
        (have,) = run_onnx(result.model, {name: numbers}, optimize=False)
        want = (run_tflite(layer.model(), [data])[0].astype(np.float32) - zeros[2]) * scale[2]
        # The scales of data and output grow, so that all integers are rounded anew.
        assert np.abs(have - want).max() < 0.08 * np.abs(want).max()


@pytest.mark.parametrize(("channels", "multiplier"), [(3, 2), (1, 4), (6, 1)])
def test_each_filter_of_a_depthwise_convolution_has_its_own_shift(
    channels: int, multiplier: int
) -> None:
    """A scale of all weights leaves a bias for each filter, from which data are shifted."""
    m, filters = Build(), channels * multiplier
    made = np.random.default_rng(7)
    shape = [1, 4, 5, channels]
    integers = made.integers(-127, 128, (1, 3, 3, filters)).astype(np.int8)
    bias = made.integers(-500, 500, filters).astype(np.int32)
    (x,) = m.op(
        "QUANTIZE", [m.input(shape, name="x")], [shape], dtype="int8", scale=0.05, zero_point=3
    )
    w = m.constant(integers, scale=0.02, zero_point=0)
    b = m.constant(bias, scale=0.001, zero_point=0)
    (y,) = m.op(
        "DEPTHWISE_CONV_2D",
        [x, w, b],
        [[1, 4, 5, filters]],
        scale=0.2,
        zero_point=-5,
        depth_multiplier=multiplier,
        **_SAME,
    )
    real = m.tensor([1, 4, 5, filters])
    m.op("DEQUANTIZE", [y], [real])
    m.output(real)
    numbers = made.uniform(-6, 6, shape).astype(np.float32)
    result = convert(m.bytes(), quantization="symmetric", io_layout="tflite")
    (have,) = run_onnx(result.model, {"x": numbers}, optimize=False)
    (want,) = run_tflite(m.bytes(), [numbers])
    assert np.abs(have - want).max() < 1.01 * 0.2


def test_small_weights_keep_their_steps() -> None:
    """Weights far below 1 have a scale of their own size, as they had in the file."""
    graph = make_symmetric(
        parse_graph(
            """
            inputs x: int8(0.5, 3)[2,3]
            y: int8(0.1, 0)[2,4] = FULLY_CONNECTED(x, uint8(0.001, 128)[4,3])
            return y
            """
        )
    )
    (op,) = (op for op in graph.ops if op.code == "FULLY_CONNECTED")
    weights = op.operand(1).quantization
    assert weights is not None
    assert 0.001 <= weights.scale.max() < 0.0011


def test_large_bias_gives_its_channel_a_larger_scale() -> None:
    """The channel gets a larger scale: its bias fits into 32 bits."""
    weights = np.full((5, 1, 1, 3), 100, np.uint8)
    weights[0, 0, 0, 0] = 101
    model = build_layer("CONV_2D", weights, np.array([2**31 - 1] * 5, np.int32), zero=128)
    biases = [
        numpy_helper.to_array(each)
        for each in convert(model, quantization="symmetric").model.graph.initializer
        if each.data_type == onnx.TensorProto.INT32
    ]
    assert len(biases) == 1
    assert 2**29 < biases[0].max() <= 2**30


def test_constants_and_custom_operators_become_symmetric() -> None:
    """The smallest int8 has no opposite, with which SUB could add the constant."""
    text = """
        inputs x: int8(0.5, 3)[2,3]
        y: int8(0.5, 3)[2,3] = SUB(x, int8(0.5, 0)[2,3])
        return y
    """
    model = make_model(text)
    points = list_zero_points(convert(model, quantization="symmetric").model)
    assert not any(point.any() for point in points)
    m = Build()
    c = np.array([[-128, 5, 127]], np.int8)
    x = m.input([1, 3], dtype="int8", scale=0.5, zero_point=0)
    y = m.tensor([1, 3], dtype="int8", scale=0.7, zero_point=0)
    m.output(*m.op("SUB", [x, m.constant(c, scale=0.5, zero_point=0)], [y]))
    points = list_zero_points(convert(m.bytes(), quantization="symmetric").model)
    assert not any(point.any() for point in points)
    assert_rewritten(
        make_symmetric,
        "inputs x: uint8(0.5, 3)[2]\ny: float32[2] = Own(x)\nreturn y",
        "inputs x: int8(0.992126, 0)[2]\nr: float32[2] = DEQUANTIZE(x)\n"
        "y: float32[2] = Own(r)\nreturn y",
    )


def test_constants_without_axes_equal_litert() -> None:
    """A constant without axes stays an array."""
    m = Build()
    x = m.input([1, 3], dtype="int8", scale=0.5, zero_point=1)
    for scale, zero in ((0.5, 0), (0.25, 9)):
        c = m.constant(np.array(5, np.int8), scale=scale, zero_point=zero)
        (x,) = m.op("SUB", [x, c], [m.tensor([1, 3], dtype="int8", scale=0.7, zero_point=1)])
    m.output(x)
    result = convert(m.bytes(), quantization="symmetric")
    assert verify(m.bytes(), result).ok


@pytest.mark.parametrize("bits", [8, 16])
def test_svdf_keeps_bias_and_activation(bits: int) -> None:
    data = cells.integer_svdf(Form(), dtype=f"int{bits}")
    (op,) = read_model(data).graphs[0].ops
    old, own = (t.quantization for t in (op.operand(0), op.outputs[0]))
    assert old
    assert own
    result = convert(data, quantization="symmetric", io_type="float")
    assert not any(point.any() for point in list_zero_points(result.model))
    live = Stateful(session(result.model, optimize=True))
    frames = [random_inputs(data, seed)[0] for seed in range(20)]
    made = [
        live.run(None, {result.inputs[0].name: dequantize_linear(frame, old)})[0]
        for frame in frames
    ]
    wanted = [dequantize_linear(y, own) for y in filter_frames(op, frames, bits)]
    errors = np.subtract(made, wanted)
    assert np.square(wanted).sum() > 100 * np.square(errors).sum()


def dequantize_linear(stored: Any, own: Quantization) -> Any:
    return ((stored.astype(int) - own.zero_point[0]) * own.scale[0]).astype(np.float32)


def test_refuses_operators_on_stored_integers() -> None:
    graph = parse_graph("inputs x: uint8(0.5, 3)[2]\ny: int32[2] = CAST(x)\nreturn y")
    with pytest.raises(UnsupportedOperators, match=r"CAST .*: it depends on the integers of the"):
        make_symmetric(graph)


def test_command_line_makes_a_symmetric_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The metadata state that the scales differ, and `verify` prints the signal-to-noise ratio."""
    path, onnx_path = QUANTIZED[0].path, tmp_path / "model.onnx"
    assert main([str(path), str(onnx_path), "--quantization", "symmetric"]) == 0
    assert "zero point 0" in capsys.readouterr().out
    assert main(["verify", str(path), str(onnx_path), "--samples", "1"]) in (0, 2)
    report = verify(path, onnx_path, samples=1)
    assert report.tensors
    assert report.outputs[0].decibels < 60
    assert read_model(path).graphs


@pytest.mark.parametrize(
    "options", [{"activations": "uint8"}, {"weights": "uint8"}, {"io_type": "uint8"}]
)
def test_refuses_uint8_with_symmetric_quantization(options: Any) -> None:
    with pytest.raises(OptionError, match="with `quantization` symmetric"):
        convert(QUANTIZED[0].path, quantization="symmetric", **options)
    assert issubclass(OptionError, ConversionError)


def test_initial_values_of_states_are_rounded_anew() -> None:
    """Initial values of 8 bits get the new scale of their tensor; 16 bits and floats do not."""
    graph = parse_graph(
        "inputs s: int8(0.127, -128)[3], r: float32[1]\nn: int8(0.127, -128)[3] = ABS(s)\n"
        "return n, r"
    )
    first = (np.array([-128, 0, 127], np.int8), np.ones(1, np.float32))
    symmetric = make_symmetric(replace(graph, initial=first))
    assert symmetric.initial[0].tolist() == [0, 64, 127]
    assert symmetric.initial[1] is first[1]
    assert symmetric.inputs[0].quantization is not None
    assert symmetric.inputs[0].quantization.scale == pytest.approx(0.255)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_branches_pass_on_stored_integers(dtype: str) -> None:
    """Branches pass on stored integers, also where all operators compute real numbers."""
    m = Build()
    condition, x = m.input([], dtype="bool"), m.input([2, 3], dtype=dtype, scale=0.1, zero_point=0)
    m.output(*add_if(m, condition, [x], lambda _, xs: [xs[0]], lambda _, xs: [xs[0]]))
    check(m.bytes(), quantization="symmetric", forms="canonical")
    assert convert(m.bytes(), target="tensorrt").outputs[0].dtype == "float32"


def test_products_of_computed_matrices_become_symmetric() -> None:
    """A computed matrix gets the range of its integers, a constant the range of its elements."""
    m = Build()
    x = m.input([2, 3], name="x", dtype="int8", scale=0.02, zero_point=7)
    w = m.input([3, 4], name="w", dtype="int8", scale=0.03, zero_point=-9)
    c = m.constant(RANDOM.integers(-99, 100, (4, 2), np.int8), scale=0.05, zero_point=3)
    (y,) = m.op("BATCH_MATMUL", [x, w], [m.tensor([2, 4], dtype="int8", scale=0.02, zero_point=1)])
    (z,) = m.op("BATCH_MATMUL", [y, c], [m.tensor([2, 2], dtype="int8", scale=0.2, zero_point=1)])
    m.output(z)
    result = convert(m.bytes(), quantization="symmetric")
    assert not any(point.any() for point in list_zero_points(result.model))
    assert verify(m.bytes(), result).ok
