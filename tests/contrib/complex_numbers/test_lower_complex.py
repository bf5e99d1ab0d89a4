"""contrib/complex_numbers/lower_complex.py: lists of complex tensors, and their declared shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.references.flex import build_flex
from tests.support import Build, run_onnx
from tests.support.flex import flex_options
from tflite2onnx import convert
from tflite2onnx.errors import UnsupportedOperators

if TYPE_CHECKING:
    from tests.support.runtimes import Array


@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
def test_computed_order_moves_pairs_as_wholes(order: tuple[int, int]) -> None:
    """LiteRT's TRANSPOSE has no complex numbers: numpy has the result."""
    m = Build()
    x, axes = m.input([3, 5], dtype="complex64", name="x"), m.input([2], dtype="int32", name="axes")
    m.output(*m.op("TRANSPOSE", [x, axes], [[5, 3]], dtype="complex64"))
    pairs = np.random.default_rng(0).standard_normal((3, 5, 2)).astype(np.float32)
    result = convert(m.bytes(), io_layout="tflite")
    (found,) = run_onnx(result.model, {"x": pairs, "axes": np.array(order, np.int32)})
    np.testing.assert_array_equal(found, pairs.transpose(*order, 2))


@pytest.mark.parametrize("declared", [[3, 0], [1], []])
def test_declared_shape_of_a_product_is_not_read(declared: list[int]) -> None:
    m = Build()
    x, y = (m.input([3], dtype="complex64") for _ in "xy")
    m.output(*m.op("MUL", [x, y], [declared], dtype="complex64"))
    (product,) = convert(m.bytes(), io_layout="tflite").outputs
    assert product.onnx_shape == (3, 2)


@pytest.mark.parametrize("types", [("float32", "complex64"), ("complex64", "float32")])
@pytest.mark.parametrize("code", ["GATHER", "CUMSUM", "SLICE", "FlexNeg", "FlexExp", "FlexFFT"])
def test_refuses_an_output_of_another_type(code: str, types: tuple[str, str]) -> None:
    """LiteRT's kernels give the output the type of the data, whatever the file declares."""
    m = Build()
    x, y = m.input([2, 3], dtype=types[0]), m.tensor([2, 3], dtype=types[1])
    lists: dict[str, list[Any]] = {"GATHER": [[0]], "CUMSUM": [0], "SLICE": [[0, 0], [2, 3]]}
    operands = [x, *(m.constant(numbers) for numbers in lists.get(code, []))]
    if code.startswith("Flex"):
        m.output(*m.custom(code, operands, [y], flex_options(code.removeprefix("Flex"))))
    else:
        m.output(*m.op(code, operands, [y]))
    with pytest.raises(UnsupportedOperators, match="its operands must have one complex type, got"):
        convert(m.bytes())


TYPES = ("complex64", "complex128")
FUNCTIONS = {"Exp": np.exp, "Log": np.log, "Sqrt": np.sqrt}


def draw(dtype: str, *shape: int, seed: int = 0) -> Array:
    parts = np.random.default_rng(seed).standard_normal((2, *shape))
    numbers: Array = (parts[0] + 1j * parts[1]).astype(dtype)
    return numbers


def to_pairs(x: Array) -> Array:
    return np.stack([x.real, x.imag], -1)


def compare(m: Build, inputs: list[Array], want: Array) -> None:
    """Compare the output of ONNX Runtime with complex numbers, to 1e-5 or 1e-12 of the range."""
    result = convert(m.bytes(), io_layout="tflite")
    feeds = {end.name: to_pairs(each) for end, each in zip(result.inputs, inputs, strict=True)}
    (found,) = run_onnx(result.model, feeds)
    bound = (1e-5 if want.dtype == np.complex64 else 1e-12) * np.abs(want).max()
    np.testing.assert_allclose(found, to_pairs(want), rtol=0, atol=bound)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, dtype) for name in FUNCTIONS for dtype in TYPES if (name, dtype) != ("Log", TYPES[1])],
)
def test_functions_equal_numpy(name: str, dtype: str) -> None:
    """Small imaginary parts keep their digits; a negative real number has an imaginary root."""
    x = draw(dtype, 3, 5)
    x[0] = [1 + 1e-4j, -1 + 1e-4j, -4, 2 - 1e-6j, -3 - 2j]
    x[1, 0] = 0 if name != "Log" else 1j
    want = FUNCTIONS[name](x)
    compare(build_flex(name, [x], [want]), [x], want)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ["Div", "RealDiv"])
@pytest.mark.parametrize("shapes", [((3, 5), (3, 5)), ((3, 5), (5,)), ((), (3, 5))], ids=str)
def test_quotients_equal_numpy(name: str, dtype: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    """The squares of the divisors are near the limits of float32."""
    x, y = (draw(dtype, *shape, seed=i) for i, shape in enumerate(shapes))
    for scale in (1, 1e-18, 1e18):
        divisor = (y * scale).astype(dtype)
        want = x / divisor
        compare(build_flex(name, [x, divisor], [want]), [x, divisor], want)


@pytest.mark.parametrize("shapes", [((), (5,)), ((3, 1), (5,)), ((3, 5), (1,)), ((5,), (5,))])
def test_parts_are_broadcast_to_one_shape(shapes: tuple[tuple[int, ...], ...]) -> None:
    a, b = (np.random.default_rng(i).standard_normal(s).astype("f") for i, s in enumerate(shapes))
    want = (a + 1j * b).astype(np.complex64)
    m = build_flex("Complex", [a, b], [want])
    result = convert(m.bytes(), io_layout="tflite")
    feeds = dict(zip([end.name for end in result.inputs], [a, b], strict=True))
    np.testing.assert_array_equal(run_onnx(result.model, feeds)[0], to_pairs(want))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
@pytest.mark.parametrize("name", ["BatchMatMulV2", "BatchMatMulV3", "MatMul"])
def test_matrix_products_equal_numpy(name: str, dtype: str, *, first: bool, second: bool) -> None:
    """BatchMatMul conjugates the matrices that it transposes, MatMul does not."""
    batch = () if name == "MatMul" else (2,)
    a = draw(dtype, *batch, *((4, 3) if first else (3, 4)))
    b = draw(dtype, *batch, *((5, 4) if second else (4, 5)), seed=1)

    def turn(x: Array, turned: bool) -> Array:  # noqa: FBT001
        y = x.swapaxes(-1, -2) if turned else x
        return y.conj() if turned and batch else y

    want = np.matmul(turn(a, first), turn(b, second))
    keys = ("adj_x", "adj_y") if batch else ("transpose_a", "transpose_b")
    turns: dict[str, Any] = dict(zip(keys, (first, second), strict=True))
    compare(build_flex(name, [a, b], [want], **turns), [a, b], want)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", ["FFT", "IFFT", "FFT2D", "IFFT2D", "FFT3D", "IFFT3D"])
def test_transforms_of_dynamic_axes_equal_numpy(name: str, dtype: str) -> None:
    m, axes = Build(), int(name[-2]) if name.endswith("D") else 1
    x = m.input([None] * (axes + 1), dtype=dtype)
    options = flex_options(name)
    m.output(*m.custom(f"Flex{name}", [x], [m.tensor([None] * (axes + 1), dtype=dtype)], options))
    transform = np.fft.ifftn if name.startswith("I") else np.fft.fftn
    for sizes in ((3, 5, 2, 7), (1, 12, 4, 3)):
        x_of_size = draw(dtype, *sizes[: axes + 1])
        want = transform(x_of_size, axes=range(1, axes + 1)).astype(dtype)
        compare(m, [x_of_size], want)


def reverse_lengths(x: Array, lengths: list[int], axes: list[int]) -> Array:
    """Return the real numbers of half of the frequencies, cropped or padded to the lengths."""
    for axis, length in zip(axes[:-1], lengths, strict=False):
        x = np.fft.ifft(x, length, axis)
    real: Array = np.fft.irfft(x, lengths[-1], axes[-1])
    return real


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("name", ["RFFT", "IRFFT", "RFFT2D", "IRFFT2D", "RFFT3D", "IRFFT3D"])
def test_real_transforms_of_computed_lengths_equal_numpy(name: str, *, computed: bool) -> None:
    """Images are cropped or padded to lengths, which are inputs or constants."""
    count, inverse = int(name[-2]) if name.endswith("D") else 1, name.startswith("I")
    axes = [*range(1, count + 1)]
    for lengths in ([4, 6, 7], [8, 3, 8], [5, 2, 1]):
        m, given = Build(), np.array(lengths[-count:], np.int32)
        kinds = ("complex64", "float32") if inverse else ("float32", "complex64")
        shape = m.input([count], dtype="int32", name="n") if computed else m.constant(given)
        operands = [m.input([None] * (count + 1), dtype=kinds[0], name="x"), shape]
        y = m.tensor([None] * (count + 1), dtype=kinds[1])
        m.output(*m.custom(f"Flex{name}", operands, [y], flex_options(name)))
        result = convert(m.bytes(), io_layout="tflite")
        x = draw("complex64", *[3, 5, 4, 6][: count + 1])
        if inverse:
            want = reverse_lengths(x, given.tolist(), axes)
        else:
            x = x.real.copy()
            want = to_pairs(np.fft.rfftn(x, given.tolist(), axes))
        feeds = {"x": to_pairs(x) if inverse else x} | ({"n": given} if computed else {})
        (found,) = run_onnx(result.model, feeds)
        np.testing.assert_allclose(found, want, rtol=0, atol=1e-5 * np.abs(want).max())


MOVES: list[tuple[str, list[Any], dict[str, Any], Any]] = [
    ("Pad", [[[1, 0], [2, 1]]], {}, lambda x: np.pad(x, [(1, 0), (2, 1)])),
    ("MirrorPad", [[[1, 0], [2, 1]]], {"mode": "REFLECT"},
     lambda x: np.pad(x, [(1, 0), (2, 1)], "reflect")),
    ("Tile", [[2, 3]], {}, lambda x: np.tile(x, (2, 3))),
    ("ReverseV2", [[-1]], {}, lambda x: x[:, ::-1]),
    ("Roll", [[2], [-1]], {}, lambda x: np.roll(x, 2, -1)),
    ("GatherV2", [[2, 0], -1], {}, lambda x: x[:, [2, 0]]),
    ("GatherNd", [[[2, 0], [1, 1]]], {}, lambda x: x[[2, 1], [0, 1]]),
    ("Cumsum", [-1], {}, lambda x: np.cumsum(x, -1)),
    ("Sum", [[-1]], {}, lambda x: x.sum(-1)),
    ("Mean", [[0, 1]], {"keep_dims": True}, lambda x: x.mean((0, 1), keepdims=True)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("move", MOVES, ids=lambda move: move[0])
def test_moves_and_sums_of_complex_numbers_equal_numpy(move: Any, dtype: str) -> None:
    name, constants, attributes, function = move
    x = draw(dtype, 3, 5)
    want = function(x)
    lists = [np.array(each, np.int32) for each in constants]
    compare(build_flex(name, [x], [want], lists, **attributes), [x], want)


@pytest.mark.parametrize(("name", "axis"), [("ConcatV2", -1), ("Pack", -1), ("Pack", 0)])
def test_joined_complex_numbers_equal_numpy(name: str, axis: int) -> None:
    pair = [draw("complex64", 3, 5, seed=seed) for seed in (0, 1)]
    if name == "Pack":
        want = np.stack(pair, axis)
        compare(build_flex(name, pair, [want], axis=axis, N=2), pair, want)
    else:
        want = np.concatenate(pair, axis)
        compare(build_flex(name, pair, [want], [np.array(axis, np.int32)], N=2), pair, want)


def test_unpacked_complex_numbers_equal_numpy() -> None:
    x = draw("complex64", 3, 2)
    result = convert(build_flex("Unpack", [x], [x[:, 0], x[:, 1]], axis=-1, num=2).bytes())
    for i, found in enumerate(run_onnx(result.model, {result.inputs[0].name: to_pairs(x)})):
        np.testing.assert_array_equal(found, to_pairs(x[:, i]))
