"""EMBEDDING_LOOKUP, EMBEDDING_LOOKUP_SPARSE and KmeansEmbeddingLookup.

LiteRT has no kernel for KmeansEmbeddingLookup, so numpy is its reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from tests.op.ports import check_outputs, folds
from tests.references import check_reference
from tests.support import Build, Tensor
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

Array = np.ndarray[Any, Any]

TYPES = (
    "float32",
    "float16",
    "float64",
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
)
LIMITS = {"int8": (-127, 127), "uint8": (0, 255), "int4": (-7, 7), "int2": (-2, 1)}
ROWS, IDS = 11, [10, 0, 3, 3, 7]


def table(dtype: str, *shape: int) -> np.ndarray[Any, Any]:
    carrier = np.uint8 if dtype == "uint8" else np.int8
    low, high = LIMITS[dtype]
    return np.random.default_rng(0).integers(low, high, (ROWS, *shape), carrier, endpoint=True)


def add_lookup(m: Build, rows: Tensor, dtype: str | None = None) -> Tensor:
    ids = m.input([len(IDS)], dtype="int32")
    made = [len(IDS), *rows.shape[1:]]
    return m.op("EMBEDDING_LOOKUP", [ids, rows], [made], dtype=dtype)[0]


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("shape", [(3,), (3, 5), (2, 3, 5)], ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_rows_of_every_type_equal_litert(
    dtype: str, shape: tuple[int, ...], *, constant: bool
) -> None:
    m = Build()
    values = np.arange(ROWS * np.prod(shape)).reshape(ROWS, *shape).astype(dtype)
    rows = m.constant(values) if constant else m.input(values.shape, dtype=dtype)
    given = [np.array(IDS, np.int32)]
    check_outputs(m, add_lookup(m, rows), inputs=given if constant else [values, *given])


def test_rows_of_stored_integers_are_one_gather() -> None:
    m = Build()
    rows = m.constant(table("int8", 3), scale=0.5, zero_point=0)
    ids = m.input([len(IDS)], dtype="int32")
    (y,) = m.op("EMBEDDING_LOOKUP", [ids, rows], [[len(IDS), 3]])
    result = check_outputs(m, y, inputs=[np.array(IDS, np.int32)])
    assert [node.op_type for node in result.model.graph.node] == ["Gather"]


@pytest.mark.parametrize("made", ["float32", "float16"])
@pytest.mark.parametrize("by_row", [False, True])
@pytest.mark.parametrize("shape", [(8,), (3, 4)], ids=str)
@pytest.mark.parametrize("dtype", LIMITS)
def test_integer_rows_are_dequantized(
    dtype: str, shape: tuple[int, ...], made: str, *, by_row: bool
) -> None:
    m = Build()
    scale = np.linspace(0.1, 0.7, ROWS, dtype=np.float32) if by_row else 0.3
    rows = m.constant(table(dtype, *shape), dtype=dtype, scale=scale, zero_point=0)
    check_outputs(m, add_lookup(m, rows, made), inputs=[np.array(IDS, np.int32)])


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_computed_integer_rows_are_dequantized(dtype: str) -> None:
    m = Build()
    values = table(dtype, 3, 4)
    rows = m.input(values.shape, dtype=dtype, scale=0.3, zero_point=0)
    check_outputs(m, add_lookup(m, rows, "float32"), inputs=[values, np.array(IDS, np.int32)])


def blockwise(m: Build, dtype: str, *shape: int) -> Tensor:
    """Return a table with a scale for each block of four elements of a row."""
    blocks = np.linspace(0.1, 0.7, ROWS * 2).reshape(ROWS, 2).astype(np.float16)
    scales = m.constant(blocks)
    details = schema.BlockwiseQuantizationT(scales.index, -1, 4)
    quantization = schema.QuantizationParametersT(
        detailsType=schema.QuantizationDetails.BlockwiseQuantization, details=details
    )
    return m.constant(table(dtype, *shape), dtype=dtype, quantization=quantization)


@pytest.mark.parametrize("dtype", ["int4", "int2"])
def test_blocks_of_a_row_may_have_scales(dtype: str) -> None:
    m = Build()
    rows = blockwise(m, dtype, 8)
    check_outputs(m, add_lookup(m, rows, "float32"), inputs=[np.array(IDS, np.int32)])


def test_lookups_in_constants_fold() -> None:
    m = Build()
    rows = m.constant(np.arange(33, dtype=np.int32).reshape(ROWS, 3))
    folds(m, *m.op("EMBEDDING_LOOKUP", [m.constant(IDS), rows], [[len(IDS), 3]]))


def refusal(rows: Tensor, m: Build, ids: Any = None, dtype: str = "float32") -> str:
    index = m.input([2], dtype="int32") if ids is None else m.constant(ids)
    made = [2, *rows.shape[1:]]
    m.output(*m.op("EMBEDDING_LOOKUP", [index, rows], [made], dtype=dtype))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    return str(error.value)


def test_refuses_unsupported_rows_ids_and_scales() -> None:
    m = Build()
    assert "float32[rows, width, ...], got float32[3]" in refusal(m.input([3]), m)
    m = Build()
    assert "at least 0 and below [3]" in refusal(m.input([3, 5]), m, [0, 3])
    m = Build()
    assert "at least 0 and below [3]" in refusal(m.input([3, 5]), m, [0, -1])
    m = Build()
    assert "at least one row, got [0, 5]" in refusal(m.input([0, 5]), m)
    m = Build()
    assert "int32[2], got int64[2]" in refusal(m.input([3, 5]), m, np.array([0, 1]))
    m = Build()
    assert "int8, uint8, int4 or int2, got int32" in refusal(m.input([3, 5], dtype="int32"), m)
    m = Build()
    assert "float32 or float16, got int8" in refusal(m.constant(table("uint8", 5)), m, dtype="int8")
    m = Build()
    assert "must have a scale per tensor, per row" in refusal(m.constant(table("int8", 5)), m)
    m = Build()
    rows = m.constant(table("int8", 2), scale=[0.5, 0.25], axis=1)
    assert "must have a scale per tensor, per row" in refusal(rows, m)
    m = Build()
    assert "must have the zero point 0, got 1" in refusal(
        m.constant(table("int8", 2), scale=1, zero_point=1), m
    )
    m = Build()
    assert "must be constant, because it is int4" in refusal(
        m.input([3, 4], dtype="int4", scale=0.5), m
    )
    m = Build()
    assert "must have two axes if it has a scale per block, got 3" in refusal(blockwise3(m), m)


def blockwise3(m: Build) -> Tensor:
    blocks = np.ones((ROWS, 3, 1), np.float16)
    details = schema.BlockwiseQuantizationT(m.constant(blocks).index, -1, 4)
    quantization = schema.QuantizationParametersT(
        detailsType=schema.QuantizationDetails.BlockwiseQuantization, details=details
    )
    return m.constant(table("int4", 3, 4), dtype="int4", quantization=quantization)


def sparse(
    indices: Any, shape: list[int], row: list[int], combiner: str, rows: int | None = 7
) -> tuple[Build, Tensor, list[Any]]:
    m, generator = Build(), np.random.default_rng(0)
    count, table = len(indices), m.input([rows, *row])
    ids, weights = m.input([count], dtype="int32"), m.input([count])
    inputs = [ids, m.constant(np.array(indices, np.int32)), m.constant(shape), weights, table]
    made = [m.tensor([*shape[:-1], *row])]
    (y,) = m.op("EMBEDDING_LOOKUP_SPARSE", inputs, made, combiner=combiner)
    given = [
        generator.standard_normal((7, *row)).astype(np.float32),
        generator.integers(0, 7, count).astype(np.int32),
        generator.uniform(0.5, 2, count).astype(np.float32),
    ]
    return m, y, given


SPARSE = [
    ([[0, 0], [0, 1], [1, 0], [2, 3]], [3, 4], [5]),
    ([[0, 0], [3, 1], [3, 0]], [5, 2], [2, 3]),
    ([[0, 0, 0], [0, 1, 0], [0, 1, 5], [1, 2, 0]], [2, 3, 7], [5]),
    ([[0], [1], [2]], [3], [5]),
]


@pytest.mark.parametrize("combiner", ["SUM", "MEAN", "SQRTN"])
@pytest.mark.parametrize(("indices", "shape", "row"), SPARSE, ids=str)
def test_combined_rows_equal_litert(
    indices: list[list[int]], shape: list[int], row: list[int], combiner: str
) -> None:
    """Rows without ids are 0."""
    m, y, given = sparse(indices, shape, row, combiner)
    check_outputs(m, y, inputs=given)


def test_combined_rows_of_no_ids_are_0() -> None:
    m, y, given = sparse(np.empty((0, 2)), [3, 4], [5], "MEAN")
    check_outputs(m, y, inputs=given)


def test_combined_rows_of_a_table_of_any_number_of_rows_equal_litert() -> None:
    m, y, given = sparse(*SPARSE[0], "MEAN", rows=None)
    check_outputs(m, y, inputs=given)


def test_combined_rows_refuse_ids_after_the_last_row() -> None:
    m = Build()
    inputs = [m.constant([7]), m.constant([[0, 0]]), m.constant([3, 4]), m.input([1])]
    made = [m.tensor([3, 5])]
    m.output(*m.op("EMBEDDING_LOOKUP_SPARSE", [*inputs, m.input([7, 5])], made, combiner="SUM"))
    with pytest.raises(ConversionError, match=r"at least 0 and below \[7\]"):
        convert(m.bytes())


def test_combined_rows_refuse_unsupported_shapes() -> None:
    for indices, shape, row, reason in (
        ([[0, 0]], [3, 2, 2], [5], r"int32\[1, 3\], got int32\[1, 2\]"),
        ([[0, 0]], [3, -2], [5], "shape of the sparse tensor must be"),
        ([[0, 0]], [3, 2], [], r"float32\[rows, width, ...\], got"),
        ([[2, 2]], [3, 2], [5], r"at least 0 and below \[3, 2\]"),
        ([[1, 0], [0, 1], [1, 1]], [3, 2], [5], "must be sorted"),
    ):
        m, y, _ = sparse(indices, shape, row, "MEAN")
        m.output(y)
        with pytest.raises(ConversionError, match=reason):
            convert(m.bytes())


def build_kmeans_lookup(tokens: list[int], blocks: int, size: int) -> tuple[Build, list[Array]]:
    """Return a model of KmeansEmbeddingLookup, and its inputs."""
    rng = np.random.default_rng(0)
    encoding = rng.integers(0, 13, (ROWS, blocks), np.uint8)
    book = rng.uniform(-1, 1, (13, size)).astype(np.float32)
    m = Build()
    operands = [
        m.input([1, len(tokens)], dtype="int32"),
        m.constant(encoding),
        m.constant(book),
    ]
    made = m.tensor([1, blocks * size])
    m.output(*m.custom("KmeansEmbeddingLookup", operands, [made]))
    return m, [np.array([tokens], np.int32), encoding, book]


def mean_of_tokens(tokens: Array, encoding: Array, book: Array) -> Array:
    """Return the mean of the embeddings before the first 0, looked up token by token."""
    known: list[Array] = []
    for token in tokens[0]:
        if token == 0:
            break
        known.append(np.concatenate([book[code] for code in encoding[token]]))
    total = np.sum(known, axis=0) if known else np.zeros(encoding.shape[1] * book.shape[1])
    return np.asarray(total, np.float32)[None] / np.float32(max(len(known), 1))


SENTENCES = [[7, 3, 3, 10, 1], [7, 3, 0, 99, 2], [0, 3], [5]]


@pytest.mark.parametrize("tokens", SENTENCES, ids=str)
@pytest.mark.parametrize(("blocks", "size"), [(3, 5), (7, 1)])
def test_mean_of_tokens_ignores_padding(tokens: list[int], blocks: int, size: int) -> None:
    """Elements after the first 0 are padding, even if they are valid tokens."""
    m, (given, encoding, book) = build_kmeans_lookup(tokens, blocks, size)
    check_reference(m, [given], [mean_of_tokens(given, encoding, book)])


def test_mean_of_tokens_refuses_unsupported_shapes() -> None:
    for tokens, made, reason in (
        ([2, 3], [1, 10], "int32\\[1, 3\\], got int32\\[2, 3\\]"),
        ([3], [1, 10], r"must be int32\[1, tokens\], got"),
    ):
        m = Build()
        encoding, book = np.zeros((ROWS, 2), np.uint8), np.zeros((3, 5), np.float32)
        operands = [m.input(tokens, dtype="int32"), m.constant(encoding), m.constant(book)]
        m.output(*m.custom("KmeansEmbeddingLookup", operands, [m.tensor(made)]))
        with pytest.raises(ConversionError, match=reason):
            convert(m.bytes())


@pytest.mark.parametrize("in_blocks", [False, True])
def test_number_of_ids_may_be_dynamic(*, in_blocks: bool) -> None:
    m = Build()
    ids = m.input([None], dtype="int32")
    rows = blockwise(m, "int4", 8) if in_blocks else m.constant(np.ones((ROWS, 8), np.float32))
    (y,) = m.op("EMBEDDING_LOOKUP", [ids, rows], [m.tensor([None, 8])])
    result = check_outputs(m, y, inputs=[np.array(IDS, np.int32)])
    assert [end.sizes for end in result.outputs] == [("batch", 8)]
