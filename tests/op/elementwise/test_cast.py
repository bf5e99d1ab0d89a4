"""CAST, DEQUANTIZE and DENSIFY."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.op.ports import refusal_reason
from tests.support import Build, check
from tests.support.needs import needs_onnxruntime
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from tests.support import Tensor

Array = np.ndarray[Any, Any]

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"]
FLOATS = ["float16", "float32", "float64"]
TYPES = ["bool", "bfloat16", *FLOATS, *INTEGERS]
PACKED = ["int4", "uint4", "int2"]


def boundary_values(dtype: str) -> Array:
    """Return the values of a type at the limits of all types, next to them and beyond them."""
    if dtype == "bool":
        return np.array([False, True])
    ends = {end for kind in INTEGERS for end in (np.iinfo(kind).min, np.iinfo(kind).max)}
    if dtype in INTEGERS:
        limits = np.iinfo(dtype)
        near = {end + step for end in ends for step in (-1, 0, 1, 77)}
        return np.array([n for n in sorted(near) if limits.min <= n <= limits.max], dtype)
    halves = [end + step for end in ends for step in (-1.5, -0.5, -0.25, 0.25, 0.5, 1.5)]
    other = [np.nan, np.inf, -np.inf, -0.0, 1e-30, 1e30, -1e30, 7.9, -8.9, 1.00390625, 65519, 2049]
    with np.errstate(over="ignore"):
        return np.array([*halves, *other, -2, -1.5, 15.5, 1.5, 1.2]).astype(dtype)


def cast(m: Build, x: Tensor, dtype: str) -> Tensor:
    return m.op("CAST", [x], [x.shape], dtype=dtype)[0]


def add_output(m: Build, x: Tensor) -> None:
    """Make a tensor an output; types that NumPy lacks are cast to float32."""
    m.output(cast(m, x, "float32") if x.dtype in {"bfloat16", *PACKED} else x)


@pytest.mark.parametrize("source", TYPES)
@pytest.mark.parametrize("opset", [13, None])
def test_casts_between_all_types_equal_litert(source: str, opset: int | None) -> None:
    """A cast from a type to each type, also of NaN and of values out of range."""
    m = Build()
    values = boundary_values("float32" if source == "bfloat16" else source)
    x = m.input(values.shape, dtype=values.dtype)
    if source == "bfloat16":
        x = cast(m, x, source)
    for target in TYPES:
        add_output(m, cast(m, x, target))
    check(m.bytes(), inputs=[values], opset=opset, tolerance=0)


@pytest.mark.parametrize("target", PACKED)
def test_casts_to_packed_types_equal_litert(target: str) -> None:
    """Casts to types with less than 8 bits and back."""
    m = Build()
    values = boundary_values("float32")
    add_output(m, cast(m, m.input(values.shape), target))
    check(m.bytes(), inputs=[values], tolerance=0)


@pytest.mark.parametrize("source", TYPES)
def test_casts_of_constants_fold(source: str) -> None:
    """Casts of constants are folded; the runtime casts bfloat16, and float16 to float32."""
    m = Build()
    values = boundary_values("float32" if source == "bfloat16" else source)
    x = m.constant(values)
    if source == "bfloat16":
        x = cast(m, x, source)
    for target in TYPES:
        add_output(m, cast(m, x, target))
    m.output(m.input([3]))
    nodes = check(m.bytes(), random_layouts=(), tolerance=0).model.graph.node
    casts = sum(node.op_type == "Cast" for node in nodes)
    assert casts > len(TYPES) if source == "bfloat16" else casts == 2 + (source == "float16")


@pytest.mark.parametrize("source", PACKED)
def test_casts_of_packed_constants_equal_litert(source: str) -> None:
    m = Build()
    low, high = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1)}[source]
    x = m.constant(np.arange(low, high + 1), dtype=source)
    add_output(m, cast(m, x, "float32"))
    m.output(m.input([3]))
    check(m.bytes(), random_layouts=())


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("constant", [False, True])
def test_cast_reads_and_writes_stored_integers(dtype: str, *, constant: bool) -> None:
    """CAST reads and writes stored integers, and ignores scales."""
    m = Build()
    shape = [2, 3, 5, 7]
    kind: dict[str, Any] = {"dtype": dtype, "scale": 0.25, "zero_point": 3}
    values = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    x = m.constant(values, **kind) if constant else m.input(shape, **kind)
    add_output(m, cast(m, x, "float32"))
    m.output(m.op("CAST", [m.input(shape)], [m.tensor(shape, **kind)])[0])
    check(m.bytes(), ranges={"float32": (0, 90)})


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_cast_between_quantized_operators_equals_litert(dtype: str) -> None:
    m = Build()
    shape = [2, 3, 5, 7]
    kind: dict[str, Any] = {"dtype": dtype, "scale": 0.25, "zero_point": 3}
    (x,) = m.op("ABS", [m.input(shape, dtype="int32")], [shape])
    (x,) = m.op("CAST", [x], [m.tensor(shape, **kind)])
    add_output(m, cast(m, x, "int32"))
    check(m.bytes())


@pytest.mark.parametrize("mode", [{"activations": "uint8"}, {"quantization": "float"}], ids=str)
def test_cast_reads_integers_of_the_file_for_every_storage(mode: dict[str, Any]) -> None:
    """CAST reads the file's integers, also if the model stores int8 as uint8 or as floats."""
    m = Build()
    shape = [2, 3, 5, 7]
    kind: dict[str, Any] = {"dtype": "int8", "scale": 0.25, "zero_point": 3}
    (x,) = m.op("QUANTIZE", [m.input(shape)], [m.tensor(shape, **kind)])
    x = cast(m, cast(m, x, "float32"), "int32")
    (x,) = m.op("CAST", [x], [m.tensor(shape, **kind)])
    m.output(*m.op("DEQUANTIZE", [x], [m.tensor(shape)]))
    needs_onnxruntime(1, 24, "an optimization that leaves the graph whole")
    check(m.bytes(), **mode)


def test_cast_to_its_own_type_is_identity() -> None:
    m = Build()
    m.output(cast(m, m.input([3]), "float32"))
    nodes = check(m.bytes()).model.graph.node
    assert [node.op_type for node in nodes] == ["Identity"]


def test_cast_takes_types_of_tensors_not_of_options() -> None:
    """CAST takes the types of its tensors, not of its options, as the kernel does."""
    m = Build()
    x = m.input([3], dtype="int32")
    m.output(*m.op("CAST", [x], [[3]], dtype="int64", in_data_type="bool", out_data_type="uint8"))
    check(m.bytes())


@pytest.mark.parametrize("quantized", [False, True])
def test_dequantize_of_float16_and_int8_equals_litert(*, quantized: bool) -> None:
    """DEQUANTIZE of computed float16 and of int8."""
    m = Build()
    shape = [2, 3, 5, 7]
    kind = {"dtype": "int8", "scale": 0.1, "zero_point": -3} if quantized else {"dtype": "float16"}
    (y,) = m.op("DEQUANTIZE", [m.input(shape, **kind)], [m.tensor(shape)])
    m.output(*m.op("EXP", [y], [shape]))
    check(m.bytes(), ranges={"float16": (-8, 8)})


def test_refuses_unsupported_types_of_casts() -> None:
    m = Build()
    x = m.input([3])
    assert "got int4 to int8" in refusal_reason(m, cast(m, cast(m, x, "int4"), "int8"))
    assert "it must have 1 input, got 2" in refusal_reason(m, *m.op("CAST", [x, x], [[3]]))
    assert "must be float16 or quantized, got int8" in refusal_reason(
        m, *m.op("DEQUANTIZE", [m.input([3], dtype="int8")], [m.tensor([3])])
    )


def test_densify_refuses_a_tensor_that_is_not_sparse() -> None:
    """DENSIFY of a tensor that is not a sparse constant is refused."""
    m = Build()
    m.output(*m.op("DENSIFY", [m.input([2, 3])], [[2, 3]]))
    with pytest.raises(ConversionError, match="tensor_0 must be a sparse constant"):
        convert(m.bytes())


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_real_part_of_a_complex_constant_is_cast(dtype: str) -> None:
    """The real part is cast, without a warning of numpy."""
    m = Build()
    constant = m.constant(np.array([1 + 2j, 3.7 - 1j, 1j], np.complex64))
    (real,) = m.op("CAST", [constant], [[3]], dtype=dtype)
    m.output(*m.op("ADD", [m.input([3], dtype=dtype), real], [[3]], dtype=dtype))
    check(m.bytes())


def choose_rows(dtype: str = "int32", *, as_rows: bool = True, shared: bool = False) -> bytes:
    """Return a model that chooses rows by floats, or chooses among the floats."""
    m = Build()
    x = m.input([1, 6])
    whole = cast(m, x, dtype)
    if as_rows:
        table = m.constant(np.arange(40, dtype=np.float32).reshape(10, 4))
        m.output(*m.op("GATHER", [table, whole], [[1, 6, 4]]))
    else:
        places = m.constant(np.array([3, 1], np.int32))
        m.output(*m.op("GATHER", [whole, places], [[1, 2]], axis=1, dtype=dtype))
    if shared:
        m.output(whole)
    return m.bytes()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_indices_of_rows_do_not_saturate(dtype: str) -> None:
    rows = np.array([[0, 9.9, 5.5, 1, 2.25, -0.5]], np.float32)
    result: Any = check(choose_rows(dtype), inputs=[rows])
    assert [node.op_type for node in result.model.graph.node] == ["Cast", "Gather"]


@pytest.mark.parametrize(
    "data",
    [choose_rows("int16"), choose_rows(as_rows=False), choose_rows(shared=True)],
    ids=["rows of int16", "data", "an output"],
)
def test_casts_other_than_row_indices_saturate(data: bytes) -> None:
    assert any(node.op_type == "Less" for node in convert(data).model.graph.node)
