"""flatten_packs.py: PACK and UNPACK without a node for each part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.passes.patterns.test_join_parts import pack, unpack
from tests.support import Build, Tensor, check
from tests.support.graph_text import check_pass, check_unchanged, read_graph
from tflite2onnx.targets.onnxruntime.forms.movement.flatten_packs import flatten_packs


def negate(m: Build, x: Tensor) -> Tensor:
    return m.op("NEG", [x], [[*x.shape]])[0]


def pack_negated(shape: list[int], axis: int, count: int = 3) -> bytes:
    m = Build()
    m.output(pack(m, [negate(m, m.input(shape)) for _ in range(count)], axis))
    return m.bytes()


def negate_unpacked(shape: list[int], axis: int) -> bytes:
    m = Build()
    m.output(*(negate(m, part) for part in unpack(m, m.input(shape), axis)))
    return m.bytes()


def test_pack_becomes_concatenation_and_reshape() -> None:
    before = """
        inputs %0: float32[2,4], %1: float32[2,4]
        %2: float32[2,4] = NEG(%0)
        %3: float32[2,4] = NEG(%1)
        %4: float32[2,2,4] = PACK(%2, %3, axis=1)
        return %4
    """
    after = """
        inputs %0: float32[2,4], %1: float32[2,4]
        %2: float32[2,4] = NEG(%0)
        %3: float32[2,4] = NEG(%1)
        %4: float32[2,8] = CONCATENATION(%2, %3, axis=1)
        %5: float32[2,2,4] = RESHAPE(%4)
        return %5
    """
    graph = read_graph(pack_negated([2, 4], 1, 2))
    check_pass(flatten_packs, graph, before, after, "axis")


def test_unpack_becomes_reshape_and_split() -> None:
    before = """
        inputs %0: float32[2,2,4]
        %1: float32[2,4], %2: float32[2,4] = UNPACK(%0, axis=1)
        %3: float32[2,4] = NEG(%1)
        %4: float32[2,4] = NEG(%2)
        return %3, %4
    """
    after = """
        inputs %0: float32[2,2,4]
        %1: float32[2,8] = RESHAPE(%0)
        %2: float32[2,4], %3: float32[2,4] = SPLIT(1, %1, axis=1)
        %4: float32[2,4] = NEG(%2)
        %5: float32[2,4] = NEG(%3)
        return %4, %5
    """
    graph = read_graph(negate_unpacked([2, 2, 4], 1))
    check_pass(flatten_packs, graph, before, after, "axis")


@pytest.mark.parametrize(("shape", "axis"), [([4], 0), ([2, 4], 0), ([2, 3, 4], 1)], ids=str)
def test_flattened_packs_equal_litert(shape: list[int], axis: int) -> None:
    kinds = [node.op_type for node in check(pack_negated(shape, axis)).model.graph.node]
    assert kinds == ["Neg"] * 3 + ["Concat", "Reshape"]
    data = negate_unpacked([*shape[:axis], 3, *shape[axis:]], axis)
    kinds = [node.op_type for node in check(data).model.graph.node]
    assert kinds == ["Reshape", "Split"] + ["Neg"] * 3


def between_reshapes() -> bytes:
    m = Build()
    inputs = [m.input([1, 2, 4]) for _ in range(2)]
    parts = [m.op("RESHAPE", [x], [[2, 4]], new_shape=[2, 4])[0] for x in inputs]
    m.output(pack(m, parts))
    return m.bytes()


def open_batch() -> bytes:
    m = Build()
    parts = [m.input([1, 4], shape_signature=[-1, 4]) for _ in range(2)]
    m.output(pack(m, [negate(m, part) for part in parts]))
    return m.bytes()


def with_constant() -> bytes:
    m = Build()
    m.output(pack(m, [m.input([2, 4]), m.constant(np.ones((2, 4), np.float32))]))
    return m.bytes()


def with_other_scale() -> bytes:
    m = Build()
    parts = [m.input([2, 4], dtype="int8", scale=scale) for scale in (0.5, 0.25)]
    m.output(pack(m, parts, dtype="int8", scale=0.5))
    return m.bytes()


@pytest.mark.parametrize(
    "data",
    [
        pack_negated([2, 4], 2),
        pack_negated([2, 4], 1, 1),
        pack_negated([2, 3, 4, 2], 1),
        pack_negated([], 0),
        negate_unpacked([2, 4], 1),
        between_reshapes(),
        with_constant(),
        with_other_scale(),
    ],
    ids=["last", "one", "axes", "scalars", "unpack", "reshapes", "constant", "scales"],
)
def test_packs_that_save_no_nodes_stay(data: bytes) -> None:
    graph = read_graph(data)
    check_unchanged(flatten_packs, graph)


def test_pack_of_dynamic_batch_equals_litert() -> None:
    result: Any = check(open_batch())
    assert [node.op_type for node in result.model.graph.node][-1] == "Concat"
    assert result.model.graph.input[0].type.tensor_type.shape.dim[0].dim_param
