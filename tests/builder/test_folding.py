"""builder/folding.py: constants in place of nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from tflite2onnx.builder import folding
from tflite2onnx.builder.builder import Builder, Value
from tflite2onnx.tensor import Array, DType

OPSET = 18
A, B = np.array([[-7, 5, 0], [9, -2, 4]]), np.array([3, -2, 5])
YES = np.array([True, False, True])
CASES: list[tuple[str, list[Array], dict[str, Any]]] = [
    *((name, [A, B], {}) for name in ("Add", "Div", "Equal", "Greater", "Less", "Mul", "Sub")),
    *((name, [A, B], {}) for name in ("GreaterOrEqual", "Max", "Min", "Mod")),
    ("And", [YES, ~YES], {}),
    ("Neg", [A], {}),
    ("Where", [YES, A, B], {}),
    ("Concat", [A, A], {"axis": 1}),
    ("Gather", [A, np.array(-1)], {"axis": 1}),
    ("Gather", [A, np.array([1, 0])], {}),
    ("Pad", [A, np.array([0, 1, 2, 0]), np.array(8)], {}),
    ("ReduceMin", [A, np.array([1])], {"keepdims": 1}),
    ("ReduceProd", [A, np.array([1])], {"keepdims": 0}),
    ("ReduceSum", [A], {"keepdims": 0}),
    ("ReduceSum", [np.zeros(0, np.int64), np.array([0])], {"keepdims": 1}),
    ("Reshape", [A, np.array([3, -1])], {}),
    ("Reshape", [np.zeros((0, 2), np.int64), np.array([2, 0])], {"allowzero": 1}),
    ("Slice", [A, np.array([1]), np.array([9])], {}),
    ("Slice", [A, np.array([-2]), np.array([1 << 40]), np.array([-1])], {}),
    ("Slice", [A, np.array([2]), np.array([-9]), np.array([1]), np.array([-2])], {}),
    ("Squeeze", [A[:1], np.array([0])], {}),
    ("Transpose", [A], {"perm": [1, 0]}),
    ("Unsqueeze", [A, np.array([0, -1])], {}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_constants_are_those_of_onnx_runtime(case: tuple[str, list[Array], dict[str, Any]]) -> None:
    op_type, inputs, attributes = case
    names = [f"x{i}" for i in range(len(inputs))]
    entries = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in zip(names, inputs, strict=True)
    ]
    folded = folding.fold_node(op_type, inputs, attributes)
    assert folded is not None
    kind = helper.np_dtype_to_tensor_dtype(folded.dtype)
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"], **attributes)],
        "graph",
        entries,
        [helper.make_tensor_value_info("y", kind, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (expected,) = session.run(None, dict(zip(names, inputs, strict=True)))
    np.testing.assert_array_equal(folded, expected, strict=True)


def test_each_function_has_a_case() -> None:
    tables = folding._FUNCTIONS.keys() | folding._ELEMENTWISE.keys()  # noqa: SLF001 - the tables
    assert tables == {op_type for op_type, *_ in CASES}


def test_other_nodes_are_added() -> None:
    """Floats, large constants and results, and quotients by 0 are left to nodes."""
    large, zero = np.zeros(folding._MOST + 1, np.int64), np.zeros(1, np.int64)  # noqa: SLF001
    column, row = np.zeros((99, 1), np.int64), np.zeros((1, 9), np.int64)
    assert folding.fold_node("Add", [A.astype(np.float32), A.astype(np.float32)], {}) is None
    assert folding.fold_node("Neg", [large], {}) is None
    assert folding.fold_node("Add", [column, B], {}) is None
    assert folding.fold_node("Gather", [row, np.zeros(99, np.int64)], {}) is None
    assert folding.fold_node("Div", [B, zero], {}) is None
    assert folding.fold_node("Add", [A, None], {}) is None
    g = Builder(OPSET)
    g.Add(Value(dtype=DType.INT64), g.ints([1]))
    assert [node.op_type for node in g.nodes] == ["Add"]


def test_known_sizes_are_constants() -> None:
    g = Builder(OPSET)
    known, dynamic = (g.annotate(Value(), DType.FLOAT32, shape) for shape in ((2, 3), ("batch", 3)))
    assert g.Add(g.Shape(known), g.ints([1])).data.tolist() == [3, 4]  # type: ignore[union-attr]
    assert not g.nodes
    assert g.Shape(dynamic).data is None
