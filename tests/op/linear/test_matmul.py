"""FULLY_CONNECTED and BATCH_MATMUL with operands of every rank and kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.op.ports import check_outputs
from tests.support import Build, check
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support import Converted, Tensor

Array = np.ndarray[Any, Any]
OUT = 11


def floats(*shape: int) -> Array:
    """Return random numbers, which are equal for equal shapes."""
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def connect(
    m: Build, x: Tensor, features: int, made: Sequence[int], *, bias: bool = True, **options: Any
) -> Tensor:
    """Return the output of FULLY_CONNECTED with random weights."""
    weights = m.constant(floats(OUT, features))
    biases = m.constant(floats(OUT)) if bias else None
    return m.op("FULLY_CONNECTED", [x, weights, biases], [made], **options)[0]


def nodes(result: Converted) -> list[str]:
    return [node.op_type for node in result.model.graph.node]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("shape", "features", "made"),
    [
        ((3, 7), 7, (3, OUT)),
        ((7,), 7, (1, OUT)),
        ((2, 3, 7), 7, (6, OUT)),
        ((2, 3, 5, 7), 7, (30, OUT)),
        ((2, 3, 5, 7), 35, (6, OUT)),
        ((2, 3, 5, 7), 105, (2, OUT)),
        ((3, 5, 7), 105, (1, OUT)),
        ((6, 5), 15, (2, OUT)),  # the features do not fill whole axes
        ((4, 1), 1, (4, OUT)),
        ((3, 2), 1, (6, OUT)),
        ((3, 1, 1, 7), 7, (3, OUT)),
        ((3, 5, 7, 1), 35, (3, OUT)),
    ],
    ids=str,
)
def test_dense_layers_of_every_shape_equal_litert(
    shape: tuple[int, ...], features: int, made: tuple[int, ...], *, bias: bool
) -> None:
    m = Build()
    check_outputs(m, connect(m, m.input(shape), features, made, bias=bias))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7), (2, 3, 5, 7), (2, 1, 3, 5, 7)], ids=str)
def test_dense_layers_may_keep_axes(shape: tuple[int, ...], *, bias: bool) -> None:
    m = Build()
    made = (*shape[:-1], OUT)
    check_outputs(m, connect(m, m.input(shape), 7, made, bias=bias, keep_num_dims=True))


@pytest.mark.parametrize("made", [(6, OUT), (2, 3, OUT)], ids=str)
@pytest.mark.parametrize("activation", ["NONE", "RELU", "RELU6", "RELU_N1_TO_1"])
def test_fused_activations_equal_litert(activation: str, made: tuple[int, ...]) -> None:
    m = Build()
    keep = len(made) > 2
    y = connect(
        m, m.input([2, 3, 7]), 7, made, fused_activation_function=activation, keep_num_dims=keep
    )
    check_outputs(m, y)


def test_bias_may_be_missing() -> None:
    m = Build()
    check_outputs(
        m, *m.op("FULLY_CONNECTED", [m.input([3, 7]), m.constant(floats(OUT, 7))], [[3, OUT]])
    )


@pytest.mark.parametrize("shape", [(1, OUT), (OUT, 1), (1, 1, OUT)], ids=str)
def test_bias_of_any_rank_is_a_row(shape: tuple[int, ...]) -> None:
    """A bias of shape [n, 1] is a row, as in the kernel; Gemm would broadcast a column."""
    m = Build()
    bias = m.constant(floats(OUT).reshape(shape))
    weights = m.constant(floats(OUT, 7))
    check_outputs(m, *m.op("FULLY_CONNECTED", [m.input([OUT, 7]), weights, bias], [[OUT, OUT]]))


@pytest.mark.parametrize(
    ("shape", "made"), [((3, 7), (3, 5)), ((2, 3, 7), (6, 5)), ((3, 7, 1), (3, 5))], ids=str
)
def test_computed_weights_equal_litert(shape: tuple[int, ...], made: tuple[int, ...]) -> None:
    m = Build()
    x, weights, bias = m.input(shape), m.input([5, 7]), m.input([5])
    check_outputs(m, *m.op("FULLY_CONNECTED", [x, weights, bias], [made]))


def test_computed_weights_with_kept_axes_equal_litert() -> None:
    m = Build()
    operands = [m.input([2, 3, 7]), m.input([5, 7]), m.input([5, 1])]
    check_outputs(m, *m.op("FULLY_CONNECTED", operands, [[2, 3, 5]], keep_num_dims=True))


@pytest.mark.parametrize(("shape", "features"), [((3, 7), 7), ((3, 5, 2, 7), 70)])
def test_float16_weights_are_stored_as_float16(shape: tuple[int, ...], features: int) -> None:
    """float16 weights and biases are stored as float16, and cast at run time."""
    m = Build()
    stored = m.constant(floats(OUT, features).astype(np.float16))
    (weights,) = m.op("DEQUANTIZE", [stored], [[OUT, features]], dtype="float32")
    stored = m.constant(floats(OUT).astype(np.float16))
    (bias,) = m.op("DEQUANTIZE", [stored], [[OUT]], dtype="float32")
    y = m.op("FULLY_CONNECTED", [m.input(shape), weights, bias], [[3, OUT]])
    result = check_outputs(m, *y)
    assert {i.data_type for i in result.model.graph.initializer if i.data_type != 7} == {10}
    assert "Reshape" not in nodes(result) or len(shape) > 2


def convolve(m: Build, x: Tensor, channels: int = 3) -> Tensor:
    weights, bias = m.constant(floats(channels, 1, 1, x.shape[-1])), m.constant(floats(channels))
    window: Any = {"padding": "VALID", "stride_h": 1, "stride_w": 1}
    return m.op("CONV_2D", [x, weights, bias], [(*x.shape[:-1], channels)], **window)[0]


@pytest.mark.parametrize("reshapes", [True, False])
def test_weights_are_permuted_instead_of_data(*, reshapes: bool) -> None:
    """A flattened image keeps channels first; the weights are permuted at conversion instead."""
    m = Build()
    y = convolve(m, m.input([2, 5, 7, 3]))
    if reshapes:
        (y,) = m.op("RESHAPE", [y, m.constant([2, 105])], [[2, 105]])
    result = check_outputs(m, connect(m, y, 105, (2, OUT)))
    assert nodes(result) == ["Conv", "Reshape", "Gemm"]


@pytest.mark.parametrize("flattens", [True, False])
def test_a_dense_layer_over_an_image_is_a_convolution(*, flattens: bool) -> None:
    """A dense layer on each pixel becomes Conv, with or without a RESHAPE before it."""
    m = Build()
    x = convolve(m, m.input([2, 5, 7, 3]))
    if flattens:
        (x,) = m.op("RESHAPE", [x, m.constant([70, 3])], [[70, 3]])
    y = connect(m, x, 3, (70, OUT), fused_activation_function="RELU")
    (y,) = m.op("RESHAPE", [y, m.constant([2, 5, 7, OUT])], [[2, 5, 7, OUT]])
    result = check_outputs(m, convolve(m, y))
    assert nodes(result) == ["Conv", "Conv", "Relu", "Conv"]


def test_a_dense_layer_over_a_quantized_image_is_a_convolution() -> None:
    m = Build()
    scales = np.linspace(0.01, 0.03, OUT, dtype=np.float32)
    filters = np.random.default_rng(0).integers(-127, 128, (OUT, 3), np.int8)
    x = m.input([2, 5, 7, 3], dtype="int8", scale=0.05, zero_point=3)
    fields: Any = {"dtype": "int8", "scale": 0.2, "zero_point": -5}
    bias = m.constant(np.arange(OUT, dtype=np.int32), scale=scales * np.float32(0.05))
    w = m.constant(filters, scale=scales)
    (y,) = m.op("FULLY_CONNECTED", [x, w, bias], [[70, OUT]], **fields)
    (y,) = m.op("RESHAPE", [y, m.constant([2, 5, 7, OUT])], [[2, 5, 7, OUT]], **fields)
    window: Any = {"filter_height": 2, "filter_width": 2, "stride_h": 1, "stride_w": 1}
    result = check_outputs(
        m, *m.op("MAX_POOL_2D", [y], [[2, 5, 7, OUT]], **window, **fields), steps=1
    )
    assert "Conv" in nodes(result)
    assert "Gemm" not in nodes(result)


def test_shared_weights_are_stored_once() -> None:
    """Weights that two layers share are stored once, also if they are permuted."""
    m = Build()
    weights, bias = m.constant(floats(OUT, 105)), m.constant(floats(OUT))
    ys = []
    for _ in range(2):
        x = convolve(m, m.input([2, 5, 7, 3]))
        (x,) = m.op("RESHAPE", [x, m.constant([2, 105])], [[2, 105]])
        ys += m.op("FULLY_CONNECTED", [x, weights, bias], [[2, OUT]])
    result = check_outputs(m, *ys)
    assert sum(list(i.dims) == [OUT, 105] for i in result.model.graph.initializer) == 1


def test_flattened_tensor_is_shared_by_two_readers() -> None:
    m = Build()
    x = convolve(m, m.input([2, 5, 7, 3]))
    (x,) = m.op("RESHAPE", [x, m.constant([2, 105])], [[2, 105]])
    result = check_outputs(
        m, connect(m, x, 105, (2, OUT)), connect(m, x, 105, (2, OUT), bias=False)
    )
    assert nodes(result).count("Reshape") == 1


def test_transpose_becomes_an_attribute_of_gemm() -> None:
    """A TRANSPOSE of the data or of computed weights becomes an attribute of Gemm."""
    m = Build()
    (x,) = m.op("TRANSPOSE", [m.input([7, 3]), m.constant([1, 0])], [[3, 7]])
    (w,) = m.op("TRANSPOSE", [m.input([7, 5]), m.constant([1, 0])], [[5, 7]])
    result = check_outputs(m, *m.op("FULLY_CONNECTED", [x, w, None], [[3, 5]]))
    assert nodes(result) == ["Gemm"]


@pytest.mark.parametrize(
    ("shape", "features", "made", "keep"),
    [
        ((3, 7), 7, (3, OUT), True),
        ((2, 3, 7), 7, (2, 3, OUT), True),
        ((3, 5, 7), 35, (3, OUT), False),
    ],
    ids=str,
)
def test_quantized_layer_is_a_gemm(shape: Any, features: int, made: Any, *, keep: bool) -> None:
    """A quantized layer is a Gemm with its bias; only Reshapes are added for other ranks."""
    m = Build()
    generator = np.random.default_rng(0)
    scales = np.linspace(0.01, 0.03, OUT, dtype=np.float32)
    weights = m.constant(generator.integers(-127, 128, (OUT, features), np.int8), scale=scales)
    bias = m.constant(generator.integers(-900, 900, OUT, np.int32), scale=scales * np.float32(0.05))
    x = m.input(shape, dtype="int8", scale=0.05, zero_point=3)
    y = m.op(
        "FULLY_CONNECTED",
        [x, weights, bias],
        [made],
        keep_num_dims=keep,
        dtype="int8",
        scale=0.2,
        zero_point=-5,
    )
    result = check_outputs(m, *y, steps=1)
    assert "Gemm" in nodes(result)
    assert "MatMul" not in nodes(result)
    assert nodes(result).count("Reshape") == 2 * (len(made) > 2) + (len(shape) > len(made))


@pytest.mark.parametrize(
    ("shape", "weights", "bias", "made", "options", "reason"),
    [
        ((3, 7), (5, 6), (5,), (3, 5), {}, r"must be rows of as many .* and weights \[5, 6\]"),
        ((3, 7), (5, 0), (5,), (3, 5), {}, r"must be rows of as many .* and weights \[5, 0\]"),
        ((3, 7), (7,), (7,), (3, 7), {}, r"must be rows of as many .* and weights \[7\]"),
        ((7,), (5, 7, 1), (5,), (1, 5), {}, r"must be rows of as many .* and weights \[5, 7, 1\]"),
        (
            (2, 3, 7),
            (5, 1, 7),
            (5,),
            (6, 5),
            {},
            r"must be rows of as many .* and weights \[5, 1, 7\]",
        ),
        ((3, 7), (5, 7), (3,), (3, 5), {}, "the bias must have 5 elements, .*, got 3"),
        (
            (3, 7),
            (5, 7),
            (5,),
            (3, 5),
            {"weights_format": "SHUFFLED4x16INT8"},
            "weights must have the format DEFAULT, got SHUFFLED4x16INT8",
        ),
    ],
)
def test_dense_layers_refuse_unsupported_shapes(
    shape: Any, weights: Any, bias: Any, made: Any, options: Any, reason: str
) -> None:
    m = Build()
    operands = [m.input(shape), m.input(weights), m.input(bias)]
    m.output(*m.op("FULLY_CONNECTED", operands, [made], **options))
    with pytest.raises(ConversionError, match=reason):
        convert(m.bytes())


def test_refuses_integers_without_a_scale() -> None:
    m = Build()
    operands = [m.input([3, 7], dtype="int8"), m.constant(np.ones((5, 7), np.int8))]
    m.output(*m.op("FULLY_CONNECTED", operands, [[3, 5]]))
    with pytest.raises(ConversionError, match="must be float32 or quantized, got int8"):
        convert(m.bytes())


def swap_last_axes(shape: Sequence[int], *, swap: bool) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2]) if swap else tuple(shape)


@pytest.mark.parametrize("adj_y", [False, True])
@pytest.mark.parametrize("adj_x", [False, True])
@pytest.mark.parametrize(
    ("a", "b", "made"),
    [
        ((3, 5), (5, 7), (3, 7)),
        ((2, 3, 5), (2, 5, 7), (2, 3, 7)),
        ((2, 3, 5), (5, 7), (2, 3, 7)),
        ((3, 5), (2, 5, 7), (2, 3, 7)),
        ((2, 1, 3, 5), (11, 5, 7), (2, 11, 3, 7)),
        ((2, 11, 3, 5), (1, 11, 5, 7), (2, 11, 3, 7)),
        ((2, 11, 3, 5), (2, 1, 5, 7), (2, 11, 3, 7)),
        ((13, 2, 11, 3, 5), (11, 5, 7), (13, 2, 11, 3, 7)),
        ((2, 1, 5), (2, 5, 1), (2, 1, 1)),
    ],
    ids=str,
)
def test_batch_products_equal_litert(
    a: tuple[int, ...], b: tuple[int, ...], made: tuple[int, ...], *, adj_x: bool, adj_y: bool
) -> None:
    m = Build()
    operands = [m.input(swap_last_axes(a, swap=adj_x)), m.input(swap_last_axes(b, swap=adj_y))]
    check_outputs(m, *m.op("BATCH_MATMUL", operands, [made], adj_x=adj_x, adj_y=adj_y))


@pytest.mark.parametrize("adj_y", [False, True])
def test_constant_operand_is_transposed_at_conversion(*, adj_y: bool) -> None:
    """A constant operand is transposed at conversion."""
    m = Build()
    b = m.constant(floats(*swap_last_axes((5, 7), swap=adj_y)))
    result = check_outputs(
        m, *m.op("BATCH_MATMUL", [m.input([2, 3, 5]), b], [[2, 3, 7]], adj_y=adj_y)
    )
    assert nodes(result) == ["MatMul"]


@pytest.mark.parametrize("adj", [(True, False), (False, True), (True, True)], ids=str)
def test_transpose_cancels_the_option_that_transposes(adj: tuple[bool, bool]) -> None:
    """A TRANSPOSE of an operand cancels the option that transposes the operand."""
    m = Build()
    adj_x, adj_y = adj
    operands = []
    for shape, swap in (((2, 3, 5), adj_x), ((2, 5, 7), adj_y)):
        x = m.input(shape)
        if swap:
            (x,) = m.op("TRANSPOSE", [x, m.constant([0, 2, 1])], [swap_last_axes(shape, swap=True)])
        operands.append(x)
    result = check_outputs(
        m, *m.op("BATCH_MATMUL", operands, [[2, 3, 7]], adj_x=adj_x, adj_y=adj_y)
    )
    assert nodes(result) == ["MatMul"]


@pytest.mark.parametrize("adj_y", [False, True])
def test_products_of_quantized_matrices_can_be_int32(*, adj_y: bool) -> None:
    """The product of quantized int8 matrices can be plain int32."""
    m = Build()
    fields: Any = {"dtype": "int8", "scale": 0.5, "zero_point": 3}
    a, b = m.input([2, 3, 5], **fields), m.input(swap_last_axes((2, 5, 7), swap=adj_y), **fields)
    check_outputs(m, *m.op("BATCH_MATMUL", [a, b], [[2, 3, 7]], dtype="int32", adj_y=adj_y))


@pytest.mark.parametrize(
    ("a", "b", "made", "dtypes", "reason"),
    [
        (
            (3, 5),
            (3, 5),
            (3, 5),
            "float32 float32",
            r"must have matching .*, got \[3, 5\] and \[3, 5\]",
        ),
        (
            (2, 3, 5),
            (3, 5, 7),
            (2, 3, 7),
            "float32 float32",
            "must have matching inner and batch sizes",
        ),
        ((5,), (5, 7), (7,), "float32 float32", r"2 axes or more, got \[5\] and \[5, 7\]"),
        ((3, 5), (5, 7), (3, 7), "int16 int16", "must be float32 or quantized, got int16"),
        (
            (3, 5),
            (5, 7),
            (3, 7),
            "int16 int32",
            "must be int8 if the output is int32, got int16 and int16",
        ),
    ],
)
def test_batch_products_refuse_unsupported_shapes_and_types(
    a: Any, b: Any, made: Any, dtypes: str, reason: str
) -> None:
    given, dtype = dtypes.split()
    m = Build()
    operands = [m.input(a, dtype=given), m.input(b, dtype=given)]
    m.output(*m.op("BATCH_MATMUL", operands, [made], dtype=dtype))
    with pytest.raises(ConversionError, match=reason):
        convert(m.bytes())


def test_attention_has_four_transposes() -> None:
    """Attention from [B, T, H, D] has 4 Transposes: one for each operand and one for the output."""
    m = Build()
    heads = [[2, 3, 5, 7], [2, 5, 3, 7]]
    q, k, v = (
        m.op("TRANSPOSE", [m.input(heads[0]), m.constant([0, 2, 1, 3])], [heads[1]])[0]
        for _ in range(3)
    )
    (scores,) = m.op("BATCH_MATMUL", [q, k], [[2, 5, 3, 3]], adj_y=True)
    (weights,) = m.op("SOFTMAX", [scores], [[2, 5, 3, 3]], beta=1.0)
    (y,) = m.op("BATCH_MATMUL", [weights, v], [[2, 5, 3, 7]])
    m.output(*m.op("TRANSPOSE", [y, m.constant([0, 2, 1, 3])], [heads[0]]))
    result = check(m.bytes())
    assert nodes(result).count("Transpose") == 4
