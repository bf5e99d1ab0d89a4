"""passes/expand_output_sigmoid.py: LOGISTIC at the end of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.support import Build, check, random_inputs, run_onnx
from tests.support.control import add_if
from tests.support.fusions import count_optimized_nodes
from tflite2onnx import convert

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support import Subgraph, Tensor
    from tflite2onnx.options import Forms

SHAPE = (3, 5)


def scores(m: Subgraph, x: Tensor) -> Tensor:
    return m.op("LOGISTIC", [x], [x.shape])[0]


def add_scores(m: Build, x: Tensor) -> Tensor:
    return scores(m, x)


def add_moved_scores(m: Build, x: Tensor) -> Tensor:
    permutation = m.constant(np.array([1, 0], np.int32))
    (turned,) = m.op("TRANSPOSE", [scores(m, x), permutation], [SHAPE[::-1]])
    return m.op("RESHAPE", [turned], [[1, 15]], new_shape=[1, 15])[0]


def add_branched_scores(m: Build, x: Tensor) -> Tensor:
    """Return scores that one branch returns, and the other branch does not."""
    given = scores(m, x)
    (most,) = m.op("REDUCE_MAX", [given, m.constant(np.array([0, 1], np.int32))], [[]])
    condition = m.op("LESS", [most, m.constant(np.float32(2))], [[]], dtype="bool")[0]
    return add_if(m, condition, [given], lambda _, xs: xs, lambda _, xs: xs)[0]


def add_hidden_scores(m: Build, x: Tensor) -> Tensor:
    return m.op("MUL", [scores(m, x), x], [x.shape])[0]


def add_joined_scores(m: Build, x: Tensor) -> Tensor:
    """Return scores that are concatenated with many other numbers."""
    many = m.input([500, 5], name="many")
    return m.op("CONCATENATION", [scores(m, x), many], [[503, 5]], axis=0)[0]


def build_network(
    network: Callable[[Build, Tensor], Tensor], shape: Sequence[int] = SHAPE
) -> bytes:
    m = Build()
    m.output(network(m, m.input(shape, name="x")))
    return m.bytes()


def sigmoids(data: bytes) -> int:
    return sum(n.op_type == "Sigmoid" for n in convert(data).model.graph.node)


@pytest.mark.parametrize("forms", ["fastest", "canonical"])
@pytest.mark.parametrize("network", [add_scores, add_moved_scores, add_branched_scores])
def test_small_scores_have_all_their_digits(
    network: Callable[[Build, Tensor], Tensor], forms: Forms
) -> None:
    """Small scores are exact, while ONNX Runtime's Sigmoid is wrong by 10 % and more at -15."""
    data = build_network(network)
    check(data)
    assert not sigmoids(data)
    for low, high in ((-6, 6), (-15, -8), (-80, -20), (100, 200)):
        (x,) = random_inputs(data, 3, x=(low, high))
        wanted = 1 / (1 + np.exp(-x.astype(np.float64)))
        (made,) = run_onnx(convert(data, forms=forms).model, {"x": x})
        if network is add_moved_scores:
            wanted = wanted.T.reshape(1, 15)
        np.testing.assert_allclose(made, wanted, rtol=1e-5)


@pytest.mark.parametrize("network", [add_hidden_scores, add_joined_scores])
def test_sigmoids_inside_the_network_are_one_node(
    network: Callable[[Build, Tensor], Tensor],
) -> None:
    assert sigmoids(build_network(network)) == 1


@pytest.mark.parametrize("shape", [(1, 17), (1, 31, 37, 1)])
def test_many_scores_are_one_node(shape: Sequence[int]) -> None:
    data = build_network(add_scores, shape)
    check(data)
    assert sigmoids(data) == 1


def test_dense_layer_and_sigmoid_run_as_two_nodes() -> None:
    """ONNX Runtime runs two nodes: the layer, which it fuses with Softplus, and Pow."""
    m = Build()
    weights = [m.constant(np.full(shape, 0.5, np.float32)) for shape in ((1, 8), (1,))]
    (y,) = m.op("FULLY_CONNECTED", [m.input((1, 8)), *weights], [(1, 1)])
    m.output(scores(m, y))
    check(m.bytes())
    assert count_optimized_nodes(convert(m.bytes()).model) == {"FusedGemm": 1, "Pow": 1}


def test_scores_of_any_batch_equal_litert() -> None:
    m = Build()
    x = m.input((1, 5), shape_signature=(-1, 5))
    m.output(scores(m, x))
    check(m.bytes(), inputs=[np.linspace(-9, 9, 35, dtype=np.float32).reshape(7, 5)])
