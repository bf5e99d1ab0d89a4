"""`check` reports every difference, and no false one."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support import Build, check, difference, run_onnx

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

    from tests.support.runtimes import Array

CONSTANT = np.random.default_rng(0).standard_normal((2, 3, 5)).astype(np.float32)


@dataclass
class Port:
    """An input or output as a converter describes it."""

    order: tuple[int, ...]


@dataclass
class Result:
    """The result of a converter."""

    model: onnx.ModelProto
    inputs: list[Port] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)


def addition(constant: Array, order: Sequence[int]) -> Result:
    """An Add of a constant, whose input and output are stored in an order."""
    shape = [(2, 3, 5)[axis] for axis in order]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    stored = onnx.numpy_helper.from_array(constant.transpose(order), "c")
    node = helper.make_node("Add", ["x", "c"], ["y"])
    graph = helper.make_graph([node], "g", ports[:1], ports[1:], [stored])
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    return Result(model, [Port(tuple(order))], [Port(tuple(order))])


def addition_in_tflite() -> bytes:
    """The same addition as a TFLite file."""
    m = Build()
    m.output(*m.op("ADD", [m.input([2, 3, 5]), m.constant(CONSTANT)], [[2, 3, 5]]))
    return m.bytes()


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 0, 1), (1, 2, 0)])
def test_check_permutes_inputs_and_outputs_by_order(order: tuple[int, ...]) -> None:
    """Inputs and outputs are permuted as the converter describes."""
    result = check(
        addition_in_tflite(), convert=lambda _, order: addition(CONSTANT, order), order=order
    )
    (y,) = run_onnx(result.model, {"x": CONSTANT.transpose(order)}, optimize=False)
    np.testing.assert_allclose(y, 2 * CONSTANT.transpose(order), rtol=1e-6)


def test_check_needs_no_order_if_axes_stay() -> None:
    """A converter that never permutes axes needs no `order`."""
    plain = SimpleNamespace(
        model=addition(CONSTANT, (0, 1, 2)).model, inputs=[None], outputs=[object()]
    )
    check(addition_in_tflite(), convert=lambda _: plain, inputs=[CONSTANT], optimize=[True])


def test_check_reports_position_and_run_of_a_wrong_value() -> None:
    """The message gives the position, the size and the run of the difference."""
    wrong = CONSTANT.copy()
    wrong[1, 2, 3] += 0.5
    message = r"seed 7, optimize=False: output 0 \(y\): 1 of 30 .* 0\.5\d* at \[1, 2, 3\]: LiteRT"
    with pytest.raises(AssertionError, match=message):
        check(
            addition_in_tflite(),
            seeds=[7],
            optimize=[False],
            convert=lambda _: addition(wrong, (2, 0, 1)),
        )


def test_check_reports_wrong_inputs_and_outputs() -> None:
    """An order of another rank, a missing output, and a wrong declared shape are reported."""
    result = addition(CONSTANT, (0, 1, 2))
    with pytest.raises(AssertionError, match="order"):
        check(addition_in_tflite(), convert=lambda _: Result(result.model, [Port((0,))]))
    with pytest.raises(AssertionError, match="must have 1 outputs, got 1 and 0"):
        check(addition_in_tflite(), convert=lambda _: Result(result.model, result.inputs))
    with pytest.raises(AssertionError, match="must have 1 inputs, got"):
        check(addition_in_tflite(), convert=lambda _: Result(result.model))


def test_check_reports_a_wrong_declared_shape() -> None:
    """A wrong output shape that shape inference cannot find is reported."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Reshape", ["x", "s"], ["y"]),
    ]
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", ["n"]), ("y", [7]))
    ]
    opset = [helper.make_opsetid("", 17)]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    m = Build()
    m.output(m.input([3]))
    with pytest.raises(AssertionError, match=r"declares the shape \[7\] but makes \[3\]"):
        check(m.bytes(), convert=lambda _: Result(model, [Port((0,))], [Port((0,))]))


def test_check_ignores_unknown_shapes() -> None:
    """Only known shapes are compared, because a resized input changes dynamic shapes."""
    m = Build()
    (y,) = m.op("ABS", [m.input([None, 3])], [m.tensor(None)])
    m.output(*m.op("NEG", [y], [[1, 3]]))
    data = m.bytes()
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])
    nodes = [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["y"])]
    opset = [helper.make_opsetid("", 17)]
    graph = helper.make_graph(nodes, "g", [info], [out])
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    result = Result(model, [Port((0, 1))], [Port((0, 1))])
    check(data, convert=lambda _: result)
    check(data, convert=lambda _: result, inputs=[np.ones((5, 3), np.float32)])


def test_check_refuses_files_with_wrong_types_or_shapes() -> None:
    """A wrong type or shape in the test's own model is not an error of the converter."""
    m = Build()
    x = m.input([3])
    m.output(*m.op("LESS", [x, x], [[3]]), *m.op("ABS", [x], [[7]]))
    with pytest.raises(ValueError, match=r"float32\[3\] in the file but bool\[3\].*\[7\].*\[3\]"):
        check(m.bytes())


@pytest.mark.parametrize(
    ("dtype", "want", "have", "steps", "same"),
    [
        (np.float32, [0, 1000], [0, 1000.009], 0, True),
        (np.float32, [0, 1000], [0, 1000.02], 0, False),
        (np.float32, [3], [3.00002], 0, True),
        (np.float32, [np.nan, np.inf, 1], [np.nan, np.inf, 1], 0, True),
        (np.float32, [np.inf, 1], [-np.inf, 1], 0, False),
        (np.float32, [np.nan, 1], [1, 1], 0, False),
        (np.float32, [1e30, 1], [np.inf, 1], 0, False),
        (np.float32, [0, 0], [0, 1e-20], 0, False),
        (np.float32, [], [], 0, True),
        (np.int8, [-128, 5], [127, 5], 254, False),
        (np.int8, [-128, 5], [127, 5], 255, True),
        (np.int64, [-(2**63)], [2**63 - 1], 1, False),
        (np.uint8, [0], [1], 0, False),
        (np.uint8, [0], [1], 1, True),
        (np.bool_, [True], [False], 1, False),
        (np.object_, ["a", "b"], [b"a", b"b"], 0, True),
        (np.object_, ["a", "b"], [b"a", b"c"], 0, False),
    ],
)
def test_arrays_outside_the_tolerance_differ(
    dtype: DTypeLike, want: list[Any], have: list[Any], steps: int, *, same: bool
) -> None:
    """Arrays within the tolerance, and arrays outside it."""
    assert (difference(np.array(want, dtype), np.array(have, dtype), steps=steps) == "") == same


def test_equal_numbers_of_other_types_or_shapes_differ() -> None:
    """Equal numbers of another type or shape are not equal."""
    assert "int32[2], ONNX int64[2]" in difference(np.zeros(2, np.int32), np.zeros(2, np.int64))
    assert "[2], ONNX float64[2, 1]" in difference(np.zeros(2), np.zeros((2, 1)))
