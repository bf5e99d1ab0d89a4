"""contrib/stablehlo/lower_stablehlo.py: LiteRT has no kernels, so numpy is the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator

from tests.references import check_reference
from tests.references.flex import random_numbers
from tests.support import Build, difference
from tflite2onnx import convert
from tflite2onnx.errors import UnsupportedOperators

UNARY: dict[str, Any] = {
    "ABS": np.abs, "COSINE": np.cos, "EXPONENTIAL": np.exp, "FLOOR": np.floor, "LOG": np.log,
    "LOGISTIC": lambda x: 1 / (1 + np.exp(-x)), "NEGATE": np.negative,
    "RSQRT": lambda x: 1 / np.sqrt(x), "TANH": np.tanh,
}  # fmt: skip
BINARY: dict[str, Any] = {
    "DIVIDE": np.divide, "POWER": np.power, "REMAINDER": np.fmod, "SUBTRACT": np.subtract,
}  # fmt: skip
X, Y = (random_numbers("float32", 3, 5, seed=i, low=1, high=4) for i in range(2))


def check_operator(
    name: str, inputs: list[Any], want: Any, *, constants: tuple[int, ...] = (), **options: Any
) -> None:
    """Compare ONNX Runtime and ONNX's reference with numpy's result.

    `constants` are the places of constant operands.
    """
    m = Build()
    operands = [
        m.constant(x) if i in constants else m.input(x.shape, dtype=x.dtype.name)
        for i, x in enumerate(inputs)
    ]
    inputs = [x for i, x in enumerate(inputs) if i not in constants]
    outputs = [m.tensor(want.shape, dtype=want.dtype.name)]
    m.output(*m.op(f"STABLEHLO_{name}", operands, outputs, **options))
    result = check_reference(m, inputs, [want])
    if "Pad" in {node.op_type for node in result.model.graph.node}:
        return  # the reference does not crop
    ends = zip(result.inputs, inputs, strict=True)
    feeds = {end.name: x.transpose(end.order) for end, x in ends}
    with np.errstate(all="ignore"):
        evaluator: Any = ReferenceEvaluator(result.model)
        (found,) = evaluator.run(None, feeds)
    wrong = difference(want, found.transpose(np.argsort(result.outputs[0].order)), tolerance=1e-5)
    assert not wrong, f"ONNX's reference: {wrong}"


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_elementwise_operators_equal_numpy(name: str) -> None:
    inputs = [X] if name in UNARY else [X, Y]
    check_operator(name, inputs, ({**UNARY, **BINARY})[name](*inputs).astype(np.float32))


def test_other_operators_equal_numpy() -> None:
    check_operator("CONVERT", [X], X.astype(np.int32))
    check_operator("SELECT", [X > Y, X, Y], np.maximum(X, Y))
    check_operator("CONCATENATE", [X, Y], np.concatenate([X, Y], 1), dimension=1)
    check_operator("TRANSPOSE", [X], X.T.copy(), permutation=[1, 0])
    check_operator("CLAMP", [np.float32(2).reshape(()), X, np.float32(3).reshape(())],
                   np.clip(X, 2, 3))  # fmt: skip


DIRECTIONS: dict[str, Any] = {
    "EQ": np.equal, "NE": np.not_equal, "GE": np.greater_equal, "GT": np.greater,
    "LE": np.less_equal, "LT": np.less,
}  # fmt: skip
COMPARE = "STABLEHLO_COMPARISON_DIRECTION_"


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_comparisons_equal_numpy(direction: str, dtype: str) -> None:
    a, b = (np.random.default_rng(i).integers(0, 3, (3, 5)).astype(dtype) for i in range(2))
    check_operator(
        "COMPARE", [a, b], DIRECTIONS[direction](a, b),
        comparison_direction=f"{COMPARE}{direction}",
    )  # fmt: skip


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "int64"])
def test_other_types_equal_numpy(dtype: str) -> None:
    x, y = X.astype(dtype), Y.astype(dtype)
    check_operator("NEGATE", [x], -x)
    check_operator("SUBTRACT", [x, y], x - y)
    check_operator("REMAINDER", [x, y], np.fmod(x, y))


def test_bits_and_roots_equal_numpy() -> None:
    check_operator("OR", [X > 2, Y > 2], (X > 2) | (Y > 2))
    for dtype in ("int32", "int64", "uint8"):
        x, y = X.astype(dtype), Y.astype(dtype)
        check_operator("OR", [x, y], x | y)
    roots = np.array([-27, -1, 0, 8, 1e-30, 1e30], np.float32)
    check_operator("CBRT", [roots], np.cbrt(roots))


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_movements_equal_numpy(dtype: str) -> None:
    x = X.astype(dtype)
    check_operator("RESHAPE", [x], x.reshape(5, 3))
    check_operator(
        "BROADCAST_IN_DIM", [x], np.broadcast_to(x[:, None], (3, 2, 5)).copy(),
        broadcast_dimensions=[0, 2],
    )  # fmt: skip
    check_operator(
        "BROADCAST_IN_DIM", [x], np.broadcast_to(x.T[:, None], (5, 2, 3)).copy(),
        broadcast_dimensions=[2, 0],
    )  # fmt: skip
    check_operator("BROADCAST_IN_DIM", [x], x[:, None].copy(), broadcast_dimensions=[0, 2])
    check_operator(
        "SLICE", [x], x[1:3, 0:5:2].copy(), start_indices=[1, 0], limit_indices=[3, 5],
        strides=[1, 2],
    )  # fmt: skip


@pytest.mark.parametrize("start", [(0, 0), (1, 2), (7, -3)])
def test_computed_indices_are_clamped(start: tuple[int, int]) -> None:
    first, last = min(max(start[0], 0), 1), min(max(start[1], 0), 2)
    for dtype in (np.int32, np.int64):
        indices = [np.array(n, dtype) for n in start]
        part = X[first : first + 2, last : last + 3].copy()
        check_operator("DYNAMIC_SLICE", [X, *indices], part, slice_sizes=[2, 3])
        whole = X.copy()
        whole[first : first + 2, last : last + 3] = Y[:2, :3]
        check_operator("DYNAMIC_UPDATE_SLICE", [X, Y[:2, :3].copy(), *indices], whole)


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
def test_numbers_along_an_axis(dtype: str) -> None:
    want = np.broadcast_to(np.arange(4)[:, None], (2, 4, 3)).astype(dtype)
    check_operator("IOTA", [], want, iota_dimension=1)


REDUCTIONS: dict[str, Any] = {
    "STABLEHLO_ADD": np.add, "STABLEHLO_MULTIPLY": np.multiply, "STABLEHLO_MAXIMUM": np.maximum,
    "STABLEHLO_MINIMUM": np.minimum, "STABLEHLO_AND": np.logical_and, "STABLEHLO_OR": np.logical_or,
}  # fmt: skip


def build_region(
    m: Build, code: str, dtype: str, made: str, *, swap: bool = False, **options: Any
) -> int:
    """Add a sub-graph of one operator of two scalars, and return its index."""
    region = m.subgraph("region")
    a, b = (region.input([], dtype=dtype) for _ in range(2))
    operands = [b, a] if swap else [a, b]
    region.output(*region.op(code, operands, [region.tensor([], dtype=made)], **options))
    return region.index


@pytest.mark.parametrize(
    ("code", "dtype"),
    [(code, "bool") for code in REDUCTIONS]
    + [(code, dtype) for code in list(REDUCTIONS)[:4] for dtype in ("float32", "int32")],
)
def test_reductions_equal_numpy(code: str, dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, 4, (2, 3, 4)).astype(dtype)
    m = Build()
    index = build_region(m, code, dtype, dtype)
    first = np.array(1, dtype)
    operands = [m.input(x.shape, dtype=dtype), m.input([], dtype=dtype)]
    want = REDUCTIONS[code](REDUCTIONS[code].reduce(REDUCTIONS[code].reduce(x, 2), 0), first)
    options: dict[str, Any] = {"dimensions": [0, 2], "body_subgraph_index": index}
    outputs = [m.tensor([3], dtype=dtype)]
    m.output(*m.op("STABLEHLO_REDUCE", operands, outputs, **options))
    check_reference(m, [x, first], [want.astype(dtype)])


@pytest.mark.parametrize("swap", ["", "swapped"])
@pytest.mark.parametrize("direction", ["LT", "GT", "LE", "GE"])
@pytest.mark.parametrize("axis", [0, 1])
def test_sorts_equal_numpy(axis: int, direction: str, swap: str) -> None:
    m = Build()
    order: dict[str, Any] = {"comparison_direction": f"{COMPARE}{direction}"}
    index = build_region(m, "STABLEHLO_COMPARE", "float32", "bool", swap=bool(swap), **order)
    m.output(
        *m.op(
            "STABLEHLO_SORT", [m.input(X.shape)], [m.tensor(X.shape)], dimension=axis,
            is_stable=True, comparator_subgraph_index=index,
        )
    )  # fmt: skip
    want = np.sort(X, axis)
    descending = (direction[0] == "G") != bool(swap)
    check_reference(m, [X], [np.flip(want, axis).copy() if descending else want])


@pytest.mark.parametrize("swap", ["", "swapped"])
@pytest.mark.parametrize("direction", ["LT", "GT", "LE", "GE"])
@pytest.mark.parametrize("key", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_sorts_of_several_tensors_are_stable(
    axis: int, key: int, direction: str, swap: str
) -> None:
    """Tensors of other types follow the keys; equal keys keep their sequence."""
    keys = np.random.default_rng(0).integers(-3, 3, (4, 7)).astype(np.int32)
    others = [random_numbers("float32", 4, 7), random_numbers("int64", 4, 7, low=0, high=99)]
    given = [*others[:key], keys, *others[key:]]
    m = Build()
    region = m.subgraph("region")
    pairs = [[region.input([], dtype=x.dtype.name) for _ in range(2)] for x in given]
    pair = pairs[key][::-1] if swap else pairs[key]
    how: Any = {"comparison_direction": f"{COMPARE}{direction}"}
    answer = region.tensor([], dtype="bool")
    region.output(*region.op("STABLEHLO_COMPARE", pair, [answer], **how))
    inputs = [m.input(x.shape, dtype=x.dtype.name) for x in given]
    outputs = [m.tensor(x.shape, dtype=x.dtype.name) for x in given]
    options: Any = {"dimension": axis, "comparator_subgraph_index": region.index}
    m.output(*m.op("STABLEHLO_SORT", inputs, outputs, is_stable=True, **options))
    descending = (direction[0] == "G") != bool(swap)
    order = np.argsort(-keys if descending else keys, axis, kind="stable")
    check_reference(m, given, [np.take_along_axis(x, order, axis) for x in given], tolerance=0)


@pytest.mark.parametrize("direction", ["LT", "GE"])
def test_a_total_order_has_signs_of_zeros_and_nan(direction: str) -> None:
    """-0 is before 0, and NaN after all numbers, as in torch.topk of experts' scores."""
    x = np.array([0, -0.0, 1, np.nan, -0.0, 0, np.inf, -2, -np.inf], np.float32)
    m = Build()
    how: Any = {
        "comparison_direction": f"{COMPARE}{direction}",
        "compare_type": "STABLEHLO_COMPARISON_TYPE_FLOAT_TOTAL_ORDER",
    }
    index = build_region(m, "STABLEHLO_COMPARE", "float32", "bool", **how)
    options: Any = {"dimension": 0, "comparator_subgraph_index": index, "is_stable": True}
    m.output(*m.op("STABLEHLO_SORT", [m.input([9])], [[9]], **options))
    ordered = np.array([-np.inf, -2, -0.0, -0.0, 0, 0, 1, np.inf, np.nan], np.float32)
    want = ordered if direction == "LT" else ordered[::-1].copy()
    model = check_reference(m, [x], [want]).model
    session = ort.InferenceSession(model.SerializeToString())
    (found,) = session.run(None, {model.graph.input[0].name: x})
    np.testing.assert_array_equal(np.signbit(found), np.signbit(want))


def build_order(m: Build, kinds: list[str], keys: int, direction: str) -> int:
    """Add the comparator of jax.lax.sort: zeros have no sign, NaN is last, then further keys."""
    region = m.subgraph("region")
    pairs = [[region.input([], dtype=kind) for _ in range(2)] for kind in kinds]

    def add(code: str, *operands: Any, dtype: str = "bool", how: str = "", total: str = "") -> Any:
        options: Any = {"comparison_direction": f"{COMPARE}{how}"} if how else {}
        if total:
            options["compare_type"] = f"STABLEHLO_COMPARISON_TYPE_{total}"
        made = region.tensor([], dtype=dtype)
        return region.op(f"STABLEHLO_{code}", list(operands), [made], **options)[0]

    def find_key(x: Any) -> Any:
        zero, nan = (region.constant(np.array(n, np.float32)) for n in (0, np.nan))
        plain = add("SELECT", add("COMPARE", x, zero, how="EQ"), zero, x, dtype="float32")
        return add("SELECT", add("COMPARE", x, x, how="NE"), nan, plain, dtype="float32")

    answer: Any = None
    for kind, pair in reversed([*zip(kinds, pairs, strict=True)][:keys]):
        a, b = [find_key(x) for x in pair] if kind == "float32" else pair
        total = "FLOAT_TOTAL_ORDER" if kind == "float32" else "SIGNED"
        first = add("COMPARE", a, b, how=direction, total=total)
        if answer is not None:
            both = add("AND", add("COMPARE", a, b, how="EQ"), answer)
            first = add("OR", first, both)
        answer = first
    region.output(answer)
    return region.index


@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize("keys", [1, 2, 3])
@pytest.mark.parametrize("kinds", [["float32", "int32", "int32"], ["int32", "float32", "int64"]])
def test_sorts_of_jax_equal_numpy(kinds: list[str], keys: int, direction: str) -> None:
    given = [random_numbers(kind, 3, 17, seed=i, low=-2, high=3) for i, kind in enumerate(kinds)]
    place = kinds.index("float32")
    given[place] = given[place].round()
    given[place][0, [1, 5, 9, 3]] = [np.nan, np.inf, -0.0, -np.inf]
    m = Build()
    index = build_order(m, kinds, keys, direction)
    inputs, outputs = (
        [add(x.shape, dtype=x.dtype.name) for x in given] for add in (m.input, m.tensor)
    )
    options: Any = {"dimension": 1, "comparator_subgraph_index": index}
    m.output(*m.op("STABLEHLO_SORT", inputs, outputs, is_stable=True, **options))
    columns = []
    for x in given[:keys]:
        sign = 1 if direction == "LT" else -1
        columns += [sign * np.isnan(x).astype(int), sign * np.nan_to_num(x, nan=0.0, posinf=9)]
    order = np.lexsort(columns[::-1], 1)
    check_reference(m, given, [np.take_along_axis(x, order, 1) for x in given], tolerance=0)


def build_best(m: Build) -> int:
    """Add the function of jax.numpy.argmax: the first of the largest elements, or the first NaN."""
    region = m.subgraph("region")
    kinds = ("float32", "int32") * 2
    a, i, b, k = (region.input([], dtype=kind) for kind in kinds)

    def add(code: str, *operands: Any, dtype: str = "bool", direction: str = "") -> Any:
        how: Any = {"comparison_direction": f"{COMPARE}{direction}"} if direction else {}
        made = region.tensor([], dtype=dtype)
        return region.op(f"STABLEHLO_{code}", list(operands), [made], **how)[0]

    is_better = add(
        "OR", add("COMPARE", a, b, direction="GT"), add("COMPARE", a, a, direction="NE")
    )
    is_first = add(
        "AND", add("COMPARE", a, b, direction="EQ"), add("COMPARE", i, k, direction="LT")
    )
    region.output(
        add("SELECT", is_better, a, b, dtype="float32"),
        add("SELECT", add("OR", is_better, is_first), i, k, dtype="int32"),
    )
    return region.index


@pytest.mark.parametrize("axis", [0, 1])
def test_largest_element_and_its_place_equal_numpy(axis: int) -> None:
    x = np.random.default_rng(0).integers(0, 9, (6, 11)).astype(np.float32)
    x[2, 3] = np.nan
    places = np.indices(x.shape)[axis].astype(np.int32)
    given = [x, places, np.array(-np.inf, np.float32), np.array(0, np.int32)]
    m = Build()
    index = build_best(m)
    inputs = [m.input(each.shape, dtype=each.dtype.name) for each in given]
    want = [x.max(axis), x.argmax(axis).astype(np.int32)]
    outputs = [m.tensor(each.shape, dtype=each.dtype.name) for each in want]
    options: Any = {"dimensions": [axis], "body_subgraph_index": index}
    m.output(*m.op("STABLEHLO_REDUCE", inputs, outputs, **options))
    check_reference(m, given, want, tolerance=0)


@pytest.mark.parametrize("dimensions", [[0], [2, 0], [0, 1, 2], []], ids=str)
def test_reductions_of_several_tensors_equal_numpy(dimensions: list[int]) -> None:
    """One function may sum a tensor, and take the minimum of another, which may be empty."""
    x, y = random_numbers("float32", 5, 3, 4), random_numbers("int32", 5, 3, 4)
    given = [x, y, np.array(2, np.float32), np.array(3, np.int32)]
    m = Build()
    region = m.subgraph("region")
    a, c, b, d = (region.input([], dtype=kind) for kind in ("float32", "int32") * 2)
    region.output(
        *region.op("STABLEHLO_ADD", [a, b], [[]]),
        *region.op("STABLEHLO_MINIMUM", [c, d], [region.tensor([], dtype="int32")]),
    )
    axes = tuple(dimensions)
    want: list[Any] = (
        [x.sum(axes) + 2, np.minimum(y.min(axes), 3)] if axes else [x + 2, y.clip(None, 3)]
    )
    inputs = [m.input(each.shape, dtype=each.dtype.name) for each in given]
    outputs = [m.tensor(each.shape, dtype=each.dtype.name) for each in want]
    options: Any = {"dimensions": dimensions, "body_subgraph_index": region.index}
    m.output(*m.op("STABLEHLO_REDUCE", inputs, outputs, **options))
    check_reference(m, given, want)


def test_loop_of_stablehlo() -> None:
    """STABLEHLO_WHILE doubles a number until it is at least 100."""
    m = Build()
    condition, body = m.subgraph("condition"), m.subgraph("body")
    limit = condition.constant(np.array(100, np.float32))
    less = condition.tensor([], dtype="bool")
    condition.output(*condition.op("LESS", [condition.input([]), limit], [less]))
    x = body.input([])
    body.output(*body.op("STABLEHLO_ADD", [x, x], [[]]))
    graphs: dict[str, Any] = {
        "cond_subgraph_index": condition.index,
        "body_subgraph_index": body.index,
    }
    m.output(*m.op("STABLEHLO_WHILE", [m.input([])], [[]], **graphs))
    check_reference(m, [np.array(3, np.float32)], [np.array(192, np.float32)])


@pytest.mark.parametrize("name", ["ABS", "SUBTRACT", "RESHAPE", "BROADCAST_IN_DIM", "SLICE"])
def test_batch_may_be_dynamic(name: str) -> None:
    """Files declare a size of 1 and a signature of -1."""
    options: dict[str, Any] = {
        "BROADCAST_IN_DIM": {"broadcast_dimensions": [0, 2]},
        "SLICE": {"start_indices": [0, 1], "limit_indices": [1, 5], "strides": [1, 2]},
    }.get(name, {})
    m = Build()
    operands = [m.input([None, 5]) for _ in range(2 if name == "SUBTRACT" else 1)]
    want = {
        "ABS": np.abs(X), "SUBTRACT": X - Y, "RESHAPE": X[:, None],
        "BROADCAST_IN_DIM": np.broadcast_to(X[:, None], (3, 2, 5)).copy(),
        "SLICE": X[:, 1:5:2].copy(),
    }[name]  # fmt: skip
    outputs = [m.tensor([None, *want.shape[1:]])]
    m.output(*m.op(f"STABLEHLO_{name}", operands, outputs, **options))
    check_reference(m, [X, Y][: len(operands)], [want])


def refusal_of(name: str, shapes: list[Any], result: Any, **options: Any) -> str:
    m = Build()
    m.output(*m.op(f"STABLEHLO_{name}", [m.input(s) for s in shapes], [result], **options))
    with pytest.raises(UnsupportedOperators) as caught:
        convert(m.bytes())
    return str(caught.value)


def test_other_forms_are_refused_with_their_reason() -> None:
    text = refusal_of("CUSTOM_CALL", [(2,)], (2,), call_target_name="mhlo.topk")
    assert "it calls mhlo.topk" in text
    text = refusal_of("COMPARE", [(2,), (2,)], (2,), comparison_direction=f"{COMPARE}LT",
                      compare_type="STABLEHLO_COMPARISON_TYPE_FLOAT_TOTAL_ORDER")  # fmt: skip
    assert "got TOTALORDER" in text
    text = refusal_of("REDUCE", [(2,), ()], (), dimensions=[0], body_subgraph_index=9)
    assert "inputs and outputs of its function must be 2 and 1" in text
    text = refusal_of("SORT", [(2,)], (2,), dimension=0)
    assert "inputs and outputs of its function must be 2 and 1" in text
    assert "must be 1 axes, got []" in refusal_of("BROADCAST_IN_DIM", [(2,)], (2, 2))
    assert "must have 2 start indices, got 1" in refusal_of(
        "DYNAMIC_SLICE", [(2, 2), ()], (1, 1), slice_sizes=[1, 1]
    )


def test_dynamic_axes_without_a_form_are_refused() -> None:
    """Sizes that the lowered operators would need as constants are named."""
    text = refusal_of("DYNAMIC_SLICE", [(None, 2), (), ()], (1, 1), slice_sizes=[1, 1])
    assert "its input must have a fixed shape, got [-1, 2]" in text
    text = refusal_of("BROADCAST_IN_DIM", [(2,)], (None, 2), broadcast_dimensions=[1])
    assert "a dynamic axis of its output must be an axis of its input" in text
    text = refusal_of("IOTA", [], (None, 2), iota_dimension=1)
    assert "its output must have a fixed shape, got [-1, 2]" in text
    m = Build()
    less: Any = {"comparison_direction": f"{COMPARE}LT"}
    order = build_region(m, "STABLEHLO_COMPARE", "float32", "bool", **less)
    how: Any = {"dimension": 0, "comparator_subgraph_index": order}
    m.output(*m.op("STABLEHLO_SORT", [m.input([None])], [m.tensor([None])], **how))
    with pytest.raises(
        UnsupportedOperators, match="axis 0, which it sorts, must have a fixed size"
    ):
        convert(m.bytes())


def test_other_functions_are_refused_with_their_reason() -> None:
    """A comparison that is no order; a function of a whole tensor."""
    cases: list[tuple[dict[str, Any], str]] = [
        ({"comparison_direction": f"{COMPARE}EQ"}, "must compare elements"),
    ]
    for options, reason in cases:
        m = Build()
        index = build_region(m, "STABLEHLO_COMPARE", "float32", "bool", **options)
        how: Any = {"dimension": 0, "comparator_subgraph_index": index}
        m.output(*m.op("STABLEHLO_SORT", [m.input([5])], [[5]], **how))
        with pytest.raises(UnsupportedOperators, match=reason):
            convert(m.bytes())
    # LiteRT's exporter loses the zero of PyTorch's comparator: a key is of both elements.
    m = Build()
    region = m.subgraph("region")
    a, b = (region.input([]) for _ in range(2))
    how = {"comparison_direction": f"{COMPARE}EQ"}
    (same,) = region.op("STABLEHLO_COMPARE", [b, a], [region.tensor([], dtype="bool")], **how)
    (key,) = region.op("STABLEHLO_SELECT", [same, a, b], [region.tensor([])])
    how = {"comparison_direction": f"{COMPARE}LT"}
    region.output(
        *region.op("STABLEHLO_COMPARE", [a, key], [region.tensor([], dtype="bool")], **how)
    )
    how = {"dimension": 0, "comparator_subgraph_index": region.index}
    m.output(*m.op("STABLEHLO_SORT", [m.input([5])], [[5]], **how))
    with pytest.raises(UnsupportedOperators, match="must compare elements, or a function of them"):
        convert(m.bytes())
    for code, dtype, reason in (
        ("FLOOR_MOD", "float32", "on its own, got FLOOR_MOD"),
        ("STABLEHLO_AND", "int32", "AND must reduce bools, got int32"),
    ):
        m = Build()
        how = {"dimensions": [0], "body_subgraph_index": build_region(m, code, dtype, dtype)}
        operands = [m.input(shape, dtype=dtype) for shape in ([5], [])]
        m.output(*m.op("STABLEHLO_REDUCE", operands, [m.tensor([], dtype=dtype)], **how))
        with pytest.raises(UnsupportedOperators, match=reason):
            convert(m.bytes())
