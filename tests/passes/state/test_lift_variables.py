"""passes/state/lift_variables.py: variables become inputs and outputs of the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support import Build, Subgraph, Tensor, check
from tests.support.needs import needs_onnxruntime
from tests.support.reading import float32, int32
from tests.support.runtimes import session
from tests.support.small import convolve
from tests.support.streams import (
    SHAPE,
    assign,
    build_sum,
    handle,
    initialise,
    read_variable,
    states,
)
from tflite2onnx import Stateful, convert
from tflite2onnx.cli import main
from tflite2onnx.errors import UnsupportedOperators
from tflite2onnx.graph import Graph
from tflite2onnx.passes.state.lift_variables import lift_variables
from tflite2onnx.reader.model import read_model

if TYPE_CHECKING:
    from pathlib import Path

NCHW, NHWC = (0, 3, 1, 2), (0, 1, 2, 3)


def graph_of(data: bytes) -> Graph:
    """Return the primary sub-graph after the pass."""
    model = read_model(data)
    return lift_variables(model.graphs[0], model)


# Resources


def test_each_run_continues_from_the_last_value() -> None:
    """The first run starts from the initial value, each further run from the last value."""
    result: Any = check(build_sum(), runs=50)
    assert states(result) == [("memory", "memory/next")]
    assert [node.op_type for node in result.model.graph.node] == ["Add", "Identity"]
    np.testing.assert_array_equal(result.states[0].initial.ravel(), np.arange(30))


def test_taken_names_of_states_get_a_number() -> None:
    result = check(build_sum("x"), runs=2)
    assert states(result) == [("x_1", "x_1/next")]


def test_states_are_listed_after_own_ends() -> None:
    graph = graph_of(build_sum())
    assert [t.name for t in graph.inputs] == ["x", "memory"]
    assert [t.name for t in graph.outputs] == ["y", "memory/next"]
    assert (graph.own_inputs, graph.own_outputs) == (graph.inputs[:1], graph.outputs[:1])
    assert len(graph.initial) == 1


ZEROS = np.zeros(SHAPE, np.float32)


def test_variables_differ_by_name_and_container() -> None:
    """Variables are distinguished by name and container, not by their handle tensors."""
    m = Build()
    x = m.input(SHAPE, name="x")
    initialise(m, memory=ZEROS)
    assign(m, handle(m, container="other"), x)
    assign(m, handle(m), *m.op("NEG", [x], [SHAPE]))
    m.output(read_variable(m, handle(m)), read_variable(m, handle(m, container="other")))
    assert states(check(m.bytes(), runs=2)) == []


def test_read_values_do_not_change_by_later_assignments() -> None:
    """A value that was read does not change when the variable is assigned again."""
    m = Build()
    x = m.input(SHAPE, name="x")
    initialise(m, memory=ZEROS)
    memory = handle(m)
    old = read_variable(m, memory)
    assign(m, memory, x)
    middle = read_variable(m, memory)
    (more,) = m.op("ADD", [old, middle], [SHAPE])
    assign(m, memory, more)
    m.output(old, middle, read_variable(m, memory))
    result = check(m.bytes(), runs=4)
    assert states(result) == [("memory", "memory/next")]


def test_a_variable_that_is_never_set_again_is_constant() -> None:
    m = Build()
    initialise(m, memory=np.arange(30, dtype=np.float32).reshape(SHAPE))
    (twice,) = m.op("ADD", [read_variable(m, handle(m)), m.constant(float32(2.0))], [SHAPE])
    m.output(*m.op("ADD", [twice, m.input(SHAPE, name="x")], [SHAPE]))
    result = check(m.bytes(), runs=2)
    assert states(result) == []
    assert len(result.model.graph.node) == 1


def test_a_variable_that_nobody_reads_is_left_out() -> None:
    m = Build()
    x = m.input(SHAPE, name="x")
    initialise(m, memory=ZEROS)
    m.output(*m.op("ABS", [x], [SHAPE]))
    assign(m, handle(m), *m.op("NEG", [x], [SHAPE]))
    result = check(m.bytes(), runs=2)
    assert states(result) == []
    assert len(result.model.graph.node) == 1


def test_a_constant_may_be_assigned() -> None:
    """The next value of a state may be a constant, which may also be an output."""
    m = Build()
    initialise(m, memory=ZEROS)
    (y,) = m.op("ADD", [read_variable(m, handle(m)), m.input(SHAPE, name="x")], [SHAPE])
    ones = m.constant(np.ones(SHAPE, np.float32))
    assign(m, handle(m), ones)
    m.output(y, ones)
    assert states(check(m.bytes(), runs=3)) == [("memory", "memory/next")]


def test_an_input_may_be_assigned() -> None:
    """The next value of a state may be an input: the output is the input of the previous run."""
    m = Build()
    x = m.input(SHAPE, name="x")
    initialise(m, memory=ZEROS)
    m.output(read_variable(m, handle(m), name="y"))
    assign(m, handle(m), x)
    result = check(m.bytes(), runs=3)
    assert [e.name for e in result.outputs] == ["y"]


def test_other_shapes_of_as_many_elements_are_allowed() -> None:
    """A variable may be read and assigned with other shapes, because the kernels copy bytes."""
    m = Build()
    x = m.input([5, 6], name="x")
    initialise(m, memory=ZEROS)
    m.output(read_variable(m, handle(m), [2, 15]))
    assign(m, handle(m), *m.op("ABS", [x], [[5, 6]]))
    check(m.bytes(), runs=3)


def test_a_variable_is_read_without_a_shape() -> None:
    """A read without a declared shape has the shape of the variable."""
    m = Build()
    initialise(m, memory=ZEROS)
    value = m.tensor(None, name="value")
    m.op("READ_VARIABLE", [handle(m)], [value])
    (y,) = m.op("ADD", [value, m.input(SHAPE, name="x")], [SHAPE])
    assign(m, handle(m), y)
    m.output(y)
    check(m.bytes(), runs=3)


# Initial values


def test_initial_values_may_be_computed() -> None:
    """The sub-graph of CALL_ONCE is computed at conversion, also if it reads variables."""
    m = Build()
    inner = m.subgraph("init")
    half = inner.constant(np.full(SHAPE, 1.5, np.float16))
    (wide,) = inner.op("DEQUANTIZE", [half], [SHAPE], dtype="float32")
    assign(inner, handle(inner), wide)
    again = read_variable(inner, handle(inner))
    assign(inner, handle(inner, "more"), *inner.op("ADD", [again, again], [SHAPE]))
    m.op("CALL_ONCE", [], [], init_subgraph_index=inner.index)
    x = m.input(SHAPE, name="x")
    for name in ("memory", "more"):
        m.output(read_variable(m, handle(m, name)))
        assign(m, handle(m, name), x)
    check(m.bytes(), runs=2)
    initial: Any = [state.initial for state in convert(m.bytes()).states]
    assert [(a.dtype, set(a.ravel())) for a in initial] == [("float32", {1.5}), ("float32", {3})]


def test_a_graph_is_called_once_though_there_are_two_calls() -> None:
    m = Build()
    x = m.input(SHAPE, name="x")
    inner = m.subgraph("init")
    assign(inner, handle(inner), inner.constant(np.ones(SHAPE, np.float32)))
    m.op("CALL_ONCE", [], [], init_subgraph_index=inner.index)
    m.op("CALL_ONCE", [], [], init_subgraph_index=inner.index)
    m.output(read_variable(m, handle(m)))
    assign(m, handle(m), x)
    check(m.bytes(), runs=2)


def test_call_once_of_an_empty_sub_graph_is_allowed() -> None:
    m = Build()
    m.op("CALL_ONCE", [], [], init_subgraph_index=m.subgraph("init").index)
    m.output(*m.op("ABS", [m.input(SHAPE)], [SHAPE]))
    check(m.bytes(), runs=2)


@pytest.mark.parametrize(("dtype", "value"), [("int8", -7), ("uint8", 0), ("float32", 0)])
def test_variables_without_initial_value_begin_at_zero(dtype: str, value: int) -> None:
    """Variables without initial values start at 0, as on microcontrollers; LiteRT refuses them."""
    m = Build()
    scale = {} if dtype == "float32" else {"scale": 0.5, "zero_point": -7 if value else 7}
    fields: dict[str, Any] = {"dtype": dtype, **scale}
    m.output(read_variable(m, handle(m), **fields))
    assign(m, handle(m), m.input(SHAPE, **fields))
    (state,) = convert(m.bytes()).states
    assert (state.initial == value).all()


def test_complex_state_is_stored_as_pairs_of_reals() -> None:
    """A complex state is stored as pairs of real numbers."""
    m = Build()
    shape, fields = [4, 5], {"dtype": "complex64"}
    initialise(m, memory=np.full(shape, 1 + 2j, np.complex64))
    sizes = m.constant(int32([4, 8]))
    (waves,) = m.op("RFFT2D", [m.input([4, 8]), sizes], [m.tensor(shape, dtype="complex64")])
    before = read_variable(m, handle(m), shape, **fields)
    assign(m, handle(m), waves)
    m.output(*m.op("COMPLEX_ABS", [before], [m.tensor(shape)]))
    result: Any = check(m.bytes(), runs=3, tolerance=1e-4)
    assert result.states[0].initial.shape == (4, 5, 2)


@pytest.mark.parametrize("remembers", [False, True])
def test_state_has_a_fixed_size(*, remembers: bool) -> None:
    """The batch becomes static if a state depends on it, and stays dynamic otherwise."""
    m = Build()
    initialise(m, memory=np.zeros((1, 3), np.float32))
    before = read_variable(m, handle(m), [1, 3])
    (y,) = m.op("ADD", [before, m.input([None, 3])], [m.tensor([None, 3])])
    assign(m, handle(m), y if remembers else m.op("COS", [before], [[1, 3]])[0])
    m.output(y)
    result: Any = check(m.bytes(), runs=3)
    assert result.inputs[0].onnx_shape == (1, 3)
    assert bool(result.inputs[0].symbols) is not remembers


# Layout


def build_streaming(*, negated: bool = False, shown: bool = False, **fields: Any) -> bytes:
    """Return a convolution over the last three frames: "x" -> "y"; the state is two of them.

    With `negated` the frames are -x; with `shown` the next state is an output, too.
    """
    m = Build()
    x = m.input((1, 1, 7, 3), name="x", **fields)
    if negated:
        (x,) = m.op("NEG", [x], [m.tensor([1, 1, 7, 3], **fields)])
    first = np.full((1, 2, 7, 3), fields.get("zero_point", 0), fields.get("dtype", "float32"))
    initialise(m, memory={"values": first, **fields})
    (frames,) = m.op("CONCATENATION", [read_variable(m, handle(m), first.shape, **fields), x],
                     [m.tensor([1, 3, 7, 3], **fields)], axis=1)  # fmt: skip
    bounds = [m.constant(int32(b)) for b in ([0, 1, 0, 0], [1, 3, 7, 3], [1, 1, 1, 1])]
    (kept,) = m.op("STRIDED_SLICE", [frames, *bounds], [m.tensor([1, 2, 7, 3], **fields)])
    assign(m, handle(m), kept)
    if shown:
        m.output(kept)
    if "dtype" in fields:
        weights = m.constant(np.ones((5, 3, 3, 3), np.int8), scale=0.02)
        bias = m.constant(int32([0, 50, -100, 200, 0]), scale=0.02 * fields["scale"])
        y = m.tensor([1, 1, 5, 5], name="y", **{**fields, "scale": 0.25})
        window: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "VALID"}
        m.output(*m.op("CONV_2D", [frames, weights, bias], [y], **window))
    else:
        m.output(convolve(m, frames, 5, "y"))
    return m.bytes()


@pytest.mark.parametrize(("mode", "order"), [("auto", NCHW), ("onnx", NCHW), ("tflite", NHWC)])
def test_state_is_laid_out_as_costs_least(mode: str, order: tuple[int, ...]) -> None:
    """The planner chooses the layout of a state; with io_layout="tflite" it is TFLite's."""
    result: Any = check(build_streaming(), runs=4, io_layout=mode)
    (state,) = result.states
    assert state.input.order == state.output.order == order
    assert state.initial.shape == state.input.onnx_shape == tuple((1, 2, 7, 3)[i] for i in order)
    assert (result.transposes > 0) == (mode == "tflite")


def test_state_is_laid_out_as_asked() -> None:
    result: Any = check(build_streaming(), runs=3, layouts={"memory": ("NHWC", "CNWH")})
    assert result.states[0].output.layout == ("NHWC", "CNWH")


# Quantized


INT8: dict[str, Any] = {"dtype": "int8", "scale": 0.5, "zero_point": -7}


@pytest.mark.parametrize("activations", ["auto", "int8", "uint8"])
@pytest.mark.parametrize("options", [{"states": "required"}, {"io_layout": "tflite"}])
def test_quantized_state_has_the_type_of_the_file(
    activations: str, options: dict[str, Any]
) -> None:
    """A quantized state that callers must feed or want to read is stored as the file's integers."""
    model = build_streaming(**INT8)
    result: Any = check(model, runs=50, steps=1, activations=activations, **options)
    (state,) = result.states
    assert (state.input.dtype, state.output.dtype) == ("int8", "int8")
    np.testing.assert_array_equal(state.initial, np.full(state.input.onnx_shape, -7, np.int8))


@pytest.mark.parametrize("activations", ["auto", "int8", "uint8"])
def test_quantized_state_is_stored_as_inside_the_model(activations: str) -> None:
    """No node converts a state that callers only pass on."""
    result: Any = check(build_streaming(**INT8), runs=50, steps=1, activations=activations)
    (state,) = result.states
    dtype, zero = ("int8", -7) if activations == "int8" else ("uint8", 121)
    for end in (state.input, state.output):
        assert (end.dtype, end.scale, end.zero_point) == (dtype, 0.5, zero)
    np.testing.assert_array_equal(state.initial, np.full(state.input.onnx_shape, zero, dtype))
    graph = result.model.graph
    assert [n.op_type for n in graph.node if state.input.name in n.input] == ["Concat"]
    assert [n.op_type for n in graph.node if state.output.name in n.output] == ["Slice"]


def test_state_of_8_bits_has_the_layout_of_the_file() -> None:
    """ONNX Runtime convolves 8 bits with channels last."""
    for negated in (False, True):
        result: Any = check(build_streaming(negated=negated, **INT8), runs=4, steps=1)
        assert result.states[0].input.order == NHWC


def test_output_that_is_also_a_state_has_the_type_of_the_file() -> None:
    """Only the state is stored as inside the model."""
    result: Any = check(build_streaming(shown=True, **INT8), runs=4, steps=1)
    assert [end.dtype for end in result.outputs] == ["int8", "int8"]
    assert [state.output.dtype for state in result.states] == ["uint8"]


def test_float_quantization_makes_states_float32() -> None:
    """With float quantization states and their initial values are float32."""
    result = convert(build_streaming(**INT8), quantization="float")
    (state,) = result.states
    assert state.input.dtype == "float32"
    np.testing.assert_array_equal(state.initial, np.zeros(state.input.onnx_shape, np.float32))
    live, x = Stateful(session(result.model, optimize=True)), np.ones((1, 3, 1, 7), np.float32)
    for step in (1, 2, 3, 3):
        (y,) = live.run(None, {"x": x})
        np.testing.assert_allclose(y[0, 0], step * 9 * 0.02, rtol=0.2)


@pytest.mark.parametrize("quantization", ["qdq", "float"])
def test_integers_of_a_variable_keep_their_bytes(quantization: str) -> None:
    """Stored integers keep their bytes if the scales of write and read differ."""
    m = Build()
    initialise(m, memory=np.full(SHAPE, 3, np.int8))
    value = read_variable(m, handle(m), **INT8)
    m.output(*m.op("DEQUANTIZE", [value], [SHAPE], dtype="float32"))
    other = {**INT8, "scale": 0.25, "zero_point": 0}
    assign(m, handle(m), *m.op("QUANTIZE", [m.input(SHAPE, name="x")], [m.tensor(SHAPE, **other)]))
    needs_onnxruntime(1, 24, "an optimization that leaves the graph whole")
    check(m.bytes(), runs=3, quantization=quantization)


# Models that cannot be converted


def refusal_reason(m: Build) -> str:
    """Return why a model cannot be converted."""
    with pytest.raises(UnsupportedOperators) as error:
        convert(m.bytes())
    return str(error.value)


def test_refuses_variables_that_were_never_set() -> None:
    m = Build()
    m.output(read_variable(m, handle(m), name="y"))
    assert "1, y): the variable memory must be assigned a value" in refusal_reason(m)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"shape": [2, 3]}, "memory must be float32[2, 3] as the variable, got float32[2, 3, 5]"),
        ({"shape": SHAPE, "dtype": "int32"}, "memory must be int32"),
    ],
)
def test_refuses_reads_of_another_shape_or_type(fields: Any, reason: str) -> None:
    m = Build()
    initialise(m, memory=ZEROS)
    m.output(read_variable(m, handle(m), name="y", **fields))
    assert reason in refusal_reason(m)


def test_refuses_assignments_of_another_shape() -> None:
    """An assignment with another shape is refused."""
    m = Build()
    x = m.input([2, 3], name="x")
    initialise(m, memory=ZEROS)
    m.output(read_variable(m, handle(m)))
    assign(m, handle(m), x)
    assert "memory/next must be 6 elements of float32, as x is float32[2, 3]" in refusal_reason(m)


def test_refuses_initial_values_of_more_than_a_gibibyte() -> None:
    m, shape = Build(), [(1 << 28) + 1]
    m.output(read_variable(m, handle(m), shape))
    assign(m, handle(m), m.input(shape))
    assert "at most 1 GiB, got more with memory (1,073,741,828 bytes)" in refusal_reason(m)


def test_refuses_initial_values_that_are_not_constant() -> None:
    m = Build()
    inner = m.subgraph("init")
    size = inner.constant(int32(SHAPE))
    assign(inner, handle(inner), *inner.op("RANDOM_UNIFORM", [size], [SHAPE]))
    m.op("CALL_ONCE", [], [], init_subgraph_index=inner.index)
    m.output(read_variable(m, handle(m), name="y"))
    assert "the initial value of memory must be constant" in refusal_reason(m)


def test_refuses_calls_of_missing_sub_graphs() -> None:
    m = Build()
    m.op("CALL_ONCE", [], [], init_subgraph_index=5)
    m.output(read_variable(m, handle(m)))
    assert (
        "CALL_ONCE (operator 0, no output): the index of a sub-graph must be below"
        in refusal_reason(m)
    )


def test_handles_must_come_from_var_handle() -> None:
    m = Build()
    m.output(read_variable(m, m.input([], dtype="resource", name="h"), name="y"))
    assert (
        "READ_VARIABLE (operator 0, y): its handle must come from a VAR_HANDLE" in refusal_reason(m)
    )


def test_handles_must_be_read_by_variable_operators() -> None:
    m = Build()
    m.output(m.op("VAR_HANDLE", [], [m.tensor([], dtype="resource", name="h")])[0])
    assert "VAR_HANDLE (operator 0, h): its resource handle is used" in refusal_reason(m)


def test_refuses_resources_in_variable_tensors() -> None:
    m = Build()
    state = m.tensor([2], variable=True, dtype="resource", name="state")
    m.output(*m.op("RESHAPE", [state], [[2]]))
    assert "variable state must hold numbers or bools, got resource" in refusal_reason(m)


def test_refuses_more_zeros_than_memory_holds() -> None:
    m = Build()
    state = m.tensor([1 << 20, 1 << 20], variable=True, name="state")
    m.output(*m.op("RESHAPE", [state], [[1 << 20, 1 << 20]]))
    assert "got more with state (4,398,046,511,104 bytes)" in refusal_reason(m)


@pytest.mark.parametrize("code", ["READ_VARIABLE", "ASSIGN_VARIABLE"])
@pytest.mark.parametrize("operands", [0, 1])
def test_refuses_variable_operators_without_operands(code: str, operands: int) -> None:
    m = Build()
    m.output(*m.op("ABS", [m.input(SHAPE)], [SHAPE]))
    m.op(code, [handle(m)][:operands], [])
    assert code in refusal_reason(m)


# Variable tensors


def svdf(m: Subgraph, x: Tensor, state: Tensor) -> Tensor:
    """Return the output of an operator that updates its state."""
    weights = [m.constant(np.ones(s, np.float32)) for s in ((4, 3), (4, 2))]
    return m.op("SVDF", [x, *weights, None, state], [[2, 4]], rank=1)[0]


def test_state_operators_return_the_next_value() -> None:
    """An operator with state gets the next value as an output, which later readers use."""
    m = Build()
    x = m.input([2, 3])
    state = m.tensor([2, 8], name="state", variable=True)
    m.output(svdf(m, x, state), svdf(m, x, state), state)
    graph = graph_of(m.bytes())
    first, second, last = graph.ops
    before, after = graph.inputs[1], graph.outputs[-1]
    assert (before.name, after.name) == ("state", "state/next")
    assert (before.is_variable, after.is_variable, before.data) == (False, False, None)
    assert first.inputs[4] is before
    assert [t.shape for t in first.outputs] == [(2, 4), (2, 8)]
    assert second.inputs[4] is first.outputs[1]
    assert (last.code, last.inputs, last.outputs) == ("RESHAPE", second.outputs[1:], (after,))
    assert graph.outputs == (first.outputs[0], second.outputs[0], second.outputs[1], after)
    np.testing.assert_array_equal(graph.initial[0], np.zeros((2, 8), np.float32))


@pytest.mark.parametrize(("dtype", "value"), [("int8", -7), ("int16", 0), ("float32", 0)])
def test_variable_tensors_begin_as_litert_resets_them(dtype: str, value: int) -> None:
    m = Build()
    scale: dict[str, Any] = {} if dtype == "float32" else {"scale": 0.5, "zero_point": -7}
    state = m.tensor([2, 8], name="state", variable=True, dtype=dtype, **scale)
    m.output(svdf(m, m.input([2, 3]), state))
    (initial,) = graph_of(m.bytes()).initial
    assert initial.dtype == dtype
    assert (initial == value).all()


def test_variable_tensors_may_be_written_to_twice() -> None:
    """A variable tensor that is written before each read is no state."""
    m = Build()
    x = m.input([2, 3], name="x")
    (y,) = m.op("ABS", [x], [m.tensor([2, 3], name="y", variable=True)])
    m.output(*m.op("NEG", [y], [[2, 3]]))
    m.op("EXP", [x], [y])
    m.output(y)
    assert states(check(m.bytes(), runs=2)) == []


def test_variable_tensors_may_be_outputs_of_any_operator() -> None:
    m = Build()
    x = m.input([2, 3], name="x")
    state = m.tensor([2, 3], name="state", variable=True)
    (y,) = m.op("ADD", [state, x], [[2, 3]])
    m.op("MUL", [y, x], [state])
    m.output(y)
    assert states(check(m.bytes(), runs=4)) == [("state", "state/next")]


def test_variable_tensors_that_nothing_writes_to_are_constant() -> None:
    m = Build()
    state = m.tensor([2, 3], variable=True)
    m.output(*m.op("ADD", [state, m.input([2, 3])], [[2, 3]]))
    assert states(check(m.bytes(), runs=2)) == []


def test_summary_lists_states_apart_from_ends(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """States are listed separately from inputs and outputs."""
    path = tmp_path / "model.tflite"
    path.write_bytes(build_sum())
    assert main([str(path), "--verify"]) == 0
    assert capsys.readouterr().out.splitlines()[:3] == [
        "input   x       float32  TFLite [2, 3, 5]  ONNX [2, 3, 5]",
        "output  y       float32  TFLite [2, 3, 5]  ONNX [2, 3, 5]",
        "state   memory  float32  TFLite [2, 3, 5]  ONNX [2, 3, 5]",
    ]
