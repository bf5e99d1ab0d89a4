"""RFFT2D, and operators on complex numbers; the outputs are real and imaginary parts."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from tests.op.ports import check_outputs
from tests.support import Build, Tensor, difference, run_onnx, run_tflite
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError


def spectrum(m: Build, shape: list[int], *lengths: int) -> Tensor:
    """Add an input and its Fourier transform; the lengths are by default those of the input."""
    height, width = lengths or shape[-2:]
    made = [*shape[:-2], height, width // 2 + 1]
    length = m.constant(np.array([height, width], np.int32))
    return m.op("RFFT2D", [m.input(shape), length], [made], dtype="complex64")[0]


def add_parts(m: Build, x: Tensor) -> list[Tensor]:
    codes = ("REAL", "IMAG", "COMPLEX_ABS")
    return [m.op(code, [x], [x.shape], dtype="float32")[0] for code in codes]


@pytest.mark.parametrize(
    ("shape", "lengths"),
    [
        ([4, 8], ()),
        ([3, 8, 4], ()),
        ([2, 3, 1, 16], ()),
        ([5, 7], (8, 8)),
        ([5, 7], (4, 4)),
        ([3, 5, 7], (8, 4)),
        ([3, 5, 7], (1, 8)),
        ([2, 3, 5, 7], (2, 16)),
        ([1, 1, 512], ()),
        ([1, 400], (1, 512)),
        ([3, 1, 256], ()),
        ([2, 3, 1, 256], ()),
        ([3, 4, 256], (2, 256)),
    ],
    ids=str,
)
@pytest.mark.parametrize("opset", [None, 20])
def test_transforms_of_every_shape_equal_litert(
    shape: list[int], lengths: tuple[int, ...], opset: int | None
) -> None:
    m = Build()
    check_outputs(m, *add_parts(m, spectrum(m, shape, *lengths)), opset=opset)


def test_row_is_transformed_by_products_without_dft() -> None:
    """The transform of a row of constant length needs no DFT, which many runtimes lack."""
    m = Build()
    m.output(*add_parts(m, spectrum(m, [3, 1, 512])))
    made = {node.op_type for node in convert(m.bytes()).model.graph.node}
    assert "MatMul" in made
    assert "DFT" not in made


def add_reshape(m: Build, x: Tensor) -> Tensor:
    size = m.constant(np.array([2, 15, 4], np.int32))
    return m.op("RESHAPE", [x, size], [[2, 15, 4]], new_shape=[2, 15, 4])[0]


def add_transpose(m: Build, x: Tensor) -> Tensor:
    order = m.constant(np.array([2, 0, 1], np.int32))
    return m.op("TRANSPOSE", [x, order], [[5, 3, 8]])[0]


def add_slice(m: Build, x: Tensor) -> Tensor:
    begin, size = m.constant([1, 2, 0]), m.constant([2, 5, 4])
    return m.op("SLICE", [x, begin, size], [[2, 5, 4]])[0]


def add_strided_slice(m: Build, x: Tensor) -> Tensor:
    bounds = [m.constant(each) for each in ([0, 6, 1], [3, 1, 5], [2, -2, 1])]
    return m.op("STRIDED_SLICE", [x, *bounds], [[2, 3, 4]], begin_mask=1, end_mask=4)[0]


def shrunk(m: Build, x: Tensor) -> Tensor:
    bounds = [m.constant(each) for each in ([1, 0, 0], [2, 8, 5], [1, 1, 1])]
    return m.op("STRIDED_SLICE", [x, *bounds], [[8, 5]], shrink_axis_mask=1)[0]


def first_axis(m: Build, x: Tensor) -> Tensor:
    bounds = [m.constant(each) for each in ([2], [0], [-1])]
    return m.op("STRIDED_SLICE", [x, *bounds], [[2, 8, 5]])[0]


def add_slice_with_ellipsis(m: Build, x: Tensor) -> Tensor:
    bounds = [m.constant(each) for each in ([0, 1], [0, 4], [1, 2])]
    return m.op("STRIDED_SLICE", [x, *bounds], [[3, 8, 2]], ellipsis_mask=1)[0]


def new_axis(m: Build, x: Tensor) -> Tensor:
    bounds = [m.constant(each) for each in ([0, 1, 0], [0, 3, 1], [1, 1, 1])]
    return m.op("STRIDED_SLICE", [x, *bounds], [[1, 2, 1, 8, 5]], new_axis_mask=5)[0]


def add_expand_dims(m: Build, x: Tensor) -> Tensor:
    return m.op("EXPAND_DIMS", [x, m.constant(np.int32(-1))], [[*x.shape, 1]])[0]


def add_multiplication(m: Build, x: Tensor) -> Tensor:
    return m.op("MUL", [x, x], [x.shape])[0]


def add_scaling(m: Build, x: Tensor) -> Tensor:
    factor = m.constant(np.array([1 - 2j, 3j, -1, 0, 2 + 2j], np.complex64))
    return m.op("MUL", [x, factor], [x.shape])[0]


def from_real(m: Build, x: Tensor) -> Tensor:
    (real,) = m.op("REAL", [x], [x.shape], dtype="float32")
    (y,) = m.op("CAST", [real], [x.shape], dtype="complex64")
    return m.op("MUL", [x, y], [x.shape])[0]


def add_select(m: Build, x: Tensor) -> Tensor:
    condition = m.constant(np.arange(8)[:, None] % 3 == 1)
    return m.op("SELECT_V2", [condition, x, add_multiplication(m, x)], [x.shape])[0]


MOVES = [
    first_axis,
    add_slice_with_ellipsis,
    new_axis,
    add_reshape,
    add_transpose,
    add_slice,
    add_strided_slice,
    shrunk,
    add_expand_dims,
    add_multiplication,
    add_scaling,
    from_real,
    add_select,
]


@pytest.mark.parametrize("move", MOVES)
def test_operators_on_complex_numbers_equal_litert(move: Any) -> None:
    m = Build()
    check_outputs(m, *add_parts(m, move(m, spectrum(m, [3, 8, 8]))))


def test_shape_and_rank_of_complex_tensors_equal_litert() -> None:
    m = Build()
    x = spectrum(m, [3, 8, 8])
    (sizes,) = m.op("SHAPE", [x], [[3]], dtype="int32", out_type="int32")
    (rank,) = m.op("RANK", [x], [[]], dtype="int32")
    check_outputs(m, sizes, rank, *add_parts(m, x))


@pytest.mark.parametrize("dtype", ["float32", "int32", "int8", "float16"])
def test_casts_of_complex_numbers_keep_the_real_part(dtype: str) -> None:
    m = Build()
    check_outputs(m, *m.op("CAST", [spectrum(m, [4, 8])], [[4, 5]], dtype=dtype), tolerance=1e-3)


def test_complex_inputs_and_outputs_are_pairs_of_floats() -> None:
    """Complex inputs and outputs of the file are pairs of real numbers in the ONNX model."""
    m = Build()
    x = m.input([3, 5], dtype="complex64", name="x")
    m.output(*m.op("MUL", [x, x], [m.tensor([3, 5], dtype="complex64", name="y")]))
    data = m.bytes()
    result = convert(data)
    (port,) = result.inputs
    assert (port.dtype, port.tflite_shape) == ("float32", (3, 5, 2))
    given = np.random.default_rng(0).standard_normal((3, 5, 2)).astype(np.float32)
    (want,) = run_tflite(data, [given.view(np.complex64)[..., 0]])
    (have,) = run_onnx(result.model, {"x": given.transpose(port.order)})
    have = have.transpose(np.argsort(result.outputs[0].order))
    assert difference(np.stack([want.real, want.imag], -1), have) == ""


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_parts_of_complex_constants_equal_litert(dtype: str) -> None:
    m = Build()
    values = np.array([[1 - 2j, 3j, -1], [0, 2 + 2j, 1e-3]], dtype)
    x = m.constant(values)
    width = {"complex64": "float32", "complex128": "float64"}[dtype]
    codes = ("REAL", "IMAG", "COMPLEX_ABS")
    check_outputs(m, *(m.op(code, [x], [x.shape], dtype=width)[0] for code in codes), inputs=[])


@pytest.mark.parametrize("opset", [13, None])
def test_complex_abs_is_exact_if_squares_overflow(opset: int | None) -> None:
    """COMPLEX_ABS equals hypot even if squares overflow or underflow."""
    m = Build()
    x = m.input([2, 3], dtype="complex64")
    values = np.array([[3e30 + 4e30j, 3e-30 - 4e-30j, 0], [1e38j, -1e-40, np.inf]], np.complex64)
    (y,) = m.op("COMPLEX_ABS", [x], [x.shape], dtype="float32")
    result = check_outputs(m, y, inputs=[values], opset=opset)
    feeds = {result.inputs[0].name: values.view(np.float32).reshape(2, 3, 2)}
    (made,) = run_onnx(result.model, feeds)
    np.testing.assert_allclose(made, np.abs(values), rtol=1e-6)


def test_refuses_unsupported_operators_and_lengths() -> None:
    m = Build()
    x = spectrum(m, [4, 8])
    m.output(*m.op("ADD", [x, x], [x.shape]))
    m.output(*m.op("NEG", [x], [x.shape]))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    assert str(error.value).count("is not supported for complex numbers") == 2
    m = Build()
    m.output(*add_parts(m, spectrum(m, [4, 8], 4, 6)))
    m.output(*m.op("REAL", [m.input([3])], [[3]]))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    assert "its lengths must be two powers of 2, got [4, 6]" in str(error.value)
    assert "must be float32[2], got float32[3]" in str(error.value)


def test_complex_numbers_are_cast_part_by_part() -> None:
    """The real and imaginary parts are cast separately."""
    m = Build()
    x = m.input([2, 3], dtype="complex64")
    options: dict[str, Any] = {"in_data_type": "complex64", "out_data_type": "complex128"}
    (y,) = m.op("CAST", [x], [[2, 3]], dtype="complex128", **options)
    (real,) = m.op("REAL", [y], [[2, 3]], dtype="float64")
    m.output(real)
    result = convert(m.bytes())
    assert [node.op_type for node in result.model.graph.node] == ["Cast", "Gather"]


def test_refuses_complex_constants_far_larger_than_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Complex constants that need far more memory than the file are refused."""
    m = Build()
    x = m.constant(np.ones(4, np.complex64))
    m.output(*m.op("REAL", [x], [[4]]))
    module = import_module(
        "tflite2onnx.contrib.complex_numbers.lower_complex"
    )  # a function has this name, too
    monkeypatch.setattr(module, "count_distinct_bytes", lambda _: 0)
    monkeypatch.setattr(module, "_MORE_BYTES", 8)
    with pytest.raises(ConversionError, match="must not take far more memory than the file"):
        convert(m.bytes())


def add_dynamic_spectrum(m: Build) -> tuple[Tensor, Tensor]:
    """Return the Fourier transform of an input [-1, 4, 8] and the size of the dynamic axis.

    The file declares the shape [1] for the transform.
    """
    x = m.input([1, 4, 8], shape_signature=[-1, 4, 8], name="x")
    made = m.tensor([1], dtype="complex64")
    (y,) = m.op("RFFT2D", [x, m.constant(np.array([4, 8], np.int32))], [made])
    (sizes,) = m.op("SHAPE", [x], [[3]], dtype="int32", out_type="int32")
    bounds = [m.constant(np.array([i], np.int32)) for i in (0, 1, 1)]
    return y, m.op("STRIDED_SLICE", [sizes, *bounds], [[1]])[0]


def int32(*numbers: int) -> Any:
    return np.array(numbers, np.int32)


def reshape_rows(m: Build, x: Tensor, rows: Tensor) -> Tensor:
    (shape,) = m.op("CONCATENATION", [rows, m.constant(int32(5, -1))], [[3]], axis=0)
    return m.op("RESHAPE", [x, shape], [m.tensor([1], dtype="complex64")])[0]


def reshape_by_option(m: Build, x: Tensor, _: Tensor) -> Tensor:
    return m.op("RESHAPE", [x], [m.tensor([1], dtype="complex64")], new_shape=[-1, 20])[0]


def broadcast_rows(m: Build, x: Tensor, rows: Tensor) -> Tensor:
    (shape,) = m.op("CONCATENATION", [m.constant(int32(2)), rows, m.constant(int32(4, 5))], [[4]])
    return m.op("BROADCAST_TO", [x, shape], [m.tensor([1], dtype="complex64")])[0]


def slice_rows(m: Build, x: Tensor, rows: Tensor) -> Tensor:
    (size,) = m.op("CONCATENATION", [rows, m.constant(int32(2, -1))], [[3]], axis=0)
    begin = m.constant(int32(0, 1, 2))
    return m.op("SLICE", [x, begin, size], [m.tensor([None] * 3, dtype="complex64")])[0]


def slice_first(m: Build, x: Tensor, rows: Tensor) -> Tensor:
    bounds = [m.constant(int32(0)), rows, m.constant(int32(2))]
    return m.op("STRIDED_SLICE", [x, *bounds], [m.tensor([1], dtype="complex64")])[0]


def squeeze_and_expand(m: Build, x: Tensor, _: Tensor) -> Tensor:
    (y,) = m.op("EXPAND_DIMS", [x, m.constant(np.int32(-3))], [m.tensor([1], dtype="complex64")])
    return m.op("SQUEEZE", [y], [m.tensor([1], dtype="complex64")], squeeze_dims=[-3])[0]


def expand_anywhere(m: Build, x: Tensor, _: Tensor) -> Tensor:
    axis = m.input([], dtype="int32", name="axis")
    return m.op("EXPAND_DIMS", [x, axis], [m.tensor([1] * 4, dtype="complex64")])[0]


def from_real_rows(m: Build, x: Tensor, _: Tensor) -> Tensor:
    (real,) = m.op("REAL", [x], [[1]], dtype="float32")
    (y,) = m.op("CAST", [real], [m.tensor([1], dtype="complex64")])
    return m.op("MUL", [x, y], [m.tensor([1], dtype="complex64")])[0]


@pytest.mark.parametrize(
    "move",
    [
        reshape_rows,
        reshape_by_option,
        broadcast_rows,
        slice_rows,
        slice_first,
        squeeze_and_expand,
        expand_anywhere,
        from_real_rows,
    ],
)
def test_complex_numbers_of_dynamic_sizes_equal_litert(move: Any) -> None:
    m = Build()
    made = move(m, *add_dynamic_spectrum(m))
    for code in ("REAL", "IMAG", "COMPLEX_ABS"):
        m.output(*m.op(code, [made], [[1]], dtype="float32"))
    result = convert(m.bytes(), io_layout="tflite")
    generator = np.random.default_rng(0)
    for rows in (1, 2, 5):
        given = [generator.standard_normal((rows, 4, 8)).astype(np.float32)]
        given += [np.array(axis, np.int32) for axis in [rows - 3] if len(result.inputs) > 1]
        want = run_tflite(m.bytes(), given)
        feeds = {port.name: array for port, array in zip(result.inputs, given, strict=True)}
        for one, other in zip(want, run_onnx(result.model, feeds), strict=True):
            assert difference(one, other) == ""


def test_transforms_of_a_length_that_is_the_size_of_an_axis_equal_litert() -> None:
    """TensorFlow's rfft of a signal of unknown length lists the length as a computed size."""
    m = Build()
    x = m.input([None, 1, None], name="x")
    (shape,) = m.op("SHAPE", [x], [[3]], dtype="int32", out_type="int32")
    bounds = [m.constant(np.array([i], np.int32)) for i in (1, 3, 1)]
    (lengths,) = m.op("STRIDED_SLICE", [shape, *bounds], [[2]], dtype="int32")
    (y,) = m.op("RFFT2D", [x, lengths], [m.tensor([None, 1, None], dtype="complex64")])
    m.output(*(m.op(code, [y], [m.tensor([None, 1, None])])[0] for code in ("REAL", "IMAG")))
    result = convert(m.bytes(), io_layout="tflite")
    for rows, length in ((2, 16), (1, 64)):
        given = np.random.default_rng(0).standard_normal((rows, 1, length)).astype(np.float32)
        want = run_tflite(m.bytes(), [given])
        for one, other in zip(want, run_onnx(result.model, {"x": given}), strict=True):
            assert difference(one, other) == ""
