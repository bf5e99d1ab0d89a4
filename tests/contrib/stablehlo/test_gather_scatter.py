"""STABLEHLO_GATHER and STABLEHLO_SCATTER."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.op.ports import add_input, check_outputs
from tests.support import Build, Tensor, run_onnx
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

Array = np.ndarray[Any, Any]
TYPES = (
    "float32",
    "float16",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
)


class Gathering(NamedTuple):
    """A gather: the shapes of data, indices and output, and the options."""

    shape: list[int]
    indices: list[int]
    made: list[int]
    slice_sizes: list[int]
    offset_dims: list[int]
    collapsed_slice_dims: list[int]
    start_index_map: list[int]
    index_vector_dim: int

    @property
    def options(self) -> dict[str, Any]:
        """The options of the operator."""
        return dict(list(self._asdict().items())[3:])


GATHERINGS = [
    Gathering([3, 4, 2], [2, 3, 2], [2, 3, 2, 2], [1, 2, 2], [2, 3], [0], [1, 0], 2),
    Gathering([7, 5], [3, 1], [3, 5], [1, 5], [1], [0], [0], 1),  # rows of a table
    Gathering([7, 5], [3, 1], [7, 3], [7, 1], [0], [1], [1], 1),
    Gathering([7, 5], [3, 2, 1], [3, 1, 2, 5], [1, 5], [1, 3], [], [0], 2),
    Gathering([7, 5], [2], [3, 2], [3, 2], [0, 1], [], [0, 1], 0),  # a slice
    Gathering([7, 5, 3], [2, 6], [3, 6, 2], [1, 3, 2], [0, 2], [0], [2, 0], 0),
    Gathering([7, 5, 3], [2, 1, 6], [2, 2, 6, 3], [2, 1, 3], [1, 3], [1], [1], 1),
    Gathering([7, 5, 3], [6, 3], [6], [1, 1, 1], [], [0, 1, 2], [2, 1, 0], 1),
    Gathering([7, 5, 3], [4, 0], [4, 2, 5, 3], [2, 5, 3], [1, 2, 3], [], [], 1),
    Gathering([2, 7, 5, 3], [4, 2], [2, 4, 3, 2], [2, 3, 1, 2], [0, 2, 3], [2], [2, 1], 1),
]


def random_indices(shape: list[int], dtype: str = "int32") -> Array:
    return np.random.default_rng(0).integers(-2, 7, shape).astype(dtype)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("case", GATHERINGS, ids=str)
def test_gathered_windows_are_moved_into_the_data(
    case: Gathering, dtype: str, *, constant: bool
) -> None:
    """Windows out of range are moved into the data."""
    m, indices = Build(), random_indices(case.indices, dtype)
    data = np.arange(np.prod(case.shape), dtype=np.float32).reshape(case.shape)
    x = m.input(case.shape)
    where = m.constant(indices) if constant else m.input(case.indices, dtype=dtype)
    if constant and not indices.size:
        return
    (y,) = m.op("STABLEHLO_GATHER", [x, where], [case.made], **case.options)
    check_outputs(m, y, inputs=[data] if constant else [data, indices])


def test_gather_indices_beyond_32_bits_are_exact() -> None:
    """Indices beyond 32 bits are exact, although ONNX Runtime's Max and Min compare 32 bits."""
    m, case = Build(), GATHERINGS[0]
    indices = np.resize([(1 << 32) - 1, 1 << 33, -(1 << 32), 1], case.indices)
    x, where = m.input(case.shape), m.input(case.indices, dtype="int64")
    (y,) = m.op("STABLEHLO_GATHER", [x, where], [case.made], **case.options)
    data = np.arange(np.prod(case.shape), dtype=np.float32).reshape(case.shape)
    check_outputs(m, y, inputs=[data, indices])


@pytest.mark.parametrize("dtype", TYPES)
def test_gather_of_every_type_equals_litert(dtype: str) -> None:
    m, case = Build(), GATHERINGS[0]
    where = m.constant(random_indices(case.indices))
    x = add_input(m, case.shape, dtype)
    check_outputs(m, *m.op("STABLEHLO_GATHER", [x, where], [case.made], **case.options))


def test_gather_of_rows_is_one_node() -> None:
    m, case = Build(), GATHERINGS[1]
    where = m.constant(random_indices(case.indices, "int64"))
    (y,) = m.op("STABLEHLO_GATHER", [m.input([7, 5]), where], [case.made], **case.options)
    assert [node.op_type for node in check_outputs(m, y).model.graph.node] == ["Gather"]


def test_gather_refuses_inconsistent_dimensions() -> None:
    m, good = Build(), GATHERINGS[0]
    x, where = m.input(good.shape), m.constant(random_indices(good.indices))

    def gather(**options: Any) -> None:
        every = {**good.options, **options}
        m.output(*m.op("STABLEHLO_GATHER", [x, where], [good.made], **every))

    gather(index_vector_dim=3)
    gather(slice_sizes=[1, 5, 2])
    gather(slice_sizes=[1, 2])
    gather(collapsed_slice_dims=[1])
    gather(start_index_map=[1, 1])
    gather(start_index_map=[0])
    gather(offset_dims=[3, 2])
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    reasons = str(error.value)
    for reason in (
        "must be from 0 to 2, got 3",
        "must be positive and fit into",
        "got [1, 2]",
        "axes of size 1",
        "start_index_map must be different axes from 0 to 2, got [1, 1]",
        "start_index_map must list 2 axes, one for each number of an index, got [0]",
        "in ascending order, got [3, 2]",
    ):
        assert reason in reasons


class Scattering(NamedTuple):
    """A scatter: the shapes of data, indices and updates, and the options."""

    shape: list[int]
    indices: list[int]
    updates: list[int]
    update_window_dims: list[int]
    inserted_window_dims: list[int]
    scatter_dims_to_operand_dims: list[int]
    index_vector_dim: int

    @property
    def options(self) -> dict[str, Any]:
        """The options of the operator."""
        return dict(list(self._asdict().items())[3:])


SCATTERINGS = [
    Scattering([3, 4, 2], [2, 3, 2], [2, 3, 2, 2], [2, 3], [0], [1, 0], 2),
    Scattering([7, 5], [3, 1], [3, 5], [1], [0], [0], 1),
    Scattering([7, 5], [3, 1], [7, 3], [0], [1], [1], 1),
    Scattering([7, 5], [2], [3, 2], [0, 1], [], [0, 1], 0),
    Scattering([7, 5], [3, 1], [3, 4], [1], [0], [0], 1),  # parts of rows
    Scattering([7, 5], [3, 1], [3, 6], [1], [0], [0], 1),  # rows, and more
    Scattering([7, 5, 3], [2, 6], [3, 6, 2], [0, 2], [0], [2, 0], 0),
    Scattering([7, 5, 3], [6, 3], [6], [], [0, 1, 2], [2, 1, 0], 1),
    Scattering([7, 5, 3], [2, 0], [2, 7, 5, 3], [1, 2, 3], [], [], 1),
    Scattering([2, 7, 5, 3], [4, 2], [2, 4, 3, 2], [0, 2, 3], [2], [2, 1], 1),
]
COMPUTATIONS = ["", "STABLEHLO_ADD", "STABLEHLO_MULTIPLY", "STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM"]


def add_scatter(
    m: Build, code: str, x: Tensor, where: Tensor, updates: Tensor, **options: Any
) -> Tensor:
    body = m.subgraph("body")
    a, b = (body.input([], dtype=x.dtype) for _ in range(2))
    body.output(*(body.op(code, [a, b], [[]]) if code else [b]))
    return m.op(
        "STABLEHLO_SCATTER",
        [x, where, updates],
        [x.shape],
        update_computation_subgraph_index=body.index,
        **options,
    )[0]


@pytest.mark.parametrize("code", ["STABLEHLO_ADD", "STABLEHLO_MAXIMUM", ""])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("case", SCATTERINGS, ids=str)
def test_scatter_drops_updates_out_of_range(case: Scattering, code: str, *, constant: bool) -> None:
    """Updates out of range are dropped."""
    m, indices = Build(), random_indices(case.indices)
    if not code:  # unique, because the order of updates is not defined
        flat = np.arange(indices.size) * 3 % 7
        indices = flat.reshape(indices.shape).astype(np.int32)
    if constant and not indices.size:
        return
    where = m.constant(indices) if constant else m.input(case.indices, dtype="int32")
    x, updates = m.input(case.shape), m.input(case.updates)
    y = add_scatter(m, code, x, where, updates, **case.options)
    generator = np.random.default_rng(1)
    given = [
        generator.standard_normal(each).astype(np.float32) for each in (case.shape, case.updates)
    ]
    inputs = given if constant else [indices, *given]
    check_outputs(m, y, inputs=inputs)


@pytest.mark.parametrize("code", COMPUTATIONS)
@pytest.mark.parametrize("dtype", TYPES)
def test_scatter_of_every_type_equals_litert(dtype: str, code: str) -> None:
    m, case = Build(), SCATTERINGS[1]
    where = m.constant(np.array([[2], [9], [2]] if code else [[2], [9], [0]], np.int64))
    x, updates = add_input(m, case.shape, dtype), add_input(m, case.updates, dtype)
    y = add_scatter(m, code, x, where, updates, **case.options)
    check_outputs(m, y, tolerance=1e-3 if dtype == "float16" else 1e-5)


@pytest.mark.parametrize("code", ["ADD", "MUL", "MAXIMUM", "MINIMUM"])
def test_builtin_computations_equal_those_of_stablehlo(code: str) -> None:
    """LiteRT runs no builtin operators here, which torch.scatter_add has."""
    data = [
        np.random.default_rng(0).standard_normal(s).astype(np.float32) for s in ([7, 5], [3, 5])
    ]
    results = []
    for computation in (code, {"MUL": "STABLEHLO_MULTIPLY"}.get(code, f"STABLEHLO_{code}")):
        m, case = Build(), SCATTERINGS[1]
        x, updates = m.input(case.shape, name="x"), m.input(case.updates, name="updates")
        where = m.constant(np.array([[2], [9], [2]], np.int64))
        m.output(add_scatter(m, computation, x, where, updates, **case.options))
        named = dict(zip(("x", "updates"), data, strict=True))
        results += run_onnx(convert(m.bytes()).model, named)
    np.testing.assert_array_equal(results[0], results[1])


def test_scatter_of_stored_integers_equals_litert() -> None:
    m, case = Build(), SCATTERINGS[1]
    x, updates = (
        m.input(s, dtype="int8", scale=0.5, zero_point=3) for s in (case.shape, case.updates)
    )
    where = m.constant(np.array([[2], [9], [0]], np.int64))
    check_outputs(m, add_scatter(m, "", x, where, updates, **case.options))


def test_scatter_without_updates_equals_litert() -> None:
    m, case = Build(), SCATTERINGS[1]
    x, where, updates = m.input([7, 5]), m.input([0, 1], dtype="int32"), m.input([0, 5])
    y = add_scatter(m, "STABLEHLO_ADD", x, where, updates, **case.options)
    check_outputs(m, *m.op("NEG", [y], [[7, 5]]))


def test_scatter_refuses_inconsistent_dimensions() -> None:
    m, good = Build(), SCATTERINGS[0]
    x, where = m.input(good.shape), m.constant(random_indices(good.indices))
    updates = m.input(good.updates)

    def scatter(code: str = "", new: Tensor = updates, **options: Any) -> None:
        m.output(add_scatter(m, code, x, where, new, **{**good.options, **options}))

    scatter("STABLEHLO_SUBTRACT")
    scatter(inserted_window_dims=[])
    scatter(update_window_dims=[2, 2])
    scatter(update_window_dims=[0, 1])
    scatter(scatter_dims_to_operand_dims=[3, 0])
    scatter(new=m.input(good.updates, dtype="int32"))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    reasons = str(error.value)
    for reason in (
        "got STABLEHLO_SUBTRACT",
        "must be 3 axes together, got 2 and 0",
        "must be different axes from 0 to 3, got [2, 2]",
        "batch axes of the indices, [2, 3], got [2, 2]",
        "must be different axes from 0 to 2, got [3, 0]",
        "tensor_8 must be float32, got int32",
    ):
        assert reason in reasons
