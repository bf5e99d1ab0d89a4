"""Functions that ONNX Runtime computes slowly are spelled out; see spell_out.py."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support import check
from tests.support.graph_text import assert_rewritten, check_unchanged, make_model, parse_graph
from tflite2onnx.targets.onnxruntime.forms.functions.spell_out import spell_out

LRN = "LOCAL_RESPONSE_NORMALIZATION"


def spell(call: str, shape: str) -> str:
    return f"""
        inputs x: float32[{shape}]
        y: float32[{shape}] = {call}
        return y
    """


def test_elu_becomes_minimum_exp_and_maximum() -> None:
    after = """
        inputs x: float32[2,512]
        a: float32[2,512] = MINIMUM(x, 0.0)
        b: float32[2,512] = EXP(a)
        c: float32[2,512] = SUB(b, 1.0)
        y: float32[2,512] = MAXIMUM(x, c)
        return y
    """
    assert_rewritten(spell_out, spell("ELU(x)", "2,512"), after)


def spell_sigmoid(shape: str, one: float = 1) -> str:
    return f"""
        inputs x: float32[{shape}]
        a: float32[{shape}] = EXP(x)
        b: float32[{shape}] = ADD(a, {one:.1f})
        y: float32[{shape}] = DIV(1.0, b)
        return y
    """


def test_sigmoid_becomes_softplus_and_power() -> None:
    after = f"""
        inputs x: float32[n,16]
        a: float32[n,16] = FlexSoftplus(x)
        y: float32[n,16] = POW({float(np.float32(np.exp(-1)))}, a)
        return y
    """
    assert_rewritten(spell_out, spell_sigmoid("n,16"), after)
    for other in (spell_sigmoid("1,64"), spell_sigmoid("1,16", 2)):
        check_unchanged(spell_out, parse_graph(other))


@pytest.mark.parametrize(
    ("beta", "power"),
    [
        (0.5, "d: float32[1,2,3,4] = SQRT(s)"),
        (0.75, "r: float32[1,2,3,4] = SQRT(s); m: float32[1,2,3,4] = MUL(s, r); d: T = SQRT(m)"),
        (0.6, "d: float32[1,2,3,4] = POW(s, 0.6)"),
    ],
)  # fmt: skip
def test_local_normalization_becomes_a_convolution(beta: float, power: str) -> None:
    near = ("[[[1.0, 1.0, 0.0, 0.0]]], [[[1.0, 1.0, 1.0, 0.0]]], [[[0.0, 1.0, 1.0, 1.0]]],"
            "[[[0.0, 0.0, 1.0, 1.0]]]")  # fmt: skip
    lines = [
        "inputs x: float32[1,2,3,4]",
        "q: float32[1,2,3,4] = MUL(x, x)",
        f"s: float32[1,2,3,4] = CONV_2D(q, [{near}], [2.0, 2.0, 2.0, 2.0])",
        *power.replace("T =", "float32[1,2,3,4] =").split("; "),
        "y: float32[1,2,3,4] = DIV(x, d)",
        "return y",
    ]
    before = spell(f"{LRN}(x, radius=1, bias=2.0, alpha=1.0, beta={beta})", "1,2,3,4")
    assert_rewritten(spell_out, before, "\n".join(lines))


@pytest.mark.parametrize("shape", ["1,8,9,16", "1,8,9,5"])
@pytest.mark.parametrize(
    "call",
    [
        "ELU(x)",
        *(f"{LRN}(x, radius=2, bias=1.0, alpha=0.3, beta={beta})" for beta in (0.5, 0.75, 0.6)),
        f"{LRN}(x, radius=9, bias=0.5, alpha=1.5, beta=0.75)",
    ],
)
def test_spelled_out_functions_equal_litert(call: str, shape: str) -> None:
    check(make_model(spell(call, shape)), tolerance=1e-5)


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        ("ELU(x)", "2,300"),
        ("ELU(x)", "n,511"),
        (f"{LRN}(x, radius=2, bias=1.0, alpha=0.3, beta=1.0)", "1,8,9,16"),
        (f"{LRN}(x, radius=2, bias=1.0, alpha=0.3, beta=0.0)", "1,8,9,16"),
        (f"{LRN}(x, radius=2, bias=1.0, alpha=0.3, beta=0.5)", "1,2,1,513"),
        (f"{LRN}(x, radius=2, bias=1.0, alpha=0.3, beta=0.5)", "1,2,1,c"),
    ],
)
def test_functions_that_gain_no_time_stay(call: str, shape: str) -> None:
    check_unchanged(spell_out, parse_graph(spell(call, shape)))
