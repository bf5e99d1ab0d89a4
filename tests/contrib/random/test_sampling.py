"""Random operators: only the distribution of the outputs is compared with LiteRT."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.support import Build, run_onnx, run_tflite
from tests.support.flex import flex_options
from tests.support.runtimes import run_session, session
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

Array = np.ndarray[Any, Any]


def run_both(m: Build, *inputs: Array) -> tuple[Array, Array]:
    """Return the outputs of LiteRT and of ONNX Runtime."""
    data = m.bytes()
    model = convert(data).model
    names = [port.name for port in model.graph.input]
    feeds = dict(zip(names, inputs, strict=True))
    (want,), (have,) = run_tflite(data, inputs), run_onnx(model, feeds)
    assert (want.shape, want.dtype) == (have.shape, have.dtype)
    return want, have


def build_random(code: str, shape: list[int], **seeds: Any) -> Build:
    m = Build()
    (y,) = m.op(code, [m.constant(np.array(shape, np.int32))], [shape], dtype="float32", **seeds)
    m.output(y)
    return m


@pytest.mark.parametrize("seeds", [{}, {"seed": 7}, {"seed": -3, "seed2": 1 << 40}])
@pytest.mark.parametrize("code", ["RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL"])
def test_distributions_agree_with_litert(code: str, seeds: dict[str, int]) -> None:
    """Quantiles agree with LiteRT's, and rows are not correlated."""
    want, have = run_both(build_random(code, [101, 997], **seeds))
    parts = np.linspace(0.05, 0.95, 23)
    np.testing.assert_allclose(np.quantile(have, parts), np.quantile(want, parts), atol=0.06)
    assert abs(np.corrcoef(have[:-1].ravel(), have[1:].ravel())[0, 1]) < 0.02
    if code == "RANDOM_UNIFORM":
        assert have.min() >= 0
        assert have.max() < 1


def test_equal_seeds_give_equal_outputs() -> None:
    """Equal seeds give equal outputs; each run continues the sequence."""
    m = build_random("RANDOM_UNIFORM", [101], seed=5)
    first, again = (session(convert(m.bytes()).model, optimize=True) for _ in range(2))
    (one,), (other,) = run_session(first, {}), run_session(first, {})
    assert np.array_equal(one, run_session(again, {})[0])
    assert not np.array_equal(one, other)


def test_empty_and_scalar_shapes_are_supported() -> None:
    for shape in ([0, 3], []):
        run_both(build_random("RANDOM_UNIFORM", shape, seed=1))


@pytest.mark.parametrize("name", ["RandomUniform", "RandomStandardNormal", "Multinomial"])
def test_flex_operators_draw_as_those_of_tflite(name: str) -> None:
    models = []
    for code in (f"Flex{name}", re.sub("(?<=[a-z])(?=[A-Z])", "_", name).upper()):
        m = Build()
        operands = [m.constant(np.array([7, 5], np.int32))]
        if name == "Multinomial":
            operands = [m.input([7, 3]), m.constant(np.int32(5))]
        made = [m.tensor([7, 5], dtype="int64" if name == "Multinomial" else "float32")]
        if code.startswith("Flex"):
            m.output(*m.custom(code, operands, made, flex_options(name, seed=3)))
        else:
            m.output(*m.op(code, operands, made, seed=3))
        models.append(convert(m.bytes()).model.graph)
    assert [n.op_type for n in models[0].node] == [n.op_type for n in models[1].node]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_multinomial_frequencies_agree_with_litert(dtype: str) -> None:
    logits = np.array([[0, 1, 2, -np.inf, 0.5], [9, 9, -5, 9, 9]], np.float32)
    m = Build()
    x, count = m.input(logits.shape), m.constant(np.int32(50021))
    (y,) = m.op("MULTINOMIAL", [x, count], [[2, 50021]], dtype=dtype, seed=3)
    m.output(y)
    want, have = run_both(m, logits)
    for row in range(2):
        one, other = (np.bincount(a[row], minlength=5) / 50021 for a in (want, have))
        np.testing.assert_allclose(other, one, atol=0.01)


def test_multinomial_of_0_samples_is_empty() -> None:
    m = Build()
    (y,) = m.op("MULTINOMIAL", [m.input([3, 5]), m.constant(np.int32(0))], [[3, 0]], dtype="int64")
    m.output(y)
    model = convert(m.bytes()).model  # LiteRT does not return empty outputs
    (made,) = run_onnx(model, {model.graph.input[0].name: np.zeros((3, 5), np.float32)})
    assert made.shape == (3, 0)
    assert made.dtype == np.int64


def test_shape_of_random_numbers_may_be_computed() -> None:
    m = Build()
    sizes = m.input([2], dtype="int32")
    m.output(*m.op("RANDOM_UNIFORM", [sizes], [m.tensor([None, None])], seed=1))
    _, have = run_both(m, np.array([101, 53], np.int32))
    assert abs(have.mean() - 0.5) < 0.05


def test_noise_has_the_dynamic_shape_of_an_input() -> None:
    """The output has the dynamic size of another input."""
    m = Build()
    x = m.input([None, 53])
    (sizes,) = m.op("SHAPE", [x], [[2]], dtype="int32", out_type="int32")
    (noise,) = m.op("RANDOM_STANDARD_NORMAL", [sizes], [m.tensor([None, 53])], seed=1)
    m.output(*m.op("ADD", [x, noise], [m.tensor([None, 53])]))
    _, have = run_both(m, np.zeros((101, 53), np.float32))
    assert abs(have.std() - 1) < 0.05


def test_number_of_samples_may_be_computed() -> None:
    logits = np.array([[0, 1, 2, -np.inf, 0.5], [9, 9, -5, 9, 9]], np.float32)
    m = Build()
    x, count = m.input(logits.shape), m.input([], dtype="int32")
    m.output(*m.op("MULTINOMIAL", [x, count], [m.tensor([2, None], dtype="int32")], seed=3))
    want, have = run_both(m, logits, np.array(50021, np.int32))
    for row in range(2):
        one, other = (np.bincount(a[row], minlength=5) / 50021 for a in (want, have))
        np.testing.assert_allclose(other, one, atol=0.01)


def test_random_operators_refuse_negative_sizes_and_wrong_types() -> None:
    m = Build()
    m.output(*m.op("RANDOM_UNIFORM", [m.constant([2, -3])], [[2, 3]], dtype="float32"))
    m.output(*m.op("RANDOM_UNIFORM", [m.constant([2, 3])], [[2, 3]], dtype="float64"))
    x = m.input([3, 5, 2])
    m.output(*m.op("MULTINOMIAL", [x, m.constant(np.int32(4))], [[3, 4]], dtype="int64"))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    reasons = str(error.value)
    assert "must be 2 non-negative sizes, got [2, -3]" in reasons
    assert "must be float32, got float64" in reasons
    assert "must be float32[rows, columns], got float32[3, 5, 2]" in reasons
