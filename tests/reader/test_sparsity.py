"""reader/sparsity.py: sparse constants in every storage, and damaged ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from tests.support import Build, check, random_inputs, run_onnx, sparsify
from tflite2onnx.convert import convert
from tflite2onnx.errors import ModelFileError
from tflite2onnx.passes.simplify import densify_constants
from tflite2onnx.reader.model import read_model
from tflite2onnx.reader.sparsity import count_distinct_bytes, densify_all
from tflite2onnx.tensor import DType, SparseAxis, Sparsity, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Array = np.ndarray[Any, Any]


def mostly_zeros(shape: Sequence[int], dtype: str, seed: int, *, kept: float = 0.3) -> Array:
    generator = np.random.default_rng(seed)
    values = generator.integers(1, 100, shape).astype(dtype)
    return np.where(generator.random(shape) < kept, values, np.zeros((), dtype))


def read_sparse(dense: Array, formats: Sequence[str], **form: Any) -> Tensor:
    """Return a sparse tensor as read from the file."""
    values, sparsity = sparsify(dense, formats, **form)
    m = Build()
    m.output(m.constant(values, shape=dense.shape, sparsity=sparsity))
    return read_model(m.bytes()).graphs[0].tensors[0]


@st.composite
def forms(draw: st.DrawFn) -> tuple[Array, list[str], dict[str, Any]]:
    """Return an array, and a way to store it: block sizes, and levels in any order."""
    rank = draw(st.integers(1, 4))
    blocks: dict[int, int] = draw(st.dictionaries(st.integers(0, rank - 1), st.integers(1, 3)))
    shape = [draw(st.integers(1, 4)) * blocks.get(axis, 1) for axis in range(rank)]
    outer = [draw(st.sampled_from(["dense", "csr"])) for _ in range(rank)]
    formats = [*outer, *("dense" for _ in blocks)]
    order: list[int] = draw(st.permutations(range(len(formats))))
    dtype: str = draw(st.sampled_from(["float32", "float16", "int8"]))
    dense = mostly_zeros(shape, dtype, draw(st.integers(0, 9)))
    # The number of segments must fit the index type.
    index_types = ["int32", "uint16", *(["uint8"] if dense.size <= 255 else [])]
    index_type = draw(st.sampled_from(index_types))
    form = {"blocks": blocks, "traversal": order, "index_type": index_type}
    return dense, [formats[level] for level in order], form


@given(forms())
def test_every_form_is_made_dense(form: tuple[Array, list[str], dict[str, Any]]) -> None:
    dense, formats, options = form
    assume(dense.any())  # otherwise there are no elements to store
    (made,) = densify_all([read_sparse(dense, formats, **options)])
    np.testing.assert_array_equal(made, dense)
    assert made.dtype == dense.dtype


# Formats of the levels of a matrix, and block sizes.
MATRICES: list[tuple[list[str], dict[int, int]]] = [
    (["csr", "csr"], {}),
    (["dense", "csr"], {}),
    (["csr", "dense"], {}),
    (["dense", "csr", "dense"], {1: 4}),
    (["dense", "csr", "dense", "dense"], {0: 2, 1: 4}),
]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize(("formats", "blocks"), MATRICES)
def test_densify_equals_litert(formats: list[str], blocks: dict[int, int], dtype: str) -> None:
    """LiteRT's DENSIFY computes the elements that the reader expands."""
    dense = mostly_zeros([6, 8], dtype, 0)
    values, sparsity = sparsify(dense, formats, blocks=blocks)
    m = Build()
    fields: Any = {"scale": 0.5, "zero_point": 3} if dtype == "int8" else {}
    constant = m.constant(values, shape=dense.shape, sparsity=sparsity, **fields)
    (y,) = m.op("DENSIFY", [constant], [dense.shape])
    if dtype != "float32":
        (y,) = m.op("DEQUANTIZE", [y], [dense.shape], dtype="float32")
    (y,) = m.op("ADD", [m.input(dense.shape), y], [dense.shape])
    m.output(y)
    result = check(m.bytes())
    assert "DENSIFY" not in {node.op_type for node in result.model.graph.node}


@pytest.mark.parametrize(
    ("formats", "blocks"), [(["dense", "csr"], {}), (["dense", "csr", "dense"], {1: 4})]
)
def test_products_read_sparse_weights_directly(formats: list[str], blocks: dict[int, int]) -> None:
    """FULLY_CONNECTED reads sparse weights without DENSIFY."""
    dense = mostly_zeros([12, 16], "float32", 1)
    values, sparsity = sparsify(dense, formats, blocks=blocks)
    m = Build()
    weights = m.constant(values, shape=dense.shape, sparsity=sparsity)
    bias = m.constant(np.arange(12, dtype=np.float32))
    m.output(*m.op("FULLY_CONNECTED", [m.input([3, 16]), weights, bias], [[3, 12]]))
    assert {node.op_type for node in check(m.bytes()).model.graph.node} == {"Gemm"}


def compressed_axis(segments: Sequence[int], indices: Sequence[int]) -> SparseAxis:
    return SparseAxis(0, np.array(segments, np.int32), np.array(indices, np.int32))


# [[0, 5, 0], [7, 0, 9]], row by row.
ROWS = (SparseAxis(2), compressed_axis([0, 1, 3], [1, 0, 2]))
WHOLE = Tensor(
    "w", (2, 3), DType.FLOAT32, np.array([5, 7, 9], np.float32), sparsity=Sparsity((0, 1), (), ROWS)
)


def test_undamaged_tensor_is_made_dense() -> None:
    (made,) = densify_all([WHOLE])
    np.testing.assert_array_equal(made, [[0, 5, 0], [7, 0, 9]])


@pytest.mark.parametrize(
    ("order", "block_map", "axes", "reason"),
    [
        ((0,), (), ROWS, "must list each axis and each block once"),
        ((0, 0), (), ROWS, "must list each axis and each block once"),
        ((0, 2), (), ROWS, "must list each axis and each block once"),
        ((0, 1), (), ROWS[:1], "must list each axis and each block once"),
        ((0, 1), (1,), ROWS, "must list each axis and each block once"),
        ((0, 1, 2), (2,), (*ROWS, SparseAxis(1)), "block sizes must divide its axes"),
        ((0, 1, 2), (-1,), (*ROWS, SparseAxis(1)), "block sizes must divide its axes"),
        ((0, 1, 2), (1,), (*ROWS, SparseAxis(2)), "block sizes must divide its axes"),
        ((0, 1, 2), (1,), (*ROWS, SparseAxis(0)), "block sizes must divide its axes"),
        ((0, 1, 2), (1,), (*ROWS, SparseAxis(-3)), "block sizes must divide its axes"),
        ((0, 1, 2, 3), (1, 1), (*ROWS, *[SparseAxis(1)] * 2), "block sizes must divide its axes"),
        ((0, 1), (), (SparseAxis(3), ROWS[1]), "a dense level must have the size .*, got 3"),
        ((0, 1), (), (SparseAxis(2), SparseAxis(3)), "must have at most 3 positions, got 6"),
        (
            (1, 0),
            (),
            (compressed_axis([0, 0], []), SparseAxis(1 << 40)),
            "a dense level must have the size",
        ),
        (
            (0, 1),
            (),
            (ROWS[0], compressed_axis([0, 3], [1, 0, 2])),
            "ascending numbers from 0, got 2",
        ),
        ((0, 1), (), (ROWS[0], compressed_axis([], [1, 0, 2])), "from 0, got 0 numbers"),
        ((0, 1), (), (ROWS[0], compressed_axis([1, 1, 3], [1, 0, 2])), "from 0, got 3 numbers"),
        ((0, 1), (), (ROWS[0], compressed_axis([0, 4, 3], [1, 0, 2])), "from 0, got 3 numbers"),
        ((0, 1), (), (ROWS[0], compressed_axis([0, 1, 2], [1, 0, 2])), "indices must be"),
        ((0, 1), (), (ROWS[0], compressed_axis([0, 1, 3], [1, 0, 3])), "indices must be"),
        ((0, 1), (), (ROWS[0], compressed_axis([0, 1, 3], [1, -1, 2])), "indices must be"),
        ((0, 1), (), (ROWS[0], compressed_axis([0, 1, 2], [1, 0])), "it must have 2 values, got 3"),
    ],
)
def test_refuses_wrong_axes_and_blocks(order: Any, block_map: Any, axes: Any, reason: str) -> None:
    damaged = replace(WHOLE, sparsity=Sparsity(order, block_map, axes))
    with pytest.raises(ModelFileError, match=f"the sparse tensor w is damaged: .*{reason}"):
        densify_all([damaged])


def test_refuses_values_in_a_tensor_of_size_0() -> None:
    """A tensor of size 0 must not have values, however long its other axes are."""
    empty = replace(WHOLE, shape=(0, 1 << 40, 1 << 40))
    with pytest.raises(ModelFileError, match="it must not have values"):
        densify_all([empty])


def test_sparse_outputs_of_a_graph_become_dense() -> None:
    dense = np.where(np.arange(32).reshape(4, 8) % 3, 0, 1.5).astype(np.float32)
    values, sparsity = sparsify(dense, ["dense", "csr"])
    m = Build()
    sparse = m.constant(values, shape=[4, 8], sparsity=sparsity)
    m.output(*m.op("ABS", [m.input([3])], [[3]]), sparse)
    (graph,) = densify_constants(read_model(m.bytes())).graphs
    np.testing.assert_array_equal(graph.outputs[1].values, dense)


def add_constants(m: Build, make: Callable[[Array], Any]) -> list[Any]:
    """Add a sum of two constants, which is computed before shapes are known."""
    numbers = mostly_zeros([6, 8], "float32", 0)
    (both,) = m.op("ADD", [make(numbers), make(numbers[1:2])], [[6, 8]])
    return [*m.op("ADD", [both, m.input([6, 8])], [[6, 8]])]


def add_shapes(m: Build, make: Callable[[Array], Any]) -> list[Any]:
    """Add operators whose shapes, indices and paddings are constants."""
    x = m.input([2, 6])
    (turned,) = m.op("RESHAPE", [x, make(np.array([3, 4], np.int32))], [[3, 4]])
    (padded,) = m.op("PAD", [turned, make(np.array([[0, 2], [0, 1]], np.int32))], [[5, 5]])
    (rows,) = m.op("GATHER", [padded, make(np.array([0, 4, 0], np.int32))], [[3, 5]])
    return [turned, padded, rows]


def look_up(m: Build, make: Callable[[Array], Any]) -> list[Any]:
    """Add a lookup in a table of constants."""
    table = m.op("HASHTABLE", [], [[1]], dtype="resource", table_id=1, key_dtype="INT64",
                 value_dtype="STRING")[0]  # fmt: skip
    words = [m.constant(np.array(text, object)) for text in (["a", "b", "c"], ["none"])]
    m.op("HASHTABLE_IMPORT", [table, make(np.array([4, 0, 9])), words[0]], [])
    key = m.constant(np.array([9, 5]))
    found = m.op("HASHTABLE_FIND", [table, key, words[1]], [[2]], dtype="string")
    return [*found, *m.op("ABS", [m.input([2])], [[2]])]


def double(m: Build, make: Callable[[Array], Any]) -> list[Any]:
    """Add DENSIFY, with a shape that the file declares wrongly."""
    (dense,) = m.op("DENSIFY", [make(mostly_zeros([6, 8], "float32", 1))], [[8, 6]])
    return [*m.op("ADD", [dense, m.input([6, 8])], [[6, 8]])]


@pytest.mark.parametrize("quantization", ["qdq", "float", "symmetric"])
@pytest.mark.parametrize("add", [add_constants, add_shapes, look_up, double])
def test_every_operator_reads_dense_constants(
    add: Callable[[Build, Callable[[Array], Any]], list[Any]], quantization: Any
) -> None:
    """Operators give the same numbers for a sparse constant and for its dense form."""

    def convert_model(*, sparse: bool) -> Any:
        m = Build()

        def make(dense: Array) -> Any:
            if not sparse:
                return m.constant(dense)
            values, sparsity = sparsify(dense, ["dense"] * (dense.ndim - 1) + ["csr"])
            return m.constant(values, shape=[*dense.shape], sparsity=sparsity)

        m.output(*add(m, make))
        model = m.bytes()
        return convert(model, quantization=quantization), random_inputs(model, 0)

    (want, inputs), (have, _) = (convert_model(sparse=sparse) for sparse in (False, True))
    feeds = dict(zip([port.name for port in want.inputs], inputs, strict=True))
    for one, other in zip(run_onnx(want.model, feeds), run_onnx(have.model, feeds), strict=True):
        np.testing.assert_array_equal(one, other)


def test_refuses_a_tensor_that_is_not_sparse() -> None:
    with pytest.raises(ModelFileError, match="w must be sparse"):
        densify_all([replace(WHOLE, sparsity=None)])


def test_a_small_file_cannot_fill_the_memory() -> None:
    """A small file cannot declare large sparse tensors, one or many."""
    wide = replace(WHOLE, shape=(2, 1 << 30))
    with pytest.raises(ModelFileError, match="too large to be made dense"):
        densify_all([wide])
    many = [replace(WHOLE, shape=(2, 1 << 19)) for _ in range(10)]
    densify_all(many[:1])
    with pytest.raises(ModelFileError, match="too large to be made dense"):
        densify_all(many)


def test_most_rows_may_be_without_values() -> None:
    """Most rows of a sparse constant may be empty."""
    dense = np.zeros((50, 3), np.float32)
    dense[33, 1] = 1
    (made,) = densify_all([read_sparse(dense, ["dense", "csr"])])
    np.testing.assert_array_equal(made, dense)


def test_constant_with_1_percent_of_values_is_expanded() -> None:
    dense = np.zeros((2400, 2400), np.float32)
    dense.reshape(-1)[::100] = 1
    rows, columns = np.nonzero(dense)
    ends = np.searchsorted(rows, np.arange(2401))
    axes = (SparseAxis(2400), SparseAxis(0, ends, columns))
    values = np.ones(len(rows), np.float32)
    (made,) = densify_all(
        [Tensor("w", dense.shape, DType.FLOAT32, values, sparsity=Sparsity((0, 1), (), axes))]
    )
    np.testing.assert_array_equal(made, dense)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=6))
def test_shared_memory_is_counted_once(ranges: list[tuple[int, int]]) -> None:
    memory = np.zeros(80, np.uint8)
    arrays = [memory[start : start + size] for start, size in ranges]
    counted = {place for start, size in ranges for place in range(start, start + size)}
    assert count_distinct_bytes(arrays) == len(counted)
