"""Networks as Keras writes them, with dynamic batch, height, width or time, against LiteRT.

`scripts/make_dynamic_models.py` makes the files.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.support.compare import difference, run_restored
from tests.support.keras import FEATURES, UNITS, Keras
from tests.support.runtimes import Array, reference, session
from tflite2onnx import Result, convert

MODELS = Path(__file__).parent / "models"
WORDS = 50  # of the transformer

# Three sizes of each dynamic axis, and one case in which all of them differ.
SIZES: dict[str, tuple[tuple[int, ...], ...]] = {
    "mobilenet": (
        (1, 32, 32, 3), (3, 32, 32, 3), (4, 32, 32, 3), (1, 17, 32, 3), (1, 64, 32, 3),
        (1, 32, 23, 3), (1, 32, 40, 3), (2, 19, 41, 3),
    ),
    "unet": (
        (1, 16, 16, 3), (2, 16, 16, 3), (5, 16, 16, 3), (1, 8, 16, 3), (1, 32, 16, 3),
        (1, 16, 12, 3), (1, 16, 20, 3), (3, 4, 28, 3),
    ),
    "vocoder": ((1, 9, 6), (2, 9, 6), (3, 9, 6), (1, 1, 6), (1, 30, 6), (2, 5, 6)),
    "lstm": ((1, 4, 5), (1, 9, 5), (1, 1, 5)),
    "transformer": ((1, 7), (2, 7), (5, 7), (1, 1), (1, 24), (3, 12)),
    "ssd": (
        (1, 32, 32, 3), (1, 21, 32, 3), (1, 48, 32, 3), (1, 32, 24, 3), (1, 32, 60, 3),
        (1, 40, 28, 3),
    ),
}  # fmt: skip


def draw_input(name: str, shape: Sequence[int]) -> Array:
    generator = np.random.default_rng(sum(shape))
    if name == "transformer":
        return generator.integers(0, WORDS, shape, np.int32)
    return generator.random(shape, np.float32)


def compare_sizes(data: bytes, result: Result, cases: Sequence[Sequence[Array]]) -> None:
    """Compare one conversion with LiteRT for inputs of different sizes."""
    for optimize in (True, False):
        live = session(result.model, optimize=optimize)
        for arrays in cases:
            (want,), _ = reference(data, [arrays])
            have = run_restored(result, live, arrays)
            for expected, actual in zip(want, have, strict=True):
                fault = difference(expected, actual)
                assert not fault, f"{[array.shape for array in arrays]}: {fault}"


@pytest.mark.parametrize("name", SIZES)
def test_networks_equal_litert_at_all_sizes(name: str, caplog: pytest.LogCaptureFixture) -> None:
    data, shapes = (MODELS / f"{name}.tflite").read_bytes(), SIZES[name]
    with caplog.at_level(logging.WARNING):
        result = convert(data)
    assert not caplog.records  # no axis is fixed
    (given,) = result.model.graph.input
    sizes = [dim.dim_value for dim in given.type.tensor_type.shape.dim]
    order = result.inputs[0].order
    assert [sizes[order.index(axis)] == 0 for axis in range(len(order))] == [
        len({*column}) > 1 for column in zip(*shapes, strict=True)
    ]
    compare_sizes(data, result, [[draw_input(name, shape)] for shape in shapes])


@pytest.mark.parametrize("cell", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_equal_litert_at_any_batch_and_time(cell: str) -> None:
    """The layers are loops, because LiteRT's converter has no LSTM with a dynamic batch."""
    form = Keras(cell, batch=None, dynamic=True)
    data, generator = form.model().bytes(), np.random.default_rng(0)
    cases = [
        [
            *(generator.random((batch, UNITS), np.float32) for _ in range(form.states)),
            generator.random((times, batch, FEATURES), np.float32),
        ]
        for batch, times in ((1, 4), (2, 4), (5, 4), (1, 1), (1, 9), (3, 6))
    ]
    compare_sizes(data, convert(data), cases)


def test_every_model_file_is_tested() -> None:
    assert {path.stem for path in MODELS.iterdir()} == SIZES.keys()
