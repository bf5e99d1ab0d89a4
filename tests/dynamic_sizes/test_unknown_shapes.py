"""Ranks that the file does not know, shapes of any element type, and sizes of 0, against LiteRT."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conformance.declared_shapes import DECLARATIONS, declare_shapes
from tests.dynamic_sizes import test_functions, test_networks
from tests.dynamic_sizes.test_networks import compare_sizes
from tests.support import Build, Tensor, check
from tests.support.runtimes import Array
from tests.support.streams import assign, handle, initialise, read_variable
from tflite2onnx import convert, verify
from tflite2onnx.cli import main
from tflite2onnx.inspection import inspect
from tflite2onnx.reader.model import read_model

UNKNOWN = None  # rank


def draw(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def unranked_input(m: Build, name: str = "x") -> Tensor:
    """Return an input whose number of axes the file does not know."""
    return m.input(UNKNOWN, name=name)


# Ranks


def test_tensor_of_unknown_rank_is_recognized() -> None:
    m = Build()
    x = m.input([], name="x")
    m.output(*m.op("ABS", [x], [m.tensor(UNKNOWN, name="y")]))
    graph = read_model(m.bytes()).graphs[0]
    assert [(t.name, t.is_unranked) for t in graph.tensors] == [("x", False), ("y", True)]


def test_file_without_rank_fields_has_only_known_ranks() -> None:
    """Files of before 2021 have no field for the rank: all declared ranks are believed."""
    m = Build()
    m.output(*m.op("ABS", [unranked_input(m)], [m.tensor(UNKNOWN)]))
    assert not any(t.is_unranked for t in read_model(m.bytes()).graphs[0].tensors)


@pytest.mark.parametrize("axes", [[0, 2], [-1, 1], [1, 0]])
def test_sum_over_computed_axes_of_unknown_rank_equals_litert(axes: list[int]) -> None:
    """Each axis is taken to be listed once."""
    m = Build()
    x, over = m.input([None, None, None]), m.input([2], dtype="int32")
    (y,) = m.op("SUM", [x, over], [m.tensor(UNKNOWN)], keep_dims=False)
    m.output(*m.op("NEG", [y], [m.tensor(UNKNOWN)]))
    result = convert(m.bytes())
    numbers = np.array(axes, np.int32)
    cases = [[draw(*shape), numbers] for shape in ((2, 3, 4), (5, 1, 2), (1, 6, 3))]
    compare_sizes(m.bytes(), result, cases)


def test_unknown_number_of_axes_fixes_all_sizes_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """All sizes stay as in the file, and a warning says so."""
    m = Build()
    x, over = m.input([None, None]), m.input([None], dtype="int32")
    m.output(*m.op("SUM", [x, over], [m.tensor(UNKNOWN)], keep_dims=False))
    with caplog.at_level(logging.WARNING):
        result = convert(m.bytes())
    assert "3 axes of inputs are fixed as in the file" in caplog.text
    assert (
        "because SUM (operator 0, tensor_2): the number of axes of tensor_2 must be known"
        in caplog.text
    )
    compare_sizes(m.bytes(), result, [[draw(1, 1), np.array([1], np.int32)]])


@pytest.mark.parametrize("shape", [[2, 3], [4]])
def test_variables_of_unknown_rank_have_the_initial_shape(shape: list[int]) -> None:
    m = Build()
    x = m.input(shape)
    initialise(m, memory=draw(*shape))
    memory = handle(m, "memory")
    old = read_variable(m, memory, UNKNOWN)
    (y,) = m.op("ADD", [old, x], [m.tensor(UNKNOWN)])
    assign(m, memory, y)
    m.output(*m.op("ABS", [y], [m.tensor(UNKNOWN)]))
    result = convert(m.bytes())
    assert [state.input.tflite_sizes for state in result.states] == [tuple(shape)]
    assert verify(m.bytes(), result).ok


def sum_last(m: Build) -> None:
    (y,) = m.op("ABS", [unranked_input(m)], [m.tensor(UNKNOWN)])
    options: dict[str, Any] = {"keep_dims": True}
    m.output(
        y, *m.op("SUM", [y, m.constant(np.array([-1], np.int32))], [m.tensor(UNKNOWN)], **options)
    )


@pytest.mark.parametrize("sizes", [["n"], ["n", 3], [2, "h", "w", 3]], ids=len)
def test_inputs_of_unknown_rank_take_the_given_shape(
    sizes: list[int | str], caplog: pytest.LogCaptureFixture
) -> None:
    """The user says how many axes there are, and verification resizes the input so."""
    m = Build()
    sum_last(m)
    with caplog.at_level(logging.WARNING):
        result = convert(m.bytes(), shapes={"x": sizes})
    assert not caplog.records
    assert result.inputs[0].tflite_sizes == tuple(sizes)
    report = verify(m.bytes(), result)
    assert report.ok
    assert len(report.other_sizes or ()) == 2


def test_inputs_of_unknown_rank_are_scalars_by_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """LiteRT takes inputs without a rank for scalars; a warning names the option `--shape`."""
    m = Build()
    m.output(*m.op("ADD", [unranked_input(m), m.constant(draw(2))], [[2]]))
    path = tmp_path / "model.tflite"
    path.write_bytes(m.bytes())
    assert main([str(path), "--verify"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "x is converted as a scalar because the file does not know how many axes" in line
    assert line.endswith("for more give --shape x=SIZE,...")
    assert not inspect(path).subgraphs[0].inputs[0].has_rank
    assert main(["inspect", str(path)]) == 0
    assert "x         float32[...]" in capsys.readouterr().out


# Networks


def declare(path: Path, declaration: str) -> bytes:
    return declare_shapes(path.read_bytes(), DECLARATIONS[declaration])


@pytest.mark.parametrize("name", test_networks.SIZES)
@pytest.mark.parametrize("declaration", ["unknown rank", "dynamic"])
def test_networks_of_undeclared_shapes_equal_litert(name: str, declaration: str) -> None:
    """No computed tensor has a declared shape, as in files of TensorFlow 1.

    LiteRT itself returns NaN for a transformer without declared shapes and a sequence of one
    word.
    """
    data = declare(test_networks.MODELS / f"{name}.tflite", declaration)
    shapes = [s for s in test_networks.SIZES[name] if (name, s) != ("transformer", (1, 1))]
    cases = [[test_networks.draw_input(name, shape)] for shape in shapes]
    compare_sizes(data, convert(data), cases)


@pytest.mark.parametrize("name", test_functions.CASES)
@pytest.mark.parametrize("declaration", DECLARATIONS)
def test_functions_of_undeclared_shapes_equal_litert(name: str, declaration: str) -> None:
    data = declare(test_functions.MODELS / f"{name}.tflite", declaration)
    compare_sizes(data, convert(data), test_functions.CASES[name])


def test_partly_known_shape_keeps_its_known_size() -> None:
    """MAXIMUM of a size and 0 is known at run time only; the other size is 1 and broadcasts."""
    m = Build()
    x = m.input([None], name="x")
    (shape,) = m.op("SHAPE", [x], [[1]], dtype="int32", out_type="int32")
    zero, three = (m.constant(np.array([n], np.int32)) for n in (0, 3))
    (less,) = m.op("SUB", [shape, three], [[1]], dtype="int32")
    (count,) = m.op("MAXIMUM", [less, zero], [[1]], dtype="int32")
    one = m.constant(np.array([1], np.int32))
    (sizes,) = m.op("CONCATENATION", [count, one], [[2]], axis=0, dtype="int32")
    (column,) = m.op("FILL", [sizes, m.constant(np.float32(2))], [m.tensor([1, 1])])
    m.output(*m.op("ADD", [column, m.constant(draw(1, 5))], [m.tensor([1, 1])]))
    result = convert(m.bytes())
    assert result.outputs[0].sizes[1] == 5
    compare_sizes(m.bytes(), result, [[draw(n)] for n in (4, 9, 6)])


# Element types of shapes


def add_shape(m: Build, dtype: str, *, constant: bool) -> Tensor:
    """Return the shape [6, 4] as a tensor of a type."""
    if not constant:
        return m.input([2], dtype=dtype)
    return m.constant(["6", "4"] if dtype == "string" else np.array([6, 4], dtype))


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("dtype", ["int64", "int16", "float32", "string"])
def test_reshape_reads_the_option_for_shapes_not_int32(dtype: str, *, constant: bool) -> None:
    """The kernel reads a shape of int32; for any other type it reads the option."""
    m = Build()
    shape = add_shape(m, dtype, constant=constant)
    m.output(*m.op("RESHAPE", [m.input([2, 3, 4]), shape], [[4, 6]], new_shape=[4, -1]))
    result = check(m.bytes(), random_layouts=())
    assert result.outputs[0].tflite_shape == (4, 6)


def test_reshape_reads_the_option_for_shapes_of_two_axes() -> None:
    m = Build()
    shape = m.constant(np.array([[6, 4]], np.int32))
    m.output(*m.op("RESHAPE", [m.input([2, 3, 4]), shape], [[4, 6]], new_shape=[4, 6]))
    check(m.bytes())


def test_int64_shape_is_read_if_there_is_no_option() -> None:
    """LiteRT refuses it; other converters' models have it."""
    m = Build()
    shape = m.constant(np.array([6, -1], np.int64))
    m.output(*m.op("RESHAPE", [m.input([2, 3, 4]), shape], [[6, 4]]))
    assert convert(m.bytes()).outputs[0].tflite_shape == (6, 4)


Network = Callable[[Build, Tensor, Tensor], Tensor]
SHAPES: dict[str, tuple[Network, list[int]]] = {
    "BROADCAST_TO": (
        lambda m, x, s: m.op("BROADCAST_TO", [x, s], [m.tensor([None] * 3)])[0],
        [5, 2, 3],
    ),
    "FILL": (
        lambda m, _, s: m.op("FILL", [s, m.constant(np.float32(2))], [m.tensor([None] * 3)])[0],
        [4, 1, 2],
    ),
    "TILE": (lambda m, x, s: m.op("TILE", [x, s], [m.tensor([None] * 2)])[0], [3, 2]),
    "SLICE": (
        lambda m, x, s: m.op(
            "SLICE", [x, m.constant(np.array([0, 1], np.int64)), s], [m.tensor([None] * 2)]
        )[0],
        [-1, 2],
    ),
}


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("code", SHAPES)
def test_int64_shapes_equal_litert_at_all_sizes(code: str, *, constant: bool) -> None:
    network, numbers = SHAPES[code]
    given = np.array(numbers, np.int64)
    m = Build()
    x = m.input([None, None])
    shape = m.constant(given) if constant else m.input([len(numbers)], dtype="int64")
    m.output(m.op("ABS", [x], [m.tensor([None, None])])[0], network(m, x, shape))
    sizes = ((2, 3), (1, 3), (2, 3)) if code == "BROADCAST_TO" else ((2, 3), (5, 4), (1, 7))
    cases = [[draw(*each), *([] if constant else [given])] for each in sizes]
    compare_sizes(m.bytes(), convert(m.bytes()), cases)


@pytest.mark.parametrize("dtype", ["string", "float32"])
def test_strings_are_reshaped_at_sizes_that_include_0(dtype: str) -> None:
    """Elements in one row, and again in the shape that SHAPE computes, at sizes that include 0."""
    m = Build()
    x = m.input([None, None], dtype=dtype)
    (shape,) = m.op("SHAPE", [x], [[2]], dtype="int32", out_type="int32")
    flat = m.constant(np.array([-1], np.int32))
    (row,) = m.op("RESHAPE", [x, flat], [m.tensor([None], dtype=dtype)])
    m.output(*m.op("RESHAPE", [row, shape], [m.tensor([None, None], dtype=dtype)]))
    cases = [[draw(*sizes).astype(np.str_ if dtype == "string" else dtype)]
             for sizes in ((2, 3), (4, 1), (0, 3))]  # fmt: skip
    compare_sizes(m.bytes(), convert(m.bytes()), cases)


# Sizes that contradict the file


@pytest.mark.parametrize(
    ("shape", "cases"),
    [
        ([6, 4], ((2, 3, 4), (6, 2, 2), (24, 1, 1))),
        ([0, 4], ((0, 3, 4), (2, 0, 5), (1, 1, 0))),
    ],
    ids=str,
)
def test_shapes_with_more_elements_than_declared_equal_litert(
    shape: list[int], cases: Sequence[tuple[int, ...]], caplog: pytest.LogCaptureFixture
) -> None:
    """The file declares 1 for each dynamic size, and the new shape has another number."""
    m = Build()
    x = m.input([None, None, None])
    m.output(*m.op("RESHAPE", [x, m.constant(np.array(shape, np.int32))], [shape]))
    with caplog.at_level(logging.WARNING):
        result = convert(m.bytes())
    assert not caplog.records
    compare_sizes(m.bytes(), result, [[draw(*sizes)] for sizes in cases])


EMPTY: dict[str, Callable[[Build, Tensor], Sequence[Tensor]]] = {
    "CONCATENATION": lambda m, x: m.op("CONCATENATION", [x, x], [[0, 3]], axis=0),
    "GATHER": lambda m, x: m.op("GATHER", [x, m.constant(np.array([0, 2], np.int32))], [[0, 2]],
                                axis=1),
    "TRANSPOSE": lambda m, x: m.op("TRANSPOSE", [x, m.constant(np.array([1, 0], np.int32))],
                                   [[3, 0]]),
    "SUM": lambda m, x: m.op("SUM", [x, m.constant(np.array([0], np.int32))], [[3]]),
    "PAD": lambda m, x: m.op("PAD", [x, m.constant(np.array([[1, 0], [0, 2]], np.int32))],
                             [[1, 5]]),
    "EXPAND_DIMS": lambda m, x: m.op("EXPAND_DIMS", [x, m.constant(np.array(1, np.int32))],
                                     [[0, 1, 3]]),
}  # fmt: skip


@pytest.mark.parametrize("code", EMPTY)
def test_size_declared_as_0_stays_dynamic(code: str) -> None:
    """The size is dynamic, so the tensor is no empty constant."""
    m = Build()
    x = m.input([0, 3], shape_signature=[-1, 3])
    (y,) = m.op("ABS", [x], [m.tensor([0, 3], shape_signature=[-1, 3])])
    m.output(*EMPTY[code](m, y))
    cases = [[draw(rows, 3)] for rows in (4, 1, 2)]
    compare_sizes(m.bytes(), convert(m.bytes()), cases)
