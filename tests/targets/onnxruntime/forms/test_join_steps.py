"""targets/onnxruntime/forms/join_steps.py: operators of all steps of a recurrence."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support import check
from tests.support.fusions import count_optimized_nodes
from tests.support.graph_text import check_unchanged, make_model, read_graph
from tflite2onnx import convert
from tflite2onnx.targets.onnxruntime.forms.join_steps import join_steps

STEPS = 12


def write(steps: int, first: Sequence[str], step: Sequence[str], last: str, item: str) -> bytes:
    """Return a model of lines for the first step, and for each other: @ is its number.

    `item` is the type of the numbers of a step, and `last` joins the y of all steps.
    """
    lines = [f"inputs x: float32[1,{steps},6]", f"e: float32[1,{steps},6] = TANH(x)"]
    for i in range(steps):
        take = f"SLICE(e, [0, {i}, 0], [1, 1, 6])"
        lines += [f"s{i}: float32[1,1,6] = {take}", f"x{i}: {item} = RESHAPE(s{i}, {item[7:]})"]
        written = step if i else first
        lines += [f.replace("@-", f"{i - 1}").replace("@", f"{i}") for f in written]
    joined = ", ".join(f"y{i}" for i in range(steps))
    return make_model("\n".join([*lines, last.format(joined), "return y"]))


# RWKV: the largest exponent m, and a sum of exponentials s.
RWKV = [
    "a@: float32[1,6] = ADD(m@-, -0.5)",
    "m@: float32[1,6] = MAXIMUM(a@, x@)",
    "d@: float32[1,6] = SUB(a@, m@)",
    "f@: float32[1,6] = EXP(d@)",
    "g@: float32[1,6] = SUB(x@, m@)",
    "k@: float32[1,6] = EXP(g@)",
    "p@: float32[1,6] = MUL(f@, s@-)",
    "s@: float32[1,6] = ADD(p@, k@)",
    "y@: float32[1,6] = LOGISTIC(s@)",
]
FIRST = [
    "m0: float32[1,6] = MAXIMUM(x0, 0.0)",
    "s0: float32[1,6] = EXP(x0)",
    "y0: float32[1,6] = LOGISTIC(s0)",
]
JOIN = f"y: float32[{STEPS},6] = CONCATENATION({{}}, axis=0)"


def test_operators_that_wait_for_no_other_step_become_one() -> None:
    data = write(STEPS, FIRST, RWKV, JOIN, "float32[1,6]")
    check(data)
    nodes = count_optimized_nodes(convert(data).model)
    assert nodes["Max"] == STEPS - 1
    assert nodes["Mul"] == STEPS - 1
    # The first steps differ from the others by what is before them.
    assert nodes["Exp"] <= 8
    assert nodes["Sigmoid"] <= 4
    assert nodes["Slice"] <= 6


@pytest.mark.parametrize("item", ["float32[1,1,6]", "float32[6]", "float32[2,3]"])
def test_items_may_have_any_shape(item: str) -> None:
    step = [f"a@: {item} = MUL(x@, x@)", f"y@: {item} = TANH(a@)", f"b@: {item} = EXP(y@)"]
    shape = item.removeprefix("float32[")
    last = f"y: float32[{STEPS},{shape} = PACK({{}}, axis=0, values_count={STEPS})"
    data = write(STEPS, step, step, last, item)
    check(data)
    nodes = count_optimized_nodes(convert(data).model)
    assert nodes["Mul"] == 1
    assert nodes["Tanh"] == 2
    assert nodes["Concat"] == nodes["Split"] == 0


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_are_multiplied_by_the_same_weights_at_once(axis: int) -> None:
    step = ["y@: float32[1,4] = FULLY_CONNECTED(x@, W, B)"]
    weights = [[0.5, -1.0, 0.25, 0.1, 0.3, 0.2]] * 4
    text = [line.replace("W", str(weights)).replace("B", "[1.0, 2.0, 3.0, 4.0]") for line in step]
    shape = [[STEPS, 4], [1, 4 * STEPS]][axis]
    last = f"y: float32[{shape[0]},{shape[1]}] = CONCATENATION({{}}, axis={axis})"
    data = write(STEPS, text, text, last, "float32[1,6]")
    check(data)
    nodes = count_optimized_nodes(convert(data).model)
    assert sum(nodes[code] for code in ("Gemm", "MatMul", "FusedGemm")) == 1
    assert nodes["Concat"] == nodes["Slice"] == 0


def test_rows_of_several_axes_are_multiplied_one_by_one() -> None:
    step = [f"y@: float32[1,2] = FULLY_CONNECTED(x@, {[[0.5, -1.0, 0.2, 0.1, 0.3, 0.2]] * 2})"]
    last = f"y: float32[{STEPS},2] = CONCATENATION({{}}, axis=0)"
    check(write(STEPS, step, step, last, "float32[1,2,3]"))


def test_results_that_are_read_in_their_step_are_split() -> None:
    step = [
        "a@: float32[1,6] = MUL(x@, 2.0)",
        "b@: float32[1,6] = TANH(a@)",
        "c@: float32[1,6] = EXP(b@)",
        "y@: float32[1,6] = SUB(c@, y@-)",
    ]
    data = write(STEPS, [*step[:3], "y0: float32[1,6] = NEG(c0)"], step, JOIN, "float32[1,6]")
    check(data)
    nodes = count_optimized_nodes(convert(data).model)
    assert nodes["Exp"] == nodes["Split"] == 1
    assert nodes["Sub"] == STEPS - 1


def test_items_of_steps_that_wait_for_each_other_are_split() -> None:
    step = ["y@: float32[1,6] = SUB(x@, y@-)"]
    data = write(STEPS, ["y0: float32[1,6] = EXP(x0)"], step, JOIN, "float32[1,6]")
    check(data)
    nodes = count_optimized_nodes(convert(data).model)
    assert nodes["Split"] == 1
    assert nodes["Slice"] == 0


def test_three_steps_are_unchanged() -> None:
    step = ["y@: float32[1,6] = EXP(x@)"]
    data = write(3, step, step, "y: float32[3,6] = CONCATENATION({}, axis=0)", "float32[1,6]")
    check_unchanged(join_steps, read_graph(data))
    check(data)
