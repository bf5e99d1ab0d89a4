"""moe, compared with LiteRT's default delegate, XNNPACK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.references import check_reference, draw_numbers
from tests.references.genai import run_litert
from tests.support import Build, difference, run_onnx
from tflite2onnx import convert, verify
from tflite2onnx.errors import ConversionError, OptionError
from tflite2onnx.verification.runtimes import FASTEST_KERNELS

if TYPE_CHECKING:
    from tests.support.runtimes import Array

CODE = "moe"
DEPTH, HIDDEN = 8, 12
# experts, experts for each token, tokens
ROUTES = [(4, 2, 3), (16, 3, 1), (7, 1, 2), (5, 5, 1)]
WEIGHTS = ["fp32", "int8", "int4", "packed"]


def experts(
    route: tuple[int, int, int], kind: str, rank: int = 3, m: Build | None = None, **changes: Any
) -> tuple[Build, list[Array]]:
    """Return a model of random experts, and inputs; the last number of an expert is negative."""
    m = m or Build()
    count, active, tokens = route
    generator = np.random.default_rng(count)
    shape = [*(1,) * (rank - 2), tokens, DEPTH]
    routing = [1, 1, tokens, active]
    operands = [m.input(shape), m.input(routing), m.input(routing, dtype="int32")]
    for rows, columns in ((HIDDEN, DEPTH), (HIDDEN, DEPTH), (DEPTH, HIDDEN)):
        sizes = (rows, count, 1, columns)
        if kind == "fp32":
            operands.append(m.constant(draw_numbers(*sizes, seed=rows)))
            continue
        most = 127 if kind == "int8" else 7
        numbers = generator.integers(-most - 1, most + 1, sizes).astype(np.int8)
        if kind == "packed":
            pairs = numbers.reshape(-1, 2)
            packed = ((pairs[:, 0] & 15) | (pairs[:, 1] << 4)).astype(np.int8)
            numbers = packed.reshape(rows, count, 1, columns // 2)
        groups = 1 if kind == "int8" else 2
        stored = "int4" if kind == "int4" else "int8"
        operands.append(m.constant(numbers, dtype=stored))
        factors = generator.uniform(0.01, 0.02, (rows, count, 1, groups))
        operands.append(m.constant(factors.astype(np.float32)))
    operands.append(m.constant(draw_numbers(1, 1, 1, count, seed=3)))
    options = {
        "num_experts": count,
        "num_active_experts": active,
        "model_dim": DEPTH,
        "hidden_dim": HIDDEN,
        "weight_type": "int4" if kind == "packed" else kind,
        **changes,
    }
    m.output(*m.custom(CODE, operands, [shape], options))
    chosen = [generator.permutation(count)[:active] for _ in range(tokens)]
    places = np.array(chosen, np.int32).reshape(routing)
    places[..., -1] -= count
    return m, [draw_numbers(*shape, low=-2, high=2), draw_numbers(*routing), places]


@pytest.mark.parametrize("route", ROUTES, ids=str)
@pytest.mark.parametrize("kind", WEIGHTS)
def test_experts_equal_litert_delegate(route: tuple[int, int, int], kind: str) -> None:
    m, inputs = experts(route, kind)
    check_reference(m, inputs, *run_litert(m.bytes(), inputs))


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
@pytest.mark.parametrize("rank", [2, 3, 4])
def test_activations_equal_litert_delegate(activation: str, rank: int) -> None:
    m, inputs = experts(ROUTES[0], "fp32", rank, activation=activation)
    check_reference(m, inputs, *run_litert(m.bytes(), inputs))


def test_verification_runs_the_default_delegate() -> None:
    """LiteRT's plain kernels lack the operator; the delegate keeps no tensors between operators."""
    report = verify(experts(ROUTES[0], "fp32")[0].bytes())
    assert report.ok
    assert report.kernels == FASTEST_KERNELS
    assert not report.tensors


def test_the_number_of_tokens_may_be_dynamic() -> None:
    shapes: dict[str, list[int | str]]
    shapes = {"tensor_0": [1, "n", 8], "tensor_1": [1, 1, "n", 2], "tensor_2": [1, 1, "n", 2]}
    result = convert(experts((4, 2, 3), "int8")[0].bytes(), shapes=shapes)
    m, inputs = experts((4, 2, 5), "int8")
    feeds = zip((end.name for end in result.inputs), inputs, strict=True)
    (have,) = run_onnx(result.model, dict(feeds))
    assert not difference(run_litert(m.bytes(), inputs)[0][0], have)


@pytest.mark.parametrize(
    ("name", "shape", "axis"), [("tensor_0", [1, 3, "n"], 2), ("tensor_1", [1, 1, 3, "n"], 3)]
)
def test_the_numbers_of_a_token_may_not_be_dynamic(
    name: str, shape: list[int | str], axis: int
) -> None:
    with pytest.raises(OptionError, match=f"needs the size of axis {axis} of {name}"):
        convert(experts((4, 2, 3), "int8")[0].bytes(), shapes={name: shape})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"weight_type": "int2"}, "its weight_type must be one of"),
        ({"activation": "silu"}, "got fp32 and silu"),
        ({"num_experts": 5}, "must be a constant of"),
        ({"num_active_experts": 9}, "9 of 4 experts"),
        ({"num_active_experts": 1}, "must have 1 numbers for each token"),
        ({"model_dim": 0}, "model_dim 0"),
        ({"hidden_dim": -12}, "hidden_dim -12"),
        ({"weight_type": "int8"}, "it must have 10 inputs, got 7"),
    ],
)
def test_experts_refuse_invalid_options(changes: dict[str, Any], reason: str) -> None:
    m, _ = experts(ROUTES[0], "fp32", **changes)
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    assert reason in str(error.value)
