"""contrib/stablehlo/lower_stablehlo.py: LiteRT has no kernels, so numpy is the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.references import check_reference
from tests.references.flex import random_numbers
from tests.support import Build

UNARY: dict[str, Any] = {
    "ABS": np.abs, "COSINE": np.cos, "EXPONENTIAL": np.exp, "FLOOR": np.floor, "LOG": np.log,
    "LOGISTIC": lambda x: 1 / (1 + np.exp(-x)), "NEGATE": np.negative,
    "RSQRT": lambda x: 1 / np.sqrt(x), "TANH": np.tanh,
}  # fmt: skip
BINARY: dict[str, Any] = {
    "DIVIDE": np.divide, "POWER": np.power, "REMAINDER": np.fmod, "SUBTRACT": np.subtract,
}  # fmt: skip
X, Y = (random_numbers("float32", 3, 5, seed=i, low=1, high=4) for i in range(2))


def check_operator(name: str, inputs: list[Any], want: Any, **options: Any) -> None:
    m = Build()
    operands = [m.input(x.shape, dtype=x.dtype.name) for x in inputs]
    outputs = [m.tensor(want.shape, dtype=want.dtype.name)]
    m.output(*m.op(f"STABLEHLO_{name}", operands, outputs, **options))
    check_reference(m, inputs, [want])


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
