"""gated_delta_update and gdn_tril_inv. LiteRT's Python package has no kernels; numpy is used."""

from __future__ import annotations

import numpy as np
import pytest

from tests.references import check_reference, check_reference_runs, draw_numbers
from tests.support import Build
from tests.support.runtimes import Array
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

# batch, heads of queries, heads of values, tokens, depth, width
SIZES = [(1, 2, 2, 1, 4, 3), (2, 3, 3, 7, 4, 4), (1, 2, 6, 5, 3, 8), (3, 1, 2, 1, 2, 5)]
MATRICES = [(2, 2), (1, 5, 5), (2, 3, 4, 4), (1, 1)]


def update(q: Array, k: Array, v: Array, rate: Array, decay: Array, state: Array) -> list[Array]:
    """Return the outputs as ComputeGatedDeltaUpdateRecurrent of LiteRT computes them."""
    shares = v.shape[1] // q.shape[1]
    q, k = (np.repeat(x, shares, axis=1) for x in (q, k))
    rate, factor = np.maximum(rate, 0), np.exp(np.minimum(decay, 0))
    made = []
    for t in range(v.shape[2]):
        state = state * factor[:, :, t, None, None]
        kept = np.einsum("nhde,nhd->nhe", state, k[:, :, t])
        change = (v[:, :, t] - kept) * rate[:, :, t, None]
        state = state + k[:, :, t, :, None] * change[:, :, None]
        made.append(np.einsum("nhde,nhd->nhe", state, q[:, :, t]))
    return [np.stack(made, axis=2).astype(np.float32), state.astype(np.float32)]


def draw_operands(
    batch: int, groups: int, heads: int, tokens: int, depth: int, width: int
) -> list[Array]:
    """Return queries, keys, values, rates and logarithms of decays, some for padding, a state."""
    return [
        draw_numbers(batch, groups, tokens, depth),
        draw_numbers(batch, groups, tokens, depth, seed=1),
        draw_numbers(batch, heads, tokens, width, seed=2),
        draw_numbers(batch, heads, tokens, seed=3, low=-0.2),
        draw_numbers(batch, heads, tokens, seed=4, low=-2, high=0.4),
        draw_numbers(batch, heads, depth, width, seed=5),
    ]


def build_update(operands: list[Array], code: str = "gated_delta_update") -> Build:
    m = Build()
    inputs = [m.input(x.shape) for x in operands]
    m.output(*m.custom(code, inputs, [operands[2].shape, operands[5].shape], {"mode": 0}))
    return m


def invert(x: Array) -> list[Array]:
    """Return the outputs as ComputeTrilInv of LiteRT computes them."""
    made = x.astype(np.float64)
    for i in range(1, x.shape[-1]):
        row = made[..., i, :i].copy()
        below = np.tril(made[..., :i, :i], -1)
        made[..., i, :i] += (row[..., None, :] @ below)[..., 0, :]
    return [(made + np.eye(x.shape[-1])).astype(np.float32)]


@pytest.mark.parametrize("sizes", SIZES)
def test_tokens_update_the_state_one_after_the_other(sizes: tuple[int, ...]) -> None:
    operands = draw_operands(*sizes)
    result = check_reference(build_update(operands), operands, update(*operands))
    scans = [node for node in result.model.graph.node if node.op_type == "Scan"]
    assert len(scans) == int(sizes[3] > 1)


def test_transposes_of_tokens_before_heads_are_removed() -> None:
    """litert-torch computes [batch, tokens, heads, depth], and transposes around the operator."""
    batch, groups, heads, tokens, depth, width = 1, 2, 2, 5, 4, 3
    operands = draw_operands(batch, groups, heads, tokens, depth, width)
    m, perm = Build(), np.array([0, 2, 1, 3], np.int32)
    shapes = [(batch, tokens, *x.shape[1::2]) for x in operands[:3]]
    given = [m.input(shape) for shape in shapes] + [m.input(x.shape) for x in operands[3:]]
    turned = [
        m.op("TRANSPOSE", [x, m.constant(perm)], [y.shape])[0]
        for x, y in zip(given, operands, strict=False)
        if len(x.shape) == 4
    ][:3]
    output, state = m.custom(
        "gated_delta_update", [*turned, *given[3:]], [operands[2].shape, operands[5].shape]
    )
    (back,) = m.op("TRANSPOSE", [output, m.constant(perm)], [shapes[2]])
    m.output(back, state)
    want, after = update(*operands)
    fed = [x.transpose(0, 2, 1, 3) for x in operands[:3]] + operands[3:]
    result = check_reference(m, fed, [want.transpose(0, 2, 1, 3), after])
    # Only rates and decays, [batch, heads, tokens] in the file, are transposed.
    assert [node.op_type for node in result.model.graph.node].count("Transpose") <= 2


def test_batches_and_prompts_may_have_any_size() -> None:
    m, (groups, heads, depth, width) = Build(), (2, 4, 3, 5)
    tails = [(groups, None, depth)] * 2 + [(heads, None, width), (heads, None), (heads, None)]
    inputs = [m.input([None, *tail]) for tail in (*tails, (heads, depth, width))]
    made = [m.tensor([None, heads, None, width]), m.tensor([None, heads, depth, width])]
    m.output(*m.custom("gated_delta_update", inputs, made))
    runs = [draw_operands(n, groups, heads, t, depth, width) for n, t in ((1, 1), (2, 6), (3, 4))]
    check_reference_runs(m, [(operands, update(*operands)) for operands in runs])


@pytest.mark.parametrize("shape", MATRICES)
def test_rows_of_an_inverse_are_computed_one_after_the_other(shape: tuple[int, ...]) -> None:
    m, x = Build(), draw_numbers(*shape)
    m.output(*m.custom("gdn_tril_inv", [m.input(shape)], [shape]))
    check_reference(m, [x], invert(x))


def test_an_inverse_of_large_powers_is_exact() -> None:
    """All elements are -1: the powers of the matrix have elements of up to 1e18."""
    x = -np.tri(64, k=-1, dtype=np.float32)[None]
    m = Build()
    m.output(*m.custom("custom_call.gdn_tril_inv", [m.input(x.shape)], [x.shape]))
    check_reference(m, [x], [(np.eye(64) - np.eye(64, k=-1)).astype(np.float32)[None]])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({0: (1, 2, 5)}, "must be float32[batch, groups, tokens, depth], got float32[1, 2, 5]"),
        ({1: (1, 2, 4, 3)}, "must be float32[1, 2, 5, 3], got float32[1, 2, 4, 3]"),
        ({5: (1, 4, 3, 2)}, "must be float32[1, 4, 3, 8], got float32[1, 4, 3, 2]"),
        ({0: (1, 3, 5, 3), 1: (1, 3, 5, 3)}, "must be a multiple of the heads of queries, got 4"),
    ],
)
def test_update_refuses_shapes_that_contradict(
    change: dict[int, tuple[int, ...]], reason: str
) -> None:
    operands = draw_operands(1, 2, 4, 5, 3, 8)
    for i, shape in change.items():
        operands[i] = np.zeros(shape, np.float32)
    with pytest.raises(ConversionError) as error:
        convert(build_update(operands).bytes())
    assert reason in str(error.value)


def test_inverse_refuses_matrices_that_are_not_square() -> None:
    m = Build()
    m.output(*m.custom("gdn_tril_inv", [m.input((2, 3))], [(2, 3)]))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    assert "must be float32[2, 2], got float32[2, 3]" in str(error.value)
