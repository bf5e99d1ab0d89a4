"""reader/buffers.py and tensor.py: constants and quantizations of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema

from tests.support import Build, check, run_tflite, sparsify
from tests.support.facts import TENSOR_TYPES
from tests.support.needs import needs_onnxruntime
from tests.support.reading import constant, float32, int8, int32, int64, only_op, uint8
from tflite2onnx import convert
from tflite2onnx.errors import ModelFileError, OperatorError, UnsupportedOperators
from tflite2onnx.reader.buffers import pack_subbyte, unpack_subbyte
from tflite2onnx.reader.model import read_model
from tflite2onnx.tensor import DType, Quantization

if TYPE_CHECKING:
    from tflite2onnx.graph import Model


# Elements


@pytest.mark.parametrize(
    "dtype", [d.label for d in DType if d.numpy is not None and d.label in TENSOR_TYPES]
)
def test_elements_of_every_type_are_file_views(dtype: str) -> None:
    """Elements of 8 bits and more are views on the file; numpy has a type for most of them."""
    values = np.array([[1, 0, 1], [0, 1, 1]])
    tensor = constant(values, dtype=dtype)
    assert (tensor.dtype.label, tensor.shape) == (dtype, (2, 3))
    assert tensor.data is not None
    assert tensor.data.dtype == tensor.dtype.numpy
    if dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):  # stored as its bits
        assert np.array_equal(tensor.data != 0, values != 0)
    else:
        np.testing.assert_array_equal(tensor.data, values)
    assert tensor.data.flags.owndata is False


@pytest.mark.parametrize(
    ("dtype", "low", "high"), [("int2", -2, 1), ("int4", -8, 7), ("uint4", 0, 15)]
)
def test_elements_under_eight_bits_are_unpacked(dtype: str, low: int, high: int) -> None:
    """Signs are extended; unused bits of the last byte are ignored."""
    values = np.resize(np.arange(low, high + 1), 37)
    data = constant(values, dtype=dtype).data
    assert data is not None
    assert data.tolist() == values.tolist()


def test_packed_elements_keep_the_bytes_of_the_file() -> None:
    """Long constants in TFLite's order are not unpacked and packed again; other constants are."""
    packed = np.random.default_rng(0).integers(0, 256, 1 << 17, np.uint8)
    rows = unpack_subbyte(packed, DType.INT4).reshape(512, -1)
    assert np.shares_memory(pack_subbyte(rows[3:7], DType.INT4), packed)
    for part in (rows, rows[3:7], rows.T, rows[:, 1:], rows.reshape(-1)[1:6], rows.copy()):
        again = unpack_subbyte(pack_subbyte(part, DType.INT4), DType.INT4)
        np.testing.assert_array_equal(again[: part.size], part.reshape(-1))


@pytest.mark.parametrize(("dtype", "shape"), [("int4", (5, 7)), ("int4", (37, 71))])
def test_elements_under_eight_bits_are_written(dtype: str, shape: tuple[int, int]) -> None:
    """ONNX packs these elements as TFLite does."""
    m = Build()
    values = np.random.default_rng(0).integers(-8, 8, shape)
    weights = m.constant(values, dtype=dtype, scale=0.5, name="weights")
    m.output(*m.op("FULLY_CONNECTED", [m.input([2, shape[1]]), weights, None], [[2, shape[0]]]))
    (written,) = [i for i in convert(m.bytes()).model.graph.initializer if i.name == "weights"]
    have = onnx.numpy_helper.to_array(written).astype(int)
    assert have.tolist() in (values.tolist(), values.T.tolist())


def test_shared_packed_buffer_is_unpacked_once() -> None:
    """A shared buffer with packed elements is unpacked once."""
    m = Build()
    one, two = (m.constant(np.arange(-8, 8), dtype="int4") for _ in range(2))
    tensors = m.model().subgraphs[0].tensors
    tensors[1].buffer, tensors[1].shape = tensors[0].buffer, int32([4, 3])
    m.output(one, two)
    a, b = (t.data for t in read_model(m.bytes()).graphs[0].outputs)
    assert a is not None
    assert b is not None
    assert np.shares_memory(a, b)
    assert b.tolist() == [[-8, -7, -6], [-5, -4, -3], [-2, -1, 0], [1, 2, 3]]


def test_constants_that_share_a_buffer_are_one() -> None:
    """Constants that share a buffer are stored once and dequantized once in the ONNX file."""
    m = Build()
    x = m.input([2, 5, 7, 3], dtype="int8", scale=0.5)
    values = np.ones((2, 5, 7, 3), np.int8)
    one, two = (m.constant(values, scale=0.5) for _ in range(2))
    tensors = m.model().subgraphs[0].tensors
    tensors[two.index].buffer = tensors[one.index].buffer
    for addend in (one, two):
        (x,) = m.op("ADD", [x, addend], [x.shape], scale=0.5)
    m.output(x)
    names = [name for node in check(m.bytes(), steps=1).model.graph.node for name in node.input]
    assert names.count("tensor_1") == 1
    assert names.count("tensor_2") == 0


def test_booleans_are_true_or_false() -> None:
    """Every byte except 0 is true."""
    m = Build()
    m.output(m.constant(uint8([0, 1, 7, 0, 255])))
    m.model().subgraphs[0].tensors[0].type = TENSOR_TYPES["bool"]
    data = read_model(m.bytes()).graphs[0].outputs[0].data
    assert data is not None
    assert data.view(np.uint8).tolist() == [0, 1, 1, 0, 1]


def test_strings_are_bytes_of_any_length() -> None:
    """Strings are bytes of any length."""
    data = constant(np.array([["one", ""], ["zwölf", "\0"]], object)).data
    assert data is not None
    assert data.tolist() == [[b"one", b""], ["zwölf".encode(), b"\0"]]
    empty = constant(np.zeros((0, 2), object), dtype="string").data
    assert empty is not None
    assert empty.shape == (0, 2)


def test_strings_may_begin_at_any_byte_of_their_data() -> None:
    """LiteRT reads each string from its offset, even if this is the place of the count."""
    m = Build()
    m.output(m.constant(["a"]))
    m.model().buffers[1].data = int32([1, 0, 4]).tobytes()
    data = read_model(m.bytes()).graphs[0].outputs[0].data
    assert data is not None
    assert data.tolist() == [b"\1\0\0\0"]


def test_constant_strings_are_initializers() -> None:
    """Constant strings are initializers of the ONNX file."""
    m = Build()
    texts = m.constant(np.array([["a", "b"], ["zwölf", ""]], object))
    m.output(*m.op("EQUAL", [m.input([2, 2], dtype="string"), texts], [[2, 2]], dtype="bool"))
    check(m.bytes())


@pytest.mark.parametrize(
    "words",
    [[-1], [3, 16, 16], [1, 12, 13], [1, -4, 12], [2, 16, 12, 16], [2**31 - 1, 8]],
)
def test_refuses_strings_with_damaged_offsets(words: list[int]) -> None:
    """Overlapping strings are refused, because together they could be far larger than the file."""
    m = Build()
    m.output(m.constant(["a", "b"]))
    m.model().buffers[1].data = int32(words).tobytes()
    with pytest.raises(ModelFileError, match="tensor tensor_0: the offsets of its strings must be"):
        read_model(m.bytes())
    m.model().buffers[1].data = b"abc"
    with pytest.raises(ModelFileError, match="the offsets of its strings must be"):
        read_model(m.bytes())


def test_extra_bytes_are_ignored_and_missing_bytes_refused() -> None:
    """Extra bytes are ignored, as in LiteRT; missing bytes are an error."""
    m = Build()
    values = m.constant([1.5, 2.5, 3.5])
    m.output(*m.op("ADD", [m.input([2]), values], [[2]]))
    m.model().subgraphs[0].tensors[0].shape = int32([2])
    check(m.bytes())
    m.model().buffers[1].data += b"\0"  # less than an element
    check(m.bytes())
    m.model().buffers[1].data = m.model().buffers[1].data[:7]
    with pytest.raises(
        ModelFileError, match="tensor_0: it must have 2 elements in the file, got 1"
    ):
        read_model(m.bytes())


def test_sparse_constants_have_values_and_their_positions() -> None:
    """A sparse constant is expanded; its levels give the position of each value."""
    dense = float32([[0, 1, 0], [2, 0, 3]])
    for index_type in ("int32", "uint16", "uint8"):
        values, levels = sparsify(dense, ["dense", "csr"], index_type=index_type)
        tensor = constant(values, shape=dense.shape, sparsity=levels)
        assert (tensor.shape, tensor.sparsity is not None) == ((2, 3), True)
        assert tensor.data is not None
        assert tensor.data.tolist() == [1, 2, 3]
        assert tensor.sparsity is not None
        rows, columns = tensor.sparsity.axes
        assert (rows.size, rows.segments, rows.indices) == (2, None, None)
        assert columns.segments is not None
        assert columns.indices is not None
        assert columns.segments.tolist() == [0, 1, 3]
        assert columns.indices.tolist() == [1, 0, 2]
        assert (tensor.sparsity.traversal_order, tensor.sparsity.block_map) == ((0, 1), ())
    values, levels = sparsify(np.zeros((2, 2), np.float32), ["dense", "csr"])
    levels.dimMetadata[1].arrayIndices.values = None
    tensor = constant(float32([1]), shape=(2, 2), sparsity=levels)
    assert tensor.sparsity is not None
    indices = tensor.sparsity.axes[1].indices
    assert indices is not None
    assert indices.size == 0


def test_constant_without_elements_needs_no_data() -> None:
    """An empty tensor needs no data in the file, as in LiteRT."""
    needs_onnxruntime(1, 24, "an initializer without elements")
    for stored in (True, False):
        m = Build()
        empty = m.constant(np.zeros((0, 3), np.float32)) if stored else m.tensor([0, 3])
        x = m.input([2, 3], name="x")
        m.output(*m.op("CONCATENATION", [x, empty], [[2, 3]]))
        tensor = only_op(m).inputs[1]
        assert tensor is not None
        assert tensor.data is not None
        assert tensor.data.shape == (0, 3)
        check(m.bytes())


def test_refuses_a_tensor_that_nothing_computes() -> None:
    """A tensor without data that nothing computes is an error of the operator that reads it."""
    m = Build()
    m.output(*m.op("ADD", [m.input([2]), m.tensor([2], name="lost")], [m.tensor([2], name="y")]))
    with pytest.raises(RuntimeError, match="lacks data"):
        run_tflite(m.bytes(), [np.zeros(2, np.float32)])
    with pytest.raises(UnsupportedOperators, match=r"ADD \(operator 0, y\): lost must be constant"):
        convert(m.bytes())
    m = Build()
    m.input([2])
    m.output(m.tensor([2], name="lost"))
    with pytest.raises(OperatorError, match="lost must be constant or computed"):
        convert(m.bytes())


def test_variables_and_resources_have_no_data() -> None:
    """Variables and resources have no data in the file."""
    m = Build()
    m.output(m.tensor([2], variable=True), m.constant(uint8([1, 2])))
    m.model().subgraphs[0].tensors[1].type = TENSOR_TYPES["resource"]
    state, resource = read_model(m.bytes()).graphs[0].outputs
    assert (state.is_variable, state.data, resource.data) == (True, None, None)
    assert (resource.dtype, resource.nbytes) == (DType.RESOURCE, 2)


def test_shape_signature_marks_dynamic_sizes() -> None:
    """-1 in the signature is a dynamic size, for which the shape has 1."""
    m = Build()
    x = m.input([None, 3])
    m.output(x)
    (tensor,) = read_model(m.bytes()).graphs[0].outputs
    assert (tensor.shape, tensor.shape_signature) == ((1, 3), (-1, 3))


# Quantization


def test_quantization_has_scales_and_zero_points() -> None:
    """One scale, or scales along an axis; missing zero points are 0."""
    q = constant(int8([1, 2]), scale=0.5, zero_point=-3).quantization
    assert q is not None
    assert (q.scale.tolist(), q.zero_point.tolist(), q.per_axis, q.axis) == ([0.5], [-3], False, 0)
    assert [str(a.dtype) for a in (q.scale, q.zero_point)] == ["float32", "int64"]
    q = constant(
        np.zeros((3, 2), np.int8), scale=[0.5, 0.25], zero_point=[1, 2], axis=1
    ).quantization
    assert q is not None
    assert (q.zero_point.tolist(), q.per_axis, q.axis, q.block_size) == ([1, 2], True, 1, 0)
    fields = schema.QuantizationParametersT(scale=float32([0.5, 0.25]), quantizedDimension=1)
    q = constant(np.zeros((3, 2), np.int8), quantization=fields).quantization
    assert q is not None
    assert q.zero_point.tolist() == [0, 0]
    for nothing in (
        schema.QuantizationParametersT(min=[0.0], max=[1.0]),
        schema.QuantizationParametersT(
            detailsType=schema.QuantizationDetails.BlockwiseQuantization
        ),
    ):
        assert constant(int8([1]), quantization=nothing).quantization is None


def test_quantizations_are_equal_if_real_numbers_are() -> None:
    """Quantizations are equal if each stored integer has the same real number."""
    one = Quantization(float32([0.5]), int64([3]))
    assert one.same_as(Quantization(float32([0.5]), int64([3]), axis=1))
    assert not one.same_as(None)
    assert not one.same_as(Quantization(float32([0.5]), int64([4])))
    assert not one.same_as(Quantization(float32([0.25]), int64([3])))
    assert not one.same_as(Quantization(float32([0.5]), int64([3]), block_size=2))
    two = Quantization(float32([0.5, 1]), int64([3, 3]))
    assert not two.same_as(Quantization(float32([0.5, 1]), int64([3, 3]), axis=1))


def blockwise(zero_points: int, **changes: Any) -> Model:
    """Return a model with int4 weights [4, 6] in blocks of 3; the scales are in another tensor."""
    m = Build()
    m.constant(np.arange(8, dtype=np.float16).reshape(4, 2), name="scales")
    m.constant(np.arange(8, dtype=np.int32).reshape(4, 2) - 4, name="zero points")
    m.constant(np.arange(24).reshape(4, 6) % 8, dtype="int4", name="weights")
    m.tensor([4, 2], name="empty")
    details = {"scales": 0, "zeroPoints": zero_points, "blockSize": 3} | changes
    weights = m.model().subgraphs[0].tensors[2]
    weights.quantization = schema.QuantizationParametersT(
        detailsType=schema.QuantizationDetails.BlockwiseQuantization,
        details=schema.BlockwiseQuantizationT(**details),
    )
    return read_model(m.bytes())


@pytest.mark.parametrize("zero_points", [-1, 1])
def test_scales_have_the_shape_of_the_blocks(zero_points: int) -> None:
    """The scales have the shape of the blocks along the last axis."""
    q = blockwise(zero_points).graphs[0].tensors[2].quantization
    assert q is not None
    assert q.scale.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert (q.scale.dtype.name, q.axis, q.block_size) == ("float32", 1, 3)
    zeros = np.arange(8).reshape(4, 2) - 4 if zero_points > 0 else np.zeros((4, 2))
    np.testing.assert_array_equal(q.zero_point, zeros)
    assert q.zero_point.dtype == np.int64


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"blockSize": 0}, "the block size 0"),
        ({"blockSize": 4}, "the block size 4"),
        ({"scales": 3}, "must be constant numbers"),
        ({"scales": 17}, "must be below 4, got 17"),
        ({"blockSize": 2}, "it must have 12 elements in the file, got 8"),
    ],
)
def test_refuses_blocks_of_wrong_sizes(changes: dict[str, int], reason: str) -> None:
    """Scales and zero points that do not fit the tensor are errors."""
    with pytest.raises(ModelFileError, match=reason):
        blockwise(-1, **changes)


def test_refuses_scales_along_several_axes() -> None:
    """Scales along several axes are refused: the schema allows them, but no kernel reads them."""
    details = schema.MultiAxisQuantizationT(quantizedDimensions=[0, 1])
    kind = schema.QuantizationDetails.MultiAxisQuantization
    fields = schema.QuantizationParametersT(detailsType=kind, details=details)
    with pytest.raises(ModelFileError, match="along one axis"):
        constant(int8([1]), quantization=fields)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"scale": [1.0, 2.0], "zeroPoint": [1, 2, 3]},
            "it must have 1 or 2 zero points, got 3",
        ),
        ({"scale": [1.0, 2.0]}, r"axis 0 of \[1, 2\], got 2"),
        ({"scale": [1.0, 2.0], "quantizedDimension": 2}, r"axis 2 of .*, got 2"),
        ({"scale": [1.0, 2.0], "quantizedDimension": -1}, r"axis -1 of .*, got 2"),
        ({"scale": [np.nan]}, "scales must be finite and not negative"),
        ({"scale": [1.0], "zeroPoint": [128]}, "fit into int8"),
        ({"scale": [1.0], "zeroPoint": [-129]}, "fit into int8"),
    ],
)
def test_refuses_quantizations_of_wrong_sizes_or_types(fields: dict[str, Any], reason: str) -> None:
    """Quantizations that do not fit the shape or the type of the tensor are errors."""
    numbers = {"scale": np.float32, "zeroPoint": np.int64}
    arrays = {k: numbers[k](v) if k in numbers else v for k, v in fields.items()}
    # The message is at the start, not in that of another error.
    with pytest.raises(ModelFileError, match=f"^the TFLite model is damaged: .*0: .*{reason}"):
        constant(int8([[1, 2]]), quantization=schema.QuantizationParametersT(**arrays))


@pytest.mark.parametrize("axis", [0, 3, -1])
def test_a_bias_has_one_axis(axis: int) -> None:
    """A bias has scales along axis 0, whatever the file declares; LiteRT refuses the file."""
    scales = np.array([0.5, 0.25], np.float32)
    said = schema.QuantizationParametersT(scale=scales, quantizedDimension=axis)
    quantization = constant(int8([1, 2]), quantization=said).quantization
    assert quantization is not None
    assert quantization.axis == 0
    np.testing.assert_array_equal(quantization.scale, scales)
