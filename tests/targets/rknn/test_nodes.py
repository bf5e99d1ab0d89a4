"""The nodes of `--target rknn`: weights have a zero point beside the middle of their type."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.golden.records import assets
from tests.runtimes.environments import RKNN
from tests.support import Build, check, run_onnx, run_tflite
from tests.targets.one_operator import measure_distance
from tflite2onnx import convert
from tflite2onnx.targets.checker import check_model

FEATURES = 16


def convert_layer(low: int, high: int) -> onnx.ModelProto:
    """Return a dense layer with this range of weights, whose outputs are compared with LiteRT's."""
    m = Build()
    x = m.input([1, FEATURES], name="x", dtype="int8", scale=0.05, zero_point=3)
    weights = np.random.default_rng(0).integers(low, high, (8, FEATURES), np.int8, endpoint=True)
    weights[0, :2] = low, high
    w = m.constant(weights, scale=0.01, zero_point=0)
    y = m.tensor([1, 8], name="y", dtype="int8", scale=0.05, zero_point=-5)
    m.output(m.op("FULLY_CONNECTED", [x, w, None], [y])[0])
    data = np.random.default_rng(1).integers(-128, 128, (1, FEATURES)).astype(np.int8)
    model: onnx.ModelProto = check(m.bytes(), inputs=[data], target="rknn").model
    return model


@pytest.mark.parametrize(
    ("low", "high", "zero"),
    [(-127, 127, 127), (-128, 126, 129), (-5, 127, 127), (0, 0, 127), (-128, 127, 128)],
)
def test_weights_move_by_a_step_if_they_have_room(low: int, high: int, zero: int) -> None:
    model = convert_layer(low, high)
    stored = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    ((weights, point),) = (
        (stored[node.input[0]], stored[node.input[2]])
        for node in model.graph.node
        if node.input[0] in stored
    )
    assert (weights.dtype.name, int(point)) == ("uint8", zero)
    assert (int(weights.min()) - zero, int(weights.max()) - zero) == (low, high)
    assert bool(check_model(model, "rknn")) == (zero == 128)


@pytest.mark.nightly
@pytest.mark.skipif(not RKNN.is_made, reason="scripts/runtimes.py --make rknn")
@pytest.mark.parametrize(("low", "high"), [(-127, 127), (-128, 126)])
def test_the_simulator_keeps_the_weights(low: int, high: int) -> None:
    assert not measure_distance(convert_layer(low, high), RKNN)


def build_dense(count: int = 1) -> bytes:
    """Build a dense layer of an image of 6x5 pixels, which is `count` rows."""
    m, size = Build(), 120 // count
    x = m.input([1, 6, 5, 4], name="x", dtype="int8", scale=0.05, zero_point=-100)
    weights = np.random.default_rng(0).integers(-120, 120, (8, size), np.int8)
    w = m.constant(weights, scale=0.01, zero_point=0)
    flat = m.tensor([count, size], dtype="int8", scale=0.05, zero_point=-100)
    (rows,) = m.op("RESHAPE", [x, m.constant(np.array([count, size], np.int32))], [flat])
    y = m.tensor([count, 8], name="y", dtype="int8", scale=0.3, zero_point=-5)
    m.output(m.op("FULLY_CONNECTED", [rows, w, None], [y])[0])
    return m.bytes()


def build_function(
    code: str, scale: float, zero: int, *, is_read: bool = False, is_computed: bool = False
) -> bytes:
    """Build a function of an input, or of what RELU makes of it, which may be an output, too."""
    m = Build()
    x = m.input([1, 8, 8, 4], name="x", dtype="int8", scale=scale, zero_point=zero)
    moved = x
    if is_read or is_computed:
        (moved,) = m.op(
            "RELU", [x], [m.tensor(x.shape, dtype="int8", scale=scale, zero_point=zero)]
        )
    step, least = {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0), "HARD_SWISH": (0.09, -124)}[
        code
    ]
    y = m.tensor(x.shape, name="y", dtype="int8", scale=step, zero_point=least)
    m.output(m.op(code, [moved], [y])[0], *[moved] * is_read)
    return m.bytes()


FUNCTIONS = {
    "read": build_function("LOGISTIC", 0.05, -100, is_read=True),
    "moved": build_function("LOGISTIC", 0.05, -100),
    "computed": build_function("LOGISTIC", 0.05, -100, is_computed=True),
    "two sides": build_function("LOGISTIC", 0.0775, 8),
    "many parts": build_function("LOGISTIC", 0.19, -11),
    "two sides of TANH": build_function("TANH", 0.07, -9),
    "one side of HARD_SWISH": build_function("HARD_SWISH", 0.11, 32),
}


def build_limits(code: str, zero: int, *, is_moved: bool = False) -> bytes:
    """Build RELU or RELU6 of an input, which MAX_POOL_2D may move, and ABS of the result."""
    m = Build()
    x = m.input([1, 8, 8, 4], name="x", dtype="int8", scale=0.05, zero_point=10)
    y = x
    if is_moved:
        own: dict[str, Any] = {"filter_height": 1, "filter_width": 1, "stride_h": 1, "stride_w": 1}
        moved = m.tensor(x.shape, dtype="int8", scale=0.05, zero_point=10)
        (y,) = m.op("MAX_POOL_2D", [x], [moved], padding="VALID", **own)
    for name, point in ((code, zero), ("LEAKY_RELU", -20)):
        result = m.tensor(x.shape, dtype="int8", scale=0.04, zero_point=point)
        (y,) = m.op(name, [y], [result])
    m.output(y)
    return m.bytes()


def build_affine(first: str, second: str) -> bytes:
    """Build sums or products of constants with a number for each channel, after a convolution."""
    m, rng = Build(), np.random.default_rng(0)
    x = m.input([1, 8, 8, 4], name="x", dtype="int8", scale=0.05, zero_point=10)
    w = m.constant(rng.integers(-127, 127, (4, 3, 3, 4), np.int8), scale=0.01, zero_point=0)
    y = m.tensor(x.shape, dtype="int8", scale=0.05, zero_point=-20)
    b = m.constant(np.zeros(4, np.int32), scale=5e-4, zero_point=0)
    (y,) = m.op("CONV_2D", [x, w, b], [y], padding="SAME", stride_h=1, stride_w=1)
    for code, zero in ((first, -11), (second, -90)):
        c = m.constant(rng.integers(-127, 127, 4, np.int8), scale=0.01, zero_point=3)
        result = m.tensor(y.shape, dtype="int8", scale=0.031, zero_point=zero)
        (y,) = m.op(code, [y, c], [result])
    m.output(y)
    return m.bytes()


@pytest.mark.parametrize("first", ["MUL", "ADD", "SUB"])
@pytest.mark.parametrize("second", ["MUL", "ADD", "SUB"])
def test_sums_and_products_of_channels_break_no_rule(first: str, second: str) -> None:
    # Three operators round, each by up to a step.
    model = check(build_affine(first, second), inputs=[EVERY], steps=2, target="rknn").model
    assert not check_model(model, "rknn")
    # A Max parts the convolution from what follows, too.
    joined = first == "MUL" or second != "MUL"
    assert sum(each.op_type == "Max" for each in model.graph.node) == 1 + joined


LIMITS = {
    "RELU": build_limits("RELU", -128),
    "RELU after MAX_POOL_2D": build_limits("RELU", -128, is_moved=True),
    "RELU6": build_limits("RELU6", -128),
}
EVERY = np.arange(-128, 128).astype(np.int8).reshape(1, 8, 8, 4)


@pytest.mark.parametrize("name", LIMITS)
def test_limits_of_inputs_break_no_rule(name: str) -> None:
    model = check(LIMITS[name], inputs=[EVERY], steps=1, target="rknn").model
    assert not check_model(model, "rknn")
    assert [n.op_type for n in model.graph.node].count("Max") == 1


def test_a_dense_layer_of_an_image_is_a_convolution() -> None:
    model = check(build_dense(), steps=2, target="rknn").model
    assert not check_model(model, "rknn")
    operators = {node.op_type for node in model.graph.node}
    assert "Conv" in operators
    assert "Gemm" not in operators


@pytest.mark.parametrize("count", [2, 5, 8])
def test_a_dense_layer_of_rows_of_an_image_is_no_convolution(count: int) -> None:
    """Attention reshapes its heads to rows of tokens."""
    model = check(build_dense(count), steps=2, target="rknn").model
    assert "Conv" not in {node.op_type for node in model.graph.node}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_large_numbers_break_no_rule(name: str) -> None:
    model = check(FUNCTIONS[name], inputs=[EVERY], steps=1, target="rknn").model
    broken = [each.rule for each in check_model(model, "rknn")]
    assert not [rule for rule in broken if "must stand for" in rule]
    functions = [
        n.op_type for n in model.graph.node if n.op_type in ("HardSwish", "Sigmoid", "Tanh")
    ]
    assert len(functions) == 1 + (name in ("two sides", "many parts", "two sides of TANH"))
    # RKNN runs a Min, and a Max of a float, on the CPU.
    assert "Min" not in {n.op_type for n in model.graph.node}
    read = {y for n in model.graph.node if n.op_type == "DequantizeLinear" for y in n.output}
    assert read >= {x for n in model.graph.node if n.op_type == "Max" for x in n.input}


@pytest.mark.parametrize("name", ["computed", "two sides", "many parts", "two sides of TANH"])
def test_functions_of_parts_of_the_range_are_exact(name: str) -> None:
    """ONNX Runtime joins two pairs of QuantizeLinear and DequantizeLinear without a Max."""
    model = convert(FUNCTIONS[name], target="rknn").model
    (have,) = run_onnx(model, {"x": EVERY})
    (want,) = run_tflite(FUNCTIONS[name], [EVERY])
    far = np.abs(want.astype(int) - have)
    assert far.max() <= ("TANH" in name)  # over 3.1 its integers still change


@pytest.mark.nightly
@pytest.mark.skipif(not RKNN.is_made, reason="scripts/runtimes.py --make rknn")
@pytest.mark.parametrize(
    "data", [*LIMITS.values(), build_dense(), *[FUNCTIONS[n] for n in FUNCTIONS if n != "read"]]
)
def test_the_simulator_computes_the_networks(data: bytes) -> None:
    assert measure_distance(convert(data, target="rknn").model, RKNN) <= 1


def test_a_reshaped_pixel_is_parted_from_its_convolution() -> None:
    """RKNN moves the Reshape of a published recurrent network without end."""
    m = Build()
    x = m.input([1, 1, FEATURES], name="x", dtype="int8", scale=0.05, zero_point=3)
    first = m.constant(np.array([0, 2, 1], np.int32))
    (moved,) = m.op(
        "TRANSPOSE",
        [x, first],
        [m.tensor([1, FEATURES, 1], dtype="int8", scale=0.05, zero_point=3)],
    )
    image = m.tensor([1, 1, 1, FEATURES], dtype="int8", scale=0.05, zero_point=3)
    (pixel,) = m.op(
        "RESHAPE", [moved, m.constant(np.array([1, 1, 1, FEATURES], np.int32))], [image]
    )
    weights = np.random.default_rng(0).integers(-127, 128, (8, 1, 1, FEATURES), np.int8)
    w = m.constant(weights, scale=0.01, zero_point=0)
    y = m.tensor([1, 1, 1, 8], name="y", dtype="int8", scale=0.05, zero_point=-5)
    b = m.constant(np.arange(8, dtype=np.int32), scale=0.05 * 0.01, zero_point=0)
    m.output(m.op("CONV_2D", [pixel, w, b], [y], padding="VALID", stride_w=1, stride_h=1)[0])
    model = check(m.bytes(), target="rknn").model
    assert not check_model(model, "rknn")


def build_average(rows: int) -> bytes:
    """Build an average of images of some rows."""
    m = Build()
    x = m.input([1, rows, 1, 16], name="x", dtype="int8", scale=0.03, zero_point=-128)
    y = m.tensor([1, 1, 1, 16], name="y", dtype="int8", scale=0.03, zero_point=-128)
    window: dict[str, Any] = {"filter_height": rows, "filter_width": 1, "padding": "VALID"}
    m.output(m.op("AVERAGE_POOL_2D", [x], [y], stride_h=rows, stride_w=1, **window)[0])
    return m.bytes()


@pytest.mark.parametrize("rows", [7, 40])
def test_averages_of_many_rows_are_convolutions(rows: int) -> None:
    data = np.random.default_rng(0).integers(-128, -60, (1, rows, 1, 16)).astype(np.int8)
    model = check(build_average(rows), inputs=[data], steps=1, target="rknn").model
    operators = [node.op_type for node in model.graph.node]
    assert ("Conv" in operators) == (rows > 7)
    assert not any("rows" in each.rule for each in check_model(model, "rknn"))


@pytest.mark.nightly
@pytest.mark.skipif(not RKNN.is_made, reason="scripts/runtimes.py --make rknn")
@pytest.mark.parametrize("rows", [7, 40])
def test_the_simulator_averages_rows(rows: int) -> None:
    assert measure_distance(convert(build_average(rows), target="rknn").model, RKNN) <= 1


def test_a_split_is_no_part_of_a_dense_layer() -> None:
    """A recurrent layer, whose gates were up to 150 steps off."""
    m = Build()
    x = m.input([1, FEATURES], name="x", dtype="int8", scale=0.05, zero_point=3)
    weights = np.random.default_rng(0).integers(-127, 128, (12, FEATURES), np.int8)
    w = m.constant(weights, scale=0.01, zero_point=0)
    gates = m.tensor([1, 12], dtype="int8", scale=0.05, zero_point=-5)
    (y,) = m.op("FULLY_CONNECTED", [x, w, None], [gates])
    parts = [m.tensor([1, 4], dtype="int8", scale=0.05, zero_point=-5) for _ in range(3)]
    m.output(*m.op("SPLIT", [m.constant(np.array(1, np.int32)), y], parts, num_splits=3))
    model = check(m.bytes(), target="rknn").model
    made = {name: node.op_type for node in model.graph.node for name in node.output}
    (limited,) = (node for node in model.graph.node if node.op_type == "Max")
    assert made[limited.input[0]] == "DequantizeLinear"
    assert not check_model(model, "rknn")


def build_groups() -> bytes:
    """Build a convolution of two groups, with a bias and a scale for each channel."""
    m, rng = Build(), np.random.default_rng(0)
    x = m.input([1, 4, 5, 16], name="x", dtype="int8", scale=0.138, zero_point=-48)
    scales = np.geomspace(0.0008, 0.012, FEATURES)
    weights = rng.integers(-127, 128, (FEATURES, 1, 3, 8), np.int8)
    w = m.constant(weights, scale=[*scales], zero_point=[0] * FEATURES)
    numbers = rng.integers(-900, 900, FEATURES, np.int32)
    b = m.constant(numbers, scale=[*(0.138 * scales)], zero_point=[0] * FEATURES)
    y = m.tensor([1, 4, 3, 16], name="y", dtype="int8", scale=0.214, zero_point=-5)
    m.output(m.op("CONV_2D", [x, w, b], [y], padding="VALID", stride_w=1, stride_h=1)[0])
    return m.bytes()


def build_strides(window: int, axis: int) -> bytes:
    """Build a convolution of floats with a stride of 8 rows or columns, and QUANTIZE."""
    m, rng = Build(), np.random.default_rng(0)
    sides, kernel, strides = [3, 3], [2, 2], [1, 1]
    sides[axis], kernel[axis], strides[axis] = 64, window, 8
    x = m.input([1, *sides, 2], name="x")
    w = m.constant(rng.normal(size=(4, *kernel, 2)).astype(np.float32))
    sizes = [1, *((a - b) // c + 1 for a, b, c in zip(sides, kernel, strides, strict=True)), 4]
    steps: dict[str, Any] = dict(zip(("stride_h", "stride_w"), strides, strict=True))
    b = m.constant(np.ones(4, np.float32))
    (y,) = m.op("CONV_2D", [x, w, b], [m.tensor(sizes)], padding="VALID", **steps)
    stored = m.tensor(sizes, name="y", dtype="int8", scale=0.05, zero_point=3)
    m.output(*m.op("QUANTIZE", [y], [stored]))
    return m.bytes()


STRIDES = [build_strides(window, axis) for window, axis in ((8, 0), (20, 1), (3, 1))]


@pytest.mark.parametrize("data", [build_groups(), *STRIDES])
def test_convolutions_break_no_rule(data: bytes) -> None:
    model = check(data, steps=1, target="rknn").model
    assert not [rule for rule in check_model(model, "rknn") if rule.operator == "Conv"]
    (node,) = (node for node in model.graph.node if node.op_type == "Conv")
    own = {each.name: each.ints or each.i for each in node.attribute}
    assert (own["group"], max(own["strides"])) == (1, 1)


@pytest.mark.nightly
@pytest.mark.skipif(not RKNN.is_made, reason="scripts/runtimes.py --make rknn")
@pytest.mark.parametrize(
    "data", [build_groups(), *STRIDES, build_affine("MUL", "ADD"), build_affine("SUB", "SUB")]
)
def test_the_simulator_computes_convolutions(data: bytes) -> None:
    assert measure_distance(convert(data, target="rknn").model, RKNN) <= 1


def test_averages_do_not_pool() -> None:
    """RKNN refuses two published networks with GlobalAveragePool and Reshape before a layer."""
    (case,) = (case for case in assets() if case.name == "mobilenet_int8.tflite")
    operators = {node.op_type for node in convert(case.path, target="rknn").model.graph.node}
    assert "ReduceMean" in operators
    assert "GlobalAveragePool" not in operators


def build_means(side: int, *, keep: bool, rows: bool = False) -> bytes:
    """Build two means of a tensor with scales of their own; what is far from 0 has only one."""
    m, shape = Build(), [1, side, 8] if rows else [1, side, side, 8]
    x = m.input(shape, name="x", dtype="int8", scale=0.0426 * side / 5, zero_point=8)
    axes = m.constant(np.arange(1, len(shape) - 1, dtype=np.int32))
    for scale, zero, is_kept in ((0.01, -46, keep), (0.006, 2, True)):
        made = [1, *[1] * (len(shape) - 2) * is_kept, 8]
        y = m.tensor(made, dtype="int8", scale=scale, zero_point=zero)
        m.output(*m.op("MEAN", [x, axes], [y], keep_dims=is_kept))
    return m.bytes()


MEANS = [
    build_means(5, keep=True), build_means(5, keep=False), build_means(12, keep=False),
    build_means(24, keep=False, rows=True),
]  # fmt: skip


@pytest.mark.parametrize("data", MEANS)
def test_means_of_one_tensor_are_apart(data: bytes) -> None:
    model = check(data, steps=1, target="rknn").model
    assert [n.op_type for n in model.graph.node].count("Max") == 1


@pytest.mark.nightly
@pytest.mark.skipif(not RKNN.is_made, reason="scripts/runtimes.py --make rknn")
@pytest.mark.parametrize("data", MEANS)
def test_the_simulator_computes_means_of_one_tensor(data: bytes) -> None:
    assert measure_distance(convert(data, target="rknn").model, RKNN) <= 1


def build_mixer() -> bytes:
    """Build a dense layer of columns and one of rows, each added to what it reads."""
    m, sizes = Build(), dict[str, Any](zero_point=3, dtype="int8")
    x = m.input([1, 24, 16], name="x", scale=0.05, **sizes)
    order = m.constant(np.array([0, 2, 1], np.int32))
    rng = np.random.default_rng(0)

    def turn(x: Any) -> Any:
        made = m.tensor([1, x.shape[2], x.shape[1]], scale=0.05, **sizes)
        return m.op("TRANSPOSE", [x, order], [made])[0]

    def multiply(x: Any) -> Any:
        w = m.constant(
            rng.integers(-127, 127, [x.shape[-1]] * 2, np.int8), scale=0.004, zero_point=0
        )
        made = m.tensor(x.shape, scale=0.05, **sizes)
        return m.op("FULLY_CONNECTED", [x, w, None], [made], keep_num_dims=True)[0]

    def add(x: Any, y: Any) -> Any:
        return m.op("ADD", [x, y], [m.tensor(x.shape, scale=0.05, **sizes)])[0]

    x = add(x, turn(multiply(turn(x))))
    m.output(add(x, multiply(x)))
    return m.bytes()


def test_both_tensors_of_a_sum_of_rows_have_a_maximum() -> None:
    # A step of the first sum may be one more of the second.
    model = check(build_mixer(), steps=2, target="rknn").model
    assert [n.op_type for n in model.graph.node].count("Max") == 4


@pytest.mark.nightly
@pytest.mark.skipif(not RKNN.is_made, reason="scripts/runtimes.py --make rknn")
def test_the_simulator_ends_with_sums_of_rows() -> None:
    assert measure_distance(convert(build_mixer(), target="rknn").model, RKNN) <= 1


@pytest.mark.parametrize(
    ("model", "name", "reason"),
    [
        (build_average(3), "convolve_averages", "it must average a large window"),
        (build_strides(8, 1), "join_groups", "it must have several groups"),
        (build_groups(), "fold_strides", "it must have one large even stride"),
        (build_means(5, keep=True), "part_means", "no mean of these data before it"),
        (build_limits("RELU", 10), "part_products", "RKNN must join it with what is before it"),
        (build_groups(), "part_outputs", "no node reads the output"),
        (build_groups(), "move_data", "its integers must be inside"),
    ],
)
def test_the_log_says_why_nodes_stay(
    model: bytes, name: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "tflite2onnx"):
        convert(model, target="rknn")
    logged = [line for line in caplog.messages if line.startswith(f"{name}: ")]
    assert any("stayed" in line and f": {reason}" in line for line in logged), logged
