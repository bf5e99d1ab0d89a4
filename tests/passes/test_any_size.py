"""Models whose declared sizes differ from the sizes that LiteRT computes, at three sizes each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

from tests.support import Build, Tensor, check
from tflite2onnx.convert import convert

RANDOM = np.random.default_rng(14)
Made = Sequence[Tensor]


def check_sizes(network: Callable[[Build], None], *cases: Sequence[Any], **options: Any) -> None:
    """Compare a model with LiteRT; each case has the shapes (lists) or values of the inputs."""
    m = Build()
    network(m)
    for case in cases:
        arrays = [
            each
            if isinstance(each, np.ndarray)
            else RANDOM.standard_normal(each).astype(np.float32)
            for each in case
        ]
        check(m.bytes(), inputs=arrays, random_layouts=(0,), declared=False, **options)


def weights(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return RANDOM.standard_normal(shape).astype(np.float32)


def size_of(m: Build, x: Tensor, axis: int) -> Tensor:
    """Return the size of an axis, as Keras computes it."""
    (shape,) = m.op("SHAPE", [x], [[len(x.shape)]], dtype="int32", out_type="int32")
    bounds = [m.constant([i]) for i in (axis, axis + 1, 1)]
    return m.op("STRIDED_SLICE", [shape, *bounds], [[]], shrink_axis_mask=1)[0]


def compute(m: Build, code: str, a: Tensor, number: int) -> Tensor:
    return m.op(code, [a, m.constant(np.int32(number))], [[]], dtype="int32")[0]


def pack(m: Build, *sizes: Tensor | int) -> Tensor:
    parts = [m.constant(np.int32(s)) if isinstance(s, int) else s for s in sizes]
    return m.op("PACK", parts, [[len(parts)]], values_count=len(parts), dtype="int32")[0]


def upsample(m: Build) -> None:
    """Return a transposed convolution to twice the size, with the declared shape [1, 1, 1, 1]."""
    x = m.input([None, None, None, 3])
    rows, columns = (compute(m, "MUL", size_of(m, x, i), 2) for i in (1, 2))
    shape = pack(m, size_of(m, x, 0), rows, columns, 5)
    filters = m.constant(weights(5, 3, 3, 3))
    made = m.tensor([1, 1, 1, 1], shape_signature=[-1, -1, -1, 5])
    inputs = [shape, filters, x]
    (y,) = m.op("TRANSPOSE_CONV", inputs, [made], padding="SAME", stride_h=2, stride_w=2)
    m.output(*m.op("RELU", [y], [m.tensor([1, 1, 1, 1])]))


def test_transpose_conv_of_computed_shape_equals_litert() -> None:
    check_sizes(upsample, [[1, 4, 6, 3]], [[2, 5, 3, 3]], [[1, 1, 1, 3]])
    m = Build()
    upsample(m)
    nodes = [node.op_type for node in convert(m.bytes()).model.graph.node]
    assert nodes == ["Transpose", "ConvTranspose", "Relu"]


def test_transpose_conv_of_valid_padding_equals_litert() -> None:
    def network(m: Build) -> None:
        x = m.input([None, 1, None, 3])
        time = compute(m, "ADD", compute(m, "MUL", size_of(m, x, 2), 4), 3)
        filters = m.constant(weights(5, 1, 7, 3))
        inputs = [pack(m, size_of(m, x, 0), 1, time, 5), filters, x]
        options: dict[str, Any] = {"padding": "VALID", "stride_h": 1, "stride_w": 4}
        (y,) = m.op("TRANSPOSE_CONV", inputs, [[1, 1, 1, 5]], **options)
        m.output(y)

    check_sizes(network, [[1, 1, 6, 3]], [[2, 1, 9, 3]], [[1, 1, 1, 3]])


def test_transpose_conv_of_given_shape_equals_litert() -> None:
    def network(m: Build) -> None:
        shape, x = m.input([4], dtype="int32"), m.input([1, 4, 6, 3])
        filters = m.constant(weights(5, 3, 3, 3))
        made = m.tensor([1, 1, 1, 1], shape_signature=[-1, -1, -1, -1])
        inputs = [shape, filters, x]
        m.output(*m.op("TRANSPOSE_CONV", inputs, [made], padding="SAME", stride_h=2, stride_w=2))

    for rows, columns in ((8, 12), (7, 11), (8, 11)):
        size = np.asarray([1, rows, columns, 5], np.int32)
        check_sizes(network, [size, [1, 4, 6, 3]])


def test_conv_3d_transpose_of_computed_shape_equals_litert() -> None:
    def network(m: Build) -> None:
        x = m.input([None, None, None, None, 3])
        sizes = [compute(m, "MUL", size_of(m, x, i), 2) for i in (1, 2, 3)]
        filters = m.constant(weights(3, 3, 3, 5, 3))
        inputs = [pack(m, size_of(m, x, 0), *sizes, 5), filters, x]
        strides: dict[str, Any] = {f"stride_{axis}": 2 for axis in "dhw"}
        strides |= {f"dilation_{axis}_factor": 1 for axis in "dhw"}
        strides |= {"padding": "SAME", "dtype": "float32"}
        m.output(*m.op("CONV_3D_TRANSPOSE", inputs, [[1, 1, 1, 1, 1]], **strides))

    check_sizes(network, [[1, 2, 3, 4, 3]], [[2, 1, 4, 3, 3]], [[1, 1, 1, 1, 3]])


def test_cut_transposed_convolution_over_time_equals_litert() -> None:
    """A transposed convolution over time, whose ends are cut by SLICE with a computed size."""

    def network(m: Build) -> None:
        x = m.input([1, None, 3])
        time = size_of(m, x, 1)
        (image,) = m.op("EXPAND_DIMS", [x, m.constant(1)], [[1, 1, 1, 3]])
        length = compute(m, "ADD", compute(m, "MUL", time, 2), 2)
        filters, sizes = m.constant(weights(5, 1, 4, 3)), pack(m, 1, 1, length, 5)
        options: dict[str, Any] = {"padding": "VALID", "stride_h": 1, "stride_w": 2}
        (y,) = m.op("TRANSPOSE_CONV", [sizes, filters, image], [[1, 1, 1, 5]], **options)
        (y,) = m.op("SQUEEZE", [y], [[1, 1, 5]], squeeze_dims=[1])
        size = pack(m, -1, compute(m, "SUB", length, 5), -1)
        m.output(*m.op("SLICE", [y, m.constant([0, 2, 0]), size], [m.tensor([1, None, 5])]))

    check_sizes(network, [[1, 7, 3]], [[1, 12, 3]], [[1, 2, 3]])


def test_slice_of_a_computed_size_equals_litert() -> None:
    def network(m: Build) -> None:
        x = m.input([1, None, 1])
        size = pack(m, 1, compute(m, "SUB", size_of(m, x, 1), 4), 1)
        m.output(*m.op("SLICE", [x, m.constant([0, 2, 0]), size], [m.tensor([1, None, 1])]))

    check_sizes(network, [[1, 7, 1]], [[1, 12, 1]], [[1, 5, 1]])


def test_audio_classifier_equals_litert_at_any_length() -> None:
    """A dynamic waveform is divided into frames by SHAPE arithmetic, and classified."""

    def network(m: Build) -> None:
        x = m.input([None])
        count = compute(m, "FLOOR_DIV", size_of(m, x, 0), 8)
        length = pack(m, compute(m, "MUL", count, 8))
        (whole,) = m.op("SLICE", [x, m.constant([0]), length], [m.tensor([None])])
        (frames,) = m.op("RESHAPE", [whole, pack(m, count, 1, 8)], [[1, 1, 8]])
        lengths = m.constant([1, 8])
        (pairs,) = m.op("RFFT2D", [frames, lengths], [m.tensor([1, 1, 5], dtype="complex64")])
        (power,) = m.op("COMPLEX_ABS", [pairs], [[1, 1, 5]], dtype="float32")
        (rows,) = m.op("RESHAPE", [power, m.constant([-1, 5])], [[1, 5]])
        (y,) = m.op("FULLY_CONNECTED", [rows, m.constant(weights(3, 5)), None], [[1, 3]])
        m.output(*m.op("SOFTMAX", [y], [[1, 3]], beta=1.0))

    check_sizes(network, [[64]], [[45]], [[8]], tolerance=1e-4)


def add_guess(m: Build, x: Tensor) -> Tensor:
    return m.op("ABS", [x], [m.tensor([1] * len(x.shape))])[0]


# ruff: noqa: ARG005 - all functions have the same parameters
CASES: dict[str, Callable[[Build, Tensor, Tensor], Made]] = {
    "concatenation": lambda m, x, y: m.op("CONCATENATION", [x, y], [[1, 1, 1]], axis=2),
    "add": lambda m, x, y: m.op("ADD", [x, y], [[1, 1, 1]]),
    "add constant": lambda m, x, y: m.op("ADD", [x, m.constant(weights(4, 1, 3))], [[1, 1, 1]]),
    "pow": lambda m, x, y: m.op("SQUARED_DIFFERENCE", [x, y], [[1, 1, 1]]),
    "squeeze": lambda m, x, y: m.op(
        "SQUEEZE", m.op("EXPAND_DIMS", [x, m.constant(1)], [[1, 1, 1, 1]]), [[]], squeeze_dims=[1]
    ),
    "strided slice": lambda m, x, y: m.op(
        "STRIDED_SLICE",
        [x, *map(m.constant, ([0, 1, 0], [0, 0, 0], [1, 2, 1]))],
        [[1, 1, 1]],
        begin_mask=5,
        end_mask=7,
    ),
    "matmul": lambda m, x, y: m.op("BATCH_MATMUL", [x, y], [[1, 1, 1]], adj_y=True),
    "select": lambda m, x, y: m.op(
        "SELECT_V2",
        [*m.op("GREATER", [x, y], [[1, 1, 1]], dtype="bool"), x, y],
        [[1, 1, 1]],
        dtype="float32",
    ),
    "transpose": lambda m, x, y: m.op("TRANSPOSE", [x, m.constant([1, 2, 0])], [[1, 1, 1]]),
    "tile": lambda m, x, y: m.op("TILE", [x, m.constant([1, 2, 3])], [[1, 1, 1]]),
    "pad": lambda m, x, y: m.op("PAD", [x, m.constant([[0, 0], [1, 2], [0, 1]])], [[1, 1, 1]]),
    "sum": lambda m, x, y: m.op("SUM", [x, m.constant([1])], [[1, 1]]),
    "arg max": lambda m, x, y: m.op(
        "ARG_MAX", [x, m.constant(1)], [[1, 1]], dtype="int64", output_type="int64"
    ),
    "pack": lambda m, x, y: m.op("PACK", [x, y], [[1, 1, 2, 1]], values_count=2, axis=2),
    "cumsum": lambda m, x, y: m.op("CUMSUM", [x, m.constant(1)], [[1, 1, 1]]),
    "reverse": lambda m, x, y: m.op("REVERSE_V2", [x, m.constant([1])], [[1, 1, 1]]),
    "one hot": lambda m, x, y: m.op(
        "ONE_HOT",
        [
            *m.op("ARG_MAX", [x, m.constant(2)], [[1, 1]], dtype="int32", output_type="int32"),
            *map(m.constant, (np.int32(3), np.float32(1), np.float32(0))),
        ],
        [[1, 1, 3]],
        dtype="float32",
        axis=-1,
    ),
    "gather": lambda m, x, y: m.op("GATHER", [x, m.constant([0, 2])], [[1, 1, 2]], axis=2),
    "leaky": lambda m, x, y: m.op("LEAKY_RELU", [x], [[1, 1, 1]], alpha=0.5),
    "prelu": lambda m, x, y: m.op("PRELU", [x, m.constant(weights(1, 3))], [[1, 1, 1]]),
    "cast": lambda m, x, y: m.op(
        "CAST", [x], [[1, 1, 1]], dtype="int32", in_data_type="float32", out_data_type="int32"
    ),
    "softmax": lambda m, x, y: m.op("SOFTMAX", [x], [[1, 1, 1]], beta=1.0),
    "norm": lambda m, x, y: m.op("L2_NORMALIZATION", [x], [[1, 1, 1]]),
    "addn": lambda m, x, y: m.op("ADD_N", [x, y], [[1, 1, 1]]),
    "fill": lambda m, x, y: m.op(
        "FILL",
        [pack(m, size_of(m, x, 1), 2), m.constant(np.float32(2))],
        [[1, 1]],
        dtype="float32",
    ),
    "range": lambda m, x, y: m.op(
        "RANGE",
        [m.constant(np.int32(0)), size_of(m, x, 1), m.constant(np.int32(1))],
        [[1]],
    ),
    "range down": lambda m, x, y: m.op(
        "RANGE",
        [compute(m, "SUB", size_of(m, x, 1), 1), *map(m.constant, map(np.int32, (-1, -1)))],
        [[1]],
    ),
    "broadcast to": lambda m, x, y: m.op(
        "BROADCAST_TO", [m.constant(weights(1, 1, 2)), pack(m, 4, size_of(m, x, 1), 2)], [[1, 1, 1]]
    ),
    "expand dims": lambda m, x, y: m.op("EXPAND_DIMS", [x, m.constant(-1)], [[1, 1, 1]]),
}


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_operators_equal_litert_at_sizes_not_declared(case: str, *, dynamic: bool) -> None:
    """Sizes follow from the inputs, both with dynamic inputs and with wrongly declared tensors."""

    def network(m: Build) -> None:
        x, y = (m.input([4, None if dynamic else 6, 3]) for _ in range(2))
        made = CASES[case](m, add_guess(m, x), add_guess(m, y))
        m.output(*made)

    inputs = [[4, 6, 3], [4, 6, 3]]
    cases = [[[4, n, 3] for _ in inputs] for n in (6, 9, 2)] if dynamic else [inputs]
    check_sizes(network, *cases)


def test_detections_of_declared_single_boxes_equal_litert() -> None:
    """The operands of TFLite_Detection_PostProcess are declared [1, 1, 1], as converters do."""
    options: dict[str, Any] = {
        "max_detections": 3,
        "max_classes_per_detection": 1,
        "num_classes": 2,
        "nms_score_threshold": -1.0,  # LiteRT leaves outputs without a detection as they are
        "nms_iou_threshold": 1.0,
        **dict.fromkeys(("y_scale", "x_scale"), 10.0),
        **dict.fromkeys(("h_scale", "w_scale"), 5.0),
    }

    def network(m: Build) -> None:
        x = m.input([1, None, 4])
        boxes, scores = (add_guess(m, m.op(code, [x], [[1, 1, 1]])[0]) for code in ("TANH", "ABS"))
        bounds = [m.constant(each) for each in ([0, 0, 0], [0, 0, 3], [1, 1, 1])]
        (scores,) = m.op("STRIDED_SLICE", [scores, *bounds], [[1, 1, 1]], begin_mask=3, end_mask=3)
        (anchors,) = m.op("RESHAPE", [m.op("LOGISTIC", [x], [[1, 1, 1]])[0], m.constant([-1, 4])],
                          [[1, 1]])  # fmt: skip
        shapes = [[1, 3, 4], [1, 3], [1, 3], [1]]
        name = "TFLite_Detection_PostProcess"
        m.output(*m.custom(name, [boxes, scores, anchors], shapes, options))

    check_sizes(network, [[1, 9, 4]], [[1, 40, 4]], [[1, 3, 4]])


@pytest.mark.parametrize(("code", "columns"), [("WHERE", 1), ("WHERE", -1), ("UNIQUE", 0)])
def test_data_dependent_sizes_are_dynamic_whatever_is_declared(code: str, columns: int) -> None:
    """A file cannot know the number of elements: the dimension is dynamic whatever it declares."""

    def network(m: Build) -> None:
        x = m.input([6])
        if code == "WHERE":
            made = m.tensor([3, 1], shape_signature=[3, columns], dtype="int64")
            m.output(*m.op("WHERE", [x], [made]))
            return
        made = m.tensor([3], shape_signature=[3])
        indices = m.tensor([6], dtype="int32")
        m.output(*m.op("UNIQUE", [x], [made, indices], idx_out_type="int32"))

    for count in (1, 2, 6):
        values = np.zeros(6, np.float32)
        values[:count] = np.arange(count) + 1
        check_sizes(network, [values])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["NONE", "RELU"])
@pytest.mark.parametrize(
    "shapes",
    [([None, None], [None, None]), ([None, 5], [None, 5]), ([3, None], [4, None])],
    ids=str,
)
def test_products_of_computed_matrices_equal_litert(
    shapes: tuple[list[int | None], list[int | None]], activation: str, *, bias: bool
) -> None:
    """TensorFlow's converter makes FULLY_CONNECTED of `tf.matmul(x, y, transpose_b=True)`."""

    def multiply(m: Build) -> None:
        x, w = (m.input(shape, name=name) for shape, name in zip(shapes, "xw", strict=True))
        (w,) = m.op("ABS", [w], [m.tensor(shapes[1])])
        (b,) = m.op("SUM", [w, m.constant([1])], [m.tensor(shapes[1][:1])]) if bias else (None,)
        made = m.tensor([shapes[0][0], shapes[1][0]])
        m.output(*m.op("FULLY_CONNECTED", [x, w, b], [made], fused_activation_function=activation))

    check_sizes(multiply, ([3, 5], [4, 5]))
    if None not in (shapes[0][0], shapes[1][0]):
        check_sizes(multiply, ([3, 7], [4, 7]), ([3, 1], [4, 1]))
    else:
        check_sizes(multiply, ([1, 5], [1, 5]), ([7, 5], [2, 5]))


def test_numbers_of_rows_of_two_inputs_may_differ() -> None:
    """Only the features of both inputs must be equal, so that their rows are no common batch."""

    def multiply(m: Build) -> None:
        x, w = (m.input([None, None], name=name) for name in "xw")
        (y,) = m.op("BATCH_MATMUL", [x, w], [m.tensor([None, None])], adj_x=False, adj_y=True)
        turned = pack(m, size_of(m, w, 0), size_of(m, x, 0))
        m.output(*m.op("RESHAPE", [y, turned], [m.tensor([None, None])]))

    check_sizes(multiply, ([3, 5], [4, 5]), ([2, 1], [2, 1]), ([7, 2], [1, 2]))


def test_diagonals_of_dynamic_matrices_equal_litert() -> None:
    def network(m: Build) -> None:
        x = m.input([None, None, 3])
        (diagonal,) = m.op("REDUCE_MAX", [x, m.constant([1])], [[1, 1]])
        m.output(*m.op("MATRIX_SET_DIAG", [x, diagonal], [[1, 1, 1]]))

    check_sizes(network, [[1, 5, 3]], [[4, 7, 3]], [[2, 3, 3]])


def test_segments_of_undeclared_size_equal_litert() -> None:
    def network(m: Build) -> None:
        x = m.input([6, None])
        m.output(*m.op("SEGMENT_SUM", [x, m.constant([0, 0, 1, 1, 1, 2])], [[1, 1]]))

    check_sizes(network, [[6, 5]], [[6, 2]], [[6, 1]])


def test_range_of_computed_length_equals_litert() -> None:
    """RANGE up to a dynamic size, with a declared length of 1."""

    def network(m: Build) -> None:
        x = m.input([None, 4])
        bounds = [m.constant(np.int32(0)), size_of(m, x, 0), m.constant(np.int32(1))]
        (rows,) = m.op("RANGE", bounds, [[1]])
        (column,) = m.op("EXPAND_DIMS", [rows, m.constant(1)], [[1, 1]])
        (number,) = m.op(
            "CAST",
            [column],
            [[1, 1]],
            dtype="float32",
            in_data_type="int32",
            out_data_type="float32",
        )
        m.output(*m.op("MUL", [x, number], [[1, 1]]))

    check_sizes(network, [[3, 4]], [[7, 4]], [[1, 4]])


def test_arg_max_may_declare_an_axis_too_many() -> None:
    def network(m: Build) -> None:
        x = m.input([1, 7])
        options: dict[str, Any] = {"dtype": "int64", "output_type": "int64"}
        m.output(*m.op("ARG_MAX", [x, m.constant(1)], [[1, 1]], **options))

    check_sizes(network, [[1, 7]])


@pytest.mark.parametrize(("code", "operand"), [("RESHAPE", [2, 6]), ("EXPAND_DIMS", 1)])
def test_operands_count_rather_than_the_declared_output(code: str, operand: ArrayLike) -> None:
    def network(m: Build) -> None:
        x = m.input([3, 4])
        (y,) = m.op(code, [x, m.constant(operand)], [[12, 1]])
        m.output(*m.op("NEG", [y], [[12, 1]]))

    check_sizes(network, [[3, 4]])


def test_constant_shape_arithmetic_is_folded() -> None:
    """The shape from tf.broadcast_dynamic_shape (EQUAL, WHERE, GATHER, ...) is folded."""

    def network(m: Build) -> None:
        x = m.input([1, 4, 3])
        (shape,) = m.op("SHAPE", [x], [[3]], dtype="int32", out_type="int32")
        (ones,) = m.op("EQUAL", [shape, m.constant([1, 1, 1])], [[3]], dtype="bool")
        (places,) = m.op("WHERE", [ones], [[1, 1]], dtype="int64")
        types: dict[str, Any] = {"in_data_type": "int64", "out_data_type": "int32"}
        (places,) = m.op("CAST", [places], [[1, 1]], dtype="int32", **types)
        (count,) = m.op("SHAPE", [places], [[2]], dtype="int32", out_type="int32")
        (rows,) = m.op("GATHER", [count, m.constant([0])], [[1]])
        (twos,) = m.op("FILL", [rows, m.constant(np.int32(5))], [[1]], dtype="int32")
        inputs = [places, m.constant([3]), twos, m.constant(np.int32(0))]
        (added,) = m.op("SPARSE_TO_DENSE", inputs, [[1]], dtype="int32")
        (wide,) = m.op("ADD", [shape, added], [[3]], dtype="int32")
        (repeats,) = m.op("FLOOR_DIV", [wide, shape], [[3]], dtype="int32")
        (y,) = m.op("TILE", [x, repeats], [[1, 1, 1]])
        w = m.constant(weights(2, 3))
        m.output(*m.op("FULLY_CONNECTED", [y, w, None], [[1, 1, 1]], keep_num_dims=True))

    check_sizes(network, [[1, 4, 3]])


def test_loop_with_a_growing_variable_equals_litert() -> None:
    """The loop appends a row in each iteration; the declared number of rows is 1."""

    def network(m: Build) -> None:
        x, count = m.input([None, 3]), m.input([], dtype="int32")
        condition, body = m.subgraph("condition"), m.subgraph("body")
        rounds, _ = condition.input([], dtype="int32"), condition.input([1, 3])
        limit = condition.constant(np.int32(4))
        condition.output(*condition.op("LESS", [rounds, limit], [[]], dtype="bool"))
        rounds, rows = body.input([], dtype="int32"), body.input([1, 3])
        body.output(*body.op("ADD", [rounds, body.constant(np.int32(1))], [[]], dtype="int32"))
        row = body.constant(weights(1, 3))
        body.output(*body.op("CONCATENATION", [rows, row], [[1, 3]], axis=0))
        made = [m.tensor([], dtype="int32"), m.tensor([1, 3])]
        _, y = m.op("WHILE", [count, x], made, cond_subgraph_index=1, body_subgraph_index=2)
        m.output(*m.op("ABS", [y], [[1, 3]]))

    for first in (0, 3, 4):
        check_sizes(network, *([[n, 3], np.asarray(first, np.int32)] for n in (1, 2, 5)))


@pytest.mark.parametrize(
    ("code", "channels", "filters"),
    [("DEPTHWISE_CONV_2D", 3, (1, 2, 3, 6)), ("CONV_2D", 6, (4, 2, 3, 3))],
)
def test_declared_channels_count_if_channels_are_dynamic(
    code: str, channels: int, filters: tuple[int, ...]
) -> None:
    """The number of channels is the declared one, not the one that the filters suggest."""
    m = Build()
    x = m.input([1, 5, 5, channels], shape_signature=[1, 5, 5, -1])
    biases = max(filters[0], filters[-1])
    operands = [x, m.constant(weights(*filters)), m.constant(weights(biases))]
    m.output(*m.op(code, operands, [[1, 5, 5, biases]], padding="SAME", stride_h=1, stride_w=1))
    check(m.bytes())
