"""IF, WHILE and STABLEHLO_CASE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from tests.op.ports import refusal_reason
from tests.support import Build, Subgraph, Tensor, check as compare, run_onnx
from tests.support.control import (
    add_if,
    add_less,
    apply_operator,
    build_growing_list,
    count_rounds,
    counter,
    graph,
    like,
    loop,
    number,
    op,
)
from tests.support.small import convolve
from tflite2onnx import Result
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Change = Callable[[Subgraph, Sequence[Tensor]], Sequence[Tensor]]

SHAPE = (2, 3, 5)
IMAGE = (2, 5, 7, 3)


def check(data: bytes, **options: Any) -> Result:
    """Compare ONNX Runtime with LiteRT."""
    result = compare(data, **options)
    assert isinstance(result, Result)
    return result


def check_loop(
    m: Build, *outputs: Tensor, rounds: Sequence[int] = (0, 1, 5), **options: Any
) -> Result:
    """Compare a model with a count as its first input; each of `rounds` is an initial count."""
    m.output(*outputs)
    for start in rounds:
        ranges = {"float32": (-2, 2), "count": (start, start)}
        result = check(m.bytes(), seeds=[start], ranges=ranges, **options)
    return result


def types(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def bodies(model: onnx.ModelProto) -> list[onnx.GraphProto]:
    """Return the inner graphs of the nodes of a model's graph."""
    return [a.g for node in model.graph.node for a in node.attribute if a.HasField("g")]


# WHILE


def test_a_loop_runs_as_often_as_the_condition_says() -> None:
    m = Build()
    outputs = loop(m, [counter(m), m.input(SHAPE)], count_rounds(apply_operator("SIN")))
    result = check_loop(m, *outputs)
    assert types(result.model) == ["Less", "Loop"]


def test_unchanged_value_is_no_loop_variable() -> None:
    """A value that the body returns unchanged is no Loop variable; the body reads the outer one."""
    m = Build()
    weights = m.constant(np.arange(30, dtype=np.float32).reshape(SHAPE))
    x, step = m.input(SHAPE), m.input(SHAPE)

    def change(m: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        return [op(m, "ADD", op(m, "MUL", xs[0], xs[1]), xs[2]), xs[1], xs[2]]

    result = check_loop(m, *loop(m, [counter(m), x, weights, step], count_rounds(change)))
    (node,) = (n for n in result.model.graph.node if n.op_type == "Loop")
    assert len(node.output) == 2


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "uint8", "int16", "float64"])
def test_a_variable_may_become_another_or_a_constant(dtype: str) -> None:
    m = Build()
    xs = [m.input(SHAPE, dtype=dtype, name=name) for name in "abc"]
    constant = np.arange(30).reshape(SHAPE).astype(dtype)
    change = count_rounds(lambda m, xs: [xs[1], xs[2], m.constant(constant)])
    check_loop(m, *loop(m, [counter(m), *xs], change))


def test_loop_variables_may_swap() -> None:
    """Variables may swap, although LiteRT keeps one place for each and would copy one twice."""
    m = Build()
    xs = [m.input(SHAPE, name=name) for name in "abc"]
    change = count_rounds(lambda m, xs: [xs[1], op(m, "NEG", xs[1]), xs[0]])
    m.output(*loop(m, [counter(m), *xs], change))
    model = convert(m.bytes()).model
    given = [np.full(SHAPE, i, np.float32) for i in (3, 5, 7)]
    for optimize in (True, False):
        feeds = {"count": np.array(1, np.int32), **dict(zip("abc", given, strict=True))}
        _, a, b, c = run_onnx(model, feeds, optimize=optimize)
        assert (a[0, 0, 0], b[0, 0, 0], c[0, 0, 0]) == (-5, 5, 5)


def test_condition_may_read_all_loop_variables() -> None:
    m = Build()
    x = m.input([], name="x")

    def condition(m: Subgraph, xs: Sequence[Tensor]) -> Tensor:
        (small,) = m.op("LESS", [xs[1], m.constant(np.array(100, np.float32))], [[]], dtype="bool")
        return op(m, "LOGICAL_AND", small, add_less(m, xs, 20))

    change = count_rounds(lambda m, xs: [op(m, "ADD", op(m, "MUL", xs[0], xs[0]), m.constant(2.0))])
    check_loop(m, *loop(m, [counter(m), x], change, condition))


def test_condition_may_have_an_axis_of_size_1() -> None:
    m = Build()
    count = m.input([1], dtype="int32", name="count")
    outputs = loop(m, [count, m.input(SHAPE)], count_rounds(apply_operator("SIN")))
    check_loop(m, *outputs)


def test_images_keep_their_layout_in_a_loop() -> None:
    """Images are channels first before, in and after the loop, without Transposes."""
    m = Build()
    x = convolve(m, m.input(IMAGE), 3, "before")
    _, y = loop(m, [counter(m), x], count_rounds(lambda m, xs: [convolve(m, xs[0], 3, "inside")]))
    result = check_loop(m, convolve(m, y, 11, "after"), random_layouts=range(4))
    assert result.transposes == 0


def test_loop_inputs_are_transposed_before_the_loop() -> None:
    m = Build()
    image = m.input(IMAGE, name="image")
    total = convolve(m, m.input(IMAGE, name="total"), 11, "before")

    def change(m: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        return [op(m, "ADD", xs[0], convolve(m, xs[1], 11, "inside")), xs[1]]

    _, y, _ = loop(m, [counter(m), total, image], count_rounds(change))
    result = check_loop(m, convolve(m, y, 3, "after"), io_layout="tflite")
    (body,) = bodies(result.model)
    assert result.transposes == 3
    assert "Transpose" not in [n.op_type for n in body.node]


def test_nested_loops_equal_litert() -> None:
    m = Build()

    def change(inner: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        twice = count_rounds(lambda m, xs: [op(m, "ADD", op(m, "SIN", xs[0]), xs[1]), xs[1]])
        zero = number(inner, 0)
        return [loop(m, [zero, xs[0], xs[1]], twice, at=inner)[1], xs[1]]

    xs = [m.input(SHAPE, name=name) for name in "ab"]
    result = check_loop(m, *loop(m, [counter(m), *xs], count_rounds(change)))
    (body,) = bodies(result.model)
    assert "Loop" in [node.op_type for node in body.node]


def test_loop_inside_a_condition_equals_litert() -> None:
    m = Build()

    def condition(inner: Subgraph, xs: Sequence[Tensor]) -> Tensor:
        def twice(m: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
            return [op(m, "ADD", xs[0], xs[0])]

        one = op(inner, "MAXIMUM", xs[0], number(inner, 1))
        return add_less(
            inner, loop(m, [one], twice, lambda m, xs: add_less(m, xs, 40), at=inner), 70
        )

    change = count_rounds(apply_operator("SIN"))
    check_loop(m, *loop(m, [counter(m), m.input(SHAPE)], change, condition))


def test_loops_may_share_a_body() -> None:
    m = Build()
    x = m.input(SHAPE)
    change = count_rounds(apply_operator("SIN"))
    first = loop(m, [counter(m), x], change)
    node = m.model().subgraphs[0].operators[0]
    options = node.builtinOptions
    again = m.op(
        "WHILE", [number(m, 1), first[1]], [like(m, t) for t in first],
        cond_subgraph_index=options.condSubgraphIndex,
        body_subgraph_index=options.bodySubgraphIndex,
    )  # fmt: skip
    check_loop(m, *first, *again)


def test_a_loop_without_iterations_is_removed() -> None:
    m = Build()
    change = count_rounds(apply_operator("SIN"))
    m.output(loop(m, [number(m, 7), m.input(SHAPE)], change)[1])
    assert types(check(m.bytes()).model) == ["Identity"]


def test_constant_initial_value_is_not_constant_in_the_loop() -> None:
    m = Build()
    zero = m.constant(np.zeros(SHAPE, np.float32))

    def change(m: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        return [op(m, "ADD", xs[0], m.constant(1.0)), op(m, "ADD", op(m, "SIN", xs[0]), xs[1])]

    check_loop(m, *loop(m, [counter(m), zero, m.input(SHAPE)], count_rounds(change)))


# Dynamic sizes


@pytest.mark.parametrize("start", [1, 2])
def test_loop_variable_may_grow_along_an_axis(start: int) -> None:
    m = build_growing_list(start)
    for count in (0, 1, 2, 3):
        check(m.bytes(), seeds=[count], ranges={"count": (count, count), "float32": (-2, 2)})


def test_branches_may_return_different_sizes() -> None:
    m = Build()
    condition, x = m.input([], dtype="bool"), m.input([5, 3])
    graphs = []
    for size in (2, 4):
        inner = m.subgraph(f"{size} rows")
        given = inner.input([5, 3])
        sizes = [inner.constant(n) for n in ([0, 0], [size, 3])]
        inner.output(*inner.op("SLICE", [given, *sizes], [[size, 3]]))
        graphs.append(inner.index)
    (y,) = m.op(
        "IF", [condition, x], [m.tensor([None, 3])],
        then_subgraph_index=graphs[0], else_subgraph_index=graphs[1],
    )  # fmt: skip
    m.output(y, *m.op("SIN", [y], [m.tensor([None, 3])]))
    check(m.bytes(), seeds=range(4))


# Quantized variables

INT8: dict[str, Any] = {"dtype": "int8", "scale": 0.05, "zero_point": 3}
OPTIONS: list[dict[str, Any]] = [
    {}, {"quantization": "float"}, {"activations": "uint8"}, {"activations": "int8"}
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_quantized_loop_variables_equal_litert(options: dict[str, Any]) -> None:
    m = Build()
    x, y = m.input(SHAPE, name="x", **INT8), m.input(SHAPE, name="y", **{**INT8, "scale": 0.1})

    def change(m: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        return [op(m, "MUL", xs[0], xs[0]), op(m, "MAXIMUM", xs[1], m.constant(
            np.array(7, np.int8), scale=0.1, zero_point=3))]  # fmt: skip

    m.output(*loop(m, [counter(m), x, y], count_rounds(change)))
    if options.get("quantization") == "float":
        assert "QuantizeLinear" not in str(convert(m.bytes(), **options).model)
        return
    for start in (0, 2, 4):
        check(m.bytes(), ranges={"count": (start, start)}, steps=1, **options)


# IF


@pytest.mark.parametrize("shape", [[], [1], [1, 1]], ids=str)
def test_condition_selects_one_of_two_branches(shape: list[int]) -> None:
    m = Build()
    condition = m.input(shape, dtype="bool")
    xs = [m.input(SHAPE, name=name) for name in "ab"]

    def then(m: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        return [op(m, "SIN", xs[0]), xs[0]]

    def other(m: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        return [xs[1], op(m, "ADD", xs[0], xs[1])]

    m.output(*add_if(m, condition, xs, then, other))
    data = [np.full(SHAPE, n, np.float32) for n in (1, 2)]
    for chosen in (True, False):
        check(m.bytes(), inputs=[np.full(shape, chosen), *data])


def test_branches_may_return_constants() -> None:
    m = Build()
    x = m.input(SHAPE)

    def constant(number: float) -> Change:
        return lambda m, _: [m.constant(np.full(SHAPE, number, np.float32))]

    m.output(*add_if(m, m.input([], dtype="bool"), [x], constant(1), constant(2)))
    check(m.bytes(), seeds=range(4))


def test_images_keep_their_layout_in_a_branch() -> None:
    m = Build()
    condition = m.input([], dtype="bool")
    x = convolve(m, m.input(IMAGE), 3, "before")

    def inside(m: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        return [convolve(m, xs[0], 3, "inside")]

    (y,) = add_if(m, condition, [x], inside, apply_operator("ABS"))
    m.output(convolve(m, y, 11, "after"))
    result = check(m.bytes(), seeds=range(4), random_layouts=range(4))
    assert result.transposes == 0


@pytest.mark.parametrize("chosen", [True, False])
def test_constant_condition_is_replaced_by_its_branch(*, chosen: bool) -> None:
    """An IF with a constant condition is replaced by the operators of its branch."""
    m = Build()
    x = m.input(SHAPE)
    condition = m.constant(np.array(chosen))
    m.output(*add_if(m, condition, [x], apply_operator("SIN"), apply_operator("COS")))
    assert types(check(m.bytes()).model) == ["Sin" if chosen else "Cos"]


def test_nested_if_and_while_equal_litert() -> None:
    m = Build()
    x = m.input(SHAPE)

    def change(inner: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        def again(inner: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
            return loop(m, xs, count_rounds(apply_operator("COS")), at=inner)

        def once(m: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
            return [xs[0], op(m, "SIN", xs[1])]

        count, made = add_if(m, add_less(inner, xs, 1), xs, again, once, at=inner)
        return [op(inner, "ADD", count, number(inner, 1)), made]

    check_loop(m, *loop(m, [counter(m), x], change, lambda m, xs: add_less(m, xs, 6)))


def test_quantized_branches_equal_litert() -> None:
    """Branches with stored integers agree with LiteRT for both storages of int8."""
    m = Build()
    x = m.input(SHAPE, **INT8)
    condition = m.input([], dtype="bool")
    m.output(*add_if(m, condition, [x], apply_operator("RELU"), lambda _, xs: [xs[0]]))
    for options in OPTIONS[2:]:
        check(m.bytes(), seeds=range(3), **options)


# STABLEHLO_CASE


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_case_index_out_of_range_selects_the_last_branch(count: int) -> None:
    """An index out of range selects the last branch."""
    m = Build()
    index, x = m.input([], dtype="int32", name="index"), m.input(SHAPE)

    def add_number(number: float) -> Change:
        return lambda m, xs: [op(m, "ADD", xs[0], m.constant(number))]

    branches = [graph(m, f"branch {i}", [x], add_number(i + 0.5)) for i in range(count)]
    numbers = [branch.index for branch in branches]
    m.output(*m.op("STABLEHLO_CASE", [index, x], [like(m, x)], branch_subgraph_indices=numbers))
    for i in (*range(count), -1, count, -(2**31), 2**31 - 1):
        check(m.bytes(), seeds=[0], ranges={"index": (i, i)})


# Invalid models


def test_body_must_return_the_variables_of_the_loop() -> None:
    m = Build()
    x = m.input(SHAPE)
    m.output(*loop(m, [counter(m), x], lambda _, xs: [xs[0]]))
    assert "it must have 1 outputs as its sub-graph, got 2" in refusal_reason(m)
    m = Build()
    m.output(*loop(m, [counter(m), m.input(SHAPE)], lambda _, xs: [xs[1], xs[0]]))
    assert "must be int32 as tensor_2, got float32" in refusal_reason(m)


def test_refuses_a_condition_of_another_type() -> None:
    m = Build()
    change = count_rounds(apply_operator("SIN"))
    m.output(*loop(m, [counter(m), m.input(SHAPE)], change, lambda _, xs: xs[0]))
    assert "must be bool as condition, got int32" in refusal_reason(m)
    m = Build()
    m.output(*add_if(m, counter(m), [m.input(SHAPE)], apply_operator("SIN"), apply_operator("COS")))
    assert "input 0 must be a tensor of type bool" in refusal_reason(m)


def test_branches_of_bfloat16_need_opset_16_and_refuse_int4() -> None:
    """If needs opset 16 for bfloat16; ONNX Runtime has no If for 4-bit types."""
    for dtype in ("bfloat16", "int4"):
        m = Build()
        condition = m.input([], dtype="bool")
        xs = [m.op("CAST", [m.input(SHAPE)], [SHAPE], dtype=dtype)[0] for _ in range(2)]
        y, _ = add_if(m, condition, xs, lambda _, xs: xs, lambda _, xs: xs[::-1])
        m.output(*m.op("CAST", [y], [SHAPE], dtype="float32"))
        if dtype == "int4":
            assert "must have 8 bits or more, got int4" in refusal_reason(m)
            continue
        check(m.bytes())
        with pytest.raises(ConversionError, match=r"If of bfloat16, .* needs opset 16"):
            convert(m.bytes(), opset=15)


def test_refuses_a_loop_that_runs_itself() -> None:
    m = Build()
    m.output(*loop(m, [counter(m), m.input(SHAPE)], count_rounds(lambda _, xs: xs)))
    m.model().subgraphs[0].operators[0].builtinOptions.bodySubgraphIndex = 0
    assert "sub-graph 0 must not call itself" in refusal_reason(m)


@pytest.mark.parametrize("depth", [12, 24, 25])
def test_control_flow_nests_at_most_24_levels(depth: int) -> None:
    """A nest of 24 levels is converted; a deeper nest exceeds the limit of protobuf and is refused.

    Before ONNX Runtime 1.24 each level doubles the time that it takes to load the model.
    """
    m = Build()
    condition = m.input([], dtype="bool")

    def change(level: int) -> Change:
        return lambda inner, xs: (
            add_if(m, xs[0], xs, change(level + 1), lambda _, xs: xs, at=inner)
            if level < depth else [xs[0], op(inner, "SIN", xs[1])]
        )  # fmt: skip

    m.output(*add_if(m, condition, [condition, m.input(SHAPE)], change(1), lambda _, xs: xs))
    if depth > 24:
        assert "control flow must be nested at most 24 deep" in refusal_reason(m)
    elif depth > 12:
        onnx.checker.check_model(convert(m.bytes()).model, full_check=True)
    else:
        check(m.bytes(), random_layouts=[])


def test_variables_may_be_read_in_a_loop() -> None:
    m = Build()

    def handle(m: Subgraph) -> Tensor:
        return m.op("VAR_HANDLE", [], [m.tensor([], dtype="resource")], shared_name="v")[0]

    def change(m: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        (value,) = m.op("READ_VARIABLE", [xs[1]], [SHAPE], dtype="float32")
        return [op(m, "ADD", xs[0], value), xs[1]]

    init = m.subgraph("init")
    value = np.arange(30, dtype=np.float32).reshape(SHAPE)
    init.op("ASSIGN_VARIABLE", [handle(init), init.constant(value)], [])
    m.op("CALL_ONCE", [], [], init_subgraph_index=init.index)
    x = m.input(SHAPE, name="x")
    _, y, _ = loop(m, [counter(m), x, handle(m)], count_rounds(change))
    check_loop(m, y)


def test_integer_weights_in_a_loop_equal_litert() -> None:
    """In a loop integer weights are dequantized by Cast and Mul, not by DequantizeLinear."""
    m = Build()
    integers = np.random.default_rng(0).integers(-127, 127, (7, 7), np.int8, endpoint=True)

    def change(inner: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        w = inner.constant(integers, scale=0.01)
        return inner.op("FULLY_CONNECTED", [xs[0], w], [[3, 7]])

    check_loop(m, *loop(m, [counter(m), m.input([3, 7])], count_rounds(change)), tolerance=0.03)


def test_data_dependent_sizes_inside_a_branch_equal_litert() -> None:
    """Data-dependent sizes inside a branch differ from run to run."""
    m = Build()

    def where(inner: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        made = inner.tensor([None, 1], dtype="int64")
        (places,) = inner.op("WHERE", [xs[0]], [made])
        (real,) = inner.op("CAST", [places], [inner.tensor([None, 1])])
        (total,) = inner.op("SUM", [real, inner.constant(np.array([0], np.int32))], [[1]])
        return list(inner.op("ADD", [xs[0], total], [[3]]))

    condition = m.input([], dtype="bool", name="condition")
    x = m.input([3])
    m.output(*add_if(m, condition, [x], where, where))
    for row in ([0, 1, 1], [0, 0, 0], [1, 0, 0]):
        check(m.bytes(), inputs=[np.array(True), np.array(row, np.float32)])
